package constraint

import (
	"regexp/syntax"
	"strings"
	"testing"
)

// TestEngineRegex shows expressions in the form for engines, and those that are
// rejected.
func TestEngineRegex(t *testing.T) {
	t.Parallel()
	const plain = `[ -!#-\x5b\x5d-\u{d7ff}\u{e000}-\u{10ffff}]`

	for _, c := range []struct{ pattern, raw, inSchema, err string }{
		{pattern: `^[a-z]+$`, raw: `[a-z]+`, inSchema: `^[a-z]+$`},
		{pattern: `\A[a-z]+\z`, raw: `[a-z]+`, inSchema: `^[a-z]+$`},
		{pattern: `^[[:alpha:]]+$`, raw: `[A-Za-z]+`, inSchema: `^[A-Za-z]+$`},
		{pattern: `^(?i)ab$`, raw: `[Aa][Bb]`, inSchema: `^[Aa][Bb]$`},
		{pattern: `^(?P<n>ab|c)d$`, raw: `(?:ab|c)d`, inSchema: `^(?:ab|c)d$`},
		{pattern: `^\Qa.b\E$`, raw: `a\.b`, inSchema: `^a\.b$`},
		{pattern: `^[\u4e00-\u9fa5]\u00e9\uD83D\uDE00$`, raw: `[一-龥]é\u{1f600}`, inSchema: `^[一-龥]é\u{1f600}$`},
		{pattern: `^[^"]$`, raw: `[\x01-!#-\u{d7ff}\u{e000}-\u{10ffff}]`, inSchema: `^` + plain + `$`},
		{pattern: `^[\^]+$`, raw: `\^+`, inSchema: `^\^+$`},
		{pattern: `^[\^_-]$`, raw: `[\x2d\x5e-_]`, inSchema: `^[\x2d\x5e-_]$`},
		{pattern: `^[\^_]$`, raw: `(?:\^|[_])`, inSchema: `^(?:\^|[_])$`},
		{pattern: `^a{1,200}$`, raw: `a{1,128}a{0,72}`, inSchema: `^a{1,128}a{0,72}$`},
		{pattern: `^a{300,}$`, raw: `a{128,128}a{128,128}a{44,}`, inSchema: `^a{128,128}a{128,128}a{44,}$`},
		{pattern: `^a{0}b*?$`, raw: `(?:)b*`, inSchema: `^(?:)b*$`},
		{pattern: `@`, raw: `@`, inSchema: `^` + plain + `*@` + plain + `*$`},
		{pattern: `^a|b$`, raw: `(?:a|b)`, inSchema: `^(?:a` + plain + `*|` + plain + `*b)$`},
		{pattern: `(^a$)|(^b$)`, raw: `(?:a|b)`, inSchema: `^(?:a|b)$`},
		{pattern: `^$|^x+$`, raw: `(?:(?:)|x+)`, inSchema: `^(?:(?:)|x+)$`},
		{pattern: ``, raw: `(?:)`, inSchema: `^` + plain + `*$`},
		{pattern: `^([a-z]{1,63}\.){1,8}[a-z]{2,63}$`, raw: `(?:[a-z]{1,63}\.){1,8}[a-z]{2,63}`, inSchema: `^(?:[a-z]{1,63}\.){1,8}[a-z]{2,63}$`},

		{pattern: `^[\p{L} ]+$`, err: `\p{L}`},
		{pattern: `\bfoo`, err: `\b`},
		{pattern: `(?m)^a$`, err: `(?m)`},
		{pattern: `a^b`, err: "anchor"},
		{pattern: `(^a)+`, err: "anchor"},
		{pattern: `(?=a)b`, err: "lookaround"},
		{pattern: `(a)\1`, err: "backreferences"},
		{pattern: `[`, err: "no regular expression"},
		{pattern: `\x00`, err: "no text"},
		{pattern: `\uD83D`, err: "no text"},
		{pattern: `^([a-z]{1,30}){1,30}$`, err: "too long"},
		{pattern: `^([a-z]{1,9}[0-9]?){1,30}$`, err: "too long"},
		{pattern: `^(((a{1,5}){1,5}){1,5}){1,5}$`, err: "too long"},
		{pattern: strings.Repeat("a", maxRegexBytes+1), err: "longer than"},
	} {
		for how, want := range map[bool]string{false: c.raw, true: c.inSchema} {
			got, _, err := engineRegex(newAccount(), c.pattern, how)
			switch {
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("%.40s: error %v, want %q in it", c.pattern, err, c.err)
			case c.err == "" && (err != nil || got != want):
				t.Errorf("%s, in a schema %t: %s, %v, want %s", c.pattern, how, got, err, want)
			}
		}
	}
}

func FuzzEngineRegex(f *testing.F) {
	f.Add(`^(?i)[^\x00-\x1f]{1,200}|a$`, true)
	f.Add(`\ud83d\ude00[\u{1f600}-\u{1f64f}]`, false)
	f.Fuzz(func(t *testing.T, pattern string, inSchema bool) {
		text, _, err := engineRegex(newAccount(), pattern, inSchema)
		if err != nil {
			return
		}
		if _, err := syntax.Parse(goSyntax(text), syntax.Perl); err != nil && !strings.Contains(err.Error(), "repeat") {
			t.Errorf("%q becomes %q: %v", pattern, text, err)
		}
	})
}
