package filter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// randomSession generates turns of tools that are written as gpt-oss writes them, and otherwise: parallel
// calls of one tool, with either end, arguments with spaces, words in other tokens than an encoder's.
// Reasoning may be missing, begin late, or follow a preamble or a call.
func randomSession(rng *rand.Rand) (session []sessionTurn) {
	for range 2 + rng.IntN(3) {
		asked := sessionTurn{user: fmt.Sprintf("Do %d things.", rng.IntN(1000))}
		reasons := rng.IntN(3)
		for range 1 + rng.IntN(4) {
			asked.steps = append(asked.steps, randomStep(rng, reasons))
		}
		answer := sessionStep{answer: "It is done."}
		if reasons > 0 {
			answer.reasoning = []string{"Say so."}
		}
		asked.steps = append(asked.steps, answer)
		session = append(session, asked)
	}
	return session
}

// randomStep generates a step with calls; reasons: 0: the model does not reason, else it may.
func randomStep(rng *rand.Rand, reasons int) (s sessionStep) {
	var messages []string
	reason := func() {
		if reasons > 0 && rng.IntN(3) == 0 {
			messages = append(messages, "<|channel|>analysis<|message|>I think twice about it.<|end|>")
		}
	}

	reason()
	if rng.IntN(3) == 0 {
		messages = append(messages, "<|channel|>commentary<|message|>I look at everything.<|end|>")
	}
	n := 1 + rng.IntN(3)
	for i := range n {
		reason()
		call := sessionCall{tool: toolSchemas[rng.IntN(len(toolSchemas))].name, result: fmt.Sprintf("result %d", rng.IntN(1000))}
		call.arguments = []string{
			`{"path":"shape.go","limit":200}`, `{"path": "shape.go", "limit": 2e2}`, `{ "path" : "/caf\u00e9" }`, `{"text":"a\n<größer>"}`,
		}[rng.IntN(4)]
		end := []string{"<|end|>", "<|call|>"}[rng.IntN(2)]
		if i == n-1 {
			end = "<|call|>"
		}
		messages = append(messages, fmt.Sprintf(callHeaders[rng.IntN(len(callHeaders))], call.tool)+call.arguments+end)
		s.calls = append(s.calls, call)
	}
	s.tokens = encodeOddly(rng, strings.Join(messages, "<|start|>assistant"))
	return s
}

// encodeOddly encodes a text as a model may write it: now and then a word is cut into other tokens than
// those of an encoder.
func encodeOddly(rng *rand.Rand, text string) (tokens []harmony.Token) {
	content := false
	for _, token := range harmony.AppendEncodeSpecial(nil, text) {
		word, _ := harmony.AppendDecode(nil, []harmony.Token{token})
		switch {
		case token >= harmony.TokenStartOfText:
			content = token == harmony.TokenMessage
			tokens = append(tokens, token)
		case content && len(word) > 2 && rng.IntN(4) == 0:
			tokens = harmony.AppendEncode(tokens, string(word[:1]))
			tokens = harmony.AppendEncode(tokens, string(word[1:]))
		default:
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// TestRandomSessions plays random sessions of all agents: an engine has to compute no token again but
// those that follow reasoning which the format drops.
func TestRandomSessions(t *testing.T) {
	t.Parallel()
	e, s := startSessions(t)
	same := func() *Server { return s }

	for seed := range uint64(40) {
		for _, known := range slices.Concat(agents, oddAgents) {
			t.Run(fmt.Sprintf("%s, seed %d", known.name, seed), func(t *testing.T) {
				e.computed = nil
				playSession(t, same, e, known.make(), randomSession(rand.New(rand.NewPCG(seed, 5))), true, -1)
			})
		}
	}
}
