package harmony

import (
	"math/rand/v2"
	"testing"
)

// TestParserContent compares the deltas of every ordinary token with those of the
// decoders, in the order of the ids and in a random order with parts of characters
// between them.
func TestParserContent(t *testing.T) {
	inOrder := make([]Token, ordinaryTokens)
	for i := range inOrder {
		inOrder[i] = Token(i)
	}
	r := rand.New(rand.NewPCG(7, 8))
	random := make([]Token, 0, 2*ordinaryTokens)
	for _, i := range r.Perm(ordinaryTokens) {
		random = append(random, Token(i))
		if r.IntN(4) == 0 {
			random = append(random, Token(r.IntN(256))) // a single byte
		}
	}
	start := AppendEncodeSpecial(nil, "<|channel|>final<|message|>")
	for _, c := range []struct {
		name   string
		mode   Mode
		tokens []Token
	}{
		{"tolerant, in order", Tolerant, inOrder},
		{"tolerant, random", Tolerant, random},
		{"strict, in order", Strict, inOrder},
		{"strict, random", Strict, random},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewParser(c.mode, RoleAssistant)
			for _, token := range start {
				if _, err := p.Push(token); err != nil {
					t.Fatal(err)
				}
			}
			var lossless Decoder
			var strict strictDecoder
			var want []byte
			for i, token := range c.tokens {
				if c.mode == Strict {
					want, _ = strict.append(want[:0], token)
				} else {
					want, _ = lossless.Append(want[:0], token)
				}
				events, err := p.Push(token)
				if err != nil || string(p.LastDelta()) != string(want) || p.ContentTokens() != i+1 {
					t.Fatalf("token %d: delta %q, %v, want %q", token, p.LastDelta(), err, want)
				}
				if len(want) == 0 && len(events) == 0 {
					continue
				}
				if len(events) != 1 || events[0].Kind != Delta || string(events[0].Text) != string(want) || events[0].Header.Channel != ChannelFinal {
					t.Fatalf("token %d: events %+v, want one delta %q", token, events, want)
				}
			}
		})
	}
}
