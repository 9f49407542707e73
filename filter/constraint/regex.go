package constraint

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// maxRegexBytes bounds a regular expression, in bytes.
const maxRegexBytes = 8 << 10

const (
	// maxRegexCost bounds the cost of a regular expression for the engine's compiler,
	// as [regexCost] estimates it. With xgrammar 0.2.8 and the o200k vocabulary this
	// bound is up to 15 s on one core, as long as a maxLength beyond 128 takes:
	//
	//	[a-z]{1,128}              1.0 s   cost  128
	//	([a-z]{1,31}-){1,31}      5.5 s         992
	//	([a-z]{1,16}){1,8}        9.0 s        1024
	//	([a-z]{1,16}){1,16}      17   s        2048
	//	([a-z]{1,9}[0-9]?){1,30}  > 30 s       2400
	//	[a-z]{1,500}             17   s        2000, because it is split
	//	.{1,128}                  9   s        1024
	maxRegexCost = 1056
	// ambiguousCost is the factor for a repetition of an [ambiguous] expression, which
	// matches one text in many ways.
	ambiguousCost = 8
	// wideCost is the cost of a class with most of Unicode's characters.
	wideCost = 8
	// maxRepeat is the largest count of a repetition in a pattern of a schema:
	// xgrammar 0.2.8 fails on 129.
	maxRepeat = 128
	// maxRanges bounds the ranges of characters of a class, such as \p{Greek}.
	maxRanges = 64
	// maxBranches bounds the alternatives with anchors of their own.
	maxBranches = 64
)

var (
	errSyntax = errors.New(
		"is no regular expression that a grammar can be made of: those have no lookaround, no backreferences " +
			"and no repetitions beyond 1000")
	errBoundary = errors.New(`has a \b, \B or (?m), which no grammar can be made of: write out what stands there`)
	errAnchor   = errors.New(
		"has an anchor, ^ or $, inside, which no grammar can be made of: anchors may stand at its ends only")
	errRanges = fmt.Errorf(`has a class of more than %d ranges of characters, such as \p{L}: `+
		"write out those that it needs, such as [A-Za-zÀ-ɏ]", maxRanges)
	errNothing = errors.New("matches no text")
	errEscaped = errors.New(
		"asks for a quote, a backslash or a control character, which no grammar for JSON can be made of")
	errCost = errors.New(
		"has repetitions that take an engine too long: repeat less often, or not inside one another, or use maxLength")
)

// CheckRegex returns an error if engines cannot enforce a regular expression in Go's
// syntax, with \uXXXX as in JavaScript. The error's text continues "the expression".
func CheckRegex(account *work.Account, pattern string) error {
	_, _, err := engineRegex(account, pattern, false)
	return err
}

// engineRegex returns a regular expression in the syntax of engines, and its cost.
// It uses the part of the syntax that xgrammar implements correctly. xgrammar
// misreads the rest without an error: for it \p{L} is the letter p followed by {L},
// and \A an A. It matches every expression against a whole text.
//
// In a schema the text is that of a JSON string. There a pattern of xgrammar cannot
// match characters that JSON escapes, and a pattern without anchors matches any
// part of the text.
func engineRegex(account *work.Account, pattern string, inSchema bool) (text string, cost int, err error) {
	re, err := parsePattern(account, pattern)
	switch {
	case err != nil:
		return "", 0, err
	// Also of what cannot become a grammar: it is matched here.
	case regexCost(re) > maxRegexCost:
		return "", 0, errCost
	}

	all, err := branchesOf(account, pattern, re)
	if err != nil {
		return "", 0, err
	}

	// The branches are written one by one: what they share costs each of them.
	for _, b := range all {
		for _, part := range b.parts {
			cost = min(cost+regexCost(part), maxRegexCost+1)
		}
	}
	if cost > maxRegexCost {
		return "", 0, errCost
	}

	w := regexWriter{inSchema: inSchema}
	w.branches(all)
	return w.text.String(), cost, w.err
}

// parsePattern parses a client's expression. The error's text continues "the expression".
func parsePattern(account *work.Account, pattern string) (*syntax.Regexp, error) {
	switch {
	case len(pattern) > maxRegexBytes:
		return nil, fmt.Errorf("is longer than %d bytes", maxRegexBytes)
	case strings.ContainsRune(pattern, 0):
		return nil, errors.New("has a NUL character in it")
	}

	re, err := parseExpression(account, goSyntax(pattern))
	if fault := (*syntax.Error)(nil); errors.As(err, &fault) {
		return nil, errSyntax
	}

	return re, err
}

// goSyntax replaces \uXXXX and \u{X}, which Go does not support, by \x{X}. Two
// \uXXXX can be the surrogates of one character.
func goSyntax(pattern string) string {
	if !strings.Contains(pattern, `\u`) {
		return pattern
	}

	var out strings.Builder
	for i := 0; i < len(pattern); {
		if pattern[i] != '\\' || i+1 == len(pattern) {
			out.WriteByte(pattern[i])
			i++
			continue
		}

		if pattern[i+1] == 'u' && i+6 <= len(pattern) && pattern[i+2] != '{' {
			code, size := pattern[i+2:i+6], 6
			if pair, isPair := surrogates(pattern[i:]); isPair {
				code, size = strconv.FormatUint(uint64(pair), 16), 12
			}
			out.WriteString(`\x{` + code + `}`)
			i += size
			continue
		}

		// What else follows a backslash is kept with it, such as another backslash.
		if pattern[i+1] == 'u' {
			out.WriteString(`\x`)
		} else {
			out.WriteString(pattern[i : i+2])
		}
		i += 2
	}
	return out.String()
}

// surrogates returns the character of the two surrogates, each as \uXXXX, that a text begins
// with; false if it does not.
func surrogates(text string) (pair rune, ok bool) {
	if len(text) < 12 || text[6:8] != `\u` {
		return 0, false
	}

	high, errHigh := strconv.ParseUint(text[2:6], 16, 16)
	low, errLow := strconv.ParseUint(text[8:12], 16, 16)
	if errHigh != nil || errLow != nil || high>>10 != 0xD800>>10 || low>>10 != 0xDC00>>10 {
		return 0, false
	}
	return utf16.DecodeRune(rune(high), rune(low)), true
}

// branch is an alternative of an expression, without the anchors at its ends.
type branch struct {
	parts []*syntax.Regexp
	// There is an anchor.
	begin, end bool
}

// branchesOf returns the alternatives of an expression that have anchors of their
// own. Most of a pattern can be in each of them.
func branchesOf(account *work.Account, pattern string, re *syntax.Regexp) ([]branch, error) {
	has := map[*syntax.Regexp]bool{}
	anchored(re, has)
	all, err := branchesIn(re, has)
	if err != nil {
		return nil, err
	}

	return all, account.Spend((len(all) - 1) * len(pattern) * stepsOfByte)
}

// branchesIn returns the branches of a part of an expression, given the parts that
// have anchors.
func branchesIn(re *syntax.Regexp, anchored map[*syntax.Regexp]bool) ([]branch, error) {
	switch re.Op {
	case syntax.OpBeginText:
		return []branch{{begin: true}}, nil
	case syntax.OpEndText:
		return []branch{{end: true}}, nil
	case syntax.OpEmptyMatch:
		return []branch{{}}, nil
	case syntax.OpCapture:
		if anchored[re] {
			return branchesIn(re.Sub[0], anchored)
		}
	case syntax.OpAlternate:
		// Alternatives without anchors are one part of whatever they are in.
		if !anchored[re] {
			break
		}

		var all []branch
		for _, sub := range re.Sub {
			more, err := branchesIn(sub, anchored)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		return all, nil

	case syntax.OpConcat:
		all := []branch{{}}
		for _, sub := range re.Sub {
			next, err := branchesIn(sub, anchored)
			if err != nil {
				return nil, err
			}
			if all, err = joined(all, next); err != nil {
				return nil, err
			}
		}
		return all, nil
	}

	return []branch{{parts: []*syntax.Regexp{re}}}, nil
}

// joined returns every head followed by every tail. It may overwrite the heads.
func joined(heads, tails []branch) ([]branch, error) {
	if len(heads)*len(tails) > maxBranches {
		return nil, errAnchor
	}

	var all []branch
	for _, head := range heads {
		if len(tails) > 1 {
			// So that each branch gets a copy.
			head.parts = slices.Clip(head.parts)
		}
		for _, tail := range tails {
			// An anchor inside could never match, or not only what is written.
			if tail.begin && len(head.parts) > 0 || head.end && len(tail.parts) > 0 {
				return nil, errAnchor
			}
			all = append(all, branch{append(head.parts, tail.parts...), head.begin || tail.begin, head.end || tail.end})
		}
	}
	return all, nil
}

// anchored reports whether an expression contains anchors, and adds its parts that do
// to a set.
func anchored(re *syntax.Regexp, has map[*syntax.Regexp]bool) bool {
	found := re.Op == syntax.OpBeginText || re.Op == syntax.OpEndText
	// All parts are looked at, also after one is found: each is asked for.
	for _, sub := range re.Sub {
		found = anchored(sub, has) || found
	}
	if found {
		has[re] = true
	}
	return found
}

// regexCost returns the approximate number of states of an expression, weighted by
// the time that a state takes.
func regexCost(re *syntax.Regexp) int {
	cost := 0
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		// Up to the last character: a class such as [^a].
		if n := len(re.Rune); n > 0 && re.Rune[n-1] == unicode.MaxRune {
			return wideCost
		}
		return 1
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return wideCost
	}

	for _, sub := range re.Sub {
		cost = min(cost+regexCost(sub), maxRegexCost+1)
	}

	// Beyond maxRepeat it is split, and the pieces cost more than one after the other.
	if re.Op == syntax.OpRepeat {
		times := max(re.Min, re.Max, 1)
		if times > 1 && ambiguous(re.Sub[0]) {
			cost *= ambiguousCost
		}
		cost *= times * ((times + maxRepeat - 1) / maxRepeat)
	}
	return min(cost, maxRegexCost+1)
}

// ambiguous reports whether an expression contains a repetition and no fixed text
// next to it.
func ambiguous(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpRepeat:
		return re.Min != re.Max || ambiguous(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		return true
	case syntax.OpCapture:
		return ambiguous(re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			if ambiguous(sub) {
				return true
			}
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !ambiguous(sub) {
				return false
			}
		}

		// Nothing but repetitions, one after the other.
		return true
	}

	return false
}

// regexWriter writes an expression with the elements that xgrammar implements as
// others do: characters, classes of ranges, groups, alternatives and repetitions.
type regexWriter struct {
	inSchema bool
	text     strings.Builder
	// The first one.
	err error
}

func (w *regexWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *regexWriter) branches(all []branch) {
	if w.inSchema {
		w.text.WriteByte('^')
		defer w.text.WriteByte('$')
	}

	if len(all) > 1 {
		w.text.WriteString("(?:")
		defer w.text.WriteByte(')')
	}

	for i, branch := range all {
		if i > 0 {
			w.text.WriteByte('|')
		}

		from := w.text.Len()
		// Without an anchor any text may be before the match, and after it.
		if w.inSchema && !branch.begin {
			w.anything()
		}

		for _, part := range branch.parts {
			w.group(part, len(branch.parts) > 1 || len(all) > 1)
		}

		if w.inSchema && !branch.end && (branch.begin || len(branch.parts) > 0) {
			w.anything()
		}
		// An alternative of nothing has to be written too.
		if w.text.Len() == from && (!w.inSchema || len(all) > 1) {
			w.text.WriteString("(?:)")
		}
	}
}

// anything writes an expression that matches any text.
func (w *regexWriter) anything() {
	w.class([]rune{0, unicode.MaxRune})
	w.text.WriteByte('*')
}

// group writes an expression, in parentheses if its alternatives need them; apart
// reports whether other expressions stand next to it.
func (w *regexWriter) group(re *syntax.Regexp, apart bool) {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}

	if !apart || re.Op != syntax.OpAlternate {
		w.write(re)
		return
	}
	w.text.WriteString("(?:")
	w.write(re)
	w.text.WriteByte(')')
}

func (w *regexWriter) write(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		w.text.WriteString("(?:)")
	case syntax.OpNoMatch:
		w.fail(errNothing)
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			w.literal(r, re.Flags&syntax.FoldCase != 0)
		}
	case syntax.OpCharClass:
		w.class(re.Rune)
	case syntax.OpAnyChar:
		w.class([]rune{0, unicode.MaxRune})
	// Without the line terminators of JavaScript.
	case syntax.OpAnyCharNotNL:
		w.class([]rune{0, '\n' - 1, '\n' + 1, '\r' - 1, '\r' + 1, '\u2027', '\u202a', unicode.MaxRune})
	case syntax.OpCapture:
		w.group(re, true)

	case syntax.OpStar:
		w.repeat(re.Sub[0], "*")
	case syntax.OpPlus:
		w.repeat(re.Sub[0], "+")
	case syntax.OpQuest:
		w.repeat(re.Sub[0], "?")
	case syntax.OpRepeat:
		w.count(re)

	case syntax.OpConcat:
		for _, sub := range re.Sub {
			w.group(sub, true)
		}
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			if i > 0 {
				w.text.WriteByte('|')
			}
			w.group(sub, true)
		}

	// The anchors at the ends are those of the branches: what is left stands inside.
	case syntax.OpBeginText, syntax.OpEndText:
		w.fail(errAnchor)
	default:
		w.fail(errBoundary)
	}
}

func (w *regexWriter) repeat(re *syntax.Regexp, times string) {
	sub := regexWriter{inSchema: w.inSchema}
	sub.write(re)
	if sub.err != nil {
		w.fail(sub.err)
	}

	// What is one element already needs no parentheses.
	text := sub.text.String()
	one := len(text) < 2 || len(text) == 2 && text[0] == '\\' || text[0] == '[' &&
		strings.IndexByte(text, ']') == len(text)-1
	if !one {
		text = "(?:" + text + ")"
	}
	w.text.WriteString(text + times)
}

// count writes a repetition. Counts of more than maxRepeat are split.
func (w *regexWriter) count(re *syntax.Regexp) {
	least, most := re.Min, re.Max
	// None of it is the empty text.
	if most == 0 {
		w.text.WriteString("(?:)")
	}

	for most > 0 || most < 0 {
		from, to := min(least, maxRepeat), min(most, maxRepeat)
		least -= from

		switch {
		case most < 0 && least == 0:
			w.repeat(re.Sub[0], fmt.Sprintf("{%d,}", from))
			return
		case most < 0:
			to = from
		default:
			most -= to
		}
		w.repeat(re.Sub[0], fmt.Sprintf("{%d,%d}", from, to))
	}
}

// literal writes a character, in upper and lower case if folded.
func (w *regexWriter) literal(char rune, folded bool) {
	if folded {
		ranges := []rune{char, char}
		for f := unicode.SimpleFold(char); f != char; f = unicode.SimpleFold(f) {
			ranges = append(ranges, f, f)
		}
		// A character that has no other case is written as it is.
		if len(ranges) > 2 {
			w.class(ranges)
			return
		}
	}

	switch {
	case char == 0 || unicode.Is(unicode.Cs, char):
		w.fail(errNothing)
	case w.inSchema && (char < ' ' || char == '"' || char == '\\'):
		w.fail(errEscaped)
	default:
		w.character(char)
	}
}

// class writes a class of the characters in some ranges.
func (w *regexWriter) class(ranges []rune) {
	var plain []rune
	for i := 0; i+1 < len(ranges); i += 2 {
		plain = w.appendPlain(plain, ranges[i], ranges[i+1])
	}

	switch {
	case len(plain) == 0 && w.inSchema:
		w.fail(errEscaped)
		return
	case len(plain) == 0:
		w.fail(errNothing)
		return
	case len(plain) > 2*maxRanges:
		w.fail(errRanges)
		return
	}
	// It would negate the class, even if escaped.
	if plain[0] == '^' {
		plain[0]++
		if plain[0] > plain[1] {
			plain = plain[2:]
		}
		if len(plain) == 0 {
			w.character('^')
			return
		}
		w.text.WriteString(`(?:\^|`)
		defer w.text.WriteByte(')')
	}

	w.text.WriteByte('[')
	for i := 0; i < len(plain); i += 2 {
		w.member(plain[i])
		if plain[i+1] > plain[i] {
			w.text.WriteByte('-')
			w.member(plain[i+1])
		}
	}
	w.text.WriteByte(']')
}

// appendPlain appends a range without NUL, which breaks grammar compilers, without
// surrogates, and in JSON without the characters that are escaped there.
func (w *regexWriter) appendPlain(dst []rune, from, to rune) []rune {
	gaps := []rune{0, 0, 0xD800, 0xDFFF}
	if w.inSchema {
		gaps = []rune{0, 0x1F, '"', '"', '\\', '\\', 0xD800, 0xDFFF}
	}

	for i := 0; i < len(gaps) && gaps[i] <= to; i += 2 {
		if gaps[i+1] < from {
			continue
		}
		if from < gaps[i] {
			dst = append(dst, from, gaps[i]-1)
		}
		from = gaps[i+1] + 1
	}

	if from <= to {
		dst = append(dst, from, to)
	}
	return dst
}

// character writes a character outside of classes.
func (w *regexWriter) character(r rune) {
	if strings.ContainsRune(`\.+*?()|[]{}^$/-`, r) {
		w.text.WriteByte('\\')
		w.text.WriteRune(r)
		return
	}
	w.plain(r)
}

// member writes a character inside a class.
func (w *regexWriter) member(r rune) {
	if strings.ContainsRune(`\]^[-`, r) {
		fmt.Fprintf(&w.text, `\x%02x`, r)
		return
	}
	w.plain(r)
}

func (w *regexWriter) plain(r rune) {
	switch {
	case r < ' ' || r == 0x7F:
		fmt.Fprintf(&w.text, `\x%02x`, r)
	case r < utf8.RuneSelf || unicode.IsLetter(r):
		w.text.WriteRune(r)
	default:
		fmt.Fprintf(&w.text, `\u{%x}`, r)
	}
}
