package jsontext

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// pieces are what generated JSON is made of: values, some with the bytes that are
// special in strings at any distance, and what can break a text.
var pieces = []string{
	`{`, `}`, `[`, `]`, `,`, `:`, `""`, `"a":`, `"a":`, `"role":"user"`, `1`, `-0.5e+10`, `1e999`, `01`, `.5`, `true`, `false`, `null`, `nul`,
	`"plain text that is longer than two words of eight bytes"`, `"\n"`, `"line\nline\tof \"code\" \\"`, `"\\\""`, `"\u00e9\ud83d\ude42\ud800\u0041\uDC00"`,
	`"\u12"`, `"\x"`, "\"\x1f\"", "\"0123456789abcde\x00\"", `"é🙂 \u2028"`, "\"\xff\"", "\"\xa2\x80\xdc\"", " ", "\n\t\r ", `"`, `\`, "x", `{}`, `[]`, `{"a":[{"b":[]}]}`,
}

// generated returns a text: mostly JSON, with mistakes in some.
func generated(random *rand.Rand) string {
	var b strings.Builder
	writeValue(&b, random, 4)
	text := b.String()
	for range random.IntN(3) {
		at := random.IntN(len(text) + 1)
		switch piece := pieces[random.IntN(len(pieces))]; random.IntN(3) {
		case 0:
			text = text[:at] + piece + text[at:]
		case 1:
			text = text[:at] + text[min(len(text), at+random.IntN(4)):]
		}
	}
	return text
}

func writeValue(b *strings.Builder, random *rand.Rand, depth int) {
	brackets := []string{"{}", "[]"}[random.IntN(2)]
	if depth == 0 || random.IntN(3) == 0 {
		b.WriteString(pieces[6+random.IntN(len(pieces)-6)])
		return
	}
	b.WriteByte(brackets[0])
	for i := range random.IntN(5) {
		if i > 0 {
			b.WriteString(",")
		}
		if brackets == "{}" {
			b.WriteString(`"` + strings.Repeat(`k\n`, random.IntN(4)) + string(rune('a'+i)) + `" :`)
		}
		writeValue(b, random, depth-1)
	}
	b.WriteByte(brackets[1])
}

// checkWalk compares this package's check and walk with those of encoding/json and
// gjson. Of text that is not JSON nothing is expected but an end.
func checkWalk(t *testing.T, text string) {
	t.Helper()
	want := json.Valid([]byte(text)) && Depth(text) <= MaxDepth
	if got := valid([]byte(text)); got != want {
		t.Fatalf("%q: valid %v, want %v", text, got, want)
	}
	root := gjson.Parse(text)
	if !want {
		walk(root)
		return
	}
	if utf8.ValidString(text) {
		sameWalk(t, root)
	}
}

func walk(v gjson.Result) {
	if v.IsObject() || v.IsArray() {
		each(v, func(_ string, v gjson.Result) bool {
			walk(v)
			return true
		})
	}
}

// sameWalk compares the members of a value, and of those in it, with gjson's.
func sameWalk(t *testing.T, v gjson.Result) {
	t.Helper()
	if !v.IsObject() && !v.IsArray() {
		return
	}

	type member struct {
		key, raw, str string
		kind          gjson.Type
		num           float64
	}

	var got, want []member
	v.ForEach(func(k, v gjson.Result) bool {
		want = append(want, member{k.Str, v.Raw, v.Str, v.Type, v.Num})
		return true
	})

	each(v, func(key string, v gjson.Result) bool {
		got = append(got, member{key, v.Raw, v.Str, v.Type, v.Num})
		sameWalk(t, v)
		return true
	})

	if len(got) != len(want) {
		t.Fatalf("%q has %d members, want %d", v.Raw, len(got), len(want))
	}

	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%q: member %d is %+v, want %+v", v.Raw, i, got[i], want[i])
		}
	}
}

func TestWalk(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	whole := 0
	for range 50000 {
		text := generated(random)
		if json.Valid([]byte(text)) {
			whole++
		}
		checkWalk(t, text)
	}
	if whole < 1000 {
		t.Errorf("only %d of the texts are JSON", whole)
	}
	for n := range 40 { // a special byte at every distance from the beginning of a word
		for _, special := range []string{"\x00", "\x1f", `"`, `\`, `\"`, "\x7f", "\xa2", "é"} {
			checkWalk(t, `["`+strings.Repeat("x", n)+special+strings.Repeat("y", 20)+`"]`)
			checkWalk(t, `["`+strings.Repeat("é", n)+special+strings.Repeat("y", 20)+`"]`)
		}
	}
}

// FuzzWalk is TestWalk with any text.
func FuzzWalk(f *testing.F) {
	for _, seed := range pieces {
		f.Add("[" + seed + "]")
		f.Add(`{"a":` + seed + `}`)
	}
	f.Fuzz(checkWalk)
}

// BenchmarkParse reads a request of a megabyte and visits its messages.
func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{
		"prose": strings.Repeat("The Danube flows through ten countries, more than any other river in the world. ", 30),
		"code":  strings.Repeat(`\tif err != nil {\n\t\treturn fmt.Errorf(\"read %s: %w\", name, err)\n\t}\n`, 30),
		"short": "ok",
		"han":   strings.Repeat("多瑙河流经十个国家。", 80),
	} {
		message := `{"role":"user","content":"` + text + `"},`
		body := []byte(`{"messages":[` + strings.Repeat(message, 1<<20/len(message)) + `{}]}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				root, err := Parse(body)
				if err != nil {
					b.Fatal(err)
				}
				walk(root)
			}
		})
	}
}
