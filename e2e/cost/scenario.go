package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// scenario is one case: everything that others than the operator decide about the handling
// of one request. It is JSON, so that the search can change all of it in the same way. A
// member that a target has no use for costs nothing.
type scenario struct {
	// Stored are the items that the client stored before: in the conversation conv_1, and
	// as the input of the response resp_1. Storing them was another request's cost.
	Stored []json.RawMessage `json:"stored"`
	// Request is the body of the request.
	Request json.RawMessage `json:"request"`
	// Answer is what the model writes, at each of its calls.
	Answer []message `json:"answer"`
	// Listing is what an MCP server answers to tools/list.
	Listing json.RawMessage `json:"listing"`

	// Checked says that the engine takes no grammar, so that the filter checks its output.
	Checked bool `json:"checked"`
	// Retry says that the operator has calls with wrong arguments asked for again.
	Retry bool `json:"retry"`
}

// message is a message of the model: a header such as "<|channel|>final", whose control
// tokens are spelled, and a text.
type message struct {
	Header string `json:"header"`
	Text   string `json:"text"`
	// Value follows the text. It is no string, so that the search changes what is in it.
	Value json.RawMessage `json:"value"`
}

// parts are the members of a scenario.
var parts = []string{"stored", "request", "answer", "listing", "checked", "retry"}

// prune removes what is no part of a scenario: it would cost the search time and nothing else.
func prune(scenario *node) {
	found := map[string]bool{}
	// A member that stands twice is read once, so the second costs nothing either.
	for i := 0; i < len(scenario.keys); {
		if key := scenario.keys[i]; slices.Contains(parts, key) && !found[key] {
			found[key] = true
			i++
			continue
		}
		scenario.keys, scenario.list = slices.Delete(scenario.keys, i, i+1), slices.Delete(scenario.list, i, i+1)
	}
}

// parseScenario reads a scenario. The search makes some that are none.
func parseScenario(text []byte) (*scenario, error) {
	var s scenario
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	return &s, nil
}

// bytes is what the scenario's own bytes of a request's handling are, which a cost may be in
// proportion to. Stored items count when they are read.
func (s *scenario) bytes() int {
	return len(s.Request) + len(s.Listing) + s.answerBytes()
}

// answerBytes is how many bytes the answer of the model has.
func (s *scenario) answerBytes() int {
	n := 0
	for _, m := range s.Answer {
		n += len(m.Header) + len(m.Text) + len(m.Value)
	}
	return n
}

// tokens are the tokens of the answer.
func (s *scenario) tokens() []harmony.Token {
	var all []harmony.Token
	for i, m := range s.Answer {
		if i > 0 {
			all = harmony.AppendEncodeSpecial(all, "<|start|>assistant")
		}
		all = harmony.AppendEncodeSpecial(all, m.Header+"<|message|>")
		all = harmony.AppendEncode(all, m.Text+string(m.Value))
		switch {
		// The model ends a call with a token of its own, all of its output with another.
		case strings.Contains(m.Header, "to="):
			all = append(all, harmony.TokenCall)
		case i < len(s.Answer)-1:
			all = append(all, harmony.TokenEnd)
		default:
			all = append(all, harmony.TokenReturn)
		}
	}
	return all
}
