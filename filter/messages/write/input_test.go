package write

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// pass passes a text through an input in pieces of so many bytes.
func pass(text string, size int) string {
	var in input
	in.reset()
	var out []byte
	for rest := text; rest != ""; {
		n := min(size, len(rest))
		out = in.add(out, []byte(rest[:n]))
		rest = rest[n:]
	}
	return string(in.end(out))
}

// nested returns arrays that nest so many levels.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"an object", `{"a":[1,-2.5e3,true,false,null,"x",{"b":{}},[]]}`, `{"a":[1,-2.5e3,true,false,null,"x",{"b":{}},[]]}`},
		{"white space", " {\n \"a\" : 1 ,\t\"b\":[ 1 , 2 ] }\n", "{\n \"a\" : 1 ,\t\"b\":[ 1 , 2 ] }"},
		{"escapes", `{"a\"b":"\\\n\u00e9\/"}`, `{"a\"b":"\\\n\u00e9\/"}`},
		{"nothing", ``, `{}`},
		{"a line break in a string", "{\"a\":\"1\n2\"}", `{"a":"1\n2"}`},
		{"a backslash that escapes nothing", `{"a":"\d+\'"}`, `{"a":"","arguments":"\\d+\\'\"}"}`},
		{"half an escape", `{"a":"\u12"}`, `{"a":"","arguments":"\\u12\"}"}`},
		{"a wrong escape before another", `{"a":"b\u1\n"}`, `{"a":"b","arguments":"\\u1\\n\"}"}`},
		{"a pair of surrogates", `{"a\ud83d\ude42":"\uD83D\uDE42"}`, `{"a\ud83d\ude42":"\uD83D\uDE42"}`},
		{"a first half alone", `{"a\ud83d":["\ud83d","\ud83d\n","\ud83d\u00e9","\ud83d\ud83d\ude42"]}`, `{"a\ufffd":["\ufffd","\ufffd\n","\ufffd\u00e9","\ufffd\ud83d\ude42"]}`},
		{"a second half alone", `{"a":"\ude42\ud83d\ude42\ude42"}`, `{"a":"\ufffd\ud83d\ude42\ufffd"}`},
		{"an open pair", `{"a":"b\ud83d`, `{"a":"b","arguments":"\\ud83d"}`},
		{"deep", `{"a":` + nested(maxInputDepth-1) + `}`, `{"a":` + nested(maxInputDepth-1) + `}`},
		{"too deep", `{"a":` + nested(maxInputDepth) + `}`, `{"a":` + nested(maxInputDepth-1) + `,"arguments":"[` + strings.Repeat("]", maxInputDepth) + `}"}`},
		{"a fault in an object", `{"a":{"b":{"c":1},x`, `{"a":{"b":{"c":1}},"arguments":",x"}`},
		{"a fault in an empty object", `{"a":{x`, `{"a":{},"arguments":"x"}`},
		{"text behind an empty object", "{} \n{}", `{"arguments":"{}"}`},
		{"a line break in a name", "{\"a\":1,\"b\nc\":2}", `{"a":1,"arguments":",\"b\nc\":2}"}`},
		{"text behind the object", `{"a":1} and more`, `{"a":1,"arguments":"and more"}`},
		{"a second object", `{"a":1}{"b":2}`, `{"a":1,"arguments":"{\"b\":2}"}`},
		{"an open string", `{"a":"b`, `{"a":"b","arguments":""}`},
		{"an open escape", `{"a":"b\`, `{"a":"b","arguments":"\\"}`},
		{"an open name", `{"a":1,"b`, `{"a":1,"arguments":",\"b"}`},
		{"no value", `{"a":1,"b":`, `{"a":1,"arguments":",\"b\":"}`},
		{"an open number", `{"a":[1,2`, `{"a":[1],"arguments":",2"}`},
		{"half a number", `{"a":[1,2e`, `{"a":[1],"arguments":",2e"}`},
		{"half a word", `{"a":[1,tr`, `{"a":[1],"arguments":",tr"}`},
		{"another bracket", `{"a":[1}`, `{"a":[1],"arguments":"}"}`},
		{"a comma at the end", `{"a":1,}`, `{"a":1,"arguments":",}"}`},
		{"a word of another language", `{"a":1,"b":True,"c":2}`, `{"a":1,"arguments":",\"b\":True,\"c\":2}"}`},
		{"a wrong number", `{"a":01}`, `{"arguments":"\"a\":01}"}`},
		{"a name without quotes", `{a:1}`, `{"arguments":"a:1}"}`},
		{"no object", `ls "-l" \`, `{"arguments":"ls \"-l\" \\"}`},
		{"an array", `["a"]`, `{"arguments":"[\"a\"]"}`},
	} {
		for size := 1; size <= len(c.text)+1; size++ {
			got := pass(c.text, size)
			if got != c.want || !json.Valid([]byte(got)) {
				t.Errorf("%s, in pieces of %d: %s, want %s", c.name, size, got, c.want)
				break
			}
		}
	}
}

// TestInputIsObject shows that any text becomes an object, that an object stays as it is, and
// that what is none says so.
func TestInputIsObject(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"{", "}", "[", "]", ":", ",", `"`, `"a"`, `\`, `\u00`, "1", "-", "e", ".", "true", "nul", " ", "\n", "é", `{"a":`, `"b":[`}

	for range 20_000 {
		var b strings.Builder
		b.WriteString("{")
		for range rng.IntN(16) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}

		text := b.String()
		got := pass(text, 1+rng.IntN(5))
		if !json.Valid([]byte(got)) || got[0] != '{' {
			t.Fatalf("%q becomes %q", text, got)
		}

		if json.Valid([]byte(text)) {
			if got != strings.TrimSpace(text) {
				t.Fatalf("the object %q becomes %q", text, got)
			}
			continue
		}

		if object := gjson.Parse(got); !strings.HasSuffix(text, object.Get("arguments").Str) || !object.Get("arguments").Exists() {
			t.Fatalf("%q becomes %q, which has not the rest", text, got)
		}
	}
}
