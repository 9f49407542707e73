package arguments

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// repaired is what a repairer makes of a text in pieces.
func repaired(text, parameter string, next func(left int) int) (got string, made Repairs, valid bool) {
	return read(New(parameter), text, next)
}

// TestRepairs shows what becomes of faulty arguments, whatever the pieces in which they
// come.
func TestRepairs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// Want "": the text as it is.
		text, want string
		kinds      []Kind
		invalid    bool
		parameter  string
	}{
		"valid":                               {text: `{"a":[1,-2.5e3,true,null],"b":{"c":"é\u00e9\n\"x\\"}}`},
		"white space":                         {text: " {\n \"a\" : [ ] ,\t\"b\" : { } } \n"},
		"empty object":                        {text: `{}`},
		"names that are there twice, in JSON": {text: `{"a":1,"a":2}`},

		"trailing comma":                 {text: `{"a":[1,2,],"b":1, }`, want: `{"a":[1,2],"b":1 }`, kinds: []Kind{TrailingComma}},
		"an object and a comma":          {text: `{"a":{"b":1,},}`, want: `{"a":{"b":1}}`, kinds: []Kind{TrailingComma}},
		"python words":                   {text: `{"a":True,"b":[False,None]}`, want: `{"a":true,"b":[false,null]}`, kinds: []Kind{PythonWord}},
		"python words in text":           {text: `{"a":"True, None"}`},
		"line breaks":                    {text: "{\"a\":\"x\ny\tz\x01\r\"}", want: `{"a":"x\ny\tz\u0001\r"}`, kinds: []Kind{Control}},
		"line break in a name":           {text: "{\"a\nb\":1}", invalid: true},
		"single quotes":                  {text: `{'a': 'b', 'c': ['x "y"', '\'y\'', '\u00e9\xe9\b\n']}`, want: `{"a": "b", "c": ["x \"y\"", "'y'", "\u00e9\u00e9\b\n"]}`, kinds: []Kind{SingleQuotes}},
		"both quotes":                    {text: `{'a': "it's", "b": 'c'}`, want: `{"a": "it's", "b": "c"}`, kinds: []Kind{SingleQuotes}},
		"apostrophe":                     {text: `{'a': 'l\'été d'Éva'}`, want: `{"a": "l'été d'Éva"}`, kinds: []Kind{SingleQuotes}},
		"apostrophe of an array":         {text: `{'a': ['it's']}`, invalid: true},
		"apostrophe of a name":           {text: `{'it's': 1}`, invalid: true},
		"apostrophe at an end":           {text: `{'a': 'the dogs' bed'}`, invalid: true},
		"a comma is missing":             {text: `{'path': '/tmp/a' 'content': 'hello'}`, invalid: true},
		"a quote is missing":             {text: `{'path': '/tmp/a, 'content': 'hello'}`, invalid: true},
		"quotes in quotes":               {text: `{'a': 'say 'hi', please'}`, invalid: true},
		"two quotes":                     {text: `{'a': 'it''s'}`, invalid: true},
		"a wrong escape there":           {text: `{'a': '\d'}`, invalid: true},
		"a name twice":                   {text: `{"a":1,'a':2}`, invalid: true},
		"a name twice, escaped":          {text: `{"b":{"a":1},"a":1,"\u0061":True}`, invalid: true},
		"names at other levels":          {text: `{"a":{"a":1},"b":[{"a":1},{"a":2}],"c":{'a':True}}`, want: `{"a":{"a":1},"b":[{"a":1},{"a":2}],"c":{"a":true}}`, kinds: []Kind{SingleQuotes, PythonWord}},
		"quotes in other quotes":         {text: `{"a":'","b":2.5',"c":"d"}`, invalid: true},
		"commas and brackets":            {text: `{"a":1,}}`, invalid: true},
		"a comma in a name":              {text: `{'a':'b', ',c':'d'}`, invalid: true},
		"brackets and single quotes":     {text: `{'a':'b'}}`, invalid: true},
		"a name with an escape":          {text: `{"\ufeff":1,"b":True}`, invalid: true},
		"quotes in other quotes, behind": {text: `{"a":"b","c":'d "e" f'}`, invalid: true},
		"a slash in single quotes":       {text: `{'a':'\/'}`, invalid: true},
		"a name with other quotes":       {text: `{"a": {"b': [], 'c": false}`, invalid: true},
		"line break in a list":           {text: "{\"a\":[\"b',\n'c\"]}", invalid: true},
		"line break in a list, single":   {text: "{'a':['b\nc']}", invalid: true},
		"too many names":                 {text: `{"` + strings.Repeat("a", maxNames) + `":1,"b":True}`, invalid: true},
		"an expression":                  {text: `{"a":"\d+"}`, invalid: true},
		"a path":                         {text: `{"a":"C:\data\new"}`, invalid: true},
		"an apostrophe escaped":          {text: `{"a":"it\'s"}`, invalid: true},

		"missing bracket":               {text: `{"a":"b"`, want: `{"a":"b"}`, kinds: []Kind{MissingBracket}},
		"a bracket and its object":      {text: `{"a":["b"`, invalid: true},
		"brackets of two kinds":         {text: `{"a":1,"b":2}]}`, invalid: true},
		"of two kinds, it goes on":      {text: `{"a":[{"b":{"c":1},"d":2}]}]}`, invalid: true},
		"of two kinds, one member":      {text: `{"a":[1,{"b":2,"c":3}]}]}`, want: `{"a":[1,{"b":2,"c":3}]}`, kinds: []Kind{ExtraBracket}},
		"too many behind half a text":   {text: `{"a":"if (b) {c"}}`, invalid: true},
		"too many behind a bracket":     {text: `{"a":"{b}"}}`, invalid: true},
		"too many, a text before":       {text: `{"a":"{b","c":"d"}}`, want: `{"a":"{b","c":"d"}`, kinds: []Kind{ExtraBracket}},
		"too many, a whole text":        {text: `{"a":"f({b}) c"}}`, want: `{"a":"f({b}) c"}`, kinds: []Kind{ExtraBracket}},
		"missing behind a bracket":      {text: `{"a":"b}"`, invalid: true},
		"missing behind one, inner":     {text: `{"a":{"b":"c}"}`, invalid: true},
		"missing behind half a text":    {text: "{\"a\":\"b\n[c\"", invalid: true},
		"missing, a text before":        {text: `{"a":"b}","c":"d"`, want: `{"a":"b}","c":"d"}`, kinds: []Kind{MissingBracket}},
		"missing, an escape behind it":  {text: `{"a":"{b}\n"`, want: `{"a":"{b}\n"}`, kinds: []Kind{MissingBracket}},
		"too many in a list":            {text: `[{"a":"{b}"}]`, want: `{"a":"{b}"}`, kinds: []Kind{ExtraBracket}},
		"too many behind 1 or 2":        {text: `{"a":{"b":1},"c":2}}`, invalid: true},
		"too many behind a list":        {text: `{"a":[{"b":1}],"c":2}}`, want: `{"a":[{"b":1}],"c":2}`, kinds: []Kind{ExtraBracket}},
		"missing behind a list":         {text: `{"a":[{"b":1,"c":2},{"b":3,"c":4}]`, want: `{"a":[{"b":1,"c":2},{"b":3,"c":4}]}`, kinds: []Kind{MissingBracket}},
		"missing behind a list, single": {text: `{'a':[{'b':1,'c':2}]`, invalid: true},
		"missing behind an object":      {text: `{"a":{"b":1}`, want: `{"a":{"b":1}}`, kinds: []Kind{MissingBracket}},
		"missing behind 1 or 2":         {text: `{"a":{"b":1,"c":2}`, invalid: true},
		"two are missing":               {text: `{"a":[{"b":1,"c":"d"`, invalid: true},
		"missing in an array":           {text: `{"a":[["b",["c"]`, invalid: true},
		"missing behind arrays":         {text: `{"a":[["b"],["c"]]`, want: `{"a":[["b"],["c"]]}`, kinds: []Kind{MissingBracket}},
		"missing behind a number":       {text: `{"a":1`, invalid: true},
		"missing behind a whole number": {text: "{\"a\":1\n", want: "{\"a\":1\n}", kinds: []Kind{MissingBracket}},
		"a list of one, not its end":    {text: `[{"a":1}`, invalid: true},
		"in a string":                   {text: `{"a":"b`, invalid: true},
		"in a string, single":           {text: `{'a':'b`, invalid: true},
		"behind a comma":                {text: `{"a":1,`, invalid: true},
		"behind a backslash":            {text: `{"a":"\`, invalid: true},
		"behind a colon":                {text: `{"a":`, invalid: true},

		"too many brackets":           {text: "{\"a\":1}}\n}", want: `{"a":1}`, kinds: []Kind{ExtraBracket}},
		"a bracket, and a remark":     {text: "{\"a\":1}}\n\nThat's it.", want: `{"a":1}`, kinds: []Kind{ExtraBracket, TextAround}},
		"brackets in a fence":         {text: "```json\n{\"a\":1}]\n```", want: `{"a":1}`, kinds: []Kind{ExtraBracket, Fence}},
		"a bracket before a fence":    {text: "{\"a\":1}]\n```", want: `{"a":1}`, kinds: []Kind{ExtraBracket, Fence}},
		"an introduction, a bracket":  {text: `Sure! {"a":1}}`, want: `{"a":1}`, kinds: []Kind{ExtraBracket, TextAround}},
		"a bracket, glued":            {text: `{"a":1}}text`, invalid: true},
		"a bracket, a digit":          {text: `{"a":1}] 5`, invalid: true},
		"a bracket, another object":   {text: `{"a":1}} {"b":2}`, invalid: true},
		"a bracket, no members":       {text: `{}}`, invalid: true},
		"two lists":                   {text: "[[{\"a\":1}]\n]", want: `{"a":1}`, kinds: []Kind{ExtraBracket}},
		"a list, a bracket too many":  {text: `[{"a":1}]]`, want: `{"a":1}`, kinds: []Kind{ExtraBracket}},
		"a list, a bracket within":    {text: `[{"a":1}}]`, want: `{"a":1}`, kinds: []Kind{ExtraBracket}},
		"a list, within 1 or 2":       {text: `[{"a":{"b":1},"c":2}}]`, invalid: true},
		"a list, another behind it":   {text: `[{"a":1}]}`, invalid: true},
		"a list in a fence":           {text: "```json\n[{\"a\":1}]\n```", want: `{"a":1}`, kinds: []Kind{ExtraBracket, Fence}},
		"a list, introduced":          {text: `Here are the arguments: [{"a":1}] That is all.`, want: `{"a":1}`, kinds: []Kind{ExtraBracket, TextAround}},
		"a list with a comma":         {text: `[{"a":1},]`, invalid: true},
		"a list with something":       {text: `[{"a":1},null]`, invalid: true},
		"a list behind something":     {text: `[1,{"a":1}]`, invalid: true},
		"a list of a list of two":     {text: `[[{"a":1}],[{"a":2}]]`, invalid: true},
		"two lists, one end":          {text: `[[{"a":1}]`, invalid: true},
		"a list with a name":          {text: `args: [{"a":1}]`, invalid: true},
		"a list, another parameter":   {text: `[{"a":1}]`, invalid: true, parameter: "command"},
		"a remark about code":         {text: "{\"a\":1}\nThis writes main.go; now I run `go test` (twice).", want: `{"a":1}`, kinds: []Kind{TextAround}},
		"a remark with a member":      {text: `{"a":1} and then b: 2`, invalid: true},
		"a remark with an assignment": {text: `{"a":1} and then b = 2`, invalid: true},
		"a remark with a quote":       {text: `{"a":"rm x"} text"}`, invalid: true},
		"more of a command":           {text: `{"command":"ls"} && rm x`, invalid: true, parameter: "command"},
		"an option":                   {text: `{"command":"ls"} -l and more`, invalid: true, parameter: "command"},
		"two words with a hyphen":     {text: `{"a":1} b-c d`, invalid: true},
		"null behind it":              {text: `{"a":1} null`, invalid: true},
		"None behind it":              {text: `{"a":1} None`, invalid: true},
		"a list of one":               {text: `[{'a':1}]`, want: `{"a":1}`, kinds: []Kind{ExtraBracket, SingleQuotes}},
		"a list of two":               {text: `[{"a":1},{"a":2}]`, invalid: true},
		"a remark":                    {text: `{"a":1} and it's done.`, want: `{"a":1}`, kinds: []Kind{TextAround}},
		"a digit":                     {text: `{"a":1} 5`, invalid: true},
		"no space":                    {text: `{"a":1}e5`, invalid: true},
		"more of the object":          {text: `{"a":{"b":1}},"c":1}`, invalid: true},
		"more, without quotes":        {text: `{"a":1} , c`, invalid: true},
		"another object":              {text: `{"a":1}{"a":1}`, invalid: true},
		"an introduction":             {text: `Sure, here's the call: {"a":1}`, want: `{"a":1}`, kinds: []Kind{TextAround}},
		"an introduction, no end":     {text: `Sure! {"a":"b"`, want: `{"a":"b"}`, kinds: []Kind{TextAround, MissingBracket}},
		"a name before it":            {text: `a: {"b":1}`, invalid: true},
		"two names before it":         {text: `a: 1, b: {"c":1}`, invalid: true},
		"a word before it":            {text: `a {"c":1}`, invalid: true},
		"a call":                      {text: `f({"a":1})`, invalid: true},
		"byte order mark":             {text: "\ufeff{\"a\":1}", want: `{"a":1}`, kinds: []Kind{TextAround}},
		"code fence":                  {text: "```json\n{\"a\":1,}\n```", want: `{"a":1}`, kinds: []Kind{Fence, TrailingComma}},
		"code fence, open":            {text: "```\n{\"a\":1}", want: `{"a":1}`, kinds: []Kind{Fence}},
		"code fence behind":           {text: "{\"a\":1}\n```", want: `{"a":1}`, kinds: []Kind{Fence}},
		"fence and prose":             {text: "Here you go.\n```json\n{\"a\":1}\n```\nThat is all.", want: `{"a":1}`, kinds: []Kind{Fence, TextAround}},
		"nested":                      {text: `"{\"command\":1}"`, want: `{"command":1}`, kinds: []Kind{Nested}, parameter: "command"},
		"nested, single":              {text: `"{'a':1}"`, want: `{"a":1}`, kinds: []Kind{Nested, SingleQuotes}},

		// Without the pipe the last quote could be what is left of a string or of a sentence.
		"raw text":              {text: "ls -l\n\"x\" `date` | wc", want: "{\"command\":\"ls -l\\n\\\"x\\\" `date` | wc\"}", kinds: []Kind{RawText}, parameter: "command"},
		"a sentence about code": {text: "Sure, I list the files with `ls -l`.", invalid: true, parameter: "command"},
		"code at its end":       {text: "Let me run `ls | wc`", invalid: true, parameter: "command"},
		"a quote at the end":    {text: `ls -l "a b"`, want: `{"command":"ls -l \"a b\""}`, kinds: []Kind{RawText}, parameter: "command"},
		"half a smart quote":    {text: `ls -l’`, invalid: true, parameter: "command"},
		"half of a string":      {text: `ls -l'`, invalid: true, parameter: "command"},
		"half of single quotes": {text: `ls -l 'a`, invalid: true, parameter: "command"},
		"quotes of a shell":     {text: `ls 'a b' c`, want: `{"command":"ls 'a b' c"}`, kinds: []Kind{RawText}, parameter: "command"},
		"half a back quote":     {text: "ls `a", invalid: true, parameter: "command"},
		"a language":            {text: "Bash\nls -l", invalid: true, parameter: "command"},
		"a language's command":  {text: "python", want: `{"command":"python"}`, kinds: []Kind{RawText}, parameter: "command"},
		"NaN of a text":         {text: "NaN", invalid: true, parameter: "command"},
		"undefined of a text":   {text: " undefined\n", invalid: true, parameter: "command"},
		"NULL of a text":        {text: "NULL", invalid: true, parameter: "command"},
		"white space of a text": {text: " ls\n", want: `{"command":" ls\n"}`, kinds: []Kind{RawText}, parameter: "command"},
		"a script":              {text: `awk '{print $1}' x`, invalid: true, parameter: "command"},
		"a URL":                 {text: `https://a.example/b`, want: `{"url":"https://a.example/b"}`, kinds: []Kind{RawText}, parameter: "url"},
		"a string":              {text: `"ls -l"`, want: `{"command":"ls -l"}`, kinds: []Kind{RawText}, parameter: "command"},
		"raw text of no tool":   {text: "ls -l", invalid: true},
		"null of a text":        {text: `null`, invalid: true, parameter: "command"},
		"None of a text":        {text: `None`, invalid: true, parameter: "command"},
		"a number of a text":    {text: `5`, invalid: true, parameter: "command"},
		"nested, another name":  {text: `"{\"a\":1}"`, invalid: true, parameter: "command"},
		"object, another name":  {text: `{'a':1}`, invalid: true, parameter: "command"},
		"fence, another name":   {text: "```\n{\"a\":1}\n```", invalid: true, parameter: "command"},
		"code fence of a text":  {text: "```\nls\n```", invalid: true, parameter: "command"},
		"byte order mark of it": {text: "\ufeffls", invalid: true, parameter: "command"},
		"half an object":        {text: `mmand":"ls"}`, invalid: true, parameter: "command"},
		"a member":              {text: `"command":"ls"`, invalid: true, parameter: "command"},
		"a name":                {text: `please run command = ls`, invalid: true, parameter: "command"},
		"a tag":                 {text: `run <command>ls</command>`, invalid: true, parameter: "command"},
		"an attribute":          {text: `parameter="command" ls`, invalid: true, parameter: "command"},
		"another assignment":    {text: `cmd: ls`, invalid: true, parameter: "command"},
		"escaped text":          {text: `echo \"x\"`, invalid: true, parameter: "command"},
		"a name of white space": {text: strings.Repeat(" ", 1000) + "x", invalid: true, parameter: " "},
		"half a call in a text": {text: "run (\n(", invalid: true, parameter: "command"},
		"a call in a text":      {text: `run({...})`, invalid: true, parameter: "command"},
		"a member in a text":    {text: `now "": "x"`, invalid: true, parameter: "command"},
		"an object in a text":   {text: `curl -d '{"a":1}' b`, invalid: true, parameter: "command"},

		"a number":               {text: `42`, invalid: true},
		"an array":               {text: `[1]`, invalid: true},
		"wrong bracket":          {text: `{"a":[1}`, invalid: true},
		"no colon":               {text: `{"a" 1}`, invalid: true},
		"no comma":               {text: `{"a":1 "b":2}`, invalid: true},
		"two commas":             {text: `{"a":1,,"b":2}`, invalid: true},
		"a word":                 {text: `{"a":undefined}`, invalid: true},
		"a wrong number":         {text: `{"a":01}`, invalid: true},
		"not a number":           {text: `{"a":NaN}`, invalid: true},
		"a wrong escape":         {text: `{"a":"\u12x4"}`, invalid: true},
		"a key without quotes":   {text: `{a:1}`, invalid: true},
		"comment":                {text: `{"a":1, // one` + "\n}", invalid: true},
		"white space alone":      {text: "  ", invalid: true, parameter: "command"},
		"nothing":                {invalid: true},
		"deep":                   {text: strings.Repeat(`{"a":`, 511) + "{}" + strings.Repeat("}", 511)},
		"too deep":               {text: strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600), invalid: true},
		"too deep, single":       {text: strings.Repeat(`{'a':`, 600) + "1" + strings.Repeat("}", 600), invalid: true},
		"comma in an empty list": {text: `{"a":[,]}`, invalid: true},
		"half repaired":          {text: `{'a': True, 'b': 'c", "d": 1}`, invalid: true},
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
	for _, text := range []string{"ls -l", `{"a":1,`, `{"a":Tru`, `{"a":"b`, `{'a':1,}`, `{"a":"b"`} {
		r := New("command")
		var got strings.Builder
		got.Write(r.Push([]byte(text)))
		got.Write(r.Flush())
		if got.String() != text {
			t.Errorf("got %q, want %q", &got, text)
		}
	}
}

// The table of the guide has each kind, once.
func TestKinds(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/output.md")
	if err != nil {
		t.Fatal(err)
	}
	for k := range kinds {
		if n := strings.Count(string(guide), "\n| `"+k.String()+"` |"); n != 1 {
			t.Errorf("kind %d, %q, has %d rows", k, k, n)
		}
	}
}

// A JSON object comes out as it is; what is said to be valid is a JSON object, and the rest
// is the text itself; the pieces make no difference; the output is bounded by the input.
func FuzzRepairer(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,true,"\u00e9"]}`, `{'a':'it's',}`, "```json\n{}\n```", `"{\"a\":1}"`, `{"a":"\d"}`, "ls", `{"a":{"b":"c"}`,
		`[{"a":1}]`, "\ufeff{\"a\":\"x\ny\"}} and more", `Sure. {"a":1}`,
	} {
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

		if !valid && (got != text || made != Repairs{}) {
			t.Fatalf("%q became %q, which is neither repaired nor the same", text, got)
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

// What is held back is bounded, whatever begins it. Longer text comes out as it is, and so
// does a text whose repair fails at its end.
func TestHeldIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, behind string }{
		{"ls ", ""},
		{"{'a':'", "'}"},
		{"{\"a\":\"\n", "\"}"},
		{`{"a":1} `, ""},
		{`{"a":1,` + strings.Repeat(" ", MaxHeld) + "}", ""},
		{`{"a":` + strings.Repeat("1", MaxHeld) + "1", ",}"},
	} {
		text := c.before + strings.Repeat("x", MaxHeld) + c.behind
		if got, _, valid := repaired(text, "a", func(left int) int { return min(left, 1<<10) }); valid || got != text {
			t.Errorf("%.10q: %d bytes of %d, valid %t", text, len(got), len(text), valid)
		}
	}
	fits := strings.Repeat("x", MaxHeld)
	if got, _, valid := repaired(fits, "a", func(left int) int { return min(left, 1<<10) }); !valid || len(got) != len(fits)+len(`{"a":""}`) {
		t.Errorf("%d bytes", len(got))
	}
}

// The work on a text that is held back grows with its length alone, whatever is in it: this
// takes a second, or else hours.
func TestHeldIsReadOnce(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"'a':1,", "'a' ", "{'a':", "[", "'", "{", "a'a", "`", "a: ", "Sure. ", `"a": `} {
		for _, before := range []string{"", "{", "[{", "Sure. {", "{'a':'"} {
			text := before + strings.Repeat(piece, MaxHeld/len(piece)-10)
			if got, _, valid := repaired(text, "a", func(left int) int { return left }); !valid && got != text {
				t.Errorf("%.20q: %d bytes of %d", text, len(got), len(text))
			}
		}
	}
}
