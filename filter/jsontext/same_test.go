package jsontext

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[true,null,"x"]}`, ` { "b" : [ true , null , "x" ] , "a" : 1 } `, true},
		{`{"a":{"b":{},"c":[]}}`, `{"a":{"c":[ ],"b":{ }}}`, true},
		{`{"a":"é\/\n\ud83d\ude42"}`, `{"a":"é/\u000a🙂"}`, true},
		{`{"\u0061":1}`, `{"a":1}`, true},
		{`[]`, `[ ]`, true},
		{`"a"`, ` "a"`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1,"b":2}`, `{"a":1}`, false},
		{`{"a":1}`, `{"b":1}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":"x"}`, `{"a":"x "}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[1,2]`, `[1]`, false},
		{`[1]`, `[1,2]`, false},
		{`[]`, `[1]`, false},
		{`[[]]`, `[{}]`, false},
		{`{}`, `[]`, false},
		{`[true]`, `[false]`, false},
		{`[null]`, `[0]`, false},
		{`[0]`, `[null]`, false},
		{`[1]`, `["1"]`, false},
		{`[1]`, `[{}]`, false},

		// Two readers may read two things.
		{`{"a":1,"a":1}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":1,"a":1}`, false},
		{`{"a":1,"a":1 }`, `{"a":1,"a":1}`, false},
		{`["\ud800"]`, `["\ud801"]`, false},
		{`["\ud800"]`, `["\ufffd"]`, false},
		{`{"\ud800":1}`, `{"\ud801":1}`, false},
		{`["\ud800"]`, `["\ud800"]`, true},

		{`[1]`, `[1.0]`, true},
		{`[100]`, `[1e2]`, true},
		{`[100]`, `[1.00E+2]`, true},
		{`[0]`, `[0.00e7]`, true},
		{`[0]`, `[-0]`, false},
		{`[0.1]`, `[0.10]`, true},
		{`[0.1]`, `[1e-1]`, true},
		{`[0.1]`, `[0.1000000000000000055]`, true},
		{`[0.1]`, `[0.11]`, false},
		{`[0.1000000000000000055]`, `[0.1000000000000000056]`, false},
		{`[100000000000000000.25]`, `[100000000000000000.75]`, false},
		{`[1]`, `[-1]`, false},
		{`[1e21]`, `[1000000000000000000000]`, true},
		{`[9007199254740993]`, `[9007199254740992]`, false},
		{`[12345678901234567890]`, `[12345678901234567000]`, false},
		{`[9007199254740993.5]`, `[9007199254740994]`, false},
		{`[1e400]`, `[1e401]`, false},
		{`[1e400]`, `[10e399]`, true},
		{`[1e-400]`, `[1e-401]`, false},
		{`[1e99999999999999999999]`, `[10e99999999999999999998]`, false},

		// No JSON.
		{`a`, `a`, true},
		{`a`, `a `, false},
		{`{"a":1`, `{"a": 1`, false},
		{``, ``, true},
		{``, ` `, false},
		{`{"a":01}`, `{"a":1}`, false},
		{strings.Repeat("[", 1000), strings.Repeat("[", 1000) + " ", false},
	} {
		if got, back := Same(c.a, c.b), Same(c.b, c.a); got != c.same || back != c.same {
			t.Errorf("%s and %s: %v, %v", c.a, c.b, got, back)
		}
	}
}

// TestSameNested shows that deep objects are compared in proportion to their length.
func TestSameNested(t *testing.T) {
	t.Parallel()
	nested := func(depth int, inner string) string {
		return strings.Repeat(`{"a":`, depth) + inner + strings.Repeat("}", depth)
	}
	if !Same(nested(8, "1"), nested(8, " 1")) {
		t.Error("few levels differ")
	}
	if Same(nested(120, `"`+strings.Repeat("x", 1000)+`"`), nested(120, ` "`+strings.Repeat("x", 1000)+`"`)) {
		t.Error("many levels are compared")
	}
}

// TestSameRandom compares values with a copy that is spelled in another way, or changed.
func TestSameRandom(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		value := randomValue(rng, 4)
		if a, b := spellRandomly(rng, value), spellRandomly(rng, value); !Same(a, b) {
			t.Fatalf("%s and %s differ", a, b)
		}

		other := randomValue(rng, 4)
		if a, b := spellRandomly(rng, value), spellRandomly(rng, other); Same(a, b) != reflect.DeepEqual(value, other) {
			t.Fatalf("%s and %s", a, b)
		}
	}
}

func randomValue(rng *rand.Rand, depth int) any {
	n := 7
	if depth == 0 {
		n = 5
	}
	switch rng.IntN(n) {
	case 0:
		return rng.IntN(2) == 0
	case 1:
		return nil
	case 2:
		return float64(rng.IntN(40)-20) / []float64{1, 4}[rng.IntN(2)]
	case 3, 4:
		return []string{"", "a", "é", "\n", `"`, "🙂", "<"}[rng.IntN(7)]
	case 5:
		list := make([]any, rng.IntN(3))
		for i := range list {
			list[i] = randomValue(rng, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range rng.IntN(4) {
		object[[]string{"a", "b", "é", ""}[rng.IntN(4)]] = randomValue(rng, depth-1)
	}
	return object
}

// spellRandomly writes a value with members in the order of a map, and other free choices.
func spellRandomly(rng *rand.Rand, value any) string {
	space := func() string { return []string{"", "", " ", "\n\t"}[rng.IntN(4)] }
	switch v := value.(type) {
	case map[string]any:
		parts := make([]string, 0, len(v))
		for name, member := range v {
			parts = append(parts, space()+spellRandomly(rng, name)+space()+":"+space()+spellRandomly(rng, member)+space())
		}
		return "{" + strings.Join(parts, ",") + space() + "}"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = space() + spellRandomly(rng, v[i]) + space()
		}
		return "[" + strings.Join(parts, ",") + "]"
	case float64:
		if rng.IntN(2) == 0 && v != 0 {
			return strconv.FormatFloat(v, 'e', -1, 64)
		}
	case string:
		if rng.IntN(2) == 0 && v != "" && utf8.RuneCountInString(v) == 1 && v < "\uffff" {
			return `"\u` + ("0000" + strconv.FormatInt(int64([]rune(v)[0]), 16))[len(strconv.FormatInt(int64([]rune(v)[0]), 16)):] + `"`
		}
	}
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(value)
	return strings.TrimSpace(b.String())
}

func FuzzSame(f *testing.F) {
	f.Add(`{"a":[1,2.5e3,"x\u0041"],"b":null}`, `{"b":null,"a":[1.0,2500,"xA"]}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		same := Same(a, b)
		if !Same(a, a) {
			t.Fatal("not reflexive")
		}
		var x, y any
		if errA, errB := json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y); same && a != b && errA == nil && errB == nil && !reflect.DeepEqual(x, y) {
			t.Fatalf("the same, but %v and %v", x, y)
		}
	})
}
