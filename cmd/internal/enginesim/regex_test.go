package enginesim

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestRegex: the simulated engine takes no expression that a real one may take
// for another.
func TestRegex(t *testing.T) {
	for pattern, text := range map[string]string{
		`(?:ab|c)+[a-z\x5d]{2,3}\.`: "abc]z.", `^[\u{4e00}-\u{9fa5}]$`: "世", `[^a\^]\d\/`: "b1/", `a{128}`: strings.Repeat("a", 128), `"x"`: `"x"`, ``: "",
	} {
		if re, err := compileRegex(pattern); err != nil || !re.MatchString(text) || re.MatchString(text+"\n") {
			t.Errorf("%s is not of %s: %v", text, pattern, err)
		}
	}
	for _, pattern := range []string{`\p{L}`, `\Aa`, `a\z`, `\ba`, `(?i)a`, `(?P<n>a)`, `(?<n>a)`, `(?=a)`, `[[:alpha:]]`, `[]a]`, `\Qa\E`, `a{,3}`, `\u00e9`, `\x{e9}`, `[\^a`, `(`} {
		if _, err := compileRegex(pattern); err == nil {
			t.Errorf("%s is taken", pattern)
		}
	}
	for schema, want := range map[string]bool{
		`{"properties":{"pattern":{"type":"string","pattern":"^a$"}}}`: true,
		`{"properties":{"a":{"anyOf":[{"pattern":"\\p{L}"}]}}}`:        false,
		`{"patternProperties":{"\\p{L}":{}}}`:                          false,
		`{"patternProperties":{"a":{"pattern":"\\z"}}}`:                false,
		`{"pattern":"^a{1,129}$"}`:                                     false,
		`{"pattern":"^a{1,128}a{0,100}$"}`:                             true,
	} {
		if knowsPatterns(gjson.Parse(schema)) != want {
			t.Errorf("%s is known: %t", schema, !want)
		}
	}
}
