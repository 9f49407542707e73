package constraint

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	cityOf = json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`)
	okOf   = json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)

	weather = Tool{Recipient: "functions.get_weather", Schema: cityOf}
	search  = Tool{Recipient: "functions.search"}
	notes   = Tool{Recipient: "notes.add"}

	browse = Tool{Recipient: "browser.search", Builtin: true}
	exec   = Tool{Recipient: "container.exec", Builtin: true, Schema: cityOf}
	python = Tool{Recipient: "python", Builtin: true, Code: true}
)

// freely is a tool of which only the name is enforced.
func freely(t Tool) Tool {
	t.Free = true
	return t
}

// advised is a tool whose arguments are enforced though no client asks for it.
func advised(t Tool) Tool {
	t.Schema, t.Enforced = nil, NewValue(newAccount(), cityOf)
	return t
}

var specs = map[string]Spec{
	"required":         {Tools: []Tool{weather, search, notes}, Required: true, Parallel: true},
	"required-one":     {Tools: []Tool{search}, Required: true},
	"strict":           {Tools: []Tool{weather, search}, Parallel: true},
	"allowed":          {Tools: []Tool{search}, Narrowed: true},
	"allowed-none":     {Narrowed: true},
	"json":             {Answer: AnswerJSON{okOf}},
	"json-and-tools":   {Tools: []Tool{search}, Answer: AnswerJSON{okOf}},
	"regex":            {Answer: AnswerRegex(`[a-z]+\d`)},
	"choice-and-tools": {Tools: []Tool{search}, Answer: AnswerChoice{"yes", "no"}},
	"grammar":          {Answer: AnswerGrammar("root ::= \"a\" | \"b\"")},
	"builtins":         {Tools: []Tool{search, browse, python, exec}, Answer: AnswerJSON{okOf}, Parallel: true},
	"builtin-required": {Tools: []Tool{python}, Required: true},
	"names":            {Tools: []Tool{freely(search), freely(notes), freely(browse), python}, Declared: true, Parallel: true},
	"names-one":        {Tools: []Tool{freely(search)}, Declared: true},
	"arguments":        {Tools: []Tool{advised(weather), search, freely(notes)}, Declared: true, Parallel: true},
	"strict-and-names": {Tools: []Tool{weather, advised(notes), search}, Declared: true, Parallel: true},
}

// TestStructuralTags compares the tags with testdata/<name>.json, which have them
// indented.
func TestStructuralTags(t *testing.T) {
	for name, p := range specs {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := json.Indent(&got, AppendStructuralTag(nil, p.Format(newAccount())), "", " "); err != nil {
				t.Fatal(err)
			}

			got.WriteByte('\n')
			file := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}

			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoFormat(t *testing.T) {
	for name, p := range map[string]Spec{
		"empty":       {},
		"no tools":    {Declared: true},
		"loose tools": {Tools: []Tool{search, notes, browse, python}, Parallel: true},
		"one call":    {Tools: []Tool{search}}, // the reader ends the turn by itself
	} {
		if f := p.Format(newAccount()); f != nil {
			t.Errorf("%s: %s", name, AppendStructuralTag(nil, f))
		}
	}
}

// TestNoStopToken shows that no grammar requires a stop token, which would crash the
// engine.
func TestNoStopToken(t *testing.T) {
	for name, p := range specs {
		tag := string(AppendStructuralTag(nil, p.Format(newAccount())))
		for _, stop := range []string{`"token":200002`, `"token":200012`, "<|"} {
			if strings.Contains(tag, stop) {
				t.Errorf("%s: %s stands in %s", name, stop, tag)
			}
		}
	}
}

// The parts of replies, each in all its forms.
var (
	thoughts   = []string{"", "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|><|end|><|start|>assistant"}
	preambles  = []string{"", "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant"}
	types      = []string{"<|message|>", " json<|message|>", " <|constrain|>json<|message|>", "<|constrain|>json<|message|>"}
	separator  = "<|end|><|start|>assistant"
	cityGood   = []string{`{"city":"Paris"}`, `{ "city" : "a\"}{" }`}
	cityBad    = []string{`{}`, `{"city":1}`, `{"city":"Paris"`, `["city"]`, `{"city":"Paris","more":1}`, `{"city":"Paris"}.`, ``}
	anyGood    = []string{`{}`, `{"a":[1,{"b":null}]}`}
	anyBad     = []string{`[]`, `1`, `"x"`, `{`, ``, `{"a":1}}`}
	okGood     = []string{`{"ok":true}`}
	okBad      = []string{`{"ok":1}`, `true`, `ok`, ``, `{"ok":true} {}`}
	answerText = []string{"Hello.", "", "a < b | c"}
)

func headersOf(recipient string) []string { return headersOfTypes(recipient, types) }

func headersOfTypes(recipient string, types []string) []string {
	all := make([]string, 0, 4*len(types))
	for _, channel := range []string{"commentary", "analysis"} {
		for _, typ := range types {
			all = append(all, " to="+recipient+"<|channel|>"+channel+typ, "<|channel|>"+channel+" to="+recipient+typ)
		}
	}
	return all
}

func each(parts ...[]string) []string {
	all := []string{""}
	for _, part := range parts {
		var longer []string
		for _, a := range all {
			for _, b := range part {
				longer = append(longer, a+b)
			}
		}
		all = longer
	}
	return all
}

func headed(header string, forms []string) []string {
	all := make([]string, len(forms))
	for i, f := range forms {
		all[i] = header + f
	}
	return all
}

// specTexts are texts that belong to a spec, and texts that do not.
type specTexts struct{ yes, no [][]string }

// textsOfSpecs are those of the specs by name, for all forms of headers, with and without reasoning and a
// preamble.
func textsOfSpecs() map[string]specTexts {
	var (
		callWeather    = each(headersOf("functions.get_weather"), cityGood)
		callWeatherBad = each(headersOf("functions.get_weather"), cityBad)
		callSearch     = each(headersOf("functions.search"), anyGood)
		callSearchBad  = each(headersOf("functions.search"), anyBad)
		callNotes      = each(headersOf("notes.add"), anyGood)
		callUnknown    = each(headersOf("functions.other"), anyGood)
		finalText      = each(headed("<|channel|>final", types), answerText)
		finalOK        = each(headed("<|channel|>final", types), okGood)
		finalBad       = each(headed("<|channel|>final", types), okBad)
		codeTypes      = []string{" code<|message|>", "<|message|>"}
		callBrowse     = each(headersOfTypes("browser.search", append(codeTypes, types...)), anyGood)
		callBrowseBad  = each(headersOfTypes("browser.search", codeTypes), anyBad)
		callExec       = each(headersOfTypes("container.exec", append(codeTypes, types...)), cityGood)
		callExecBad    = each(headersOfTypes("container.exec", codeTypes), cityBad)
		callPython     = each(headersOfTypes("python", codeTypes), []string{"print(1)\n", "", "{"})
		callPythonBad  = each(headersOfTypes("python", types[1:]), []string{"{}"})
		before         = each(thoughts, preambles)
		unfinished     = []string{"", "<|channel|>analysis<|message|>a", "<|channel|>analysis<|message|>a<|end|>", "<|channel|>commentary<|message|>a", "Hello.", "<|channel|>final", "<|start|>assistant<|channel|>final<|message|>a"}
		twoCalls       = each(callWeather[:3], []string{separator, separator + thoughts[1]}, callSearch[:3])
		anyOrder       = []string{preambles[1] + thoughts[1] + preambles[1], thoughts[1] + preambles[1] + preambles[1]}
		callSearchAny  = each(headersOfTypes("functions.search", append(codeTypes[:1:1], types...)), append(anyGood, anyBad...))
		malformed      = []string{
			"<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>{\"ok\":true}",
			"<|channel|>analysis<|message|>a<|return|>",
			"<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>{\"ok\":true}",
			"<|channel|>final<|message|>a<|end|>",
			"<|channel|>final<|message|>a<|return|>",
		}
	)

	return map[string]specTexts{
		"required": {
			yes: [][]string{each(before, callWeather), callSearch, callNotes, twoCalls},
			no:  [][]string{callWeatherBad, callSearchBad, callUnknown, finalText, finalOK, unfinished, malformed, each(twoCalls[:1], []string{separator})},
		},
		"required-one": {
			yes: [][]string{each(before, callSearch)},
			no:  [][]string{callWeather, finalText, each(callSearch[:1], []string{separator}, callSearch[:1]), unfinished},
		},
		"strict": {
			yes: [][]string{each(before, callWeather), callSearch, finalText, each(before, finalText[:4]), twoCalls},
			no:  [][]string{callWeatherBad, callUnknown, unfinished, malformed, each(finalText[:1], []string{separator}, callWeather[:1])},
		},
		"allowed":        {yes: [][]string{callSearch, finalText}, no: [][]string{callWeather, callNotes, unfinished}},
		"allowed-none":   {yes: [][]string{finalText}, no: [][]string{callSearch, callWeather, each(preambles[1:], finalText[:1])}},
		"json":           {yes: [][]string{each(thoughts, finalOK)}, no: [][]string{finalBad, finalText, callSearch, each(preambles[1:], finalOK), unfinished, malformed}},
		"json-and-tools": {yes: [][]string{each(before, finalOK), each(before, callSearch)}, no: [][]string{finalBad, callSearchBad, each(callSearch[:1], []string{separator}, finalOK[:1])}},
		"builtins": {
			yes: [][]string{each(before, callBrowse), each(before, callPython), callExec, callSearch, each(before, finalOK), each(callPython[:3], []string{separator, separator + thoughts[1]}, callBrowse[:3])},
			no:  [][]string{callBrowseBad, callExecBad, callPythonBad, finalBad, each(headersOfTypes("functions.search", codeTypes[:1]), anyGood), each(headersOfTypes("browser.open", codeTypes), anyGood), each(callPython[:1], []string{separator}, finalOK[:1])},
		},
		"builtin-required": {
			yes: [][]string{each(before, callPython)},
			no:  [][]string{finalText, finalOK, callBrowse, callPythonBad, unfinished, each(callPython[:1], []string{separator}, callPython[:1])},
		},
		"names": {
			yes: [][]string{
				each(append(anyOrder, before...), callSearchAny), callNotes, callBrowse, callBrowseBad, callPython, finalText,
				preambles[1:], thoughts[1:],
				{"<|channel|>analysis<|message|>a", "<|channel|>commentary<|message|>a"},
				each(callNotes[:2], []string{separator}, finalText[:1]), each(finalText[:2], []string{separator}, finalText[:1]),
				each(append(anyOrder, before...), finalText[:4]), each(callSearchAny[:3], []string{separator, separator + anyOrder[0]}, callNotes[:3]),
			},
			no: [][]string{callUnknown, callWeather, callExec, each(callNotes[:1], []string{separator}, callUnknown), {"", "Hello.", "<|channel|>final"}},
		},
		"names-one": {
			yes: [][]string{each(before, callSearchAny), finalText},
			no:  [][]string{callUnknown, callNotes},
		},
		"arguments": {
			yes: [][]string{each(append(anyOrder, before...), callWeather), callSearch, callNotes, each(headersOf("notes.add"), anyBad), finalText, twoCalls},
			no:  [][]string{callWeatherBad, callSearchBad, callUnknown},
		},
		"strict-and-names": {
			yes: [][]string{each(before, callWeather), each(headersOf("notes.add"), cityGood), callSearch, finalText},
			no:  [][]string{callWeatherBad, each(headersOf("notes.add"), cityBad), callSearchBad, callUnknown},
		},
		"regex": {yes: [][]string{{"<|channel|>final<|message|>ab1"}}, no: [][]string{{"<|channel|>final<|message|>ab1x", "<|channel|>final<|message|>1", "<|channel|>final json<|message|>ab1"}}},
		"choice-and-tools": {
			yes: [][]string{{"<|channel|>final<|message|>yes", "<|channel|>final<|message|>no"}, callSearch},
			no:  [][]string{{"<|channel|>final<|message|>maybe", "<|channel|>final<|message|>yesno"}},
		},
	}
}

// TestAccepts shows which texts belong to a format.
func TestAccepts(t *testing.T) {
	for name, c := range textsOfSpecs() {
		t.Run(name, func(t *testing.T) {
			p := specs[name]
			f := p.Format(newAccount())

			for _, list := range c.yes {
				for _, s := range list {
					if !accepts(f, s) {
						t.Errorf("not accepted: %s", s)
					}
				}
			}

			for _, list := range c.no {
				for _, s := range list {
					if accepts(f, s) {
						t.Errorf("accepted: %s", s)
					}
				}
			}
		})
	}
}
