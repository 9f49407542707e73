package harmony

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// TestSchema compares the type of testdata/schema/<case>/schema.json with
// type.ts. TestRenderReference covers the schemas for which the reference
// writes a correct type.
func TestSchema(t *testing.T) {
	cases, err := filepath.Glob("testdata/schema/*/schema.json")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, name := range cases {
		t.Run(filepath.Base(filepath.Dir(name)), func(t *testing.T) {
			schema, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := appendParameters([]byte("type f = ("), schema, false, new(schemaWork))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ") => any;\n"...)
			golden := filepath.Join(filepath.Dir(name), "type.ts")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// checkType checks a property of the types of all schemas: outside of line
// comments and strings, brackets are balanced.
func checkType(t *testing.T, schema, ts string) {
	t.Helper()
	var open []byte
	for line := range strings.SplitSeq(ts, "\n") {
		for i := 0; i < len(line); i++ {
			switch c := line[i]; {
			case c == '"':
				for i++; i < len(line) && line[i] != '"'; i++ {
					if line[i] == '\\' {
						i++
					}
				}
				if i >= len(line) {
					t.Fatalf("%s:\n%s\nan unterminated string", schema, ts)
				}
			case strings.HasPrefix(line[i:], "//"):
				i = len(line)
			case strings.IndexByte("{[(", c) >= 0:
				open = append(open, c)
			case strings.IndexByte("}])", c) >= 0:
				if len(open) == 0 || strings.IndexByte("{[(", open[len(open)-1]) != strings.IndexByte("}])", c) {
					t.Fatalf("%s:\n%s\nunbalanced %q", schema, ts, c)
				}
				open = open[:len(open)-1]
			}
		}
	}
	if len(open) > 0 {
		t.Fatalf("%s:\n%s\nunbalanced: %q", schema, ts, open)
	}
}

func FuzzSchema(f *testing.F) {
	cases, err := filepath.Glob("testdata/schema/*/schema.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range cases {
		schema, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(schema)
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		for _, reference := range []bool{false, true} {
			ts, err := appendParameters(nil, schema, reference, new(schemaWork))
			if len(ts) > maxSchemaText+len("_: ") {
				t.Fatalf("%d bytes", len(ts))
			}
			if err == nil && !reference {
				checkType(t, string(schema), string(ts))
			}
			if valid := json.Valid(schema) || len(strings.TrimSpace(string(schema))) == 0; err == nil && !valid {
				t.Fatalf("%q: no error", schema)
			}
		}
	})
}

// TestParseValue compares parseValue with encoding/json.
func TestParseValue(t *testing.T) {
	for _, s := range []string{
		`null`, ` {"a" : [1, 2.5e3, -0, "x\u00e9\ud83d\ude42\n\/"], "b":{}} `, `[]`, `"\ud800"`, `"\ud800\u0041"`, "\"\xff\"", `{"a":1,"a":2}`,
		`{`, `[1,]`, `{"a"}`, `{"a":}`, `{,}`, `01`, `1.`, `-`, `1e`, `+1`, `"`, `"\x"`, `"\u12"`, "\"\n\"", `tru`, `nul`, `1 2`, `[1 2]`, `{"a":1 "b":2}`, `{a:1}`,
	} {
		var want any
		wantErr := json.Unmarshal([]byte(s), &want)
		v, err := parseValue([]byte(s))
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: error %v, encoding/json has %v", s, err, wantErr)
		}
		if err != nil {
			continue
		}
		var got any
		if err := json.Unmarshal(v.appendJSON(nil), &got); err != nil {
			t.Errorf("%s: wrote %s: %v", s, v.appendJSON(nil), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s, diff)
		}
	}
}

func TestManyMembers(t *testing.T) {
	var b strings.Builder
	b.WriteString("{")
	for i := range 2000 {
		b.WriteString(`"k` + strings.Repeat("x", i%1000) + `":` + string(rune('0'+i/1000)) + ",")
	}
	v, err := parseValue([]byte(b.String() + `"end":0}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(v.members) != 1001 || v.members[0].name != "k" || v.members[0].value.text != "1" || v.members[1000].name != "end" {
		t.Errorf("%d members, first %+v", len(v.members), v.members[0])
	}
}
