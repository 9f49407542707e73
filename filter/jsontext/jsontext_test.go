package jsontext

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for body, message := range map[string]string{
		`{}`:               "",
		` {"a":[1,"}"]} `:  "",
		`{"a":`:            "not valid JSON",
		``:                 "not valid JSON",
		`"a"`:              "must be a JSON object",
		"{\"a\":\"\xff\"}": "not valid UTF-8",
		`{"a":"\ud800"}`:   "",
		strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1): "levels deep",
		strings.Repeat("[", 32<<20): "levels deep",
	} {
		_, err := Parse([]byte(body))
		if (err == nil) != (message == "") || err != nil && !strings.Contains(err.Message, message) {
			t.Errorf("%.40q: %v, want %q", body, err, message)
		}
	}
}

// The error says where a body stops being JSON, and shows nothing of it.
func TestParsePosition(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                       "ends too early, in line 1 after 0 characters",
		`{"a":1`:                 "ends too early, in line 1 after 6 characters",
		"{\"a\":\n \"secret":     "ends too early, in line 2 after 8 characters",
		`{"a":1,}`:               "from line 1, character 8 on",
		`{"a" 1}`:                "from line 1, character 6 on",
		"{\n\"é\":secret}":       "from line 2, character 5 on",
		`{"a":1} secret`:         "from line 1, character 9 on",
		"{\"a\":\"sec\nret\"}":   "from line 1, character 10 on",
		`{"a":[1,2},"secret":1}`: "from line 1, character 10 on",
		`secret`:                 "from line 1, character 1 on",
		`{'secret':1}`:           "from line 1, character 2 on",
	} {
		_, err := Parse([]byte(body))
		if err == nil || !strings.Contains(err.Message, want) || strings.Contains(err.Message, "secret") {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{``: 0, `1`: 0, `{"a":[]}`: 2, `[[],[[]]]`: 3, `"[[[["`: 0, `"\"[["`: 0, `["\\",[]]`: 2, `]]][`: 0} {
		if got := Depth([]byte(text)); got != want {
			t.Errorf("Depth(%s) = %d, want %d", text, got, want)
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	root, err := Parse([]byte(`{"a":1,"n":null,"\u0062":{"c":[{"d":true}]}}`))
	if err != nil {
		t.Fatal(err)
	}

	var paths []string
	var walk func(key string, f Field) *apierror.Error
	walk = func(_ string, f Field) *apierror.Error {
		paths = append(paths, f.Path)
		switch {
		case f.IsObject():
			return f.Fields(walk)
		case f.IsArray():
			return f.Elements(func(_ int, f Field) *apierror.Error { return walk("", f) })
		}
		return nil
	}

	if err := (Field{Result: root}).Fields(walk); err != nil {
		t.Fatal(err)
	}

	if got, want := fmt.Sprint(paths), "[a b b.c b.c[0] b.c[0].d]"; got != want {
		t.Errorf("paths %s, want %s", got, want)
	}
}

func TestFieldTwice(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `"k%d":1,`, i)
	}
	for _, body := range []string{`{"a":1,"a":1}`, `{"a":null,"\u0061":1}`, `{` + many.String() + `"k3":1}`, `{` + many.String() + `"k99":1}`} {
		root, err := Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		err = (Field{Result: root}).Fields(func(string, Field) *apierror.Error { return nil })
		if err == nil || !strings.Contains(err.Message, "more than once") {
			t.Errorf("%.40s: %v", body, err)
		}
	}
}

// TestClientNames checks that errors do not repeat names that the client chose.
func TestClientNames(t *testing.T) {
	t.Parallel()
	known := func(key string) bool { return key == "known" }
	text := func(_ string, v Field) *apierror.Error {
		_, err := v.Text()
		return err
	}

	for _, c := range []struct {
		body, param string
		read        func(f Field) *apierror.Error
	}{
		{`{"known":"a","known":"b"}`, "known", func(f Field) *apierror.Error { return f.FieldsOf(known, text) }},
		{`{"secret":"a","secret":"b"}`, "", func(f Field) *apierror.Error { return f.FieldsOf(known, text) }},
		{`{"secret":"a","secret":"b"}`, "", func(f Field) *apierror.Error { return f.Fields(text) }},
		{`{"a":{"secret":"a","secret":"b"}}`, "a", func(f Field) *apierror.Error {
			return f.Fields(func(_ string, v Field) *apierror.Error { return v.Fields(text) })
		}},
		{`{"a":{"secret":1}}`, "a", func(f Field) *apierror.Error {
			return f.Fields(func(_ string, v Field) *apierror.Error { return v.Entries(text) })
		}},
	} {
		root, err := Parse([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		err = c.read(Field{Result: root})
		if err == nil || err.Param != c.param || strings.Contains(err.Message, "secret") {
			t.Errorf("%s: %v, param %q", c.body, err, err.Param)
		}
	}
}

func TestInteger(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]int64{"0": 0, "-3": -3, "3.0": 3, "1e3": 1000, "9223372036854775807": 1<<63 - 1} {
		root, _ := Parse([]byte(`{"n":` + number + `}`))
		got, err := Field{root.Get("n"), "n"}.Integer(-1<<63, 1<<63-1)
		if err != nil || got != want {
			t.Errorf("%s = %d, %v; want %d", number, got, err, want)
		}
	}
	for _, number := range []string{"0.5", "1e300", "9223372036854775808", "-1e19", `"1"`, "true", "[]"} {
		root, _ := Parse([]byte(`{"n":` + number + `}`))
		if got, err := (Field{root.Get("n"), "n"}).Integer(-1<<63, 1<<63-1); err == nil {
			t.Errorf("%s = %d", number, got)
		}
	}
}

// TestHalfSurrogates has escapes that follow half of a surrogate pair.
func TestHalfSurrogates(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"\ud800\u0041"`:       "\uFFFDA",
		`"\udc00\u0041"`:       "\uFFFDA",
		`"\ud800\ud83d\ude42"`: "\uFFFD🙂",
		`"\ud83d\ude42\ufffd"`: "🙂\uFFFD",
		`"\ud800\n"`:           "\uFFFD\n",
	} {
		root, _ := Parse([]byte(`{"a":` + raw + `,` + raw + `:1}`))
		if got, err := (Field{root.Get("a"), "a"}).Text(); err != nil || got != want {
			t.Errorf("%s is read as %q, want %q: %v", raw, got, want, err)
		}

		var keys []string
		_ = Field{Result: root}.Fields(func(key string, _ Field) *apierror.Error {
			keys = append(keys, key)
			return nil
		})
		if len(keys) != 2 || keys[1] != want {
			t.Errorf("the members are %q, want %q", keys, want)
		}
	}
}

func FuzzAppendEscaped(f *testing.F) {
	f.Add("plain")
	f.Add("\"\\\n\r\t\x00\x1f\u007f\u0085\u2028\u2029 naïve 🙂\xff\xf0\x9f")
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendString(nil, s)
		if strings.ContainsAny(string(got), "\n\r\u0085\u2028\u2029") || !utf8.Valid(got) {
			t.Fatalf("a line break in %q", got)
		}
		var back string
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if want := string([]rune(s)); back != want { // every invalid byte is a U+FFFD
			t.Fatalf("%q became %q", s, back)
		}
	})
}

func TestAppendCompact(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		` { "a b" : [ 1 , "x \" ", null ] } ` + "\r\n\t": `{"a b":[1,"x \" ",null]}`,
		`"\\" `:                  `"\\"`,
		"\"naïve \u2028\u0085\"": `"naïve \u2028\u0085"`,
		`{}`:                     `{}`, `7 `: `7`,
	} {
		if got := string(AppendCompact(nil, raw)); got != want {
			t.Errorf("%q became %s, want %s", raw, got, want)
		}
	}
}

func FuzzAppendCompact(f *testing.F) {
	f.Add([]byte("{\"a \\\" \" : [ 1, null , \"\u2028\" ] }"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		got := AppendCompact(nil, string(raw))
		var want, back any
		if err := json.Unmarshal(raw, &want); err != nil {
			return // a number outside the range of float64
		}
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(want, back) || strings.ContainsAny(string(got), "\n\r\u0085\u2028\u2029") {
			t.Fatalf("%q became %q", raw, got)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"a":"x"}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		root, err := Parse(body)
		if err != nil {
			return
		}
		_ = Field{Result: root}.Fields(func(_ string, v Field) *apierror.Error {
			_, _ = v.Text()
			_, _ = v.Number(0, 1)
			_, _ = v.Integer(0, 1)
			return v.Elements(func(int, Field) *apierror.Error { return nil })
		})
	})
}

func TestAppendAllocates(t *testing.T) {
	text := []byte("a \"quoted\" text, naïve 🙂\n")
	dst := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() { dst = AppendEscaped(dst[:0], text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppendEscaped(b *testing.B) {
	text := []byte(strings.Repeat("an ordinary word, naïve ", 8))
	dst := make([]byte, 0, 1024)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		dst = AppendEscaped(dst[:0], text)
	}
}
