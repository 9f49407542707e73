package turn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestOddRecipientInEveryForm shows that a recipient reaches its tool wherever it stands in the
// header.
func TestOddRecipientInEveryForm(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("get_weather")})
	r := rand.New(rand.NewPCG(1, 3))
	for _, to := range []string{
		"/get_weather", "::get_weather", "$functions.get_weather", "*functions.get_weather*", "{functions.get_weather}", "{{functions.get_weather}}",
		"functions.{get_weather}", "functions['get_weather']", "functions[get_weather]", "functions(get_weather)", "functions<get_weather>",
		"functions.get_weather()", "functions.get_weather,", "functions.get_weather;", "functions|get_weather", "functions#get_weather",
		"functions=get_weather", "functions。get_weather", "functions.get_weather\u00a0", "《functions.get_weather》", "to=functions.get_weather",
	} {
		for _, form := range callForms[:6] {
			tokens := harmony.AppendEncodeSpecial(nil, fmt.Sprintf(form, to))
			for range 5 {
				if diff := cmp.Diff([]string{`call functions.get_weather: {"q":1}`}, readChunks(t, turn, randomChunks(r, tokens))); diff != "" {
					t.Errorf("%s of %s: %s", to, form, diff)
				}
			}
		}
	}
}

// TestSpaceInName shows that a name with a space reaches its tool wherever it stands in the
// header, and that a word after another recipient is no part of it.
func TestSpaceInName(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("my search", "get_weather", "get_user", "f")})
	r := rand.New(rand.NewPCG(1, 3))

	for to, name := range map[string]string{
		"functions.my search": "my search", "my search": "my search", `"functions.my search"`: "my search", `functions."my search"`: "my search",
		"tools.my search": "my search", "functions.get weather": "get_weather", "functions.get user": "get_user",
		"functions.f user": "f", "functions.f Sure": "f", "functions.f f": "f",
	} {
		for _, form := range callForms[:6] {
			tokens := harmony.AppendEncodeSpecial(nil, fmt.Sprintf(form, to))
			for range 5 {
				got := readChunks(t, turn, randomChunks(r, tokens))
				if len(got) > 0 && strings.HasPrefix(got[0], Reasoning.String()) {
					got = got[1:] // the word after the recipient
				}
				if diff := cmp.Diff([]string{"call functions." + name + `: {"q":1}`}, got); diff != "" {
					t.Errorf("%s of %s: %s", to, form, diff)
				}
			}
		}
	}
}

// namesOfSet are sets of tools for which calls are damaged.
var namesOfSet = [][]string{
	{"Tool_A"},
	{"get_weather", "get", "get_weather_of_day", "getWeather"},
	{"a.b", "a", "b", "a-c", "b.a"},
	{"functions", "functions.x", "x", "tools", "tools.x"},
	{"wetter_ä", "погода", "天気", "मौसम", "weather"},
	{"search", "search_web", "web.search", "tool_search", "searches"},
	{"multi_tool_use.parallel", "python", "json", "final"},
}

// damages are what models do to recipients.
var damages = []func(r *rand.Rand, to string) string{
	func(r *rand.Rand, to string) string {
		quote := [...][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"<", ">"}, {"[", "]"}, {"(", ")"}, {`"`, ""}, {"“", "”"}, {"@", ""}}[r.IntN(9)]
		return quote[0] + to + quote[1]
	},
	func(r *rand.Rand, to string) string {
		return strings.Replace(to, ".", [...]string{"/", ":", "::", "@", "->", ".."}[r.IntN(6)], 1)
	},
	func(r *rand.Rand, to string) string {
		return [...]string{"functions.", "function.", "tools.", "tool.", "functions::", "namespace ", "Functions."}[r.IntN(7)] + to
	},
	func(_ *rand.Rand, to string) string { return to + "." + to },
	func(_ *rand.Rand, to string) string { return to + "." + to[strings.LastIndexByte(to, '.')+1:] },
	func(_ *rand.Rand, to string) string { return strings.ToUpper(to) },
	func(_ *rand.Rand, to string) string { return strings.ToLower(to) },
	// From here on the damage can make another name.
	func(r *rand.Rand, to string) string {
		runes := []rune(to)
		return string(runes[:len(runes)-r.IntN(min(4, len(runes)))])
	},
	func(r *rand.Rand, to string) string {
		return to + [...]string{"json", " code", ".json", "<|constrain|>json", "commentary", "<|channel|>commentary"}[r.IntN(6)]
	},
	func(_ *rand.Rand, to string) string { return to + "é" },
	func(r *rand.Rand, to string) string { return to + string(rune(0x400+r.IntN(64))) },
}

const firstCut = 7 // index in damages

// callForms are the headers of calls.
var callForms = []string{
	`<|channel|>commentary to=%s <|constrain|>json<|message|>{"q":1}<|call|>`,
	` to=%s<|channel|>commentary json<|message|>{"q":1}<|call|>`,
	`<|channel|>analysis to=%s <|message|>{"q":1}<|call|>`,
	`<|channel|>final to=%s <|message|>{"q":1}<|call|>`,
	`<|channel|>commentary to= %s <|message|>{"q":1}<|call|>`,
	`commentary to=%s <|constrain|>json<|message|>{"q":1}<|call|>`,
	`<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=%s code<|message|>{"q":1}<|call|>`,
}

// TestDamagedCalls damages the recipients of calls at random. Each call reaches the tool
// that is meant or is one of an unknown tool, and is never text. It is the same however
// the output is cut into chunks.
func TestDamagedCalls(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 7))
	reached, calls := 0, 0

	for _, names := range namesOfSet {
		rc, _ := newContext()
		in := Input{Items: []Item{userHi}, Builtins: builtins()[:1], Tools: append(functions(names...), harmony.Namespace{Name: "docs", Tools: []harmony.Tool{{Name: "read"}}})}
		turn := prepare(t, rc, &in)
		tools, err := toolset.New(rc, &in, nil)
		if err != nil {
			t.Fatal(err)
		}
		offers := toolsOf(&in)

		for range 1000 {
			meant, right := pickTool(r, tools, offers)
			to := right

			for range r.IntN(4) {
				kind := r.IntN(len(damages))
				to = damages[kind](r, to)
				// What is cut, or has a letter more, can be another tool's name.
				other, found := tools.Resolve(to)
				if found == toolset.Offered || found == toolset.Respelled && (kind >= firstCut || isSpelled(other, strings.ToLower(to))) {
					meant = other
				}
			}

			if rest, ok := strings.CutPrefix(to, "functions."); ok && r.IntN(4) == 0 {
				to = "functions" + [...]string{" ", ". ", " .", " . ", " :: "}[r.IntN(5)] + rest
			}

			output := fmt.Sprintf(callForms[r.IntN(len(callForms))], to)
			tokens := harmony.AppendEncodeSpecial(nil, output)

			got := readChunks(t, turn, [][]harmony.Token{tokens})
			if cut := readChunks(t, turn, randomChunks(r, tokens)); !cmp.Equal(got, cut) {
				t.Fatalf("%s of %q: %q, in chunks %q", output, names, got, cut)
			}

			name, isCall := strings.CutPrefix(strings.TrimPrefix(got[len(got)-1], "call "), "")
			if !isCall || !strings.HasPrefix(got[len(got)-1], "call ") || slices.ContainsFunc(got, shown) {
				t.Fatalf("%s of %q is no call: %q", output, names, got)
			}

			name, _, _ = strings.Cut(name, ": ")
			calls++

			switch {
			case name == meant.Namespace+"."+meant.Name:
				reached++
			case strings.HasPrefix(name, "."):
				if slices.ContainsFunc(offers, func(tool ToolName) bool { return isSpelled(tool, name[1:]) }) {
					t.Fatalf("%s of %q: the unknown tool has the name of a tool: %q", output, names, got)
				}

			case to == right:
				t.Fatalf("%s of %q: the right spelling of %v: %q", output, names, meant, got)
			default:
				t.Errorf("%s of %q: %v was meant: %q", output, names, meant, got)
			}
		}
	}

	if 2*reached < calls {
		t.Errorf("%d of %d calls reach their tool", reached, calls)
	}
}

// shown reports whether a line of readChunks is a text that the client sees.
func shown(line string) bool {
	return !strings.HasPrefix(line, "call ") && !strings.HasPrefix(line, Reasoning.String())
}

// isSpelled reports whether a spelling is a right one of a tool: its names as the model sees them, or as
// the client sent them, with the namespace or without, and with other signs between their words.
func isSpelled(tool ToolName, spelling string) bool {
	spelling, _, _ = strings.Cut(spelling, "<|")
	words := func(name string) string {
		isSign := func(r rune) bool { return !harmony.IsNameRune(r) }
		return strings.Join(strings.FieldsFunc(strings.ReplaceAll(name, "->", "."), isSign), ".")
	}

	for _, own := range []string{
		item.Recipient(tool), item.ModelName(tool.Name), tool.Name, words(tool.Name), words(tool.Namespace + "." + tool.Name),
	} {
		if own != "" && (words(spelling) == own || words(spelling) == FunctionsNamespace+"."+own) {
			return true
		}
	}
	return false
}

// toolsOf returns the tools that a request has.
func toolsOf(in *Input) (all []ToolName) {
	for i, list := range [][]harmony.Namespace{in.Tools, in.Builtins} {
		for _, ns := range list {
			for _, tool := range ns.Tools {
				all = append(all, ToolName{Namespace: ns.Name, Name: tool.Name, Builtin: i == 1})
			}
		}
	}
	return all
}

// pickTool returns one of some tools and one of its right spellings.
func pickTool(r *rand.Rand, tools *toolset.Set, all []ToolName) (ToolName, string) {
	var right []string
	for _, tool := range all {
		for _, spelling := range []string{item.Recipient(tool), tool.Name, tool.Namespace + "." + tool.Name} {
			if got, _ := tools.Resolve(spelling); got == tool {
				right = append(right, spelling)
			}
		}
	}
	slices.Sort(right)
	spelling := right[r.IntN(len(right))]
	tool, _ := tools.Resolve(spelling)
	return tool, spelling
}

func randomChunks(r *rand.Rand, tokens []harmony.Token) (chunks [][]harmony.Token) {
	for len(tokens) > 0 {
		n := 1 + r.IntN(min(len(tokens), 5))
		chunks, tokens = append(chunks, tokens[:n]), tokens[n:]
	}
	return chunks
}

// readChunks returns the parts of an output, each with its text.
func readChunks(t *testing.T, turn *Turn, chunks [][]harmony.Token) (parts []string) {
	t.Helper()
	reader := turn.NewReader(func(e Event) {
		switch e.Step {
		case Start:
			line := e.Kind.String()
			if e.Call != nil {
				line = "call " + e.Call.Namespace + "." + e.Call.Name
			}
			parts = append(parts, line+": ")
		case Delta:
			parts[len(parts)-1] += string(e.Text)
		case End:
		}
	})

	for _, chunk := range chunks {
		if _, err := reader.Push(&engine.Chunk{Tokens: chunk}); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := reader.Push(&engine.Chunk{Finish: engine.FinishStop}); err != nil {
		t.Fatal(err)
	}
	return parts
}
