package constraint

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// A custom tool takes a text, which the model writes as a string of JSON:
// {"input":"…"}. The text can have a grammar of the client, in Lark or as a regular
// expression. Both become one form, expressions and rules, which is written as a
// grammar of the arguments: each character of the text as JSON spells it.

const (
	maxInputNodes  = 8 << 10 // expressions of a grammar
	maxInputRepeat = maxRepeat
)

// MaxInputCost bounds what the grammars of all custom tools of a request cost an engine's
// compiler.
const MaxInputCost = maxRegexCost

// ErrUnenforceable is the error of a grammar that is well-formed, but that no engine's
// grammar can be made of, or only a costly one.
var ErrUnenforceable = errors.New("cannot be enforced")

func unenforceable(reason string) error { return fmt.Errorf("%w: %s", ErrUnenforceable, reason) }

type exprOp uint8

const (
	exprClass  exprOp = iota // one character of ranges
	exprText                 // the text
	exprSeq                  // subs, one after the other
	exprAlt                  // one of subs
	exprRepeat               // subs[0] from least to most times; most < 0: any number
	exprName                 // the rule of the name text
)

// expr is an expression over the characters of a tool's text. It is immutable.
type expr struct {
	op          exprOp
	text        string
	ranges      []rune
	subs        []*expr
	least, most int
}

// InputRegex returns the grammar of a custom tool's arguments whose text matches a
// whole regular expression in Go's syntax, in which \uXXXX is as in JavaScript. cost is
// as for [InputLark]. The error is [ErrUnenforceable], or its text continues "the
// expression".
func InputRegex(account *work.Account, pattern string) (g Grammar, cost int, err error) {
	re, err := parseInputRegex(account, pattern)
	if err != nil {
		return "", 0, err
	}

	branches, err := branchesOf(account, pattern, re)
	switch {
	case account.Err() != nil:
		return "", 0, err
	case err != nil:
		return "", 0, unenforceable(err.Error())
	}

	alt := &expr{op: exprAlt}
	for _, b := range branches {
		// Anchors at the ends of a branch say what is true anyway: the whole text matches.
		seq := &expr{op: exprSeq}
		for _, part := range b.parts {
			e, err := regexExpr(part)
			if err != nil {
				return "", 0, err
			}
			seq.subs = append(seq.subs, e)
		}
		alt.subs = append(alt.subs, seq)
	}
	return writeInput(map[string]*expr{startRule: alt})
}

// parseInputRegex parses a regular expression. An expression that other engines of
// regular expressions can read is unenforceable, and not malformed.
func parseInputRegex(account *work.Account, pattern string) (*syntax.Regexp, error) {
	switch {
	case len(pattern) > maxRegexBytes:
		return nil, unenforceable(fmt.Sprintf("an expression is longer than %d bytes", maxRegexBytes))
	case strings.ContainsRune(pattern, 0):
		return nil, errors.New("has a NUL character in it")
	}

	re, err := parseExpression(account, goSyntax(pattern))
	if errors.Is(err, errUnicode) {
		return nil, unenforceable(err.Error())
	}

	var fault *syntax.Error
	if !errors.As(err, &fault) {
		return re, err
	}

	// Faults in every notation. With the others the expression may be one of another engine's, such as
	// a lookahead.
	switch fault.Code {
	case syntax.ErrMissingBracket, syntax.ErrMissingParen, syntax.ErrUnexpectedParen, syntax.ErrMissingRepeatArgument,
		syntax.ErrTrailingBackslash, syntax.ErrInvalidCharRange, syntax.ErrInvalidUTF8:
		return nil, fmt.Errorf("is malformed: %s: %q", fault.Code, fault.Expr)
	}
	return nil, unenforceable(errSyntax.Error())
}

// regexExpr returns the expression of a regular expression. A dot is any character
// except a line feed.
func regexExpr(re *syntax.Regexp) (*expr, error) {
	e := &expr{}

	switch re.Op {
	case syntax.OpEmptyMatch:
		return &expr{op: exprText}, nil
	case syntax.OpLiteral:
		return literalExpr(re.Rune, re.Flags&syntax.FoldCase != 0), nil
	case syntax.OpCharClass:
		return &expr{op: exprClass, ranges: re.Rune}, nil
	case syntax.OpAnyChar:
		return &expr{op: exprClass, ranges: []rune{0, unicode.MaxRune}}, nil
	case syntax.OpAnyCharNotNL:
		return &expr{op: exprClass, ranges: []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}}, nil
	case syntax.OpCapture:
		// A group says nothing about the text.
		return regexExpr(re.Sub[0])
	case syntax.OpStar:
		e.op, e.least, e.most = exprRepeat, 0, -1
	case syntax.OpPlus:
		e.op, e.least, e.most = exprRepeat, 1, -1
	case syntax.OpQuest:
		e.op, e.least, e.most = exprRepeat, 0, 1
	case syntax.OpRepeat:
		if max(re.Min, re.Max) > maxInputRepeat {
			return nil, unenforceable(errCost.Error())
		}
		e.op, e.least, e.most = exprRepeat, re.Min, re.Max
	case syntax.OpConcat:
		e.op = exprSeq
	case syntax.OpAlternate:
		e.op = exprAlt
	case syntax.OpBeginText, syntax.OpEndText:
		return nil, unenforceable(errAnchor.Error())
	case syntax.OpNoMatch:
		return nil, unenforceable(errNothing.Error())
	default:
		return nil, unenforceable(errBoundary.Error())
	}

	for _, sub := range re.Sub {
		s, err := regexExpr(sub)
		if err != nil {
			return nil, err
		}
		e.subs = append(e.subs, s)
	}
	return e, nil
}

// literalExpr returns the expression of a text, in upper and lower case if folded.
func literalExpr(text []rune, folded bool) *expr {
	if !folded {
		return &expr{op: exprText, text: string(text)}
	}

	seq := &expr{op: exprSeq}
	for _, r := range text {
		// A class of the character in all its cases.
		ranges := []rune{r, r}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			ranges = append(ranges, f, f)
		}
		seq.subs = append(seq.subs, &expr{op: exprClass, ranges: ranges})
	}
	return seq
}

// startRule is the rule of the whole text.
const startRule = "start"

// inputWriter writes rules as a grammar of JSON arguments.
type inputWriter struct {
	rules map[string]*expr
	// The numbers of the rules that are used.
	names map[string]int
	// Of them, those that are not written yet.
	queue []string
	text  strings.Builder
	nodes int
	// The first one.
	err error
}

// writeInput returns the grammar of the arguments whose text is of the start rule, and its
// cost.
func writeInput(rules map[string]*expr) (g Grammar, cost int, err error) {
	if cost = (&inputCost{rules: rules}).total(); cost > MaxInputCost {
		return "", 0, unenforceable("it takes an engine too long")
	}

	writer := inputWriter{rules: rules, names: map[string]int{}}
	writer.text.WriteString(`root ::= "{" space "\"input\"" space ":" space "\"" `)
	writer.name(startRule)
	writer.text.WriteString(` "\"" space "}"` + "\nspace ::= [ \\n]{0,8}\n")

	// Only rules that the text can reach are written: each as it is first named.
	for len(writer.queue) > 0 {
		name := writer.queue[0]
		writer.queue = writer.queue[1:]
		fmt.Fprintf(&writer.text, "r%d ::= ", writer.names[name])
		writer.expr(rules[name], false)
		writer.text.WriteByte('\n')
	}

	// Spelled for JSON a grammar is longer than the client's own.
	if writer.err == nil && writer.text.Len() > 4*maxGrammarBytes {
		writer.err = unenforceable("it is too large")
	}
	return Grammar(writer.text.String()), cost, writer.err
}

func (w *inputWriter) name(name string) {
	// A rule gets its number where it is first named, and waits to be written.
	n, known := w.names[name]
	if !known {
		n = len(w.names)
		w.names[name] = n
		w.queue = append(w.queue, name)
	}
	fmt.Fprintf(&w.text, "r%d", n)
}

func (w *inputWriter) fail(reason string) {
	if w.err == nil {
		w.err = unenforceable(reason)
	}
}

// expr writes an expression, in parentheses if it is part of a larger one and needs
// them.
func (w *inputWriter) expr(e *expr, part bool) {
	w.nodes++
	if w.nodes > maxInputNodes {
		w.fail("it has too many expressions")
		return
	}

	switch e.op {
	case exprText:
		w.literal(e.text)
	case exprClass:
		w.class(e.ranges)
	case exprName:
		w.name(e.text)
	case exprRepeat:
		// The operator applies to one element.
		w.text.WriteByte('(')
		w.expr(e.subs[0], false)
		w.text.WriteByte(')')
		switch {
		case e.most < 0 && e.least < 2:
			w.text.WriteByte("*+"[e.least])
		case e.most < 0:
			fmt.Fprintf(&w.text, "{%d,}", e.least)
		default:
			fmt.Fprintf(&w.text, "{%d,%d}", e.least, e.most)
		}
	default:
		w.several(e, part)
	}
}

func (w *inputWriter) several(e *expr, part bool) {
	if len(e.subs) == 0 {
		// An expression of nothing is the empty text.
		w.literal("")
		return
	}

	if len(e.subs) == 1 {
		w.expr(e.subs[0], part)
		return
	}

	if part {
		w.text.WriteByte('(')
		defer w.text.WriteByte(')')
	}

	for i, sub := range e.subs {
		switch {
		case i > 0 && e.op == exprAlt:
			w.text.WriteString(" | ")
		case i > 0:
			w.text.WriteByte(' ')
		}
		w.expr(sub, true)
	}
}

// literal writes a text as it is in JSON.
func (w *inputWriter) literal(text string) {
	w.text.WriteByte('"')
	for _, r := range text {
		if r == 0 || unicode.Is(unicode.Cs, r) {
			w.fail("it has a NUL character or half a surrogate pair")
		}

		for _, c := range jsonSpelling(r) {
			w.character(c)
		}
	}
	w.text.WriteByte('"')
}

// shortEscapes are the characters with an escape of two characters in JSON, and the
// second characters of these.
const shortEscapes, shortLetters = "\"\\\b\t\n\f\r", `"\btnfr`

// jsonSpelling returns a character as it is in a string of JSON.
func jsonSpelling(r rune) string {
	if i := strings.IndexRune(shortEscapes, r); i >= 0 {
		return `\` + shortLetters[i:i+1]
	}
	if r < ' ' {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return string(r)
}

// class writes one character of some ranges as it is in JSON.
func (w *inputWriter) class(ranges []rune) {
	plain, letters, digits := splitClass(ranges)
	var parts []string
	// At the beginning it would negate the class.
	if len(plain) > 0 && plain[0] == '^' {
		parts = append(parts, `"^"`)
		plain[0]++
		if plain[0] > plain[1] {
			plain = plain[2:]
		}
	}

	if len(plain) > 2*maxRanges {
		w.fail(errRanges.Error())
		return
	}

	if len(plain) > 0 {
		parts = append(parts, classText(plain))
	}
	if len(letters) > 0 {
		parts = append(parts, `"\\" `+classText(letters))
	}
	for i, list := range digits {
		if len(list) > 0 {
			parts = append(parts, fmt.Sprintf(`"\\u00%d" %s`, i, classText(list)))
		}
	}

	switch {
	case len(parts) == 0:
		w.fail(errNothing.Error())
	// One element needs no parentheses.
	case len(parts) == 1 && len(letters) == 0 && len(digits[0])+len(digits[1]) == 0:
		w.text.WriteString(parts[0])
	default:
		w.text.WriteString("(" + strings.Join(parts, " | ") + ")")
	}
}

// splitClass returns the ranges of the characters that JSON spells as they are, those
// of the second characters of short escapes, and those of the last digits of \u000x
// and \u001x.
func splitClass(ranges []rune) (plain, letters []rune, digits [2][]rune) {
	w := regexWriter{inSchema: true}
	for i := 0; i+1 < len(ranges); i += 2 {
		from, to := ranges[i], ranges[i+1]
		plain = w.appendPlain(plain, from, to)

		// Escaped are at most the characters up to the backslash; NUL is no part of any text.
		for r := max(from, 1); r <= min(to, '\\'); r++ {
			at := strings.IndexRune(shortEscapes, r)
			switch {
			case at >= 0:
				letters = append(letters, rune(shortLetters[at]), rune(shortLetters[at]))
			case r < ' ':
				digit := rune("0123456789abcdef"[r&15])
				digits[r>>4] = append(digits[r>>4], digit, digit)
			}
		}
	}
	return plain, letters, digits
}

// classText returns a class in EBNF.
func classText(ranges []rune) string {
	w := inputWriter{}
	w.text.WriteByte('[')
	for i := 0; i < len(ranges); i += 2 {
		w.character(ranges[i])
		if ranges[i+1] > ranges[i] {
			w.text.WriteByte('-')
			w.character(ranges[i+1])
		}
	}
	w.text.WriteByte(']')
	return w.text.String()
}

// character writes a character in quotes or in a class of EBNF.
func (w *inputWriter) character(char rune) {
	switch {
	case char > 0xFFFF:
		fmt.Fprintf(&w.text, `\U%08x`, char)
	case char > 0x7E:
		fmt.Fprintf(&w.text, `\u%04x`, char)
	case char == '"' || char == '\\':
		w.text.WriteByte('\\')
		w.text.WriteRune(char)
	case char < ' ' || slices.Contains([]rune(`]^[-`), char):
		fmt.Fprintf(&w.text, `\x%02x`, char)
	default:
		w.text.WriteRune(char)
	}
}
