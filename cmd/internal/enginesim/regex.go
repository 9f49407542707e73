package enginesim

import (
	"errors"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// A real engine's compiler of grammars has a syntax of regular expressions of its
// own, and takes much of others' for something else. The simulated one refuses
// all that is not the same in both.

// knownRegex is an expression of characters, classes of characters and their
// ranges, groups, alternatives, repetitions and anchors.
var knownRegex = regexp.MustCompile(`^(?:[^\\\[\](){}]|\\[][\\.+*?(){}|^$/dDsSwWnrtfv-]|\\x[0-9a-f]{2}|\\u\{[0-9a-f]+\}|\((?:\?:)?|\)|\{[0-9]+(?:,[0-9]*)?\}|` +
	`\[\^?(?:[^]\\[^]|\\[][\\.+*?(){}|^$/dDsSwWnrtfv-]|\\x[0-9a-f]{2}|\\u\{[0-9a-f]+\})+\])*$`)

// longRepeat is a repetition of more than 128, which is too often in a schema.
var longRepeat = regexp.MustCompile(`[{,](?:129|1[3-9]\d|[2-9]\d{2}|\d{4,})[,}]`)

var errRegex = errors.New("the simulated engine does not know this syntax of regular expressions")

// compileRegex compiles an expression of a whole text.
func compileRegex(pattern string) (*regexp.Regexp, error) {
	if !knownRegex.MatchString(pattern) || strings.Contains(strings.ReplaceAll(pattern, "(?:", ""), "(?") {
		return nil, errRegex
	}
	return regexp.Compile(`^(?:` + goRegex(pattern) + `)$`)
}

// goRegex writes \u{X} as Go does.
func goRegex(pattern string) string { return strings.ReplaceAll(pattern, `\u{`, `\x{`) }

// knowsPatterns tells whether all patterns in a schema are known.
func knowsPatterns(s gjson.Result) bool {
	known := func(pattern string) bool {
		_, err := compileRegex(pattern)
		return err == nil && !longRepeat.MatchString(pattern)
	}
	ok := true
	s.ForEach(func(k, v gjson.Result) bool {
		switch {
		case k.Str == "pattern" && v.Type == gjson.String:
			ok = known(v.Str)
		case k.Str == "patternProperties" && v.IsObject():
			v.ForEach(func(name, v gjson.Result) bool {
				ok = known(name.Str) && knowsPatterns(v)
				return ok
			})
		case v.IsObject() || v.IsArray():
			ok = knowsPatterns(v)
		}
		return ok
	})
	return ok
}

// ofPattern tells whether a text is of a pattern as a whole, if there is one.
func ofPattern(text string, pattern gjson.Result) bool {
	if !pattern.Exists() {
		return true
	}
	re, err := compileRegex(pattern.Str)
	return err == nil && re.MatchString(text)
}
