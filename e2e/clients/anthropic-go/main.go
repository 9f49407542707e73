// Command anthropic-go is the script of anthropic-sdk-go in the client matrix.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

func main() {
	// Without the SDK's own retries each fault is one request.
	client := anthropic.NewClient(option.WithMaxRetries(0), option.WithBaseURL(os.Getenv("ANTHROPIC_BASE_URL")))
	matrix.Main(func(_ string, cases matrix.Cases) matrix.Script { return messages{client, cases}.script() })
}

// messages is the script for Messages.
type messages struct {
	client anthropic.Client
	cases  matrix.Cases
}

func (m messages) script() matrix.Script {
	return matrix.Script{
		"text": m.text, "stream": m.stream, "tools": m.tools, "structured": m.structured,
		"reasoning": m.reasoning, "usage": m.usage, "errors": m.errors, "state": m.state,
	}
}

func (m messages) request(turns ...anthropic.MessageParam) anthropic.MessageNewParams {
	// The API requires max_tokens, and more than the budget of the thinking.
	return anthropic.MessageNewParams{Model: modelOf(m.cases.Model), MaxTokens: 2000, Messages: turns}
}

func user(text string) anthropic.MessageParam {
	return anthropic.NewUserMessage(anthropic.NewTextBlock(text))
}

// textOf joins the texts of a message.
func textOf(m *anthropic.Message) string {
	var text strings.Builder
	for _, block := range m.Content {
		text.WriteString(block.Text)
	}
	return text.String()
}

func (m messages) ask(ctx context.Context, p anthropic.MessageNewParams) (string, error) {
	reply, err := m.client.Messages.New(ctx, p)
	if err != nil {
		return "", err
	}
	return textOf(reply), nil
}

// streamed returns a message that arrives in pieces of text.
func (m messages) streamed(ctx context.Context, p anthropic.MessageNewParams) (*anthropic.Message, int, error) {
	stream := m.client.Messages.NewStreaming(ctx, p)
	var all anthropic.Message
	pieces := 0
	for stream.Next() {
		event := stream.Current()
		if err := all.Accumulate(event); err != nil {
			return nil, 0, err
		}

		// Thinking and arguments of calls have deltas of their own.
		if event.Type == "content_block_delta" && event.Delta.Type == "text_delta" {
			pieces++
		}
	}
	return &all, pieces, stream.Err()
}

func (m messages) text(ctx context.Context) (matrix.Seen, error) {
	// The list has to have Anthropic's form, as the SDK asks for it with its own header.
	known, err := m.client.Models.List(ctx, anthropic.ModelListParams{})
	if err != nil {
		return nil, err
	}
	if !gjson.Get(known.RawJSON(), `data.#(id=="`+m.cases.Model+`")`).Exists() {
		return nil, fmt.Errorf("the list of models has no %s: %s", m.cases.Model, known.RawJSON())
	}
	text, err := m.ask(ctx, m.request(user(m.cases.Text.Prompt)))
	return matrix.Seen{"text": text}, err
}

func (m messages) stream(ctx context.Context) (matrix.Seen, error) {
	all, pieces, err := m.streamed(ctx, m.request(user(m.cases.Stream.Prompt)))
	if err != nil {
		return nil, err
	}
	return matrix.Seen{"text": textOf(all), "pieces": pieces}, nil
}

// tool returns a tool with a schema.
func tool(name string, schema map[string]any) anthropic.ToolUnionParam {
	required := map[string]any{"required": schema["required"]}
	return anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{
		Properties: schema["properties"], ExtraFields: required,
	}, name)
}

// calls returns the first call of a message.
func calls(reply *anthropic.Message) (anthropic.ContentBlockUnion, error) {
	for _, block := range reply.Content {
		if block.Type == "tool_use" {
			return block, nil
		}
	}
	return anthropic.ContentBlockUnion{}, errors.New("the message has no call: " + reply.RawJSON())
}

func (m messages) tools(ctx context.Context) (matrix.Seen, error) {
	p := m.request(user(m.cases.Tools.Prompt))
	p.Thinking = thinking()
	p.Tools = []anthropic.ToolUnionParam{tool("get_weather", matrix.Place())}
	reply, err := m.client.Messages.New(ctx, p)
	if err != nil {
		return nil, err
	}
	call, err := calls(reply)
	if err != nil {
		return nil, err
	}
	city, err := matrix.CityOf(string(call.Input))
	if err != nil {
		return nil, err
	}

	p.Messages = append(p.Messages, reply.ToParam(),
		anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, m.cases.Tools.Result, false)))
	text, err := m.ask(ctx, p)
	return matrix.Seen{"city": city, "text": text}, err
}

func (m messages) reasoning(ctx context.Context) (matrix.Seen, error) {
	p := m.request(user(m.cases.Reasoning.Prompt))
	p.Thinking = thinking()
	reply, err := m.client.Messages.New(ctx, p)
	if err != nil {
		return nil, err
	}

	// A client sends the thinking back with its signature, and could not without.
	if reply.Content[0].Signature == "" {
		return nil, errors.New("the thinking has no signature")
	}
	return matrix.Seen{"reasoning": reply.Content[0].Thinking, "text": textOf(reply)}, nil
}

func (m messages) usage(ctx context.Context) (matrix.Seen, error) {
	all, _, err := m.streamed(ctx, m.request(user(m.cases.Usage.Prompt)))
	if err != nil {
		return nil, err
	}

	// Anthropic counts cached tokens apart, OpenAI within the others.
	input := all.Usage.InputTokens + all.Usage.CacheReadInputTokens + all.Usage.CacheCreationInputTokens

	counted, err := m.client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{
		Model: modelOf(m.cases.Model), Messages: []anthropic.MessageParam{user(m.cases.Usage.Prompt)},
	})
	switch {
	case err != nil:
		return nil, err
	case counted.InputTokens != input:
		return nil, fmt.Errorf("%d tokens are counted, and %d used", counted.InputTokens, input)
	}
	return matrix.Seen{"input": input, "output": all.Usage.OutputTokens}, nil
}

func (m messages) errors(ctx context.Context) (matrix.Seen, error) {
	return m.cases.Faults(func(f matrix.Fault) error {
		p := m.request(user(f.Prompt))
		p.Model, p.MaxTokens = modelOf(f.Model), 500
		if f.Stream {
			_, _, err := m.streamed(ctx, p)
			return err
		}
		_, err := m.ask(ctx, p)
		return err
	}, kind), nil
}

// kind names the type of an error and returns its message. Errors in a stream have no
// type of the SDK.
func kind(err error) (name, message string) {
	var api *anthropic.Error
	if errors.As(err, &api) {
		return "anthropic.Error " + strconv.Itoa(api.StatusCode), gjson.Get(api.RawJSON(), "error.message").Str
	}
	return "stream error", err.Error()
}

func (m messages) state(ctx context.Context) (matrix.Seen, error) {
	p := m.request(user(m.cases.State.First))
	reply, err := m.client.Messages.New(ctx, p)
	if err != nil {
		return nil, err
	}
	p.Messages = append(p.Messages, reply.ToParam(), user(m.cases.State.Second))
	text, err := m.ask(ctx, p)
	return matrix.Seen{"history": text}, err
}

// valueOf returns a structured output as it was written.
func valueOf(text string) matrix.Seen { return matrix.Seen{"value": json.RawMessage(text)} }
