package diagnosis

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// agent is a client that talks in a random way.
type agent struct {
	random *rand.Rand
	request
}

func (a *agent) text() string { return long(strconv.Itoa(a.random.IntN(1000)))[:1+a.random.IntN(600)] }

// step lets the agent and its model do something.
func (a *agent) step() {
	switch a.random.IntN(12) {
	case 0:
		a.effort = []harmony.Effort{harmony.EffortLow, harmony.EffortHigh}[a.random.IntN(2)]
	case 1:
		a.date = fmt.Sprintf("2026-11-%02d", 1+a.random.IntN(28))
	case 2:
		a.instructions = a.text()
	case 3:
		a.tools = functions(function(fmt.Sprint("f", a.random.IntN(5)), `{"type":"object"}`), function("g", `{"type":"object"}`))
	case 4:
		i := a.random.IntN(len(a.messages))
		a.messages = append([]harmony.Message(nil), a.messages...)
		a.messages[i] = user(a.text())
	case 5:
		a.messages = a.messages[:1+a.random.IntN(len(a.messages))]
	case 6, 7, 8:
		a.request = a.with(said("analysis", a.text()), call(`{"x":"`+strconv.Itoa(a.random.IntN(9))+`"}`), result(a.text()))
	default:
		var shown []harmony.Message
		for _, m := range a.messages {
			if m.Channel != harmony.ChannelAnalysis {
				shown = append(shown, m)
			}
		}
		a.messages = shown
		a.request = a.with(said("final", a.text()), user(a.text()))
	}
}

// TestShared requires of random sessions of agents that the shared tokens are those that
// both prompts begin with, down to the size of a block, and that a prompt which continues
// another one has no cause.
func TestShared(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		a := &agent{random, newRequest()}
		before, earlier := a.render(t), a.print(t)
		for range 15 {
			a.step()
			tokens, now := a.render(t), a.print(t)
			f := Compare(earlier, now)
			first := common(before, tokens)
			if f.Shared != first/BlockTokens*BlockTokens {
				t.Fatalf("%d tokens are shared, not %d", first, f.Shared)
			}
			shortest := min(len(before), len(tokens))
			if continues := first/BlockTokens == shortest/BlockTokens; continues != (f.Cause == None) || !continues && f.Lost != shortest-f.Shared {
				t.Fatalf("of %d tokens %d are shared: %+v", shortest, first, f)
			}
			if f.Cause != None && (f.Token > first || f.Token <= first-BlockTokens || tokens[messageStart(tokens, f.Message)] != harmony.TokenStart || messageStart(tokens, f.Message) > first) {
				t.Fatalf("the first difference is at %d: %+v", first, f)
			}
			before, earlier = tokens, now
		}
	}
}

// messageStart returns the index of the first token of a message.
func messageStart(tokens []harmony.Token, message int) int {
	for i, token := range tokens {
		if token == harmony.TokenStart {
			if message == 0 {
				return i
			}
			message--
		}
	}
	return len(tokens)
}

// TestExtend requires that a print does not depend on how it is made.
func TestExtend(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	a := &agent{random, newRequest()}
	for range 8 {
		a.step()
	}
	tokens := a.render(t)
	whole := NewPrint(a.head(), tokens)
	for range 300 {
		n := random.IntN(len(tokens) + 1)
		same := random.IntN(n + 1)
		other := append(slices.Clone(tokens[:same]), tokens[len(tokens)-n+same:]...) // which goes on in another way
		begin := NewPrint(a.head(), other)
		if diff := cmp.Diff(whole, begin.Extend(same, tokens), cmp.AllowUnexported(Print{}, part{}), cmpopts.IgnoreFields(Print{}, "few")); diff != "" {
			t.Fatalf("%d of %d tokens: %s", same, n, diff)
		}
		if f := Compare(whole.first(n), whole); f.Cause != None || f.Shared != n/BlockTokens*BlockTokens {
			t.Fatalf("the first %d tokens: %+v", n, f)
		}
	}
}

// TestPieces requires that a sum of pieces depends on all pieces, and on nothing else.
func TestPieces(t *testing.T) {
	same := [][2]string{
		{`{"a":1,"b":[2,3]}`, `{ "b" : [3, 2], "a": 1 }`},
		{`{"description":"one two"}`, `{"description":"two one"}`},
		{``, `{}`},
	}
	for _, pair := range same {
		if Pieces([]byte(pair[0])) != Pieces([]byte(pair[1])) {
			t.Errorf("%s and %s differ", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{`{"a":1}`, `{"a":2}`}, {`{"a":1}`, `{"a":1,"a":1}`}, {`"ab"`, `"ba"`}, {`1`, ``}} {
		if Pieces([]byte(pair[0])) == Pieces([]byte(pair[1])) {
			t.Errorf("%s and %s have one sum", pair[0], pair[1])
		}
	}
}

// TestText requires that sums differ where texts differ in a byte or in their length.
func TestText(t *testing.T) {
	seen := map[Sum]string{}
	add := func(s string) {
		if other, ok := seen[Text(s)]; ok {
			t.Errorf("%q and %q have one sum", s, other)
		}
		seen[Text(s)] = s
	}
	for n := range 70 {
		p := bytes.Repeat([]byte{0}, n)
		add(string(p))
		for i := range p {
			p[i] = 1
			add(string(p))
			p[i] = 0
		}
	}
}

// BenchmarkPrint is what a prompt of an agent costs.
func BenchmarkPrint(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	tokens := make([]harmony.Token, 200_000)
	for i := range tokens {
		tokens[i] = harmony.Token(random.IntN(199_000))
		switch i % 500 {
		case 0:
			tokens[i] = harmony.TokenStart
		case 8:
			tokens[i] = harmony.TokenMessage
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		NewPrint(Head{}, tokens)
	}
}

// TestFollowed requires that a print with an output is that of both, and that the prompt in it is as it was.
func TestFollowed(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	a := &agent{random, newRequest()}
	for range 40 {
		a.step()
		prompt, asked := a.render(t), a.print(t)
		output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>"+a.text()+"<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"+a.text())
		whole := NewPrint(a.head(), slices.Concat(prompt, output))
		followed := asked.Followed(prompt, output, true)
		whole.asked, whole.respells = len(prompt), true
		if diff := cmp.Diff(whole, followed, cmp.AllowUnexported(Print{}, part{}), cmpopts.IgnoreFields(Print{}, "few")); diff != "" {
			t.Fatal(diff)
		}
		if f := Compare(followed, asked); f != Compare(asked, asked) {
			t.Fatalf("the prompt again: %+v", f)
		}
		if f, want := Compare(followed, a.with(user(a.text())).print(t)), Compare(asked, a.with(user(a.text())).print(t)); f.Cause != want.Cause || f.Output != 0 {
			t.Fatalf("without the output: %+v, %+v", f, want)
		}
	}
}
