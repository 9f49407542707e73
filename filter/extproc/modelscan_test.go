package extproc

import (
	"encoding/json"
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
