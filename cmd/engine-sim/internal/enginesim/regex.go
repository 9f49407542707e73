package enginesim

import (
	"errors"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// The grammar compiler of a real engine has its own regular expression syntax, and
// reads parts of other syntaxes differently. The simulator rejects every expression
// that the two do not read alike.

// knownRegex matches expressions of characters, classes, ranges, groups,
// alternatives, repetitions and anchors.
var knownRegex = regexp.MustCompile(`^(?:[^\\\[\](){}]|\\[][\\.+*?(){}|^$/dDsSwWnrtfv-]|` +
	`\\x[0-9a-f]{2}|\\u\{[0-9a-f]+\}|\((?:\?:)?|\)|\{[0-9]+(?:,[0-9]*)?\}|` +
	`\[\^?(?:[^]\\[^]|\\[][\\.+*?(){}|^$/dDsSwWnrtfv-]|\\x[0-9a-f]{2}|\\u\{[0-9a-f]+\})+\])*$`)

// longRepeat matches a repetition of more than 128, which is not supported in a
// schema.
var longRepeat = regexp.MustCompile(`[{,](?:129|1[3-9]\d|[2-9]\d{2}|\d{4,})[,}]`)

var errRegex = errors.New("the simulated engine does not support this regular expression syntax")

// compileRegex compiles an expression that matches a whole text.
func compileRegex(pattern string) (*regexp.Regexp, error) {
	// The only group that both read alike, apart from the plain one, is (?:…).
	if !knownRegex.MatchString(pattern) || strings.Contains(strings.ReplaceAll(pattern, "(?:", ""), "(?") {
		return nil, errRegex
	}
	return regexp.Compile(`^(?:` + goRegex(pattern) + `)$`)
}

// goRegex converts \u{X} to Go's syntax.
func goRegex(pattern string) string { return strings.ReplaceAll(pattern, `\u{`, `\x{`) }

// patternsSupported reports whether all patterns in a schema are supported.
func patternsSupported(s gjson.Result) bool {
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
				ok = known(name.Str) && patternsSupported(v)
				return ok
			})
		case v.IsObject() || v.IsArray():
			ok = patternsSupported(v)
		}
		return ok
	})

	return ok
}

// matchesPattern reports whether a pattern, if there is one, matches the whole
// text.
func matchesPattern(text string, pattern gjson.Result) bool {
	if !pattern.Exists() {
		return true
	}
	re, err := compileRegex(pattern.Str)
	return err == nil && re.MatchString(text)
}
