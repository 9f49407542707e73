package harmony

import (
	"strings"
	"testing"
)

// completionTokens returns a completion with reasoning, a call and an answer.
func completionTokens() []Token {
	prose := strings.Repeat("The quick brown fox jumps over the lazy dog, and naïve 中文 text follows. ", 40)
	const header = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
	text := "<|channel|>analysis<|message|>" + prose + "<|end|>" + header + `{"location": "Paris"}<|call|>` +
		"<|start|>assistant<|channel|>final<|message|>" + prose + "<|return|>"
	return AppendEncodeSpecial(nil, text)
}

// BenchmarkParserToken pushes the tokens of a completion. After each token it
// reads the delta, channel and recipient, like a server.
func BenchmarkParserToken(b *testing.B) {
	tokens := completionTokens()
	for _, m := range []struct {
		name string
		mode Mode
	}{{"tolerant", Tolerant}, {"strict", Strict}} {
		b.Run(m.name, func(b *testing.B) {
			p := NewParser(m.mode, RoleAssistant)
			b.ReportAllocs()
			read := 0
			for i := 0; i < b.N; i += len(tokens) {
				p.Reset(RoleAssistant)
				for _, t := range tokens {
					if _, err := p.Push(t); err != nil {
						b.Fatal(err)
					}
					read += len(p.LastDelta()) + len(p.Channel()) + len(p.Recipient())
				}
			}
			if read == 0 {
				b.Fatal("nothing was read")
			}
		})
	}
}

// BenchmarkParserHeader pushes messages that consist only of headers.
func BenchmarkParserHeader(b *testing.B) {
	tokens := AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|><|call|>")
	for _, m := range []struct {
		name string
		mode Mode
	}{{"tolerant", Tolerant}, {"strict", Strict}} {
		b.Run(m.name, func(b *testing.B) {
			p := NewParser(m.mode, "")
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(tokens) {
				for _, t := range tokens {
					if _, err := p.Push(t); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func TestParserAllocations(t *testing.T) {
	valid := completionTokens()
	broken := AppendEncodeSpecial(valid, "<|end|>text<|end|><|start|>assistant to=functions.f to=functions.f<|channel|>final<|message|>a<|start|>b<|channel|>final<|message|>c<|end|>")
	broken = append(broken, 9552, 31446)
	for _, c := range []struct {
		mode   Mode
		tokens []Token
	}{{Tolerant, broken}, {Strict, valid}, {Permissive, valid}} {
		p := NewParser(c.mode, RoleAssistant)
		parse := func() {
			p.Reset(RoleAssistant)
			for _, token := range c.tokens {
				if _, err := p.Push(token); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = p.Close()
		}
		parse()
		if n := testing.AllocsPerRun(20, parse); n > 0 {
			t.Errorf("mode %d: %v allocations", c.mode, n)
		}
	}
}
