package constraint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// stepsOf returns the steps that f takes of a request's account, and f's error.
func stepsOf(f func(account *work.Account) error) (steps int, err error) {
	account := work.New(context.Background(), work.PerRequest)
	err = f(account)
	left := sort.Search(work.PerRequest, func(n int) bool { return !account.Affords(n + 1) })

	return work.PerRequest - left, err
}

// patternOf returns a pattern of about a size of something that is repeated.
func patternOf(size int, piece func(i int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		b.WriteString(piece(i))
	}

	return b.String()
}

func same(s string) func(int) string { return func(int) string { return s } }

// nastyPatterns take much to parse, to compile or to match, for their size.
var nastyPatterns = map[string]string{
	"a class of classes":     "[" + strings.Repeat(`\pL`, maxUnicode) + "]",
	"classes":                strings.Repeat(`\p{Lu}`, maxUnicode),
	"classes, negated":       "[" + strings.Repeat(`\PL`, maxUnicode) + "]",
	"classes, folded":        "(?i)[" + strings.Repeat(`\p{Lu}`, maxUnicode) + "]",
	"wide ranges, folded":    "(?i)[" + patternOf(8000, same("B-\U0001e942")) + "]",
	"100 ranges, folded":     "(?i)[" + strings.Repeat("B-\U0001e942", 100) + "]",
	"escaped, folded":        "(?msi)[" + strings.Repeat(`\x{42}-\x{1e942}`, 100) + "]",
	"words, folded":          "(?i)" + patternOf(8000, same(`\w`)),
	"no words, folded":       "(?i)[" + patternOf(8000, same(`\W`)) + "]",
	"letters, folded":        "(?i)" + patternOf(8000, same("k")),
	"captures":               patternOf(8000, same("()")),
	"names":                  patternOf(8000, func(i int) string { return fmt.Sprintf("(?P<a%d>)", i) }),
	"alternatives of none":   patternOf(8000, same("|")),
	"alternatives":           patternOf(8000, same("ab|cd|")),
	"common beginnings":      patternOf(8000, func(i int) string { return strings.Repeat("a", i) + "b|" }),
	"characters in disorder": "[" + patternOf(8000, func(i int) string { return string(rune(0x4e00 + i*7919%20_000)) }) + "]",
	"negated classes":        patternOf(8000, same("[^a]")),
	"dots":                   patternOf(8000, same(".")),
	"anchors":                patternOf(8000, same("^")),
	"repetitions":            patternOf(8000, same("(?:a{1000})")),
	"repetitions of none":    patternOf(8000, same("(){0,1000}")),
	"nested repetitions":     strings.Repeat("(?:", 9) + patternOf(7000, same("(a{1,1}b)")) + strings.Repeat("){2}", 9),
	"nested stars":           strings.Repeat("(", 900) + "a" + strings.Repeat(")*", 900),
	"options":                patternOf(8000, same("a?")),
	"states":                 "b^c|" + patternOf(8000, same("a{0,1000}")),
	"branches":               "(^" + strings.Repeat("a|^", 63) + "a)" + patternOf(7800, same("()")),
	"different options":      "^" + patternOf(2400, func(i int) string { return string(rune(0x1F300+i)) + "?" }) + `\pL?$`,
}

// TestStepsOfPatterns shows that what a pattern takes is counted before it is done: the
// steps bound what a request allocates that has as many of these patterns as its steps allow, and
// what takes more than a request may is refused. With -v it prints how long a step takes.
func TestStepsOfPatterns(t *testing.T) {
	texts := map[string]string{"a": strings.Repeat("a", 20_000), "k": strings.Repeat("kK", 5000)}
	for name, pattern := range nastyPatterns {
		for what, f := range map[string]func(account *work.Account) error{
			"parse": func(account *work.Account) error {
				_, err := parseExpression(account, pattern)
				return err
			},
			"read": func(account *work.Account) error { return CheckRegex(account, pattern) },
			"custom tool": func(account *work.Account) error {
				_, _, err := InputRegex(account, pattern)
				return err
			},
			"schema": func(account *work.Account) error {
				text, _ := json.Marshal(map[string]any{"type": "string", "pattern": pattern})
				return CheckSchema(account, text, true)
			},
			"match": func(account *work.Account) error {
				re, err := parseExpression(account, pattern)
				if err != nil {
					return err
				}

				p, err := compile(account, re)
				if err != nil {
					return err
				}

				m := p.matcher()
				for _, text := range texts {
					if _, err := m.matches(account, []byte(text), true); err != nil {
						return err
					}
					if _, err := m.matches(account, []byte(text), false); err != nil {
						return err
					}
				}

				return nil
			},
		} {
			var steps int
			var err error
			begun := time.Now()
			bytes := allocated(func() { steps, err = stepsOf(f) })
			took := time.Since(begun)
			t.Logf("%-22s %-12s %9d steps of %4.0f ns, %8d bytes, %v", name, what, steps, float64(took)/float64(max(steps, 1)), bytes, err)
			// As in "make fuzz-cost".
			times := uint64(max(1, work.PerRequest/max(steps, 1)))
			if all := times * bytes; all > 64<<20+128*times*uint64(len(pattern)) {
				t.Errorf("%s, %s: %d patterns of %d bytes allocate %d MiB", name, what, times, len(pattern), all>>20)
			}

			if steps == work.PerRequest && !errors.Is(err, work.ErrExceeded) {
				t.Errorf("%s, %s: the error is %v", name, what, err)
			}
		}
	}
}

// TestStepsOfOrdinary shows that what clients send takes a small part of what a request may
// take: each of these less than a tenth.
func TestStepsOfOrdinary(t *testing.T) {
	object := func(properties int) string {
		var b strings.Builder
		for i := range properties {
			fmt.Fprintf(&b, `,"p%d":{"type":"string","description":"%s"}`, i, strings.Repeat("what it is, ", 4))
		}
		return `{"type":"object","properties":{` + b.String()[1:] + `},"additionalProperties":false}`
	}

	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{"a":` + object(150))
	for i := range 15 {
		fmt.Fprintf(&b, `,"b%d":%s`, i, object(190))
	}

	large := b.String() + `}}`
	patterns := []string{
		`^[a-zA-Z0-9.!#$%&'*+/=?^_{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`,
		`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`,
		`^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])$`, `^\\p{L}[\\p{L}\\p{N} .'-]*$`, `(?i)^https?://[a-z0-9.-]+(/[^ ]*)?$`,
	}

	all := func(account *work.Account, schema string) error {
		for _, f := range []func() error{
			func() error { return CheckSchema(account, json.RawMessage(schema), true) },
			func() error { _ = Unenforced(account, json.RawMessage(schema)); return account.Err() },
			func() error { _, err := NewValidator(account, json.RawMessage(schema), nil); return err },
			func() error { NewValue(account, json.RawMessage(schema)); return account.Err() },
		} {
			if err := f(); err != nil {
				return err
			}
		}

		return nil
	}

	for name, f := range map[string]func(account *work.Account) error{
		"a schema of 256 KB": func(account *work.Account) error { return all(account, large) },
		"512 tools": func(account *work.Account) error {
			for range 512 {
				if err := all(account, object(20)); err != nil {
					return err
				}
			}
			return nil
		},
		"patterns": func(account *work.Account) error {
			for _, pattern := range patterns {
				if err := all(account, `{"type":"string","pattern":"`+pattern+`"}`); err != nil {
					return err
				}
			}
			return nil
		},
		"lark": func(account *work.Account) error {
			_, _, err := InputLark(account, "start: item+\nitem: WORD \"=\" /[^\\n]+/ NEWLINE\n%import common.WORD\n%import common.NEWLINE\n"+strings.Repeat("// a comment\n", 200))
			return err
		},
	} {
		steps, err := stepsOf(f)
		if t.Logf("%s: %d steps", name, steps); err != nil || steps > work.PerRequest/10 {
			t.Errorf("%s: %d steps, %v", name, steps, err)
		}
	}
}

// TestStepsOfLark has grammars that took long for their size.
func TestStepsOfLark(t *testing.T) {
	rules := func(n int, rule func(i int) string) string {
		var b strings.Builder
		b.WriteString("start: r0\n")
		for i := range n {
			fmt.Fprintf(&b, "r%d: %s\n", i, rule(i))
		}
		fmt.Fprintf(&b, "r%d: \"a\"\n", n)
		return b.String()
	}

	for name, grammar := range map[string]string{
		"comments":     "start: \"a\"\n" + strings.Repeat("#\n", 32_700) + "| \"b\"",
		"empty lines":  "start: \"a\"" + strings.Repeat("\n", 65_000) + "| \"b\"",
		"in a group":   "start: (\"a\"" + strings.Repeat("\n#", 32_000) + "\n| \"b\")",
		"a chain":      rules(510, func(i int) string { return fmt.Sprintf("r%d", i+1) }),
		"a wide chain": rules(500, func(i int) string { return strings.Repeat("\"a\" ", 20) + fmt.Sprintf("r%d", i+1) }),
		"repetitions": rules(60, func(i int) string {
			return strings.Repeat("(", 50) + fmt.Sprintf("r%d", i+1) + strings.Repeat("~1..2)", 50)
		}),
		"expressions": "start: " + strings.Repeat("/[a-z]+/ ", 7000),
		"greek":       "start: " + strings.Repeat("/\\p{Greek}/ ", 5000),
		"folded":      "start: " + strings.Repeat("/[B-𞥂]/i ", 4000),
		"long text":   "start: \"" + strings.Repeat("\u00e9", 32_000) + "\"i",
	} {
		var steps int
		var err error
		begun := time.Now()
		bytes := allocated(func() {
			steps, err = stepsOf(func(account *work.Account) error {
				_, _, err := InputLark(account, grammar)
				return err
			})
		})

		t.Logf("%-12s %9d steps of %4.0f ns, %8d bytes, %.60v", name, steps, float64(time.Since(begun))/float64(steps), bytes, err)
		if bytes > 1<<20+128*uint64(steps) {
			t.Errorf("%s: %d bytes are allocated for %d steps", name, bytes, steps)
		}

		if (name == "comments" || name == "empty lines" || name == "in a group") && (err != nil || steps > work.PerRequest/20) {
			t.Errorf("%s: %d steps, %v", name, steps, err)
		}
	}
}

// newAccount returns the account of a request.
func newAccount() *work.Account { return work.New(context.Background(), work.PerRequest) }

// TestTreeSteps checks a tree against a recursive schema with many kinds of nodes: each part
// of the tree is compared with it once, and not once for each kind at each level above.
func TestTreeSteps(t *testing.T) {
	t.Parallel()
	var kinds strings.Builder
	for i := range 10 {
		fmt.Fprintf(&kinds, `,{"type":"object","properties":{"left":{"$ref":"#/$defs/e"},"op":{"const":"op%d"},"right":{"$ref":"#/$defs/e"}},"required":["left","op","right"],"additionalProperties":false}`, i)
	}

	for _, of := range []string{"anyOf", "oneOf"} {
		account := newAccount()
		v, err := NewValidator(account, json.RawMessage(`{"$ref":"#/$defs/e","$defs":{"e":{"`+of+`":[{"type":"number"}`+kinds.String()+`]}}}`), nil)
		if err != nil {
			t.Fatal(err)
		}

		tree := func(depth int, leaf string) []byte {
			return []byte(strings.Repeat(`{"left":`, depth) + leaf + strings.Repeat(`,"op":"op9","right":1}`, depth))
		}
		if ok, err := v.Accepts(account, tree(200, "1")); !ok || err != nil {
			t.Errorf("%s: %t, %v", of, ok, err)
		}

		if ok, err := v.Accepts(account, tree(200, `"x"`)); ok || err != nil {
			t.Errorf("%s, with a wrong leaf: %t, %v", of, ok, err)
		}
	}
}
