package apitest

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Tokens encodes Harmony text, in which special tokens are spelled.
func Tokens(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }

// Spell decodes tokens, and spells the special ones.
func Spell(t testing.TB, tokens []harmony.Token) string {
	t.Helper()
	text, err := harmony.AppendDecode(nil, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Output is the engine's output of one choice.
type Output struct {
	Index  int
	Tokens []harmony.Token
	Finish engine.Finish
}

// Said is the output of Harmony text that the model has ended itself.
func Said(text string) Output { return Output{Tokens: Tokens(text), Finish: engine.FinishStop} }

// Cut is the output of Harmony text that a limit has ended.
func Cut(text string) Output { return Output{Tokens: Tokens(text), Finish: engine.FinishLength} }

// Size returns the size of chunks of n tokens, for [Chunks].
func Size(n int) func() int { return func() int { return n } }

// Chunks cuts an output into chunks of the sizes that next returns. A last chunk has
// the finish reason.
func (o Output) Chunks(next func() int) []engine.Chunk { return Chunks([]Output{o}, next) }

// Chunks cuts outputs into chunks of the sizes that next returns. The choices
// alternate.
func Chunks(outputs []Output, next func() int) []engine.Chunk {
	var all []engine.Chunk
	rest := make([][]harmony.Token, len(outputs))
	for i, o := range outputs {
		rest[i] = o.Tokens
	}

	// An output without tokens needs a chunk too: it has the finish reason.
	ended := make([]bool, len(outputs))
	for left := len(outputs); left > 0; {
		for i, o := range outputs {
			if ended[i] {
				continue
			}

			n := min(next(), len(rest[i]))
			c := engine.Chunk{Index: o.Index, Tokens: rest[i][:n]}
			if rest[i] = rest[i][n:]; len(rest[i]) == 0 {
				c.Finish, ended[i] = o.Finish, true
				left--
			}
			all = append(all, c)
		}
	}
	return all
}

// Logprobs returns log probabilities for tokens, which differ between neighbors. The
// third of the most likely tokens is a control token.
func Logprobs(tokens []harmony.Token) []engine.Logprob { return logprobs(tokens, 0) }

// logprobs returns the log probabilities of tokens after first others.
func logprobs(tokens []harmony.Token, first int) []engine.Logprob {
	list := make([]engine.Logprob, len(tokens))
	for i, token := range tokens {
		v := -float64((first+i)%16) / 4
		list[i] = engine.Logprob{Value: v, Top: []engine.TokenLogprob{
			{Token: token, Logprob: v}, {Token: 0, Logprob: v - 1}, {Token: harmony.TokenReturn, Logprob: v - 2},
		}}
	}
	return list
}
