package arguments

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// texts are texts that are no arguments, however they look, of a tool whose only parameter is
// code.
func texts(t testing.TB) map[string]string {
	file, err := os.Open("../api/apitest/testdata/texts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	all := map[string]string{}
	for rows := bufio.NewScanner(file); rows.Scan(); {
		var row struct{ Name, Text string }
		if err := json.Unmarshal(rows.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		all[row.Name] = row.Text
	}
	return all
}

// read is what a repairer makes of a text in pieces.
func read(r *Repairer, text string, next func(left int) int) (got string, made Repairs, valid bool) {
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

// chunkings are ways to cut a text into pieces.
func chunkings(rng *rand.Rand) []func(left int) int {
	return []func(left int) int{
		func(left int) int { return left },
		func(int) int { return 1 },
		func(left int) int { return 1 + rng.IntN(min(left, 9)) },
	}
}

// isText checks that a text becomes the value of code, byte by byte, in all pieces.
func isText(t *testing.T, text string, optional bool) {
	t.Helper()
	for _, next := range chunkings(rand.New(rand.NewPCG(1, uint64(len(text))))) {
		got, made, valid := read(NewText("code", optional), text, next)
		var members map[string]string
		if err := json.Unmarshal([]byte(got), &members); err != nil || len(members) != 1 || members["code"] != text {
			t.Errorf("%q becomes %s, %v", text, got, err)
		}
		if !valid || made != (Repairs{RawText: true}) {
			t.Errorf("%q: valid %v, repairs %v", text, valid, made)
		}
	}
}

// isArguments checks that a text stays what it is, or becomes the object want, in all pieces.
func isArguments(t *testing.T, text, want string, optional bool) {
	t.Helper()
	for _, next := range chunkings(rand.New(rand.NewPCG(2, uint64(len(text))))) {
		got, made, valid := read(NewText("code", optional), text, next)
		if got != want || !valid || made[RawText] || (text == want) != (made == Repairs{}) {
			t.Errorf("%q becomes %s, valid %v, repairs %v; want %s", text, got, valid, made, want)
		}
	}
}

// TestText shows that without a header that says JSON a text is the parameter's, whatever it looks like.
func TestText(t *testing.T) {
	t.Parallel()
	for name, text := range texts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isText(t, text, false)
			isText(t, text, true)
		})
	}
}

// TestTextOfArguments shows that an object with the parameter is the arguments, whole or repaired.
func TestTextOfArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"code":"print(1)"}`:                               "",
		" {\n\t\"code\" : \"a\\n\" } \n":                    "",
		`{"x": 1, "code": ["not a string"], "y": {}}`:       "",
		`{"\u0063ode": "the name has an escape"}`:           "",
		`{"code": "a", "code": "b"}`:                        "",
		`{"a,'[b": 1, "code": "a name of signs"}`:           "",
		`{'code': 'print(1)'}`:                              `{"code": "print(1)"}`,
		"{\"code\": \"a\nb\",}":                             `{"code": "a\nb"}`,
		`{"code": "a"`:                                      `{"code": "a"}`,
		`[{"code": "a"}]`:                                   `{"code": "a"}`,
		`{"code": "a"}}`:                                    `{"code": "a"}`,
		`"{\"code\": \"a\"}"`:                               `{"code": "a"}`,
		"```json\n{\"code\": \"a\"}\n```":                   `{"code": "a"}`,
		`Sure, here's the call: {"code": "a"}`:              `{"code": "a"}`,
		"\ufeff{\"code\": \"a\"}":                           `{"code": "a"}`,
		`{"code": "a"} I count, and it's done.`:             `{"code": "a"}`,
		`{"code": "` + strings.Repeat("x", maxNames) + `"}`: "",
	} {
		if want == "" {
			want = text
		}
		isArguments(t, text, want, false)
		isArguments(t, text, want, true)
	}

	// Nothing but a parameter that may be left out can be meant.
	isArguments(t, "{}", "{}", true)
	isArguments(t, " { }\n", " { }\n", true)
	isText(t, "{}", false)

	if got, made, valid := read(NewText("code", false), "", func(int) int { return 1 }); got != "" || valid || made != (Repairs{}) {
		t.Errorf("nothing becomes %q, valid %v", got, valid)
	}
}

// checkText compares what becomes of a text with what the rule says: JSON and the strict reading
// decide whether it is an object with the parameter.
func checkText(t *testing.T, text, parameter string, optional bool, next func(left int) int) {
	t.Helper()
	got, _, valid := read(NewText(parameter, optional), text, next)

	var members map[string]json.RawMessage
	isObject := json.Unmarshal([]byte(text), &members) == nil && members != nil
	_, has := members[parameter]
	repaired, made, mended := read(New(parameter), text, func(left int) int { return left })

	want := repaired
	switch {
	case isObject && (has || optional && len(members) == 0):
		want = text
	case text == "":
	case isObject || !mended || made[RawText]:
		var value map[string]string
		if err := json.Unmarshal([]byte(got), &value); err != nil || len(value) != 1 || value[parameter] != text {
			t.Errorf("%q becomes %s, %v", text, got, err)
		}
		return
	}
	if got != want || valid != (text != "") {
		t.Errorf("%q becomes %s, want %s", text, got, want)
	}
}

// TestTextsAndDamages checks the rule of generated texts, arguments and damaged arguments.
func TestTextsAndDamages(t *testing.T) {
	t.Parallel()
	cases := 30_000
	if testing.Short() {
		cases = 10_000
	}
	for seed := range uint64(cases) {
		g := newGenerator(seed)
		g.parameter = "command"
		next := chunkings(g.Rand)[seed%3]
		checkText(t, g.string(), "command", g.chance(2), next)

		d := newDamaged(g)
		checkText(t, d.text(), "command", g.chance(2), next)
		if _, ok := d.suffer(g.choose()); ok {
			// A damage may have cut a character, which the model's text never is.
			checkText(t, strings.ToValidUTF8(d.text(), "\ufffd"), "command", g.chance(2), next)
		}
	}
}

// FuzzText checks the rule of any text.
func FuzzText(f *testing.F) {
	for _, text := range texts(f) {
		f.Add(text, "code", false, uint64(1))
	}
	f.Add(`{"code":1}`, "code", true, uint64(2))
	f.Fuzz(func(t *testing.T, text, parameter string, optional bool, seed uint64) {
		// The model's text, and the names of its tools, are whole characters.
		text, parameter = strings.ToValidUTF8(text, "\ufffd"), strings.ToValidUTF8(parameter, "\ufffd")
		if parameter == "" {
			return
		}
		for _, next := range chunkings(rand.New(rand.NewPCG(seed, 1))) {
			checkText(t, text, parameter, optional, next)
		}
	})
}

// TestTextIsStreamed shows from which byte on a text is passed on as it comes.
func TestTextIsStreamed(t *testing.T) {
	t.Parallel()
	for text, held := range map[string]int{
		"print(1)\nprint(2)": len("print"),
		"ls -l":              len("ls "),
		"x = 1":              len("x "),
		"(1)":                0,
		"class A {}":         len("class A "),
		"<p>":                0,
		// Words may introduce an object, up to their end.
		"git status":            len("git status"),
		`{"code": 1}["code"]`:   len(`{"code": 1}["code"]`),
		`"a" + "b"`:             len(`"a" + "b"`),
		"```python\nx = 1\n```": len("```python\nx "),
	} {
		r, waits := NewText("code", false), len(text)
		for i := range len(text) {
			if out := r.Push([]byte(text[i : i+1])); len(out) > 0 && waits == len(text) {
				waits = i
			}
		}
		if waits != held {
			t.Errorf("%q: %d bytes are held back, want %d", text, waits, held)
		}
	}
}

// TestTextCut shows that a text that was cut is passed on as far as it is known to be one.
func TestTextCut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"print(1": `{"code":"print(1`, "ls": "ls", `{"code":"a`: `{"code":"a`, "": "",
	} {
		r := NewText("code", false)
		got := string(r.Push([]byte(text)))
		if got += string(r.Flush()); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestLongText shows that what is held back is bounded, and decided at the same byte however it is cut.
func TestLongText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("words and ", MaxHeld/10+20)
	quoted := func(text string) string { b, _ := json.Marshal(text); return `{"code":` + string(b) + `}` }

	for name, c := range map[string]struct{ text, want string }{
		"words":                       {long, quoted(long)},
		"an object":                   {`{"code":"` + long + `"}`, `{"code":"` + long + `"}`},
		"an object, damaged later":    {`{"code":"` + long + `",}`, `{"code":"` + long + `"}`},
		"an object, damaged at first": {"{'code':'" + long + "'}", quoted("{'code':'" + long + "'}")},
		"an object of others":         {`{"x":"` + long + `"}`, quoted(`{"x":"` + long + `"}`)},
		"a string":                    {`"` + long + `"`, quoted(`"` + long + `"`)},
		"white space":                 {strings.Repeat(" ", MaxHeld+50), quoted(strings.Repeat(" ", MaxHeld+50))},
	} {
		for _, size := range []int{len(c.text), 1000, MaxHeld} {
			r := NewText("code", false)
			var got bytes.Buffer
			for rest := []byte(c.text); len(rest) > 0; {
				n := min(size, len(rest))
				got.Write(r.Push(rest[:n]))
				rest = rest[n:]
				if len(r.held) > MaxHeld {
					t.Fatalf("%s: %d bytes are held back", name, len(r.held))
				}
			}
			rest, _, valid := r.End()
			if got.Write(rest); got.String() != c.want || !valid {
				t.Errorf("%s in pieces of %d becomes %.40q…%.40q, valid %v", name, size, got.String(), got.Bytes()[got.Len()-20:], valid)
			}
		}
	}
}

// TestTextAllocates shows that a piece of text costs no allocation.
func TestTextAllocates(t *testing.T) {
	r := NewText("code", false)
	r.Push([]byte("print("))
	piece := []byte(" \"naïve\"\n and some words")
	r.Push(piece)
	if n := testing.AllocsPerRun(1000, func() { r.Push(piece) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
