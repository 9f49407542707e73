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
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestRespelled shows spellings that mean a tool, and some that do not.
func TestRespelled(t *testing.T) {
	t.Parallel()
	tools, err := newToolset(append(functions("Tool_A", "get_weather", "delete_all", "wetter_ä", "погода", "天気.今日", "my tool", "functions"),
		harmony.Namespace{Name: "docs", Tools: []harmony.Tool{{Name: "read"}}}), builtins(), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}

	plain := func(name string) ToolName { return ToolName{Namespace: FunctionsNamespace, Name: name} }
	for recipient, want := range map[string]ToolName{
		`"functions.Tool_A"`: plain("Tool_A"), "'functions.Tool_A'": plain("Tool_A"), "`functions.Tool_A`": plain("Tool_A"),
		`functions."Tool_A"`: plain("Tool_A"), `"functions"."Tool_A"`: plain("Tool_A"), "<functions.Tool_A>": plain("Tool_A"),
		"[functions.Tool_A]": plain("Tool_A"), `"functions.Tool_A`: plain("Tool_A"), "“functions.Tool_A”": plain("Tool_A"),
		"functions/Tool_A": plain("Tool_A"), "functions:Tool_A": plain("Tool_A"), "functions::Tool_A": plain("Tool_A"),
		"functions@Tool_A": plain("Tool_A"), "@functions.Tool_A": plain("Tool_A"), "functions->Tool_A": plain("Tool_A"),
		"functions . Tool_A": plain("Tool_A"), "functions Tool_A": plain("Tool_A"), "functions..Tool_A": plain("Tool_A"),
		"functions.functions.Tool_A": plain("Tool_A"), "functions.Tool_A.Tool_A": plain("Tool_A"), "Tool_A.Tool_A": plain("Tool_A"),
		"functions.Tool_A.functions.Tool_A": plain("Tool_A"), "function.Tool_A": plain("Tool_A"), "tools.Tool_A": plain("Tool_A"),
		"tool.Tool_A": plain("Tool_A"), "namespace functions.Tool_A": plain("Tool_A"), "FUNCTIONS.tool_a": plain("Tool_A"),
		"tool_Tool_A": plain("Tool_A"), "functionsTool_A": plain("Tool_A"), "functions_Tool_A": plain("Tool_A"), "toola": plain("Tool_A"),
		"functions.Tool_A<|constrain|>json": plain("Tool_A"), "functions.Tool_A.json": plain("Tool_A"), "functions.Tool_Acommentary": plain("Tool_A"),
		"functions.get_weathe": plain("get_weather"),
		"functions.get_weath":  plain("get_weather"), "functions.wetter_ä": plain("wetter_ä"), "wetter_ä": plain("wetter_ä"),
		"functions.wetter_a\u0308": plain("wetter_ä"), "functions::Wetter_Ä": plain("wetter_ä"), `"погода"`: plain("погода"),
		"functions.Погода": plain("погода"), "functions.天気.今日": plain("天気.今日"), "functions.天気_今日": plain("天気.今日"),
		"functions.my tool": plain("my tool"), "functions.my_tool": plain("my tool"), `"my tool"`: plain("my tool"),
		"functions.functions": plain("functions"), "functions": plain("functions"), "functions.functions_": plain("functions"),
		"docs::read": {Namespace: "docs", Name: "read"}, "functions.docs.read": {Namespace: "docs", Name: "read"}, "docs.docs.read": {Namespace: "docs", Name: "read"},
		"docs.read.read": {Namespace: "docs", Name: "read"}, "tools.docs/read": {Namespace: "docs", Name: "read"},
		`"browser.search"`: {Namespace: "browser", Name: "search", Builtin: true}, "browser::open": {Namespace: "browser", Name: "open", Builtin: true}, `"python"`: {Namespace: "python", Builtin: true},
		"tools.python": {Namespace: "python", Builtin: true},
		// Other names.
		"functions.delete": {}, "functions.weather": {}, "functions.get": {}, "other.Tool_A": {}, "docs.Tool_A": {}, "functions.Tool_B": {},
		"functions.wetter_": {}, "functions.wetter": {}, "docs.____": {},
	} {
		got, found := tools.resolve(recipient)
		if want == (ToolName{}) {
			if found != unknown || got.Namespace != "" || tools.declares(got.Name) {
				t.Errorf("%q: %+v, %d", recipient, got, found)
			}
			continue
		}

		if got != want || found != offered && found != respelled {
			t.Errorf("%q: %+v, %d; want %+v", recipient, got, found, want)
		}
	}
}

// TestEquallyNear shows that a recipient that may mean two tools means neither.
func TestEquallyNear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names     []string
		recipient string
	}{
		{[]string{"get_weather", "getWeather"}, "functions.Get_Weather"},
		{[]string{"tool_search", "search"}, "tool.search"},
		{[]string{"read_files", "read_filed"}, "functions.read_file"},
		{[]string{"äÄ", "Ää"}, "functions.ää"},
		{[]string{"x", "functions.x"}, "Functions.functions.x"},
	} {
		tools, err := newToolset(functions(c.names...), nil, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got, found := tools.resolve(c.recipient); found != unknown {
			t.Errorf("%q of %q: %+v, %d", c.recipient, c.names, got, found)
		}
	}
}

// TestOtherName shows names that look like damaged ones of the only tool, and are other names.
func TestOtherName(t *testing.T) {
	t.Parallel()
	for name, recipients := range map[string][]string{
		"delete": {
			"functions.delete_message", "functions.deleteMessage", "delete-channel", "functions.assistant_delete", "analysis_delete", "to_delete",
			// A word of the header that is one of names too.
			"functions.deletemessage", "functions.delete.message", "functions.deletechannel", "delete.channel", "functions.deletecode",
			"functions.delete.code", "functions.deletefinal", "functions.delete.final",
		},
		"get_page_10":  {"functions.get_page_1"},
		"delete_users": {"functions.delete_user"},
		"删除用户组":        {"functions.删除用户"},
		"사용자삭제취소":      {"functions.사용자삭제"},
		"☀️":           {"functions.🌧️", "functions"},
		"🚀":            {"functions.💥", "functions"},
	} {
		tools, err := newToolset(functions(name), nil, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for _, recipient := range recipients {
			if got, found := tools.resolve(recipient); found == offered || found == respelled {
				t.Errorf("%q of %q: %+v, %d", recipient, name, got, found)
			}
		}
	}

	for name, recipients := range map[string][]string{
		"delete":   {"functions.deletejson", "functions.delete.json", "functions.Delete.JSON"},
		"☀️":       {"functions.☀️", "functions.__"},
		"sunny_☀️": {"functions.sunny__", "functions.sunny_☀", "functions.sunny_☀️"},
	} {
		tools, err := newToolset(functions(name), nil, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for _, recipient := range recipients {
			if got, _ := tools.resolve(recipient); got.Name != name || got.Namespace == "" {
				t.Errorf("%q of %q: %+v", recipient, name, got)
			}
		}
	}
}

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

		for range 1000 {
			meant, right := pickTool(r, turn.tools)
			to := right

			for range r.IntN(4) {
				kind := r.IntN(len(damages))
				to = damages[kind](r, to)
				// What is cut, or has a letter more, can be another tool's name.
				other, found := turn.tools.resolve(to)
				if found == offered || found == respelled && (kind >= firstCut || isSpelled(turn.tools, other, to)) {
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
				if turn.tools.declares(name[1:]) {
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

// isSpelled reports whether a spelling is that of a tool, if letter case does not count.
func isSpelled(tools *toolset, t ToolName, spelling string) bool {
	spelling = strings.ToLower(spelled(spelling))
	return slices.Contains(tools.exactly(spelling), t)
}

// pickTool returns a tool of a toolset and one of its right spellings.
func pickTool(r *rand.Rand, tools *toolset) (ToolName, string) {
	var all []string
	for recipient, t := range tools.byRecipient {
		for _, spelling := range []string{recipient, t.Name, t.Namespace + "." + t.Name} {
			if got, _ := tools.resolve(spelling); got == t {
				all = append(all, spelling)
			}
		}
	}
	slices.Sort(all)
	right := all[r.IntN(len(all))]
	t, _ := tools.resolve(right)
	return t, right
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

// TestResolveIsBounded shows that recipients cost about the same whatever is in them: a
// model can make thousands of calls.
func TestResolveIsBounded(t *testing.T) {
	t.Parallel()
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("%s_%d", strings.Repeat("name", 40), i)
	}

	tools, err := newToolset(functions(names...), nil, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}

	for _, recipient := range []string{
		strings.Repeat("functions.", 1<<12), strings.Repeat("functions.x.", 1<<12), strings.Repeat("json", 1<<14), strings.Repeat("name", 1<<14),
		strings.Repeat("a.", 1<<14), strings.Repeat("\"", 1<<16), strings.Repeat("a\u0308", 1<<14), "functions." + strings.Repeat("name", 40),
	} {
		if forms := tools.spellings; forms != nil {
			if n := len(forms.forms(recipientWords(recipient))); n > 4*maxPrefixes {
				t.Errorf("%.20s…: %d forms", recipient, n)
			}
		}
		got, found := tools.resolve(recipient)
		if found != unknown && found != noRecipient || len(got.Name) > item.MaxNameBytes+1 {
			t.Errorf("%.20s…: %.40v, %d", recipient, got, found)
		}
	}
}

func BenchmarkResolveUnknown(b *testing.B) {
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("%s_%d", strings.Repeat("name", 40), i)
	}
	tools, err := newToolset(functions(names...), nil, DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	for name, recipient := range map[string]string{
		"short": "functions.nope", "cut": "functions." + strings.Repeat("name", 40), "prefixes": strings.Repeat("functions.x.", 100),
		"json": strings.Repeat("json", 300), "words": strings.Repeat("a.", 600),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				tools.resolve(recipient)
			}
		})
	}
}
