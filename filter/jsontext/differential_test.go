package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// FuzzDifferential compares this package's reading of JSON with encoding/json: what is
// valid, which members are duplicates, and every value.
func FuzzDifferential(f *testing.F) {
	for _, seed := range []string{
		`{"a":"\ud83d\ude42 \ud800 \udc00\u0041 \ud800\u0041 \b\f\n\r\t\/\"\\"}`,
		`{"a":[0,-0,1e3,1E+2,1e-400,1e400,0.1,9007199254740993,-9223372036854775808,18446744073709551616]}`,
		`{"a":1,"\u0061":2}`, `{"a":null,"a":1}`, `{"":{"":[]}}`, ` { } `,
		`{"a":01}`, `{"a":.5}`, `{"a":1.}`, `{"a":+1}`, `{"a":"` + "\t" + `"}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":tru}`, `{"a":1,}`, `{"a":[1,]}`, `{"a":1}x`, `{"a":1}{}`,
		"{\"a\":\"\xff\"}", "\ufeff{}", "{\"a\":\"\x7f\u2028\"}", `{"model":"a","b":"\"}`, `{"\ud800":1,"\ud801":2}`,
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		valid := json.Valid(body) && utf8.Valid(body) && Depth(body) <= MaxDepth
		root, err := Parse(bytes.Clone(body))
		isObject := valid && bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
		if (err == nil) != isObject {
			t.Fatalf("encoding/json takes it as an object: %v; error %v", isObject, err)
		}

		if got := Valid(string(body)); got != (json.Valid(body) && Depth(body) <= MaxDepth) {
			t.Fatalf("valid: %v", got)
		}

		if err != nil {
			if err.Status != 400 || err.Type != apierror.TypeInvalidRequest || strings.Contains(err.Message, "%!") {
				t.Fatal(err)
			}
			return
		}

		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		compare(t, Field{Result: root}, d)
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			t.Fatal("more than one value")
		}
	})
}

// compare compares a value with what a decoder reads next.
func compare(t *testing.T, f Field, d *json.Decoder) {
	t.Helper()
	token, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}

	switch want := token.(type) {
	case json.Delim:
		if want == '{' {
			compareObject(t, f, d)
		} else {
			compareArray(t, f, d)
		}

	case string:
		if got, err := f.Text(); err != nil || !utf8.ValidString(got) || got != want {
			t.Fatalf("text %q, want %q: %v", got, want, err)
		}

	case json.Number:
		compareNumber(t, f, want)
	case bool:
		if got, err := f.Switch(); err != nil || got != want {
			t.Fatalf("switch %v, want %v: %v", got, want, err)
		}

	default:
		if f.Type != gjson.Null {
			t.Fatalf("%s is not null", f.Raw)
		}
	}
}

func compareNumber(t *testing.T, f Field, want json.Number) {
	t.Helper()
	n, outside := want.Float64()
	if got, err := f.Number(math.Inf(-1), math.Inf(1)); err != nil || got != n {
		t.Fatalf("number %v, want %v (%v): %v", got, n, outside, err)
	}
	if i, err := want.Int64(); err == nil {
		if got, err := f.Integer(math.MinInt64, math.MaxInt64); err != nil || got != i {
			t.Fatalf("integer %v, want %v: %v", got, i, err)
		}
	}
}

func compareObject(t *testing.T, f Field, d *json.Decoder) {
	t.Helper()
	seen, twice := map[string]bool{}, false
	var keys, read []string
	f.ForEach(func(_, v gjson.Result) bool {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}

		name, ok := key.(string)
		if !ok {
			t.Fatalf("a member more than encoding/json has: %s", v.Raw)
		}

		twice = twice || seen[name]
		seen[name] = true
		if v.Type != gjson.Null {
			keys = append(keys, name)
		}

		compare(t, Field{Result: v}, d)
		return true
	})

	if end, err := d.Token(); err != nil || end != json.Delim('}') {
		t.Fatalf("members are missing before %v: %v", end, err)
	}

	err := f.Fields(func(key string, _ Field) *apierror.Error {
		read = append(read, key)
		return nil
	})
	if (err != nil) != twice {
		t.Fatalf("a member is given twice: %v; error %v", twice, err)
	}

	if !twice && strings.Join(read, "\x00") != strings.Join(keys, "\x00") {
		t.Fatalf("members %q, want %q", read, keys)
	}
}

func compareArray(t *testing.T, f Field, d *json.Decoder) {
	t.Helper()
	err := f.Elements(func(_ int, v Field) *apierror.Error {
		compare(t, v, d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if end, err := d.Token(); err != nil || end != json.Delim(']') {
		t.Fatalf("elements are missing before %v: %v", end, err)
	}
}
