//go:build !v1

package main

import (
	"context"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

func modelOf(name string) anthropic.Model { return name }

// thinking asks for the reasoning.
func thinking() anthropic.ThinkingConfigParamUnion {
	return anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{
		Display: anthropic.ThinkingConfigAdaptiveDisplaySummarized,
	}}
}

func (m messages) structured(ctx context.Context) (matrix.Seen, error) {
	p := m.request(user(m.cases.Structured.Prompt))
	p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: m.cases.Weather()}
	text, err := m.ask(ctx, p)
	return valueOf(text), err
}
