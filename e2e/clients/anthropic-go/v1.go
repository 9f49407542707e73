//go:build v1

package main

import (
	"context"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

func modelOf(name string) anthropic.Model { return anthropic.Model(name) }

// thinking asks for the reasoning, as this version does it.
func thinking() anthropic.ThinkingConfigParamUnion {
	// The least that the API takes.
	return anthropic.ThinkingConfigParamOfEnabled(1024)
}

// structured forces the call of a tool: this version has no other structured outputs.
func (m messages) structured(ctx context.Context) (matrix.Seen, error) {
	p := m.request(user("CALL weather " + string(m.cases.Structured.Value)))
	p.Tools = []anthropic.ToolUnionParam{tool("weather", m.cases.Weather())}
	p.ToolChoice = anthropic.ToolChoiceParamOfTool("weather")
	reply, err := m.client.Messages.New(ctx, p)
	if err != nil {
		return nil, err
	}
	call, err := calls(reply)
	return valueOf(string(call.Input)), err
}
