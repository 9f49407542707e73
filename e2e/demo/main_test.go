package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPlay(t *testing.T) {
	dir := t.TempDir()
	command := filepath.Join(dir, "envoy-harmony")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../../cmd/envoy-harmony", "../../cmd/engine-sim").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out bytes.Buffer
	if err := play(t.Context(), command, &screen{w: &out, width: maxWidth}); err != nil {
		t.Fatalf("%v, after\n%s", err, &out)
	}
	for _, want := range []string{
		"reasoning  The weather decides that.",
		`tool call  get_weather {"city":"Bern"}`,
		"content    Take a jacket: it is 12 °C and rains. ☔\n",
		"<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>",
		"text       Why do tokens never get lost? They know their channel.\n",
		"text       LAST:Why do tokens",
		"<|start|>assistant<|channel|>final<|message|>Why do tokens",
		"content    I am another model.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > maxWidth {
			t.Errorf("a line has %d characters: %s", n, line)
		}
		if strings.Contains(line, "\x1b") || strings.TrimRight(line, " \n")+"\n" != line {
			t.Errorf("%q ends with color codes or spaces", line)
		}
	}
}

// Colors do not change the layout, whatever the chunks of the text are.
func TestScreen(t *testing.T) {
	const text = "one two\n\n  three <|start|>user<|message|>aVeryLongWordThatHasToBeCut<|end|>"
	show := func(color bool, size int) string {
		var b bytes.Buffer
		s := &screen{w: &b, width: 30, color: color}
		s.title("t")
		for from := 0; from < len(text); from += size {
			s.stream("label", final, text[from:min(from+size, len(text))])
		}
		s.end()
		s.harmony(text)
		s.ids([]int{1, 2, 3})
		return b.String()
	}
	want := show(false, len(text))
	got := regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(show(true, len(text)), "")
	if got != want {
		t.Errorf("with colour:\n%s\nwithout:\n%s", got, want)
	}
}

// Nothing is wider than the terminal, whose width is bounded.
func TestWidth(t *testing.T) {
	for columns, want := range map[string]int{"": maxWidth, "0": 33, "20": 33, "80": 80, "300": maxWidth, "x": maxWidth} {
		var b bytes.Buffer
		s := &screen{w: &b, width: maxWidth}
		s.setWidth(columns)
		if s.width != want {
			t.Errorf("%q columns: a width of %d, want %d", columns, s.width, want)
		}

		s.title("A question")
		s.title("The tool's result: the model sees its reasoning again, which the client has not sent, and answers")
		s.field("content", final, strings.Repeat("words ", 50))
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(line) - 1; n > want {
				t.Errorf("%q columns: a line has %d: %s", columns, n, line)
			}
		}
		if rule := strings.TrimSuffix(strings.SplitAfter(b.String(), "\n")[1], "\n"); utf8.RuneCountInString(rule) != want {
			t.Errorf("%q columns: the rule is %q", columns, rule)
		}
	}
}
