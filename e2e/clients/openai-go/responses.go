package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

// response is the script for Responses.
type response struct {
	client openai.Client
	cases  matrix.Cases
}

func (c response) script() matrix.Script {
	return matrix.Script{
		"text": c.text, "stream": c.stream, "tools": c.tools, "structured": c.structured,
		"reasoning": c.reasoning, "usage": c.usage, "errors": c.errors, "state": c.state,
	}
}

func (c response) request(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: c.cases.Model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
	}
}

// ask returns the text of a response.
func (c response) ask(ctx context.Context, p responses.ResponseNewParams) (string, error) {
	r, err := c.client.Responses.New(ctx, p)
	if err != nil {
		return "", err
	}
	return r.OutputText(), nil
}

func (c response) text(ctx context.Context) (matrix.Seen, error) {
	text, err := c.ask(ctx, c.request(c.cases.Text.Prompt))
	return matrix.Seen{"text": text}, err
}

func (c response) stream(ctx context.Context) (matrix.Seen, error) {
	stream := c.client.Responses.NewStreaming(ctx, c.request(c.cases.Stream.Prompt))
	var text strings.Builder
	pieces := 0
	for stream.Next() {
		if e := stream.Current(); e.Type == "response.output_text.delta" {
			text.WriteString(e.AsResponseOutputTextDelta().Delta)
			pieces++
		}
	}
	return matrix.Seen{"text": text.String(), "pieces": pieces}, stream.Err()
}

// continued returns the input of a turn with the output of its response and one more
// item.
func continued(text string, r *responses.Response,
	next responses.ResponseInputItemUnionParam,
) responses.ResponseNewParamsInputUnion {
	items := []responses.ResponseInputItemUnionParam{
		responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser),
	}
	for _, o := range r.Output {
		// As it was received, with members that the SDK's types do not have.
		items = append(items, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(o.RawJSON())))
	}
	return responses.ResponseNewParamsInputUnion{OfInputItemList: append(items, next)}
}

func (c response) tools(ctx context.Context) (matrix.Seen, error) {
	p := c.request(c.cases.Tools.Prompt)
	// The history is sent whole, so that nothing of it can come from the store.
	p.Store = openai.Bool(false)
	p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("get_weather", matrix.Place(), true)}
	r, err := c.client.Responses.New(ctx, p)
	if err != nil {
		return nil, err
	}

	// Reasoning comes before the call.
	call := r.Output[len(r.Output)-1]
	city, err := matrix.CityOf(call.AsFunctionCall().Arguments)
	if err != nil {
		return nil, err
	}

	// As JSON: the SDK's function for it has had other parameters in other versions.
	output, err := json.Marshal(map[string]string{
		"type": "function_call_output", "call_id": call.CallID, "output": c.cases.Tools.Result,
	})
	if err != nil {
		return nil, err
	}
	p.Input = continued(c.cases.Tools.Prompt, r,
		param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(output)))
	text, err := c.ask(ctx, p)
	return matrix.Seen{"city": city, "text": text}, err
}

func (c response) structured(ctx context.Context) (matrix.Seen, error) {
	p := c.request(c.cases.Structured.Prompt)
	p.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema("weather", c.cases.Weather())
	text, err := c.ask(ctx, p)
	return matrix.Seen{"value": json.RawMessage(text)}, err
}

func (c response) reasoning(ctx context.Context) (matrix.Seen, error) {
	p := c.request(c.cases.Reasoning.Prompt)
	p.Reasoning = shared.ReasoningParam{Summary: shared.ReasoningSummaryAuto}
	r, err := c.client.Responses.New(ctx, p)
	if err != nil {
		return nil, err
	}
	return matrix.Seen{"reasoning": r.Output[0].AsReasoning().Summary[0].Text, "text": r.OutputText()}, nil
}

func (c response) usage(ctx context.Context) (matrix.Seen, error) {
	r, err := c.client.Responses.New(ctx, c.request(c.cases.Usage.Prompt))
	if err != nil {
		return nil, err
	}
	return matrix.Seen{"input": r.Usage.InputTokens, "output": r.Usage.OutputTokens}, nil
}

func (c response) errors(ctx context.Context) (matrix.Seen, error) {
	return c.cases.Faults(func(f matrix.Fault) error {
		p := c.request(f.Prompt)
		p.Model = f.Model
		if !f.Stream {
			_, err := c.ask(ctx, p)
			return err
		}
		stream := c.client.Responses.NewStreaming(ctx, p)
		var failed error
		for stream.Next() {
			// The SDK makes no error of this event.
			if e := stream.Current(); e.Type == "response.failed" {
				failed = failedEvent{e.Type, e.Response.Error.Message}
			}
		}
		if err := stream.Err(); err != nil {
			return err
		}
		return failed
	}, kind), nil
}

func (c response) state(ctx context.Context) (matrix.Seen, error) {
	// One first turn for both ways: their answers differ by the way alone.
	first, err := c.client.Responses.New(ctx, c.request(c.cases.State.First))
	if err != nil {
		return nil, err
	}
	sent, chained := c.request(""), c.request(c.cases.State.Second)
	sent.Input = continued(c.cases.State.First, first,
		responses.ResponseInputItemParamOfMessage(c.cases.State.Second, responses.EasyInputMessageRoleUser))
	chained.PreviousResponseID = openai.String(first.ID)
	all := matrix.Seen{}
	for way, p := range map[string]responses.ResponseNewParams{"history": sent, "previous_response_id": chained} {
		if all[way], err = c.ask(ctx, p); err != nil {
			return nil, err
		}
	}
	return all, c.converse(ctx, all)
}
