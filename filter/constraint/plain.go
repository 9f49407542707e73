package constraint

import "regexp/syntax"

// IsPlain reports whether no text that matches a regular expression has a character that
// JSON escapes. A string of JSON can be made to match such an expression, and no matching
// text is lost.
func IsPlain(pattern string) bool {
	re, err := syntax.Parse(goSyntax(pattern), syntax.Perl)
	return err == nil && isPlain(re)
}

func isPlain(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return false
	case syntax.OpLiteral:
		for _, c := range re.Rune {
			if isEscaped(c, c) {
				return false
			}
		}
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if isEscaped(re.Rune[i], re.Rune[i+1]) {
				return false
			}
		}
	}
	for _, sub := range re.Sub {
		if !isPlain(sub) {
			return false
		}
	}
	return true
}

// isEscaped reports whether a range has a character that JSON escapes.
func isEscaped(first, last rune) bool {
	in := func(c rune) bool { return first <= c && c <= last }
	return first < ' ' || in('"') || in('\\')
}
