package extproc

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func scanOf(pieces ...string) *modelScan {
	var s modelScan
	for _, p := range pieces {
		s.feed([]byte(p))
	}
	return &s
}

func TestModelScan(t *testing.T) {
	for _, c := range []struct {
		name, body, model   string
		found, twice, other bool
	}{
		{"first", `{"model":"gpt-oss-20b","messages":[]}`, "gpt-oss-20b", true, false, false},
		{"last", `{"messages":[{"model":"x","a":["model"]}], "n":1 , "model" : "m"}`, "m", true, false, false},
		{"nested only", `{"a":{"model":"x"},"b":[{"model":"y"}]}`, "", false, false, false},
		{"as a value", `{"a":"model","b":"x"}`, "", false, false, false},
		{"escaped key and value", `{"mod\u0065l":"gp\u0074\"x"}`, `gpt"x`, true, false, false},
		{"escaped quote before", `{"a":"\"model\":\"x\"","model":"m"}`, "m", true, false, false},
		{"twice", `{"model":"a","model":"b"}`, "a", true, true, false},
		{"number", `{"model":1}`, "", true, false, true},
		{"null", `{"model":null,"x":1}`, "", true, false, true},
		{"object", `{"model":{"model":"x"}}`, "", true, false, true},
		{"long key", `{"` + strings.Repeat("m", 2*maxModelName) + `":"x","model":"m"}`, "m", true, false, false},
		{"empty", ``, "", false, false, false},
		{"other brackets", `]]}}{"model":"m"}`, "", false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(how string, s *modelScan) {
				t.Helper()
				if s.done != c.found || s.found != c.found || s.twice != c.twice || s.other != c.other || s.model != c.model {
					t.Errorf("%s: found %v twice %v other %v model %q", how, s.found, s.twice, s.other, s.model)
				}
			}
			check("whole", scanOf(c.body))
			check("bytes", scanOf(strings.Split(c.body, "")...))
		})
	}
}

// slowScan is the scan byte by byte.
type slowScan struct{ modelScan }

func (s *slowScan) feed(p []byte) {
	for _, c := range p {
		s.zero = s.zero || c == 0
		if !s.inText {
			s.outside(c)
			continue
		}
		switch {
		case s.escape:
			s.escape = false
		case c == '\\':
			s.escape = true
		case c == '"':
			s.inText = false
			s.endText()
			continue
		}
		s.keep([]byte{c})
	}
}

// A scan has the same state after every piece as one that looks at each byte.
func TestModelScanInPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{`{`, `}`, `[`, `]`, `"`, `"`, `"`, `\`, `\`, `\\`, `\"`, `:`, `,`, `"model"`, `"m\u006fdel":`, "a", " word", "\x00", "é", "1", strings.Repeat("x", maxModelName-1)}
	for range 20000 {
		var fast modelScan
		var slow slowScan
		for range 12 {
			var piece strings.Builder
			for range random.IntN(6) {
				piece.WriteString(parts[random.IntN(len(parts))])
			}
			fast.feed([]byte(piece.String()))
			slow.feed([]byte(piece.String()))
			if string(fast.text) != string(slow.text) {
				t.Fatalf("text %.40q, want %.40q", fast.text, slow.text)
			}
			a, b := fast, slow.modelScan
			a.text, b.text = nil, nil
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("%+v, want %+v", a, b)
			}
		}
	}
}

// FuzzModelScan compares the scan of valid objects with a JSON decoder.
func FuzzModelScan(f *testing.F) {
	for _, seed := range []string{`{"model":"m"}`, `{"a":[{}],"model":"\u0041"}`, `{"x":"\\\"","model":"y","z":{}}`, `[`, `{"model":"a","b":"model"}`} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, body string, cut int) {
		cut = max(0, min(cut, len(body)))
		s := scanOf(body[:cut], body[cut:])
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &fields) != nil {
			return
		}
		raw, there := fields["model"]
		if s.found != there {
			t.Fatalf("found %v, there %v", s.found, there)
		}
		var want string
		if there && !s.twice && json.Unmarshal(raw, &want) == nil && string(raw) != "null" && len(raw) < maxModelName {
			if s.model != want && json.Valid([]byte(`"`+want+`"`)) {
				t.Fatalf("model %q, want %q", s.model, want)
			}
		}
	})
}
