package prompt_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The prompt with a prefix is the one without, and the prefix is not rendered again.
func Example() {
	rc := &request.Context{
		Env:   &request.Env{Renderer: harmony.NewRenderer(), Limits: request.DefaultLimits()},
		Model: &request.Model{Date: "2026-11-29"},
	}
	render := func(in *request.Input) []harmony.Token {
		conversation, err := prompt.New(rc, in)
		if err != nil {
			panic(err)
		}
		rendered, err := conversation.Render(context.Background(), rc, &toolset.Set{})
		if err != nil {
			panic(err)
		}
		return rendered.Tokens
	}

	items := []item.Item{
		{Kind: item.User, Text: "Name a colour."}, {Kind: item.Answer, Text: "Blue."}, {Kind: item.User, Text: "Another."},
	}
	before, err := prompt.Extend(context.Background(), rc, nil, items[:2])
	if err != nil {
		panic(err)
	}

	whole := render(&request.Input{Items: items})
	prefixed := render(&request.Input{Before: before, Items: items[before.Len():]})
	text, _ := harmony.AppendDecode(nil, prefixed[len(prefixed)-10:])
	fmt.Println(slices.Equal(whole, prefixed), string(text))
	// Output:
	// true .<|end|><|start|>user<|message|>Another.<|end|><|start|>assistant
}
