package enginesim

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestRegex checks that expressions which a real engine may read differently are
// rejected.
func TestRegex(t *testing.T) {
	for pattern, text := range map[string]string{
		`(?:ab|c)+[a-z\x5d]{2,3}\.`: "abc]z.", `^[\u{4e00}-\u{9fa5}]$`: "世", `[^a\^]\d\/`: "b1/", `a{128}`: strings.Repeat("a", 128), `"x"`: `"x"`, ``: "",
	} {
		if re, err := compileRegex(pattern); err != nil || !re.MatchString(text) || re.MatchString(text+"\n") {
			t.Errorf("%s does not match %s: %v", text, pattern, err)
		}
	}
	for _, pattern := range []string{`\p{L}`, `\Aa`, `a\z`, `\ba`, `(?i)a`, `(?P<n>a)`, `(?<n>a)`, `(?=a)`, `[[:alpha:]]`, `[]a]`, `\Qa\E`, `a{,3}`, `\u00e9`, `\x{e9}`, `[\^a`, `(`} {
		if _, err := compileRegex(pattern); err == nil {
			t.Errorf("%s is accepted", pattern)
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
		if patternsSupported(gjson.Parse(schema)) != want {
			t.Errorf("%s is supported: %t", schema, !want)
		}
	}
}
