package turn

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var container = harmony.Namespace{Name: "container", Description: "Utilities for a container.", Tools: []harmony.Tool{{
	Name: "exec", Description: "Runs a command.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"cmd":{"type":"array","items":{"type":"string"}}},"required":["cmd"]}`),
}}}

func builtins() []harmony.Namespace {
	return []harmony.Namespace{harmony.BrowserNamespace(), harmony.PythonNamespace(), container}
}

// kindNamed returns the kind with a name.
func kindNamed(t *testing.T, name string) Kind {
	for k := Instructions; k <= Unphased; k++ {
		if k.String() == name {
			return k
		}
	}
	t.Fatalf("no kind %q", name)
	return 0
}

// TestBuiltinsAsReference compares whole prompts, the system message included,
// with the prompts of openai-harmony for the same conversations.
func TestBuiltinsAsReference(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/builtins.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	defer file.Close()
	rows := bufio.NewScanner(file)
	rows.Buffer(nil, 1<<20)
	n := 0

	for ; rows.Scan(); n++ {
		var row struct {
			Name     string
			Builtins []string
			Function bool
			Items    []struct {
				Kind, Text, ID, Namespace, Name string
				Builtin                         bool
			}
			Tokens []harmony.Token
		}

		if err := json.Unmarshal(rows.Bytes(), &row); err != nil {
			t.Fatal(err)
		}

		var in Input
		for _, ns := range builtins() {
			if slices.Contains(row.Builtins, ns.Name) {
				in.Builtins = append(in.Builtins, ns)
			}
		}

		if row.Function {
			in.Tools = functions("f")
			in.Tools[0].Tools[0].Description = "A function."
		}

		for _, i := range row.Items {
			in.Items = append(in.Items, Item{Kind: kindNamed(t, i.Kind), Text: i.Text, CallID: i.ID, Namespace: i.Namespace, Name: i.Name, Builtin: i.Builtin})
		}

		rc, _ := newContext()
		rc.Model.Date = "2025-06-28"
		if got := prepare(t, rc, &in).Engine.Prompt; !slices.Equal(got, row.Tokens) {
			text, _ := harmony.AppendDecode(nil, got)
			want, _ := harmony.AppendDecode(nil, row.Tokens)
			t.Errorf("%s:\n%s", row.Name, cmp.Diff(string(want), string(text)))
		}
	}

	if err := rows.Err(); err != nil || n < 10 {
		t.Errorf("%d rows, %v", n, err)
	}
}

func TestReadBuiltins(t *testing.T) {
	t.Parallel()
	all := Input{Builtins: builtins()}
	both := Input{Builtins: builtins(), Tools: functions("search", "python")}

	for _, c := range []struct {
		name    string
		in      Input
		output  string
		want    []string
		repairs map[string]int
	}{
		{"search", all, "<|channel|>analysis to=browser.search code<|message|>{\"query\":1}<|call|>", []string{`call 0 call_1 browser.search, built in: {"query":1}.`}, nil},
		{"search in the role's section", all, " to=browser.search<|channel|>analysis <|constrain|>json<|message|>{}<|call|>", []string{"call 0 call_1 browser.search, built in: {}."}, nil},
		{"search on commentary", all, "<|channel|>commentary to=browser.search json<|message|>{}<|call|>", []string{"call 0 call_1 browser.search, built in: {}."}, nil},
		{"code", all, "<|channel|>analysis to=python code<|message|>print(1)\n<|call|>", []string{"call 0 call_1 python., code: print(1)\n."}, nil},
		{"code without a type", all, " to=python<|channel|>analysis<|message|>{}<|call|>", []string{"call 0 call_1 python., code: {}."}, nil},
		{"no code", all, "<|channel|>analysis to=python code<|message|><|call|>", []string{"call 0 call_1 python., code: ."}, nil},
		{"no arguments", all, "<|channel|>analysis to=browser.open code<|message|><|call|>", []string{"call 0 call_1 browser.open, built in: {}."}, map[string]int{"empty_arguments": 1}},
		{"command", all, "<|channel|>analysis to=container.exec code<|message|>{}<|call|>", []string{"call 0 call_1 container.exec, built in: {}."}, nil},
		{"reasoning between", all, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis to=python code<|message|>b<|call|>", []string{"reasoning: a.", "call 0 call_1 python., code: b."}, nil},
		{"a function of python", all, "<|channel|>analysis to=python.run code<|message|>a<|call|>", []string{"call 0 call_1 python., code: a."}, map[string]int{"recipient": 1}},
		{"glued type", all, "<|channel|>analysis to=browser.searchcode<|message|>{}<|call|>", []string{"call 0 call_1 browser.search, built in: {}."}, map[string]int{"recipient": 1}},
		{"unknown function", all, "<|channel|>analysis to=browser.click code<|message|>{}<|call|>", []string{"call 0 call_1 .browser_click: {}."}, map[string]int{"unknown_tool": 1}},
		{"the client's own", both, " to=functions.python_<|channel|>commentary json<|message|>{}<|end|><|start|>assistant to=functions.search<|channel|>commentary json<|message|>{}<|call|>", []string{"call 0 call_1 functions.python: {}.", "call 1 call_2 functions.search: {}."}, nil},
		{"not the client's own", both, "<|channel|>analysis to=python code<|message|>1<|end|><|start|>assistant<|channel|>analysis to=browser.search code<|message|>{}<|call|>", []string{"call 0 call_1 python., code: 1.", "call 1 call_2 browser.search, built in: {}."}, nil},
		{"withheld", Input{Builtins: builtins(), NoCalls: true}, "<|channel|>analysis to=python code<|message|>1<|end|><|start|>assistant<|channel|>final<|message|>a<|return|>", []string{"answer: a."}, map[string]int{"withheld_call": 1}},
		{"not offered", Input{Tools: functions("python")}, "<|channel|>analysis to=python code<|message|>1<|call|>", []string{"call 0 call_1 functions.python: 1."}, map[string]int{"recipient": 1, "invalid_arguments": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc, _ := newContext()
			c.in.Items = []Item{userHi}
			lines, r := play(t, prepare(t, rc, &c.in), c.output, engine.FinishStop)
			if diff := cmp.Diff(c.want, lines); diff != "" {
				t.Error(diff)
			}

			var got Summary
			if r.AddTo(&got); !cmp.Equal(got.Repairs, c.repairs) {
				t.Errorf("repairs %v, want %v", got.Repairs, c.repairs)
			}
		})
	}
}

// TestOwnBrowser shows that a client's namespace can have the name of a built-in
// namespace.
func TestOwnBrowser(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	in := Input{Items: []Item{userHi}, Builtins: builtins(), Tools: []harmony.Namespace{{Name: "browser", Tools: []harmony.Tool{{Name: "search"}}}}}
	lines, _ := play(t, prepare(t, rc, &in), " to=browser_.search<|channel|>commentary json<|message|>{}<|end|><|start|>assistant<|channel|>analysis to=browser.search code<|message|>{}<|call|>", engine.FinishStop)
	if diff := cmp.Diff([]string{"call 0 call_1 browser.search: {}.", "call 1 call_2 browser.search, built in: {}."}, lines); diff != "" {
		t.Error(diff)
	}
}

func TestBuiltinErrors(t *testing.T) {
	t.Parallel()
	for want, in := range map[string]Input{
		`The tool namespace "mcp" has the name of a built-in one. Rename it.`:                                                                      {Tools: []harmony.Namespace{{Name: "mcp", Tools: []harmony.Tool{{Name: "a"}}}}, Builtins: []harmony.Namespace{{Name: "mcp"}}},
		`The tool namespace "browser" has the name of a built-in one. Rename it.`:                                                                  {Builtins: []harmony.Namespace{harmony.BrowserNamespace(), harmony.BrowserNamespace()}},
		`Two tools of the namespace "container" have the name "a.b", or names that differ only in characters other than letters, digits, _ and -.`: {Builtins: []harmony.Namespace{{Name: "container", Tools: []harmony.Tool{{Name: "a b"}, {Name: "a.b"}}}}},
		`A tool has no name. Give every tool one.`:                                                                                                 {Builtins: []harmony.Namespace{{Name: "container", Tools: []harmony.Tool{{}}}}},
		`The request has more than 5 tools.`:                                                                                                       {Tools: functions("a"), Builtins: builtins()},
		`The tool "python" of tool_choice is not one of the tools of the request.`:                                                                 {Tools: functions("python"), Choice: Choice{Allowed: []ToolName{{Namespace: "python", Builtin: true}}}},
	} {
		rc, _ := newContext()
		rc.Limits.Tools = 5
		in.Items = []Item{userHi}
		if _, err := Prepare(t.Context(), rc, &in); textOf(err) != want {
			t.Errorf("%q, want %q", textOf(err), want)
		}
	}
}

// TestBuiltinsNotOffered shows that without calls the model sees no built-in
// tools either.
func TestBuiltinsNotOffered(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	without := prepare(t, rc, &Input{Items: []Item{userHi}})
	if got := prepare(t, rc, &Input{Items: []Item{userHi}, Builtins: builtins(), NoCalls: true}); !slices.Equal(got.Engine.Prompt, without.Engine.Prompt) {
		t.Error("the prompt has the tools")
	}
	if got := prepare(t, rc, &Input{Items: []Item{userHi}, Builtins: builtins()}); got.Affinity() == without.Affinity() {
		t.Error("another beginning has the same key")
	}
}

var (
	builtinCall   = regexp.MustCompile(`<\|start\|>assistant to=(browser\.search|python)<\|channel\|>analysis code<\|message\|>(\d+)`)
	builtinResult = regexp.MustCompile(`<\|start\|>(browser\.search|python) to=assistant<\|channel\|>analysis<\|message\|>(\d+)`)
)

// numbersIn returns the numbers in a prompt's calls or results, sorted.
func numbersIn(prompt string, kind *regexp.Regexp) []string {
	found := kind.FindAllStringSubmatch(prompt, -1)
	numbers := make([]string, 0, len(found))
	for _, m := range found {
		numbers = append(numbers, m[2])
	}
	slices.Sort(numbers)
	return numbers
}

// TestBuiltinsInPairs shows that the call of a built-in tool and its output are in
// the prompt exactly if the call follows the last answer, wherever the output and
// the answers are.
func TestBuiltinsInPairs(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	shown, hidden := 0, 0

	for range 600 {
		rc, _ := newContext()
		items := randomConversation(rng, rc)
		var want []string
		calls := 0

		for i := range items {
			switch item := &items[i]; {
			case item.Kind == Call && item.Builtin:
				number := strconv.Itoa(calls)
				calls++
				item.Text = number
				for j := i + 1; j < len(items); j++ {
					if items[j].Kind == Result && items[j].CallID == item.CallID {
						items[j].Text = number
						break
					}
				}
				want = append(want, number)

			case item.Kind == Unphased: // whose phase the prompt decides
				item.Kind = Preamble
			case item.IsAnswer():
				want = nil
			}
		}

		text := promptText(t, rc, &Input{Items: items})
		called, answered := numbersIn(text, builtinCall), numbersIn(text, builtinResult)
		slices.Sort(want)
		if !slices.Equal(called, want) || !slices.Equal(answered, want) {
			t.Fatalf("called %v, answered %v, want %v in\n%s\n%v", called, answered, want, text, items)
		}

		shown, hidden = shown+len(want), hidden+calls-len(want)
	}

	if shown == 0 || hidden == 0 {
		t.Errorf("%d calls shown, %d hidden", shown, hidden)
	}
}

// TestBuiltinsVerified reads output that follows its spec, and output that does not.
func TestBuiltinsVerified(t *testing.T) {
	t.Parallel()
	format := Input{Format: &Format{Answer: constraint.AnswerChoice{"yes"}}}
	required := Input{Tools: functions("f"), Choice: Choice{Required: true}}

	for output, c := range map[string]struct {
		in Input
		ok bool
	}{
		"<|channel|>analysis to=python code<|message|>no JSON<|call|>":         {format, true},
		"<|channel|>analysis to=browser.search code<|message|>{}<|call|>":      {format, true},
		"<|channel|>analysis to=browser.search code<|message|>no JSON<|call|>": {format, false},
		"<|channel|>analysis to=browser.open code<|message|>{}<|call|>":        {required, false},
		" to=functions.f<|channel|>commentary json<|message|>{}<|call|>":       {required, true},
	} {
		rc, _ := newContext()
		c.in.Items, c.in.Builtins = []Item{userHi}, builtins()
		r := prepare(t, rc, &c.in).NewReader(func(Event) {})
		if _, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, output), Finish: engine.FinishStop}); (err == nil) != c.ok {
			t.Errorf("%s: %v", output, err)
		}
	}
}
