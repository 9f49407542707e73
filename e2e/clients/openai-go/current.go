//go:build !v1

package main

import (
	"context"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/shared"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

// offer gives a request a tool.
func offer(p *openai.ChatCompletionNewParams, f shared.FunctionDefinitionParam) {
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(f)}
}

// converse adds what the model says in the second turn of a stored conversation.
func (c response) converse(ctx context.Context, all matrix.Seen) error {
	conversation, err := c.client.Conversations.New(ctx, conversations.ConversationNewParams{})
	if err != nil {
		return err
	}
	for _, text := range []string{c.cases.State.First, c.cases.State.Second} {
		p := c.request(text)
		p.Conversation.OfString = openai.String(conversation.ID)
		if all["conversation"], err = c.ask(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
