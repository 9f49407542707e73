//go:build v1

package main

import (
	"context"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

// offer gives a request a tool.
func offer(p *openai.ChatCompletionNewParams, f shared.FunctionDefinitionParam) {
	p.Tools = []openai.ChatCompletionToolParam{{Function: f}}
}

// converse does nothing: this version knows no conversations.
func (response) converse(context.Context, matrix.Seen) error { return nil }
