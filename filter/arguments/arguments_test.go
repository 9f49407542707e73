package arguments

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// repaired is what a repairer makes of a text in pieces.
func repaired(text, parameter string, next func(left int) int) (got string, made Repairs, valid bool) {
	r := New(parameter)
	var all strings.Builder
	for p := []byte(text); len(p) > 0; {
		n := next(len(p))
		all.Write(r.Push(p[:n]))
		p = p[n:]
	}
	rest, made, valid := r.End()
	all.Write(rest)
	return all.String(), made, valid
}

// TestRepairs shows what becomes of faulty arguments, whatever the pieces in which they
// come.
func TestRepairs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, want string // want "": the text as it is
		kinds      []Kind
		invalid    bool
		parameter  string
	}{
		"valid":                  {text: `{"a":[1,-2.5e3,true,null],"b":{"c":"é\u00e9\n\"x\\"}}`},
		"white space":            {text: " {\n \"a\" : [ ] ,\t\"b\" : { } } \n"},
		"empty object":           {text: `{}`},
		"trailing comma":         {text: `{"a":[1,2,],"b":1, }`, want: `{"a":[1,2],"b":1 }`, kinds: []Kind{TrailingComma}},
		"python words":           {text: `{"a":True,"b":[False,None]}`, want: `{"a":true,"b":[false,null]}`, kinds: []Kind{PythonWord}},
		"python words in text":   {text: `{"a":"True, None"}`},
		"single quotes":          {text: `{'a': 'b', 'c': ['it''s "x"', '\'y\'', '\u00e9\xe9\b\n']}`, want: `{"a": "b", "c": ["it''s \"x\"", "'y'", "\u00e9\u00e9\b\n"]}`, kinds: []Kind{SingleQuotes}},
		"a wrong escape there":   {text: `{'a': '\d'}`, want: `{"a": "\d'}`, invalid: true},
		"apostrophe":             {text: `{'a': 'it's'}`, want: `{"a": "it's"}`, kinds: []Kind{SingleQuotes}},
		"line breaks":            {text: "{\"a\":\"x\ny\tz\x01\r\"}", want: `{"a":"x\ny\tz\u0001\r"}`, kinds: []Kind{Control}},
		"escapes":                {text: `{"a":"it\'s \u0041"}`, want: `{"a":"it's \u0041"}`, kinds: []Kind{Escape}},
		"an expression":          {text: `{"a":"\d+"}`, invalid: true},
		"a path":                 {text: `{"a":"C:\data\new"}`, invalid: true},
		"null of a text":         {text: `null`, invalid: true, parameter: "command"},
		"a number of a text":     {text: `5`, invalid: true, parameter: "command"},
		"nested, another name":   {text: `"{\"a\":1}"`, want: `{"command":"{\"a\":1}"}`, kinds: []Kind{RawText}, parameter: "command"},
		"raw text":               {text: "ls -l\n\"x\"", want: `{"command":"ls -l\n\"x\""}`, kinds: []Kind{RawText}, parameter: "command"},
		"a string":               {text: `"ls -l"`, want: `{"command":"ls -l"}`, kinds: []Kind{RawText}, parameter: "command"},
		"raw text of no tool":    {text: "ls -l", invalid: true},
		"a number":               {text: `42`, invalid: true},
		"an array":               {text: `[1]`, invalid: true},
		"code fence":             {text: "```json\n{\"a\":1,}\n```", want: `{"a":1}`, kinds: []Kind{Fence, TrailingComma}},
		"code fence of a text":   {text: "```\nls\n```", want: "{\"command\":\"```\\nls\\n```\"}", kinds: []Kind{RawText}, parameter: "command"},
		"nested":                 {text: `"{\"command\":1}"`, want: `{"command":1}`, kinds: []Kind{Nested}, parameter: "command"},
		"nothing is missing":     {text: `{"a":1`, invalid: true},
		"in a string":            {text: `{"a":"b`, invalid: true},
		"behind a comma":         {text: `{"a":1,`, invalid: true},
		"behind a backslash":     {text: `{"a":"\`, invalid: true},
		"something follows":      {text: `{"a":1} and more`, invalid: true},
		"too many brackets":      {text: `{"a":1}}`, invalid: true},
		"wrong bracket":          {text: `{"a":[1}`, invalid: true},
		"no colon":               {text: `{"a" 1}`, invalid: true},
		"no comma":               {text: `{"a":1 "b":2}`, invalid: true},
		"two commas":             {text: `{"a":1,,"b":2}`, invalid: true},
		"a word":                 {text: `{"a":undefined}`, invalid: true},
		"a wrong number":         {text: `{"a":01}`, invalid: true},
		"not a number":           {text: `{"a":NaN}`, invalid: true},
		"a wrong escape":         {text: `{"a":"\u12x4"}`, invalid: true},
		"a key without quotes":   {text: `{a:1}`, invalid: true},
		"white space alone":      {text: "  ", invalid: true, parameter: "command"},
		"nothing":                {invalid: true},
		"deep":                   {text: strings.Repeat(`{"a":`, 511) + "{}" + strings.Repeat("}", 511)},
		"too deep":               {text: strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600), invalid: true},
		"an object and a comma":  {text: `{"a":{"b":1,},}`, want: `{"a":{"b":1}}`, kinds: []Kind{TrailingComma}},
		"comma in an empty list": {text: `{"a":[,]}`, invalid: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := c.want
			if want == "" {
				want = c.text
			}
			var kinds Repairs
			for _, k := range c.kinds {
				kinds[k] = true
			}
			random := rand.New(rand.NewPCG(1, 2))
			for i := range 30 {
				next := func(left int) int { return 1 + random.IntN(left) }
				if i == 0 {
					next = func(left int) int { return left }
				}
				if i == 1 {
					next = func(int) int { return 1 }
				}
				got, made, valid := repaired(c.text, c.parameter, next)
				if got != want || valid == c.invalid || valid && made != kinds {
					t.Fatalf("got %s\nwant %s\nvalid %t, repairs %v", got, want, valid, made)
				}
				if valid && !json.Valid([]byte(got)) {
					t.Fatalf("no JSON: %s", got)
				}
			}
		})
	}
}

// Arguments that were cut come out as they are.
func TestFlush(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"ls -l", `{"a":1,`, `{"a":Tru`, `{"a":"b`} {
		r := New("command")
		var got strings.Builder
		got.Write(r.Push([]byte(text)))
		got.Write(r.Flush())
		if got.String() != text {
			t.Errorf("got %q, want %q", &got, text)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := range kinds {
		if k.String() == "" || seen[k.String()] {
			t.Errorf("kind %d is called %q", k, k)
		}
		seen[k.String()] = true
	}
}

// A JSON object comes out as it is; what is said to be valid is a JSON object; the pieces
// make no difference; the output is bounded by the input.
func FuzzRepairer(f *testing.F) {
	for _, text := range []string{`{"a":[1,true,"\u00e9"]}`, `{'a':'it's',}`, "```json\n{}\n```", `"{\"a\":1}"`, `{"a":"\d"}`, "ls"} {
		f.Add(text, "command", uint64(1))
	}
	f.Fuzz(func(t *testing.T, text, parameter string, seed uint64) {
		whole, made, valid := repaired(text, parameter, func(left int) int { return left })
		random := rand.New(rand.NewPCG(seed, 2))
		got, again, validAgain := repaired(text, parameter, func(left int) int { return 1 + random.IntN(left) })
		if got != whole || made != again || valid != validAgain {
			t.Fatalf("in pieces %q, %t; at once %q, %t", got, validAgain, whole, valid)
		}
		isObject := json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimLeft(text, " \n\t\r"), "{")
		if isObject && strings.Count(text, "{")+strings.Count(text, "[") < maxNesting && (got != text || !valid || made != Repairs{}) {
			t.Fatalf("%q became %q, valid %t", text, got, valid)
		}
		if valid && !json.Valid([]byte(got)) {
			t.Fatalf("%q became %q, which is no JSON", text, got)
		}
		if len(got) > 6*len(text)+6*len(parameter)+16 {
			t.Fatalf("%d bytes became %d", len(text), len(got))
		}
	})
}

// Valid arguments cost no memory.
func TestNoAllocation(t *testing.T) {
	r := New("")
	piece := []byte(`"key":["some text \n of a string",1.25,true],`)
	r.Push([]byte("{"))
	r.Push(piece)
	if n := testing.AllocsPerRun(100, func() { r.Push(piece) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRepairer(b *testing.B) {
	text := []byte(`{"path":"a/b.go","text":"` + strings.Repeat(`line of text\n`, 80_000) + `"}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r := New("")
		for p := text; len(p) > 0; {
			n := min(5, len(p))
			r.Push(p[:n])
			p = p[n:]
		}
		if _, _, valid := r.End(); !valid {
			b.Fatal("not valid")
		}
	}
}

func TestRawTextIsBounded(t *testing.T) {
	t.Parallel()
	got, _, valid := repaired(string(bytes.Repeat([]byte("x"), 1<<20)), "a", func(int) int { return 1 << 10 })
	if !valid || len(got) != 1<<20+len(`{"a":""}`) {
		t.Errorf("%d bytes", len(got))
	}
}
