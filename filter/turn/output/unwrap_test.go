package output

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUnwrap(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"input":"a"}`:                "a",
		" {\n\t\"input\" : \"a b\" } ": "a b",
		`{"input":""}`:                 "",
		`{}`:                           "",
		` { } `:                        "",
		``:                             "",
		`{"input":"\"\\\/\b\f\n\r\t\u0041\u00e9"}`: "\"\\/\b\f\n\r\tAé",
		`{"input":"\ud83d\ude42 🙂"}`:               "🙂 🙂",
		`{"input":"\ud83dx\ud83d\n\ude42\ud83d"}`:  "\ufffdx\ufffd\n\ufffd\ufffd",
		`{"input":"\d\u12x\é"}`:                    `\d\u12x\é`,
		"{\"input\":\"two\nlines\"}":               "two\nlines",
		`{"input":"a","more":"b"}`:                 "a",
		`"alone"`:                                  "alone",
		`"alone" `:                                 "alone",
		`"quoted" and more`:                        "quoted and more",
		`*** Begin Patch`:                          "*** Begin Patch",
		`{"inputs":"a"}`:                           `{"inputs":"a"}`,
		`{"patch":"a"}`:                            `{"patch":"a"}`,
		`{"input":{"a":1}}`:                        `{"input":{"a":1}}`,
		`{"input":null}`:                           `{"input":null}`,
		`{} more`:                                  `{} more`,
		`{"input"`:                                 `{"input"`,
		`{"input":"cut`:                            "cut",
		`{"input":"cut\`:                           `cut\`,
		`{"input":"cut\u00`:                        `cut\u00`,
		`{"input":"cut\ud83d`:                      "cut\ufffd",
	} {
		checkUnwrap(t, in, want)
	}
}

// checkUnwrap unwraps a text cut in several ways.
func checkUnwrap(t *testing.T, in, want string) {
	t.Helper()
	for size := 1; size <= len(in)+1; size++ {
		var u Unwrapper
		var got []byte
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			for n < len(rest) && !utf8.RuneStart(rest[n]) {
				n++
			}
			got = u.Push(got, []byte(rest[:n]))
			rest = rest[n:]
		}
		if got = u.Flush(got); string(got) != want {
			t.Errorf("%q in pieces of %d is %q, want %q", in, size, got, want)
		}
	}
}

// FuzzUnwrap shows that what is wrapped comes out again, and that the result
// does not depend on the pieces.
func FuzzUnwrap(f *testing.F) {
	f.Add("text \"\\\n\x00\u2028 🙂", `{"input":"\ud83d\ude42`)
	f.Fuzz(func(t *testing.T, text, other string) {
		text = strings.ToValidUTF8(text, "\ufffd")
		wrapped, err := json.Marshal(map[string]string{"input": text})
		if err != nil {
			t.Fatal(err)
		}
		checkUnwrap(t, string(wrapped), text)
		other = strings.ToValidUTF8(other, "\ufffd")
		var u Unwrapper
		checkUnwrap(t, other, string(u.Flush(u.Push(nil, []byte(other)))))
	})
}

// TestUnwrapLongSpace has more white space before the text than is read again with each
// piece: the arguments are bare text then, whatever the pieces.
func TestUnwrapLongSpace(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "{", `{"input"`, `{"input":`} {
		short := before + strings.Repeat(" ", maxWrapping-len(`{"input":"`)-1)
		rest := strings.TrimPrefix(`{"input":"text"}`, before)
		checkUnwrap(t, short+rest, "text")

		long := before + strings.Repeat(" ", maxWrapping) + rest
		checkUnwrap(t, long, long)
	}
}
