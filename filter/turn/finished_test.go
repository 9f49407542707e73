package turn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// splitPrompts compares the prompt of a conversation with those that begin with a prefix of it, which was
// made in random steps.
func splitPrompts(t *testing.T, rng *rand.Rand, rc *RequestContext, in Input, items []Item) {
	t.Helper()
	var p *Prefix
	for range 1 + rng.IntN(4) {
		next, err := Extend(t.Context(), rc, p, items[p.Len():p.Len()+rng.IntN(len(items)-p.Len()+1)])
		if err != nil {
			t.Fatal(err)
		}
		p = next
		samePrompts(t, rc, in, items, p)
	}
}

// TestAnswersDropReasoningAlone plays sessions of several turns. Each prompt begins with what the engine
// has: all, except after an answer what follows the first reasoning of the turn.
func TestAnswersDropReasoningAlone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(31, 32))
	kept, dropped := 0, 0

	for range 300 {
		rc, _ := exactContext()
		in := Input{Items: []Item{userHi}, Tools: functions("f", "g")}
		items := in.Items
		var computed []harmony.Token
		calls := 0
		check := func(turn *Turn) {
			t.Helper()
			if got := turn.Engine.Prompt; !slices.Equal(got[:min(len(got), len(computed))], computed) {
				t.Fatalf("the prompt is\n%s\nthe engine has\n%s", spell(t, got), spell(t, computed))
			}
		}

		for range 1 + rng.IntN(3) {
			for range 1 + rng.IntN(4) {
				in.Items = items
				turn := prepare(t, rc, &in)
				check(turn)
				step := playStep(t, rng, turn, &calls)
				computed = slices.Concat(turn.Engine.Prompt[:len(turn.Engine.Prompt)-len(startOfReply)], step.tokens[:len(step.tokens)-1])
				for range rng.IntN(3) {
					rewrites[rng.IntN(len(rewrites))](rng, &step)
				}
				items = slices.Concat(items, step.sent())
			}
			items = slices.Concat(items, []Item{{Kind: Answer, Text: "It is done."}, userHi})
			for i, token := range computed {
				// The model may have cut the words of the header into other tokens.
				header := spell(t, computed[i:min(len(computed), i+20)])
				if token == harmony.TokenStart && strings.HasPrefix(header, "<|start|>assistant<|channel|>analysis") {
					computed = computed[:i]
					dropped++
					break
				}
			}
			kept += len(computed)
			in.Items = items
			check(prepare(t, rc, &in))
		}
		in.Items = nil
		splitPrompts(t, rng, rc, in, items)
		if t.Failed() {
			return
		}
	}
	if kept == 0 || dropped == 0 {
		t.Errorf("%d tokens stay, %d turns lose their reasoning", kept, dropped)
	}
}

// TestFinishedStepsRenewed shows that steps of finished turns do not expire while the conversation goes on
// with calls, and that those that begin with reasoning do.
func TestFinishedStepsRenewed(t *testing.T) {
	t.Parallel()
	const thought = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"
	call := strings.TrimPrefix(fmt.Sprintf(headerForms[0], "functions.f"), "<|start|>assistant") + "{}<|call|>"
	for output, due := range map[string]int{call: 1, thought + call: 0} {
		rc, clock := exactContext()
		rc.KeptTTL = 1 << 40
		in := Input{Items: []Item{userHi}, Tools: functions("f")}
		readTokens(t, prepare(t, rc, &in), harmony.AppendEncodeSpecial(nil, output), engine.FinishStop)
		in.Items = []Item{userHi, {Kind: Call, CallID: "call_1", Name: "f", Text: "{}"}, {Kind: Result, CallID: "call_1"}, {Kind: Answer, Text: "a"}, userHi}
		p, err := Extend(t.Context(), rc, nil, in.Items[:3])
		if err == nil {
			p, err = Extend(t.Context(), rc, p, in.Items[3:4])
		}
		if err != nil {
			t.Fatal(err)
		}
		clock.Time = clock.Add(rc.KeptTTL * 3 / 4)
		for _, in := range []Input{in, {Before: p, Items: in.Items[4:], Tools: in.Tools}} {
			if got := prepare(t, rc, &in).plan.Due.Choices; len(got) != due {
				t.Errorf("%s: %v is due", output, got)
			}
		}
	}
}

// TestFinishedStepsOfOtherHistory shows that a prefix whose finished steps are as the model wrote them is not
// used for a model with another setting.
func TestFinishedStepsOfOtherHistory(t *testing.T) {
	t.Parallel()
	rc, _ := exactContext()
	canonical := *rc
	canonical.Model = &Model{}
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	readTokens(t, prepare(t, rc, &in), harmony.AppendEncodeSpecial(nil, ` to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>`), engine.FinishStop)
	items := []Item{userHi, {Kind: Call, CallID: "call_1", Name: "f", Text: `{"a": 1}`}, {Kind: Result, CallID: "call_1"}, {Kind: Answer, Text: "a"}, userHi}
	p, err := Extend(t.Context(), rc, nil, items[:4])
	if err != nil {
		t.Fatal(err)
	}
	in.Items = nil
	samePrompts(t, rc, in, items, p)
	samePrompts(t, &canonical, in, items, p)
	if _, err := Extend(t.Context(), &canonical, p, []Item{userHi}); err == nil {
		t.Error("it is extended")
	}
}

// TestRestOfReasoning shows that the last piece of the reasoning, which is all that some clients have of
// it, is taken for the whole, and that any other reasoning is not.
func TestRestOfReasoning(t *testing.T) {
	t.Parallel()
	const thought = "I look at it. Then I write."
	for output, names := range map[string]string{
		"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>": "well formed",
		"<|channel|>analysis to=functions.f <|constrain|>json<|message|>{}<|call|>":   "malformed",
	} {
		for _, history := range []string{HistoryExact, HistoryCanonical} {
			rc, _ := newContext()
			rc.Model = &Model{History: history}
			in := Input{Items: []Item{userHi}, Tools: functions("f")}
			readTokens(t, prepare(t, rc, &in), harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>"+thought+"<|end|><|start|>assistant"+output), engine.FinishStop)
			sent := func(reasoning string) []Item {
				return []Item{userHi, {Kind: Reasoning, Text: reasoning}, {Kind: Call, CallID: "call_1", Name: "f", Text: "{}"}, {Kind: Result, CallID: "call_1"}}
			}

			in.Items = sent(thought)
			want := promptText(t, rc, &in)
			for i := range thought {
				in.Items = sent(thought[i:])
				if got := promptText(t, rc, &in); got != want {
					t.Errorf("%s, %s: of %q the prompt is\n%s", names, history, thought[i:], got)
				}
				splitPrompts(t, rand.New(rand.NewPCG(1, uint64(i))), rc, Input{Tools: in.Tools}, append(in.Items, Item{Kind: Answer, Text: "a"}, userHi))
			}
			for _, other := range []string{"I look at it.", "Then I wrote.", "More. " + thought} {
				in.Items = sent(other)
				if got := promptText(t, rc, &in); strings.Count(got, "<|message|>"+other+"<|end|>") != 1 || strings.Contains(got, thought+"<|end|>") && !strings.Contains(other, thought) {
					t.Errorf("%s, %s: of %q the prompt is\n%s", names, history, other, got)
				}
			}
		}
	}
}

// TestReasoningOnce lets a client separate the calls of one choice by texts: the reasoning that led to them
// stands before the first.
func TestReasoningOnce(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(33, 34))
	separated := 0
	for range 500 {
		rc, _ := newContext()
		rc.Model = &Model{History: []string{HistoryExact, HistoryCanonical}[rng.IntN(2)]}
		n := 2 + rng.IntN(3)
		output := slices.Repeat([]string{"<|channel|>commentary to=functions.f json<|message|>{}"}, n)
		in := Input{Items: []Item{userHi}, Tools: functions("f")}
		readTokens(t, prepare(t, rc, &in), harmony.AppendEncodeSpecial(nil,
			"<|channel|>analysis<|message|>the thought<|end|><|start|>assistant"+strings.Join(output, "<|end|><|start|>assistant")+"<|call|>"), engine.FinishStop)

		items := []Item{userHi}
		if rng.IntN(3) == 0 {
			items = append(items, Item{Kind: Reasoning, Text: "the thought"})
		}
		var open []string
		over := false
		answer := func() {
			for _, id := range open {
				items = append(items, Item{Kind: Result, CallID: id, Text: "r"})
			}
			open = nil
		}
		for i := range n {
			id := "call_" + strconv.Itoa(i+1)
			items, open = append(items, Item{Kind: Call, CallID: id, Name: "f", Text: "{}"}), append(open, id)
			if i == n-1 {
				break
			}
			switch rng.IntN(4) {
			case 0:
				items = append(items, userHi)
				separated++
			case 2:
				answer()
				items, over = append(items, Item{Kind: Answer, Text: "a"}), true
			case 1:
				answer()
				items = append(items, Item{Kind: Instructions, Text: "i"})
				separated++
			}
		}
		answer()

		in.Items = items
		if got := promptText(t, rc, &in); strings.Count(got, "the thought") != 1 || !over && !strings.Contains(got, "Hi<|end|><|start|>assistant<|channel|>analysis<|message|>the thought") {
			t.Fatalf("of\n%v\nthe prompt is\n%s", items, got)
		}
		in.Items = nil
		splitPrompts(t, rng, rc, in, items)
		if t.Failed() {
			return
		}
	}
	if separated < 200 {
		t.Errorf("%d texts between calls", separated)
	}
}

// TestResultsOfTheirCalls interleaves the results of one tool with further calls. In the format a result has
// no id: of the calls of a tool that wait for one it is that of the first.
func TestResultsOfTheirCalls(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(35, 36))
	mixed := 0
	for range 2000 {
		rc, _ := exactContext()
		items := []Item{userHi}
		var open []Item
		calls := 0
		result := func() {
			i := rng.IntN(len(open))
			items = append(items, Item{Kind: Result, CallID: open[i].CallID, Text: "of " + open[i].CallID})
			open = slices.Delete(open, i, i+1)
		}
		for range 2 + rng.IntN(12) {
			switch rng.IntN(8) {
			default:
				calls++
				call := Item{Kind: Call, CallID: strconv.Itoa(calls), Name: []string{"f", "g"}[rng.IntN(2)], Text: `{"id":` + strconv.Itoa(calls) + `}`}
				items, open = append(items, call), append(open, call)
			case 3, 4, 5:
				if len(open) > 0 {
					result()
				}
			case 6:
				items = append(items, userHi)
			case 7:
				items = append(items, Item{Kind: []Kind{Answer, Preamble, Reasoning}[rng.IntN(3)], Text: "t"})
			}
		}
		for len(open) > 0 {
			result()
		}

		// The first of each tool that waits.
		waiting := map[string][]string{}
		misread := func(items []Item) bool {
			for i := range items {
				switch item := &items[i]; item.Kind {
				case Call:
					waiting[item.Name] = append(waiting[item.Name], item.CallID)
				case Result:
					for name, ids := range waiting {
						if at := slices.Index(ids, item.CallID); at > 0 {
							return true
						} else if at == 0 {
							waiting[name] = ids[1:]
						}
					}
				}
			}
			return false
		}
		if misread(afterTexts(items)) {
			mixed++
		}

		text := promptText(t, rc, &Input{Items: items, Tools: functions("f", "g")})
		expected := map[string][]string{}
		results := 0
		for message := range strings.SplitSeq(text, "<|start|>") {
			_, call, isCall := strings.Cut(message, `{"id":`)
			_, result, isResult := strings.Cut(message, "<|message|>of ")
			switch {
			case isCall:
				name := strings.TrimPrefix(strings.Fields(message)[1], "to=functions.")[:1]
				expected[name] = append(expected[name], strings.TrimRight(strings.Fields(call)[0], "}<|cal>"))
			case isResult:
				name := strings.TrimPrefix(message, "functions.")[:1]
				results++
				if want := expected[name][0]; want != strings.TrimSuffix(result, "<|end|>") {
					t.Fatalf("of\n%v\nthe result of %s is read as that of %s:\n%s", items, result, want, text)
				}
				expected[name] = expected[name][1:]
			}
		}
		if results != calls {
			t.Fatalf("%d results of %d calls", results, calls)
		}
		splitPrompts(t, rng, rc, Input{Tools: functions("f", "g")}, items)
		if t.Failed() {
			return
		}
	}
	if mixed < 200 {
		t.Errorf("%d conversations whose results were misread", mixed)
	}
}

// afterTexts returns the items with each result before the first text after its call.
func afterTexts(items []Item) (ordered []Item) {
	for _, it := range items {
		at := len(ordered)
		if it.Kind == Result {
			call := slices.IndexFunc(ordered, func(i Item) bool { return i.Kind == Call && i.CallID == it.CallID })
			if text := slices.IndexFunc(ordered[call+1:], func(i Item) bool { return i.Kind == User }); text >= 0 {
				at = call + 1 + text
			}
		}
		ordered = slices.Insert(ordered, at, it)
	}
	return ordered
}
