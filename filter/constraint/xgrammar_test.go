//go:build engines

package constraint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	command "os/exec"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// verdict is the result of xgrammar for a format.
type verdict struct {
	Accepts []bool
	// Of replies: they follow the format, to their stop token.
	Follows []bool
	// Of processor time.
	Seconds float64
	Error   string
}

// xgrammar runs xgrammar to decide whether texts belong to formats.
func xgrammar(t *testing.T, formats []Format, texts [][]string) []verdict {
	t.Helper()
	var lines bytes.Buffer

	for i, f := range formats {
		line, err := json.Marshal(map[string]any{"tag": string(AppendStructuralTag(nil, f)), "texts": append([]string{}, texts[i]...)})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}

	return verdicts(t, &lines, len(formats))
}

// verdicts runs xgrammar for n lines.
func verdicts(t *testing.T, lines *bytes.Buffer, n int) []verdict {
	t.Helper()
	var stderr bytes.Buffer
	python := os.Getenv("ENGINE_TEST_PYTHON")
	if python == "" {
		t.Fatal("ENGINE_TEST_PYTHON is not set: run make test-engines, or set it to .engines/vllm/venv/bin/python of this folder")
	}
	cmd := command.CommandContext(t.Context(), python, "../../e2e/engines/grammars.py", "../../.engines/models/hf")
	cmd.Stdin, cmd.Stderr = lines, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}

	all := make([]verdict, n)
	said := bufio.NewScanner(bytes.NewReader(out))

	for i := range all {
		if !said.Scan() {
			t.Fatal("xgrammar has said nothing of some formats")
		}
		if err := json.Unmarshal(said.Bytes(), &all[i]); err != nil {
			t.Fatal(err)
		}
	}

	return all
}

// ofXgrammar are schemas or regular expressions, with texts that follow them and
// texts that do not.
var ofXgrammar = []struct {
	schema, regex string
	yes, no       []string
}{
	{regex: `^[[:alpha:]]+$`, yes: []string{"abc"}, no: []string{"a]]", "a1", ""}},
	{regex: `\A[a-z]+\z`, yes: []string{"abz"}, no: []string{"Aabcz"}},
	{regex: `(?i)(?P<n>yes|no)\.`, yes: []string{"yes.", "NO."}, no: []string{"yes", "yesx"}},
	{regex: `[^a-c"\n]{2,}`, yes: []string{"xé\t"}, no: []string{"xa", "x\"", "x\n"}},
	{regex: `.`, yes: []string{"é", "😀", "\t"}, no: []string{"\n", "\u2028", "ab"}},
	{regex: `[\^\]\[\\$.-]+`, yes: []string{"^][\\$.-"}, no: []string{"a"}},
	{regex: `[\^_]`, yes: []string{"^", "_"}, no: []string{"a"}},
	{regex: `^$|^x+$`, yes: []string{"", "xx"}, no: []string{"y"}},
	{regex: `^a|b$`, yes: []string{"a", "b"}, no: []string{"ax"}}, // which is of a whole text
	{regex: `a{1,200}`, yes: []string{"a"}, no: []string{""}},
	{regex: `[\u4e00-\u9fa5]\uD83D\uDE00`, yes: []string{"世😀"}, no: []string{"世"}},

	{schema: `{"type":"string","pattern":"^\\s\\S\\d\\D\\w\\W$"}`, yes: []string{`" x1x_é"`, `" x1xa."`}, no: []string{`" x1xaa"`, `"\u00a0x1xa."`}},
	{schema: `{"type":"string","pattern":"^[^@]+@[^@]+$"}`, yes: []string{`"a@é"`}, no: []string{`"a"`, "\"\n@x\"", `"a"@x"`, `"a@\"`}},
	{schema: `{"type":"string","pattern":"@"}`, yes: []string{`"@"`, `"a@b"`}, no: []string{`"ab"`}},
	{schema: `{"type":"string","pattern":"^a|b$"}`, yes: []string{`"ax"`, `"xb"`}, no: []string{`"xax"`}},
	{schema: `{"type":"string","pattern":"^[\\^_]+$"}`, yes: []string{`"_^"`}, no: []string{`"a"`}},
	{schema: `{"type":"string","pattern":"^[^a]+$"}`, yes: []string{`"é"`}, no: []string{`"a"`, `"""`, "\"\n\"", `"\"`}},
	{schema: `{"type":"string","pattern":"^$"}`, yes: []string{`""`}, no: []string{`"a"`}},
	{schema: `{"type":"string","pattern":""}`, yes: []string{`""`, `"a"`}, no: []string{`a`}},
	{schema: `{"type":"string","pattern":"^[a-z]{1,200}$"}`, yes: []string{`"a"`}, no: []string{`""`, `"A"`}},
	{schema: `{"type":"string","format":"date","pattern":"^x$"}`, yes: []string{`"x"`}, no: []string{`"2026-01-01"`}},
	{schema: `{"type":"object","patternProperties":{"^(?i)a+$":{"type":"integer"}}}`, yes: []string{`{}`, `{"aA":1}`}, no: []string{`{"b":1}`, `{"a":"x"}`}},
	{schema: `{"type":"object","properties":{"a":{"type":"integer"}},"required":["z"]}`, yes: []string{`{"a":1,"z":[]}`, `{"z":1}`}, no: []string{`{"a":1}`, `{}`}},
	{schema: `{"type":"object","required":["z"],"additionalProperties":{"type":"integer"}}`, yes: []string{`{"z":1}`}, no: []string{`{"z":"a"}`, `{}`}},
	{schema: `{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, yes: []string{`{"a":1}`, `{"b":1}`}, no: []string{`{}`}},
	{schema: `{"type":"object","minProperties":2}`, yes: []string{`{"a":1,"b":2}`}, no: []string{`{"a":1}`}},
	{schema: `{"type":"array","items":[{"type":"string"}],"additionalItems":false}`, yes: []string{`["a"]`}, no: []string{`[1]`, `["a",1]`}},
	{schema: `{"oneOf":[{"type":"object","properties":{"t":{"const":"a"}},"required":["t"]},{"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]}`, yes: []string{`{"t":"b"}`}, no: []string{`{"t":"c"}`, `{}`}},
	{schema: `{"type":"array","prefixItems":[{"type":"string"}],"items":false}`, yes: []string{`["a"]`}, no: []string{`["a",1]`}},
}

// TestXgrammarReadsItSo shows that xgrammar accepts the texts that a format means.
func TestXgrammarReadsItSo(t *testing.T) {
	formats := make([]Format, len(ofXgrammar))
	texts := make([][]string, len(ofXgrammar))

	for i, c := range ofXgrammar {
		formats[i] = AnswerRegex(c.regex).content(newAccount())
		if c.schema != "" {
			formats[i] = NewValue(newAccount(), json.RawMessage(c.schema))
		}
		texts[i] = append(append(texts[i], c.yes...), c.no...)
	}

	for i, v := range xgrammar(t, formats, texts) {
		c := ofXgrammar[i]
		if v.Error != "" {
			t.Errorf("%s%s: %s", c.regex, c.schema, v.Error)
			continue
		}

		for j, text := range texts[i] {
			if want := j < len(c.yes); v.Accepts[j] != want {
				t.Errorf("%s%s: %q is accepted: %t", c.regex, c.schema, text, v.Accepts[j])
			}
		}
	}
}

// TestXgrammarReadsReplies shows that xgrammar accepts the tokens of the replies that a spec means, followed by the
// stop token, and no others.
func TestXgrammarReadsReplies(t *testing.T) {
	// Most forms differ from others in a part that others have too.
	const most = 24
	some := func(lists [][]string) (texts []string) {
		for _, list := range lists {
			step := max(1, len(list)/most)
			for i := 0; i < len(list); i += step {
				texts = append(texts, list[i])
			}
		}
		return texts
	}

	var lines bytes.Buffer
	texts := textsOfSpecs()
	names := make([]string, 0, len(texts))
	for name := range texts {
		spec := specs[name]
		var replies [][]harmony.Token
		for _, text := range append(some(texts[name].yes), some(texts[name].no)...) {
			replies = append(replies, append([]harmony.Token{}, tokensOf(text)...))
		}
		line, err := json.Marshal(map[string]any{"tag": string(AppendStructuralTag(nil, spec.Format(newAccount()))), "replies": replies})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
		names = append(names, name)
	}

	for i, v := range verdicts(t, &lines, len(names)) {
		yes := some(texts[names[i]].yes)
		if v.Error != "" {
			t.Errorf("%s: %s", names[i], v.Error)
			continue
		}
		for j, text := range append(yes, some(texts[names[i]].no)...) {
			if want := j < len(yes); v.Follows[j] != want {
				t.Errorf("%s: %q follows it: %t", names[i], text, v.Follows[j])
			}
		}
	}
}

// TestXgrammarIsDone shows that xgrammar compiles schemas just within the bounds. The
// log has the times of the bounds' comments.
func TestXgrammarIsDone(t *testing.T) {
	schemas := map[string]string{
		"a long pattern":           `{"type":"string","pattern":"^[a-z]{1,352}$"}`,
		"a loose pattern":          `{"type":"string","pattern":"^([a-z]{1,16}){1,8}$"}`,
		"a loose pattern, twice":   `{"type":"string","pattern":"^(([a-z]{1,2}){1,2}){1,4}$"}`,
		"a pattern with an end":    `{"type":"string","pattern":"^([a-z]{1,31}-){1,31}$"}`,
		"any characters":           `{"type":"string","pattern":"^.{1,128}$"}`,
		"host names":               `{"type":"string","pattern":"^([a-z]{1,63}\\.){1,8}[a-z]{2,63}$"}`,
		"a length":                 `{"type":"string","maxLength":4096}`,
		"lengths":                  manyLengths(5),
		"optional":                 manyProperties(maxOptional, ""),
		"counted, few":             manyProperties(50, `"minProperties":25,"maxProperties":50`),
		"counted, many":            manyProperties(200, `"minProperties":1,"maxProperties":6`),
		"at least one":             manyProperties(60, `"minProperties":1`),
		"patternProperties":        manyPatterns(maxPatternNames),
		"values":                   manyValues(maxEnum, 32),
		"long values":              manyValues(1000, 64),
		"patterns of no beginning": `{"type":"object","patternProperties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"null"},"d":{"type":"array"}}}`,
	}

	names, formats := make([]string, 0, len(schemas)), make([]Format, 0, len(schemas))
	for name, schema := range schemas {
		if err := CheckSchema(newAccount(), json.RawMessage(schema), true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		names, formats = append(names, name), append(formats, NewValue(newAccount(), json.RawMessage(schema)))
	}

	for i, v := range xgrammar(t, formats, make([][]string, len(formats))) {
		if v.Error != "" {
			t.Errorf("%s: %s", names[i], v.Error)
			continue
		}
		t.Logf("%s: %.1f s", names[i], v.Seconds)
	}
}
