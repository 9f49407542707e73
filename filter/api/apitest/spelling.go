package apitest

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// spelling is how an HTTP library writes JSON.
type spelling struct {
	name string
	// White space after commas and colons, and before members and elements.
	comma, colon, line string
	// The characters that are escaped beside those that JSON must escape.
	escaped func(r rune) bool
	slash   bool   // / is written as \/
	hex     string // of escapes: %04x or %04X
	quote   string // a quote in a string; "": \"
}

// spellings are those of common libraries, and the extremes.
var spellings = []spelling{
	{name: "json.dumps of Python", comma: " ", colon: " ", escaped: func(r rune) bool { return r > 0x7e }, hex: "%04x"},
	{name: "json.dumps of Python, ensure_ascii=False", comma: " ", colon: " ", hex: "%04x"},
	{name: "orjson, JSON.stringify, Go without SetEscapeHTML", hex: "%04x"},
	{name: "Go", escaped: func(r rune) bool { return strings.ContainsRune("<>&\u2028\u2029", r) }, hex: "%04x"},
	{name: "PHP", escaped: func(r rune) bool { return r > 0x7e }, slash: true, hex: "%04x"},
	{name: "PHP, JSON_PRETTY_PRINT", colon: " ", line: "\n    ", escaped: func(r rune) bool { return r > 0x7e }, slash: true, hex: "%04x"},
	{name: "System.Text.Json", escaped: func(r rune) bool { return r > 0x7e || strings.ContainsRune("<>&'+`", r) }, hex: "%04X", quote: `\u0022`},
	{name: "Gson", escaped: func(r rune) bool { return strings.ContainsRune("<>&='\u2028\u2029", r) }, hex: "%04x"},
	{name: "everything escaped", comma: "\t", colon: "\r\n", line: " ", escaped: func(rune) bool { return true }, hex: "%04X", quote: `\u0022`},
}

// write writes a JSON text in the spelling. What arguments have of JSON in a string is written
// by what the client runs in, with the same escapes, and the white space that it has.
func (s *spelling) write(b *strings.Builder, v gjson.Result) {
	switch {
	case v.IsObject(), v.IsArray():
		b.WriteString(v.Raw[:1])
		first := true

		v.ForEach(func(key, value gjson.Result) bool {
			if !first {
				b.WriteString("," + s.comma)
			}
			first = false
			b.WriteString(s.line)
			if v.IsObject() {
				s.string(b, key.Str)
				b.WriteString(":" + s.colon)
			}

			if key.Str == "arguments" && value.Type == gjson.String {
				inner := *s
				inner.comma, inner.colon, inner.line = "", "", ""
				var text strings.Builder
				inner.write(&text, gjson.Parse(value.Str))
				s.string(b, text.String())
				return true
			}

			s.write(b, value)
			return true
		})

		b.WriteString(v.Raw[len(v.Raw)-1:])
	case v.Type == gjson.String:
		s.string(b, v.Str)
	default:
		b.WriteString(v.Raw)
	}
}

func (s *spelling) string(b *strings.Builder, text string) {
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' && s.quote != "":
			b.WriteString(s.quote)
		case r == '"', r == '\\':
			b.WriteString(`\` + string(r))
		case r == '/' && s.slash:
			b.WriteString(`\/`)
		case r == '\n':
			b.WriteString(`\n`)
		case r >= ' ' && (s.escaped == nil || !s.escaped(r)):
			b.WriteRune(r)
		default:
			// JSON escapes a character beyond the first plane as two halves.
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(b, `\u`+s.hex, unit)
			}
		}
	}

	b.WriteByte('"')
}

// Spoken has what libraries spell in different ways, as the content of a JSON string.
const Spoken = "Привет, 世界 🙂 <b>&amp;</b> 'a'=`b`+c/d \\\"q\\\" \\\\n \\n\\t\\b\\f\\u0001\\u001f\u007f\u0085\u00a0\u2028\u2029\ufeff <|call|>"

// Spellings shows that requests which differ only in how a library has written their JSON
// have one prompt, token by token, and one key for routing. The prompt has what is Spoken,
// as it is spelled in JSON, so many times.
func (a *API) Spellings(t testing.TB, body string, times int) {
	t.Helper()
	if !gjson.Valid(body) {
		t.Fatal("no JSON")
	}
	want := a.MustDecode(t, body)
	prompt := Spell(t, want.Engine().Prompt)
	// Two prompts that both lost the text would be equal too.
	if n := strings.Count(prompt, Spoken); n != times {
		t.Errorf("the text is %d times in the prompt, want %d:\n%s", n, times, prompt)
	}

	for i := range spellings {
		var b strings.Builder
		spellings[i].write(&b, gjson.Parse(body))
		got := a.MustDecode(t, b.String())
		if diff := cmp.Diff(prompt, Spell(t, got.Engine().Prompt)); diff != "" {
			t.Errorf("%s: %s", spellings[i].name, diff)
		} else if diff := cmp.Diff(want.Engine().Prompt, got.Engine().Prompt); diff != "" {
			t.Errorf("%s: other tokens: %s", spellings[i].name, diff)
		}
		if got.Affinity() != want.Affinity() {
			t.Errorf("%s: another key for routing", spellings[i].name)
		}
	}
}

// NoArguments shows that a call in the history without arguments has an empty object. body is
// a request with a call whose object has these members beside others, each with a comma
// before it. name is the one of its arguments; text: they are a string.
func (a *API) NoArguments(t testing.TB, body func(members string) string, name string) {
	t.Helper()
	want := a.MustDecode(t, body(`,"`+name+`":{}`)).Engine().Prompt
	if !strings.Contains(Spell(t, want), "<|message|>{}<|call|>") {
		t.Errorf("the prompt is %s", Spell(t, want))
	}
	// Clients and libraries differ in how they write a call without arguments: all of these occur.
	for _, members := range []string{``, `null`, `""`, `" "`, `"\n\t\r "`, `"null"`, `" null\n"`, `"{}"`} {
		if members != "" {
			members = `,"` + name + `":` + members
		}
		if diff := cmp.Diff(want, a.MustDecode(t, body(members)).Engine().Prompt); diff != "" {
			t.Errorf("%s: %s", members, diff)
		}
	}
}
