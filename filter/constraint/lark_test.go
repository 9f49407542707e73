package constraint

import (
	"errors"
	"strings"
	"testing"
)

// applyPatch is the grammar that Codex sends with its tool apply_patch.
const applyPatch = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
`

// inputGrammars are grammars in Lark or regular expressions, with texts of theirs and
// texts that are not.
var inputGrammars = []struct {
	name, lark, regex string
	yes, no           []string
}{
	{name: "apply_patch", lark: applyPatch, yes: []string{
		"*** Begin Patch\n*** Add File: a \"b\"\\c.txt\n+one\n+\ttwo ünï 🙂\x01\n*** End Patch\n",
		"*** Begin Patch\n*** Delete File: x\n*** End Patch",
		"*** Begin Patch\n*** Update File: x\n*** Move to: y\n@@ func f()\n-a\r\n+b\n c\n@@\n+\n*** End of File\n*** Delete File: z\n*** End Patch",
	}, no: []string{
		"", "*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Add File: x\none\n*** End Patch\n",
		"*** Begin Patch\n*** Delete File: \n*** End Patch", "*** Begin Patch\n*** Delete File: x\n*** End Patch\n\n",
	}},
	{name: "arithmetic", lark: "start: expr\n?expr: term (SP OP SP term)*\n | \"(\" expr \")\" // a group\nterm.2: INT\nSP: \" \"\nOP: \"+\" | \"-\"\n%import common.INT", yes: []string{"1", "1 + 22 - 3", "(1)"}, no: []string{"1+2", "(1", "a"}},
	{name: "left recursion", lark: "start: start \",\" N | N\nN: /[0-9]/", yes: []string{"1", "1,2,3"}, no: []string{"", "1,"}},
	{name: "ignored", lark: "start: \"a\" N [\"b\"i]\nN: \"0\"..\"9\"~1..2\n%ignore /[ \\n]+/", yes: []string{"a1", " a\n12 B ", "a 1b"}, no: []string{"a", "a 1 2", "a123"}},
	{name: "classes", lark: `start: /[^\]"\\^-]+/ /[\x00-\x20"^]?/ "\u00e9\n\x41\q"`, yes: []string{"aé\nA\\q", "a\né\nA\\q", "a^é\nA\\q", "a\"é\nA\\q"}, no: []string{"^é\nA\\q", "]é\nA\\q", "é\nA\\q"}},
	{name: "flags", lark: "start: /a.b/s \"X\"i /y/i", yes: []string{"a\nbxY"}, no: []string{"A\nbxY"}},
	{name: "imports", lark: "%import common (WORD, ESCAPED_STRING)\n%import common.SIGNED_NUMBER -> N\nstart: WORD ESCAPED_STRING N", yes: []string{`ab"c\"d"-1.5e3`}, no: []string{`ab"c-1`}},
	{regex: `^\d{4}-\d{2}-\d{2}$`, yes: []string{"2026-11-23"}, no: []string{"2026-11-2", " 2026-11-23"}},
	{regex: `(?i)say "(?:yes|no)"\n?`, yes: []string{"SAY \"No\"", "say \"yes\"\n"}, no: []string{"say yes"}},
	{regex: `.*[\\/].*`, yes: []string{`a\b`, "a/\r"}, no: []string{"ab", "a\n/"}},
	{regex: ``, yes: []string{""}, no: []string{"a"}},
}

// TestInputFaults shows which grammars are malformed, and which cannot be enforced.
func TestInputFaults(t *testing.T) {
	for _, c := range []struct{ lark, want string }{
		{"start: \"a", "line 1, column 8: a \" has no closing"},
		{"start: a\n", "line 1, column 8: a is not defined"},
		{"a: \"x\"", "there is no rule start"},
		{"start: \"a\"\nstart: \"b\"", "defined twice"},
		{"start: (\"a\"\n", "is expected"},
		{"start: start \"a\"", "never ends"},
		{"start: /(/", "line 1, column 8: the expression is malformed"},
		{"start: A\nA: b\nb: \"x\"", "line 2, column 4: a terminal uses the rule b"},
		{"start: A\n%import common.NONE", "no terminal NONE"},
		{"start: \"b\"..\"a\"", "two characters in order"},
		{"start: \"a\" = \"b\"", "line 1, column 12: the character '='"},
		{"start: \"\\x1\"", "escape that is not valid"},
		{"start: \"a\"~3..2", "ends at 2"},
		{"", "there is no rule start"},
		{"%nothing", "no directive"},
		{"start: /(?=a)b/", ErrUnenforceable.Error()},
		{"start: /a\\b/", ErrUnenforceable.Error()},
		{"start: /[a-z]{1,900}/", ErrUnenforceable.Error()},
		{"%declare A\nstart: A", ErrUnenforceable.Error()},
		{"%import python.A\nstart: A", ErrUnenforceable.Error()},
		{"start: x{\"a\"}\nx{a}: a", ErrUnenforceable.Error()},
		{"start: " + strings.Repeat("(", 100), ErrUnenforceable.Error()},
	} {
		_, _, err := InputLark(newAccount(), c.lark)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.lark, err, c.want)
		}
		var fault *LarkError
		if errors.Is(err, ErrUnenforceable) == errors.As(err, &fault) {
			t.Errorf("%q: %v is neither malformed nor unenforceable, or both", c.lark, err)
		}
	}

	for pattern, unenforceable := range map[string]bool{`(`: false, `[b-a]`: false, `(?!a)`: true, `(a)\1`: true, `a^b`: true, `(.{1,128}){1,128}`: true} {
		if _, _, err := InputRegex(newAccount(), pattern); err == nil || errors.Is(err, ErrUnenforceable) != unenforceable {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

// TestInputGrammar shows the grammar of the arguments.
func TestInputGrammar(t *testing.T) {
	const want = `root ::= "{" space "\"input\"" space ":" space "\"" r0 "\"" space "}"
space ::= [ \n]{0,8}
r0 ::= "a\\n" (r1){0,1} r2
r1 ::= r2 "\\\""
r2 ::= ([ -!#-\x5b\x5d-\ud7ff\ue000-\U0010ffff] | "\\" [btfr\"\\] | "\\u000" [1234567bef] | "\\u001" [0123456789abcdef])
`
	got, _, err := InputLark(newAccount(), "start: \"a\\n\" b? C\nb: C \"\\\"\"\nC: /[^\\n]/")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Repetitions of repetitions multiply, through groups and rules. What is not repeated costs
// next to nothing.
func TestInputCost(t *testing.T) {
	t.Parallel()
	for lark, want := range map[string]int{
		applyPatch: 8 * 4,
		`start: "` + strings.Repeat("a", 5000) + `"`: 0,
		`start: ("ab")~100`:                          200,
		`start: "a"~100 "b"~100`:                     200,
		"start: x~10\nx: y~10\ny: \"a\"":             10*10 + 10,
		"start: x x x\nx: \"a\"~100":                 100,
		"start: (x \"a\")~10\nx: x \"b\" | \"c\"":    10 * 4,
		`start: (/[a-z]+/)~10`:                       10 * ambiguousCost,
		`start: (("a"~128)~128)~128`:                 -1,
		"start: x~128\nx: y~128\ny: \"a\"~128":       -1,
		"start: (x y)~128\nx: y y y y\ny: \"abc\"":   -1,
	} {
		_, cost, err := InputLark(newAccount(), lark)
		if errors.Is(err, ErrUnenforceable) {
			cost = -1
		}
		if cost != want {
			t.Errorf("%.60q costs %d, want %d: %v", lark, cost, want, err)
		}
	}
}

func FuzzInputLark(f *testing.F) {
	for _, c := range inputGrammars {
		f.Add(c.lark)
	}
	f.Fuzz(func(t *testing.T, definition string) {
		grammar, cost, err := InputLark(newAccount(), definition)
		if err == nil && (cost > MaxInputCost || CheckGrammar(string(grammar[:min(len(grammar), maxGrammarBytes)])) != nil) {
			t.Errorf("%q becomes %q", definition, grammar)
		}
	})
}
