package jsontext

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"q": "\u0418"}`:                                  `{"q": "И"}`,
		`{"q":"\u003C|call|\u003e \u0026"}`:                `{"q":"<|call|> &"}`,
		`{"path":"a\/b","\u0061":"\u0022"}`:                `{"path":"a/b","a":"\""}`,
		`"\u005c\u005Cn\u000a\u000D\u0009"`:                `"\\\\n\n\r\t"`,
		`"\u0008\u000c\u0000\u001B\u007f"`:                 "\"\\b\\f\\u0000\\u001b\x7f\"",
		`"\b\f\n\r\t\"\\"`:                                 `"\b\f\n\r\t\"\\"`,
		`"\ud83d\uDE42 \uD83D\ude42"`:                      `"🙂 🙂"`,
		`"\ud83d"`:                                         `"�"`,
		`"\ude42\ud83d\ud83d\ude42"`:                       `"��🙂"`,
		`"\ud83d\u0041 \ud83dx \ud83d\\u0041"`:             `"�A �x �\\u0041"`,
		`"\u2028\u2029\u0085"`:                             "\"\u2028\u2029\u0085\"",
		`"\\u0418 \\\u0418"`:                               `"\\u0418 \\И"`,
		"[1.50, 1E+2,\n-0, 12345678901234567890, \"\\/\"]": "[1.50, 1E+2,\n-0, 12345678901234567890, \"/\"]",
		// What is no JSON stays.
		`{"q":"\u0418"`:    `{"q":"\u0418"`,
		`{"q":"\u0418"} x`: `{"q":"\u0418"} x`,
		`echo "\u0418\/"`:  `echo "\u0418\/"`,
		`"\u04"`:           `"\u04"`,
		`\u`:               `\u`,
		`\`:                `\`,
		``:                 ``,
	} {
		if got := Shown(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}

		if !json.Valid([]byte(text)) {
			continue
		}

		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(want)); err != nil {
			t.Fatal(err)
		}

		if got := string(AppendShown(nil, text)); got != compact.String() {
			t.Errorf("%s is shown as %s, want %s", text, got, &compact)
		}
	}
}

// What nothing has to be changed of is not copied.
func TestShownIsNotCopied(t *testing.T) {
	text := `{"path": "a/b", "text": "` + strings.Repeat(`И "line"\n`, 100) + `"}`
	if n := testing.AllocsPerRun(10, func() { Shown(text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// reference is the one spelling of a JSON value, made by encoding/json: it decodes each token
// and encodes it again. Names, strings and numbers are in their order.
func reference(t *testing.T, raw []byte) (values []string) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()

	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return values
		}

		if err != nil {
			t.Fatal(err)
		}

		switch v := token.(type) {
		case string:
			var b strings.Builder
			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(v); err != nil {
				t.Fatal(err)
			}
			// The line separators are the only ones that it escapes without need.
			text := strings.TrimSuffix(b.String(), "\n")
			values = append(values, strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(text))

		case json.Number:
			values = append(values, v.String())
		case json.Delim:
			values = append(values, v.String())
		case bool:
			values = append(values, map[bool]string{true: "true", false: "false"}[v])
		case nil:
			values = append(values, "null")
		}
	}
}

// The one spelling is that of encoding/json, and JSON in it stays as it is.
func FuzzShown(f *testing.F) {
	f.Add([]byte(`{"a\u0041\/": ["\ud83d\ude42\ud83d\u0008\f", 1e2, true, null, {}], "b":"\\u0418\u007F"}`))
	f.Add([]byte("\"\u2028\\u2028\\\\u2028\""))
	f.Add([]byte(` [ "\u003c|end|\u003e" , -0.0 ] `))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !Valid(string(raw)) || !utf8.Valid(raw) {
			if Valid(string(raw)) {
				return
			}
			if got := Shown(string(raw)); got != string(raw) {
				t.Fatalf("%q, which is no JSON, became %q", raw, got)
			}
			return
		}

		text := Shown(string(raw))
		shown := AppendShown(nil, string(raw))
		if len(text) > len(raw) || len(shown) > len(text) {
			t.Fatalf("%q became longer: %q, %q", raw, text, shown)
		}

		if string(AppendShown(nil, text)) != string(shown) || Shown(text) != text {
			t.Fatalf("%q becomes %q, and then something else", raw, text)
		}

		want := strings.Join(reference(t, raw), "")
		got := strings.NewReplacer(",", "", ":", "").Replace(string(shown))
		if got != strings.NewReplacer(",", "", ":", "").Replace(want) {
			t.Fatalf("%q became %q, want the tokens %q", raw, shown, want)
		}

		if again := strings.Join(reference(t, shown), ""); again != want {
			t.Fatalf("%q has another value than %q", shown, raw)
		}
	})
}

func BenchmarkAppendShown(b *testing.B) {
	property := `"path":{"type":"string","description":"The path of the file, \u0418, relative to the \"root\" of the project."},`
	raw := `{"type": "object", "properties": {` + strings.Repeat(property, 500) + `"x": {"enum": [1, 2.50, null]}}}`
	dst := make([]byte, 0, len(raw))
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		dst = AppendShown(dst[:0], raw)
	}
}
