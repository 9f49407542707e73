package turn

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// playedStep is a step that a model has made, and what a client sends back of it.
type playedStep struct {
	// From <|start|> to the last <|call|>.
	tokens []harmony.Token
	// What the model generated, and the results.
	items, results []Item
	// The client has changed what it means.
	changed bool
	// The ids of its calls by the name of the tool, in the model's order.
	made map[string][]string
	// It puts each result behind its call.
	between bool
}

// sent returns the items as the client sends them.
func (s *playedStep) sent() []Item {
	if !s.between {
		return slices.Concat(s.items, s.results)
	}

	var items []Item
	for _, item := range s.items {
		items = append(items, item)
		for _, result := range s.results {
			if item.Kind == Call && result.CallID == item.CallID {
				items = append(items, result)
			}
		}
	}
	return items
}

// order returns the results in the order in which the model reads them: that of the client, with those
// of one tool in the order of its calls.
func (s *playedStep) order() []Item {
	names, results, next := map[string]string{}, map[string]Item{}, map[string]int{}
	for name, ids := range s.made {
		for _, id := range ids {
			names[id] = name
		}
	}
	for _, result := range s.results {
		results[result.CallID] = result
	}

	var items []Item
	for _, item := range s.sent() {
		if item.Kind == Result {
			name := names[item.CallID]
			items = append(items, results[s.made[name][next[name]]])
			next[name]++
		}
	}
	return items
}

// playStep has a model make a step, in a random form.
func playStep(t *testing.T, rng *rand.Rand, turn *Turn, calls *int) playedStep {
	t.Helper()
	var text strings.Builder
	var step playedStep
	say := func(channel string, kind Kind) {
		words := randomWords(rng)
		text.WriteString("<|start|>assistant<|channel|>" + channel + "<|message|>" + words + "<|end|>")
		step.items = append(step.items, Item{Kind: kind, Text: words})
	}

	for range rng.IntN(3) {
		say(harmony.ChannelAnalysis, Reasoning)
	}
	if rng.IntN(3) == 0 {
		say(harmony.ChannelCommentary, Preamble)
	}

	more := rng.IntN(5) / 3
	for i := range 1 + more {
		name := []string{"f", "g"}[rng.IntN(2)]
		*calls++
		arguments, _ := json.Marshal(map[string]any{"path": randomWords(rng), "n": rng.IntN(100), "deep": []int{rng.IntN(9), 1}})
		written := string(arguments)
		if rng.IntN(2) == 0 {
			written = strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(written)
		}
		fmt.Fprintf(&text, headerForms[rng.IntN(len(headerForms))], "functions."+name)
		text.WriteString(written)
		if i < more && rng.IntN(2) == 0 {
			text.WriteString("<|end|>")
		} else {
			text.WriteString("<|call|>")
		}

		id := "call_" + strconv.Itoa(*calls)
		step.items = append(step.items, Item{Kind: Call, CallID: id, Name: name, Text: written})
		step.results = append(step.results, Item{Kind: Result, CallID: id, Text: randomWords(rng)})
	}

	output := encodeOddly(rng, strings.TrimPrefix(text.String(), "<|start|>assistant"))
	step.tokens = slices.Concat(startOfReply, output)
	made := readTokens(t, turn, output, engine.FinishStop).calls
	step.made = map[string][]string{}
	for i := range step.results {
		id := made[i].ID
		step.made[made[i].Name] = append(step.made[made[i].Name], id)
		step.items[len(step.items)-len(step.results)+i].CallID, step.results[i].CallID = id, id
	}
	return step
}

func randomWords(rng *rand.Rand) string {
	words := make([]string, 1+rng.IntN(6))
	for i := range words {
		words[i] = []string{"read", "the", "file", "größer", "🙂", "a\nb", "  two", "x.go"}[rng.IntN(8)]
	}
	return strings.Join(words, " ")
}

// encodeOddly encodes a text as a model may cut it: not always into the tokens of an encoder.
func encodeOddly(rng *rand.Rand, text string) []harmony.Token {
	var odd, run []harmony.Token
	flush := func() {
		decoded, _ := harmony.AppendDecode(nil, run)
		rest := []rune(string(decoded))
		for len(rest) > 0 {
			n := len(rest)
			if rng.IntN(4) == 0 {
				n = 1 + rng.IntN(n)
			}
			odd = harmony.AppendEncode(odd, string(rest[:n]))
			rest = rest[n:]
		}
		run = run[:0]
	}
	for _, token := range harmony.AppendEncodeSpecial(nil, text) {
		if token < harmony.TokenStartOfText {
			run = append(run, token)
			continue
		}
		flush()
		odd = append(odd, token)
	}
	flush()
	return odd
}

// edit edits what a client sends back of a step. It reports whether that means something else now.
type edit func(rng *rand.Rand, s *playedStep) (changed bool)

func removeKind(s *playedStep, kind Kind) bool {
	before := len(s.items)
	s.items = slices.DeleteFunc(s.items, func(i Item) bool { return i.Kind == kind })
	return len(s.items) < before
}

// changeArguments decodes the arguments of the first call, changes them, and encodes them again.
func changeArguments(change func(arguments map[string]any)) edit {
	return func(_ *rand.Rand, s *playedStep) bool {
		i := slices.IndexFunc(s.items, func(i Item) bool { return i.Kind == Call })
		var arguments map[string]any
		if json.Unmarshal([]byte(s.items[i].Text), &arguments) != nil {
			return false
		}
		change(arguments)
		text, _ := json.MarshalIndent(arguments, "", "\t")
		same := jsontext.Same(string(text), s.items[i].Text)
		s.items[i].Text = string(text)
		return !same
	}
}

// rewrites are what clients do without changing anything.
var rewrites = []edit{
	func(*rand.Rand, *playedStep) bool { return false },
	func(_ *rand.Rand, s *playedStep) bool { removeKind(s, Reasoning); return false },
	func(_ *rand.Rand, s *playedStep) bool {
		var texts []string
		for _, item := range s.items {
			if item.Kind == Reasoning {
				texts = append(texts, item.Text)
			}
		}
		if !removeKind(s, Reasoning) {
			return false
		}
		s.items = slices.Insert(s.items, 0, Item{Kind: Reasoning, Text: strings.TrimSpace(strings.Join(texts, "\n\n"))})
		return false
	},
	func(_ *rand.Rand, s *playedStep) bool {
		for i := range s.items {
			if s.items[i].Kind == Preamble {
				s.items[i].Text = "\n" + strings.TrimSpace(s.items[i].Text) + " "
			}
		}
		return false
	},
	func(_ *rand.Rand, s *playedStep) bool {
		slices.Reverse(s.items[len(s.items)-len(s.results):])
		return false
	},
	func(rng *rand.Rand, s *playedStep) bool {
		rng.Shuffle(len(s.results), func(i, k int) { s.results[i], s.results[k] = s.results[k], s.results[i] })
		return false
	},
	changeArguments(func(map[string]any) {}),
}

// changes change something, of most steps.
var changes = []edit{
	func(_ *rand.Rand, s *playedStep) bool { return removeKind(s, Preamble) },
	func(_ *rand.Rand, s *playedStep) bool {
		s.items = slices.Insert(s.items, 0, Item{Kind: Preamble, Text: "Added."})
		return true
	},
	func(_ *rand.Rand, s *playedStep) bool {
		removeKind(s, Reasoning)
		s.items = slices.Insert(s.items, 0, Item{Kind: Reasoning, Text: "Another thought."})
		return true
	},
	func(_ *rand.Rand, s *playedStep) bool {
		n := len(s.results)
		if n == 1 {
			return false
		}
		s.items, s.results = s.items[:len(s.items)-1], slices.DeleteFunc(s.results, func(r Item) bool { return r.CallID == s.items[len(s.items)-1].CallID })
		return true
	},
	func(rng *rand.Rand, s *playedStep) bool {
		id := "added_" + strconv.Itoa(rng.Int())
		s.items = append(s.items, Item{Kind: Call, CallID: id, Name: "f", Text: "{}"})
		s.results = append(s.results, Item{Kind: Result, CallID: id, Text: "r"})
		return true
	},
	func(_ *rand.Rand, s *playedStep) bool {
		s.items[len(s.items)-1].Name += "2"
		return true
	},
	func(rng *rand.Rand, s *playedStep) bool {
		id := "other_" + strconv.Itoa(rng.Int())
		i, was := len(s.items)-1, s.items[len(s.items)-1].CallID
		s.items[i].CallID = id
		for r := range s.results {
			if s.results[r].CallID == was {
				s.results[r].CallID = id
			}
		}
		return true
	},
	func(_ *rand.Rand, s *playedStep) bool {
		n := len(s.results)
		if n == 1 {
			return false
		}
		a, b := &s.items[len(s.items)-n], &s.items[len(s.items)-1]
		a.CallID, b.CallID = b.CallID, a.CallID
		return a.Name != b.Name || !jsontext.Same(a.Text, b.Text)
	},
	changeArguments(func(a map[string]any) { a["n"] = a["n"].(float64) + 1 }),
	changeArguments(func(a map[string]any) { a["path"] = a["path"].(string) + " " }),
	changeArguments(func(a map[string]any) { a["path"] = strings.ToUpper(a["path"].(string)) }),
	changeArguments(func(a map[string]any) { delete(a, "deep") }),
	changeArguments(func(a map[string]any) { a["more"] = nil }),
	changeArguments(func(a map[string]any) { slices.Reverse(a["deep"].([]any)) }),
	func(_ *rand.Rand, s *playedStep) bool {
		last := &s.items[len(s.items)-1]
		last.Text = strings.Replace(last.Text, "{", `{"n":1,`, 1)
		return true
	},
	func(_ *rand.Rand, s *playedStep) bool {
		last := &s.items[len(s.items)-1]
		last.Text = last.Text[1:]
		return true
	},
}

// TestEditsAreKept plays turns of tools whose clients edit what they send back. A step that still
// means what the model wrote stands in the prompt as it wrote it, and any other as if nothing were
// kept but the reasoning.
func TestEditsAreKept(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	exact, changed := 0, 0

	for range 600 {
		rc, _ := exactContext()
		canonical := *rc
		canonical.Model = &Model{}
		in := Input{Items: []Item{userHi}, Tools: functions("f", "g")}
		calls := 0
		n := 1 + rng.IntN(5)
		steps := make([]playedStep, 0, n)

		for range n {
			step := playStep(t, rng, prepare(t, rc, &in), &calls)
			in.Items = slices.Concat(in.Items, step.items, step.results)
			steps = append(steps, step)
		}

		items := []Item{userHi}
		for i := range steps {
			s := &steps[i]
			for range rng.IntN(3) {
				rewrites[rng.IntN(len(rewrites))](rng, s)
			}
			if rng.IntN(2) == 0 {
				s.changed = changes[rng.IntN(len(changes))](rng, s)
			}
			s.between = !s.changed && rng.IntN(4) == 0
			items = append(items, s.sent()...)
		}

		want := expectedPrompt(t, &canonical, in.Tools, steps)
		in.Items = items
		if got := prepare(t, rc, &in).Engine.Prompt; !slices.Equal(got, want) {
			n := 0
			for n < min(len(got), len(want)) && got[n] == want[n] {
				n++
			}
			t.Fatalf("the prompt goes on with\n%s\nwant\n%s\n%+v", spell(t, got[max(0, n-50):]), spell(t, want[max(0, n-50):]), steps)
		}
		for i := range steps {
			if steps[i].changed {
				changed++
			} else {
				exact++
			}
		}

		p, err := Extend(t.Context(), rc, nil, items[:rng.IntN(len(items)+1)])
		if err != nil {
			t.Fatal(err)
		}
		if p, err = Extend(t.Context(), rc, p, items[p.Len():p.Len()+rng.IntN(len(items)-p.Len()+1)]); err != nil {
			t.Fatal(err)
		}
		in.Items = nil
		samePrompts(t, rc, in, items, p)
		answered := slices.Concat(items, []Item{{Kind: Answer, Text: "a"}, userHi})
		samePrompts(t, rc, in, answered, p)
		if t.Failed() {
			return
		}
	}
	if exact < 500 || changed < 500 {
		t.Errorf("%d steps as written, %d changed", exact, changed)
	}
}

// expectedPrompt returns the canonical prompt of the steps, with the tokens of those that are not
// changed in the place of what they are rendered as.
func expectedPrompt(t *testing.T, canonical *RequestContext, tools []harmony.Namespace, steps []playedStep) []harmony.Token {
	t.Helper()
	items := []Item{userHi}
	rendered := func() []harmony.Token {
		prompt := prepare(t, canonical, &Input{Items: items, Tools: tools}).Engine.Prompt
		return prompt[:len(prompt)-len(startOfReply)]
	}

	before := rendered()
	want := slices.Clone(before)
	for i := range steps {
		s := &steps[i]
		items = append(items, s.sent()...)
		after := rendered()
		if s.changed {
			want = append(want, after[len(before):]...)
		} else {
			var made []Item
			for name, ids := range s.made {
				for _, id := range ids {
					made = append(made, Item{Kind: Call, CallID: id, Name: name})
				}
			}
			tokens, end, err := prompt.Append(t.Context(), canonical, nil, slices.Concat(made, s.order()))
			if err != nil {
				t.Fatal(err)
			}
			want = append(append(want, s.tokens...), lastMessages(tokens[:end], len(s.results))...)
		}
		before = after
	}
	return append(want, startOfReply...)
}

// lastMessages returns the last n messages of tokens.
func lastMessages(tokens []harmony.Token, n int) []harmony.Token {
	begin := len(tokens)
	for ; n > 0; n-- {
		for begin--; tokens[begin] != harmony.TokenStart; begin-- {
		}
	}
	return tokens[begin:]
}
