package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A file that is no YAML is an error with the line at fault, and what to change. None has the
// parser's words.
func TestNoYAML(t *testing.T) {
	const indentation, quotes = "its indentation does not fit", "put the value in quotes"
	for _, tt := range []struct {
		text string
		line int
		want string
	}{
		{"engines:\n\t- kind: vllm\n", 2, "it begins with a tab: YAML is indented by spaces alone"},
		{"engines:\n  - kind: vllm\n\turls: [a]\n", 3, "it begins with a tab"},
		{"limits:\n  header_hold: 2s\n  \tkeep_alive: 1s\n", 3, "it begins with a tab"},
		{"limits:\n  header_hold: 2s\n\n# a comment\n\tkeep_alive: 1s\n", 5, "it begins with a tab"},
		{"limits:\n  header_hold: 2s\n   keep_alive: 1s\n", 3, indentation},
		{"limits:\n   header_hold: 2s\n  keep_alive: 1s\ndate: utc\n", 3, indentation},
		{"engines:\n  - kind: vllm\n   urls: [x]\n", 3, indentation},
		{"engines:\n  - kind: vllm\n      urls: [x]\n", 3, indentation},
		{"engines:\n  - kind: vllm\n urls: [x]\ndate: utc\n", 3, indentation},
		{"date: utc\n listen: x\n", 2, indentation},
		{"date utc\nlisten: x\n", 2, "the line above may lack its colon"},
		{"limits:\n  header_hold: 2s\n  keep_alive\ndate: utc\n", 3, "a key has no colon"},
		{"date: utc\nengines: [{kind: vllm, urls: [http://a]}\nlisten: x\n", 2, "is opened here and not closed"},
		{"log: {level: info\ndate: utc\n", 1, "is opened here and not closed"},
		{"date: utc\nlisten: \"a:1\nadmin: b:1\nlog: {level: info}\n", 2, "a quote is opened here"},
		{"date: 'utc\nlisten: x\n", 1, "a quote is opened here"},
		{"date: utc\nlisten: a: b\n", 2, "a value has a colon with a space after it: " + quotes},
		{"date: @x\n", 1, quotes},
		{"date: *x\n", 1, quotes},
		{"date: {{ .Values.date }}\n", 1, "fill in the template"},
		{"log: {level: info}\ndate: utc\ndate: none\n", 3, `the key "date" is there twice: delete one of the two`},
		{"limits: {max_tools: 3, max_tools: 4}\n", 1, `the key "max_tools" is there twice`},
		{"date: \"\\q\"\n", 1, "this is no YAML: found unknown escape character"},
	} {
		_, err := config.Parse("f.yaml", []byte(tt.text))
		where := fmt.Sprintf("configuration f.yaml, line %d: ", tt.line)
		if err == nil || !strings.HasPrefix(err.Error(), where) || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "yaml:") {
			t.Errorf("%q: %v; want line %d, %q", tt.text, err, tt.line, tt.want)
		}
	}
}

// Wherever a line of a valid file is spoilt, the error names that line.
func TestNoYAMLAnywhere(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(`
# comment
engines:
  - kind: vllm
    urls: [http://127.0.0.1:8000]
  - name: second
    kind: sglang
    urls:
      - http://127.0.0.1:30000
limits:
  header_hold: 2s
  keep_alive: 15s
harmony_models: [
  gpt-oss, other,
]
log:
  level: info
listen: 127.0.0.1:9002
`), "\n")
	for i, line := range lines {
		if !strings.Contains(line, ": ") || strings.HasSuffix(line, "[") {
			continue
		}
		key, _, _ := strings.Cut(line, ":")
		for _, spoilt := range []string{"\t" + line, key + ": \"x", key + ": [x", line + ": x: y"} {
			spoilt := append(append(append([]string{}, lines[:i]...), spoilt), lines[i+1:]...)
			_, err := config.Parse("f.yaml", []byte(strings.Join(spoilt, "\n")))
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("f.yaml, line %d: ", i+1)) {
				t.Errorf("line %d, %q: %v", i+1, spoilt[i], err)
			}
		}
	}
}

func TestNoYAMLInAFlag(t *testing.T) {
	c := config.Defaults()
	err := c.Set("harmony_models", "[a")
	if err == nil || err.Error() != "harmony_models: the value is no YAML: a bracket or brace is opened here and not "+
		"closed: write the ] or } that is missing" {
		t.Error(err)
	}
}
