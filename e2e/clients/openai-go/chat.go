package main

import (
	"context"
	"encoding/json"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

// chat is the script for Chat Completions.
type chat struct {
	client openai.Client
	cases  matrix.Cases
}

func (c chat) script() matrix.Script {
	return matrix.Script{
		"text": c.text, "stream": c.stream, "tools": c.tools, "structured": c.structured,
		"reasoning": c.reasoning, "usage": c.usage, "errors": c.errors, "state": c.state,
	}
}

func (c chat) request(messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: c.cases.Model, Messages: messages}
}

// ask returns the message of a reply.
func (c chat) ask(ctx context.Context, p openai.ChatCompletionNewParams) (openai.ChatCompletionMessage, error) {
	reply, err := c.client.Chat.Completions.New(ctx, p)
	if err != nil {
		return openai.ChatCompletionMessage{}, err
	}
	return reply.Choices[0].Message, nil
}

func (c chat) text(ctx context.Context) (matrix.Seen, error) {
	m, err := c.ask(ctx, c.request(openai.UserMessage(c.cases.Text.Prompt)))
	return matrix.Seen{"text": m.Content}, err
}

func (c chat) stream(ctx context.Context) (matrix.Seen, error) {
	stream := c.client.Chat.Completions.NewStreaming(ctx, c.request(openai.UserMessage(c.cases.Stream.Prompt)))
	var all openai.ChatCompletionAccumulator
	pieces := 0
	for stream.Next() {
		chunk := stream.Current()
		all.AddChunk(chunk)
		// The first chunk has the role alone, and the reasoning has chunks of its own.
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			pieces++
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return matrix.Seen{"text": all.Choices[0].Message.Content, "pieces": pieces}, nil
}

func (c chat) tools(ctx context.Context) (matrix.Seen, error) {
	p := c.request(openai.UserMessage(c.cases.Tools.Prompt))
	// The type of a tool has changed with version 2 of the SDK.
	offer(&p, shared.FunctionDefinitionParam{Name: "get_weather", Parameters: matrix.Place()})
	m, err := c.ask(ctx, p)
	if err != nil {
		return nil, err
	}

	call := m.ToolCalls[0]
	city, err := matrix.CityOf(call.Function.Arguments)
	if err != nil {
		return nil, err
	}

	p.Messages = append(p.Messages, m.ToParam(), openai.ToolMessage(c.cases.Tools.Result, call.ID))
	m, err = c.ask(ctx, p)
	return matrix.Seen{"city": city, "text": m.Content}, err
}

func (c chat) structured(ctx context.Context) (matrix.Seen, error) {
	p := c.request(openai.UserMessage(c.cases.Structured.Prompt))
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "weather", Schema: c.cases.Weather(), Strict: openai.Bool(true),
		},
	}
	m, err := c.ask(ctx, p)
	return matrix.Seen{"value": json.RawMessage(m.Content)}, err
}

func (c chat) reasoning(ctx context.Context) (matrix.Seen, error) {
	// The SDK has no field for the reasoning.
	m, err := c.ask(ctx, c.request(openai.UserMessage(c.cases.Reasoning.Prompt)))
	return matrix.Seen{"reasoning": gjson.Get(m.RawJSON(), "reasoning").Str, "text": m.Content}, err
}

func (c chat) usage(ctx context.Context) (matrix.Seen, error) {
	reply, err := c.client.Chat.Completions.New(ctx, c.request(openai.UserMessage(c.cases.Usage.Prompt)))
	if err != nil {
		return nil, err
	}
	return matrix.Seen{"input": reply.Usage.PromptTokens, "output": reply.Usage.CompletionTokens}, nil
}

func (c chat) errors(ctx context.Context) (matrix.Seen, error) {
	return c.cases.Faults(func(f matrix.Fault) error {
		p := c.request(openai.UserMessage(f.Prompt))
		p.Model = f.Model
		if !f.Stream {
			_, err := c.ask(ctx, p)
			return err
		}
		stream := c.client.Chat.Completions.NewStreaming(ctx, p)
		for stream.Next() {
		}
		return stream.Err()
	}, kind), nil
}

func (c chat) state(ctx context.Context) (matrix.Seen, error) {
	p := c.request(openai.UserMessage(c.cases.State.First))
	m, err := c.ask(ctx, p)
	if err != nil {
		return nil, err
	}
	p.Messages = append(p.Messages, m.ToParam(), openai.UserMessage(c.cases.State.Second))
	m, err = c.ask(ctx, p)
	return matrix.Seen{"history": m.Content}, err
}
