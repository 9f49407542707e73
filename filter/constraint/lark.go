package constraint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

const (
	// stepsOfLark is what a byte of a grammar takes to read and to write.
	stepsOfLark = 6

	maxLarkRules = 512
	maxLarkDepth = 64
)

// LarkError is a fault in a Lark grammar. Its text continues "the grammar".
type LarkError struct {
	Line, Column int
	Reason       string
}

func (e *LarkError) Error() string {
	return fmt.Sprintf("is malformed at line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// InputLark returns the grammar of a custom tool's arguments whose text is of a Lark
// grammar: rules and terminals with strings, regular expressions, ranges, groups and
// repetitions, %ignore, and %import of the terminals of Lark's library common. cost is
// what it costs an engine's compiler, at most [MaxInputCost]. The error is
// [ErrUnenforceable] or a [LarkError].
func InputLark(account *work.Account, definition string) (g Grammar, cost int, err error) {
	if len(definition) > maxGrammarBytes {
		return "", 0, unenforceable(fmt.Sprintf("it is longer than %d bytes", maxGrammarBytes))
	}
	if err := account.Spend(len(definition) * stepsOfLark); err != nil {
		return "", 0, err
	}

	parser := larkParser{
		account: account, rest: definition, text: definition, rules: map[string]*expr{}, used: map[string]int{},
	}

	parser.next()
	for parser.kind != larkEnd && parser.err == nil {
		parser.statement()
	}

	if parser.err == nil {
		parser.check()
	}
	if parser.err != nil {
		return "", 0, parser.err
	}
	return writeInput(parser.translated())
}

type larkKind uint8

const (
	larkEnd larkKind = iota
	larkNewline
	larkName
	larkString
	larkRegex
	larkNumber
	larkDirective
	larkSign // one of : | ( ) [ ] ? * + ~ . .. -> , { }
)

// larkParser reads a grammar. One token is read ahead.
type larkParser struct {
	account    *work.Account
	text, rest string
	kind       larkKind
	token      string
	// Where the token begins.
	at int

	rules map[string]*expr
	// Names, and where they are used first.
	used    map[string]int
	ignored []*expr
	// A terminal is being defined.
	terminal bool
	depth    int
	nodes    int
	// The first one.
	err error
}

// fail ends the parsing with a fault at a position.
func (p *larkParser) fail(at int, format string, args ...any) {
	before := p.text[:at]
	line := strings.Count(before, "\n")
	p.stop(&LarkError{line + 1, at - strings.LastIndexByte(before, '\n'), fmt.Sprintf(format, args...)})
}

func (p *larkParser) stop(err error) {
	if p.err == nil {
		p.err = err
	}
	// At the end of the text all loops of the parser end.
	p.kind, p.token, p.rest = larkEnd, "", ""
}

func (p *larkParser) is(sign string) bool { return p.kind == larkSign && p.token == sign }

// take reports whether the token is a sign, and reads on if it is.
func (p *larkParser) take(sign string) bool {
	if !p.is(sign) {
		return false
	}
	p.next()
	return true
}

func (p *larkParser) expect(sign string) {
	if !p.take(sign) {
		p.fail(p.at, "%q is expected", sign)
	}
}

// next reads a token. A line that begins with | continues the one before.
func (p *larkParser) next() {
	p.rest = strings.TrimLeft(p.rest, " \t\r\f")
	// Up to the end of the line, which is a token.
	if strings.HasPrefix(p.rest, "//") || strings.HasPrefix(p.rest, "#") {
		p.rest = p.rest[spanTo(p.rest, '\n'):]
	}

	p.at = len(p.text) - len(p.rest)
	if p.rest == "" {
		p.kind, p.token = larkEnd, ""
		return
	}

	switch first := p.rest[0]; {
	case first == '\n':
		p.advance(larkNewline, 1)
	case first == '"':
		p.quoted(larkString, '"')
	case first == '/':
		p.quoted(larkRegex, '/')
	case first >= '0' && first <= '9':
		p.advance(larkNumber, p.span("0123456789"))
	case first == '%':
		p.advance(larkDirective, 1+spanOf(p.rest[1:], letters))
	case strings.IndexByte(letters+"_", first) >= 0:
		p.advance(larkName, p.span(letters+"_0123456789"))
	// Before the signs that they begin with.
	case strings.HasPrefix(p.rest, "->"), strings.HasPrefix(p.rest, ".."):
		p.advance(larkSign, 2)
	case strings.IndexByte(":|()[]?*+~.,{}!-", first) >= 0:
		p.advance(larkSign, 1)
	default:
		p.fail(p.at, "the character %q has no meaning here", first)
	}
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func (p *larkParser) span(set string) int { return spanOf(p.rest, set) }

func spanOf(s, set string) int { return len(s) - len(strings.TrimLeft(s, set)) }

// spanTo returns how many bytes are before the first end, or in all if there is none.
func spanTo(s string, end byte) int {
	if i := strings.IndexByte(s, end); i >= 0 {
		return i
	}
	return len(s)
}

func (p *larkParser) advance(kind larkKind, n int) {
	p.kind, p.token, p.rest = kind, p.rest[:n], p.rest[n:]
}

// quoted reads a string or a regular expression with its flags.
func (p *larkParser) quoted(kind larkKind, quote byte) {
	i := 1
	for ; i < len(p.rest) && p.rest[i] != quote; i++ {
		if p.rest[i] == '\n' {
			break
		}
		if p.rest[i] == '\\' {
			// What is escaped may be a quote.
			i++
		}
	}

	if i >= len(p.rest) || p.rest[i] != quote {
		p.fail(p.at, "a %c has no closing %c in its line", quote, quote)
		return
	}
	p.advance(kind, i+1+spanOf(p.rest[i+1:], "imslux"))
}

// statement reads a definition or a directive.
func (p *larkParser) statement() {
	switch p.kind {
	case larkNewline:
		p.next()
		return
	case larkDirective:
		p.directive()
	default:
		p.definition()
	}

	if p.kind != larkNewline && p.kind != larkEnd {
		p.fail(p.at, "%q is not expected", p.token)
	}
}

func (p *larkParser) directive() {
	switch name, at := p.token, p.at; name {
	case "%import":
		p.next()
		p.imports()
	case "%ignore":
		p.next()
		p.terminal = true
		p.ignored = append(p.ignored, p.alternatives())
	case "%declare", "%override", "%extend":
		p.stop(unenforceable(name + " is not supported"))
	default:
		p.fail(at, "there is no directive %s", name)
	}
}

// imports reads common.NAME, common.NAME -> NAME, or common (NAME, …).
func (p *larkParser) imports() {
	// Another path would be a file of the client's.
	if p.kind != larkName || p.token != "common" {
		p.stop(unenforceable("only terminals of common can be imported"))
		return
	}

	p.next()
	if p.take("(") {
		for p.err == nil {
			p.imported(p.name())
			if !p.take(",") {
				break
			}
		}
		p.expect(")")
		return
	}

	p.expect(".")
	name := p.name()
	as := name
	if p.take("->") {
		as = p.name()
	}
	p.importAs(name, as)
}

func (p *larkParser) imported(name string) { p.importAs(name, name) }

func (p *larkParser) importAs(name, as string) {
	pattern, known := larkCommon[name]
	switch {
	case p.err != nil:
	case !known:
		p.fail(p.at, "common has no terminal %s", name)
	default:
		p.define(as, p.regex(pattern, p.at))
	}
}

func (p *larkParser) name() string {
	name := p.token
	if p.kind != larkName {
		p.fail(p.at, "a name is expected")
		return ""
	}
	p.next()
	return name
}

func (p *larkParser) define(name string, e *expr) {
	switch {
	case p.err != nil:
	case p.rules[name] != nil:
		p.fail(p.at, "%s is defined twice", name)
	case len(p.rules) == maxLarkRules:
		p.stop(unenforceable(fmt.Sprintf("it has more than %d rules", maxLarkRules)))
	default:
		p.rules[name] = e
	}
}

// isTerminal reports whether a name is that of a terminal.
func isTerminal(name string) bool {
	name = strings.TrimLeft(name, "_")
	return name != "" && name[0] >= 'A' && name[0] <= 'Z'
}

// definition reads a rule or a terminal. Priorities, and what only concerns trees, have
// no effect.
func (p *larkParser) definition() {
	// These signs are about trees.
	for p.is("?") || p.is("!") {
		p.next()
	}

	name := p.name()
	if p.is("{") {
		p.stop(unenforceable("templates of rules are not supported"))
	}

	if p.take(".") {
		p.take("-")
		p.number()
	}

	p.expect(":")
	p.terminal = isTerminal(name)
	p.define(name, p.alternatives())
}

func (p *larkParser) number() int {
	n, err := strconv.Atoi(p.token)
	if p.kind != larkNumber || err != nil {
		p.fail(p.at, "a number is expected")
		return 0
	}
	p.next()
	return n
}

// continues reads over the ends of lines before a |, and in groups before anything.
func (p *larkParser) continues() {
	if p.kind != larkNewline {
		return
	}
	if rest := p.afterBlank(); p.depth > 1 || strings.HasPrefix(rest, "|") {
		p.rest = rest
		p.next()
	}
}

// afterBlank returns what follows after empty lines and comments.
func (p *larkParser) afterBlank() string {
	rest := p.rest
	for {
		rest = strings.TrimLeft(rest, " \t\r\f\n")
		if !strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "#") {
			return rest
		}
		_, after, _ := strings.Cut(rest, "\n")
		rest = after
	}
}

func (p *larkParser) alternatives() *expr {
	e := &expr{op: exprAlt}
	p.depth++
	if p.depth > maxLarkDepth {
		p.stop(unenforceable(fmt.Sprintf("it nests more than %d levels deep", maxLarkDepth)))
		return e
	}
	defer func() { p.depth-- }()

	// An error ends it too: then the token is the end, and no sign.
	for p.continues(); ; p.continues() {
		e.subs = append(e.subs, p.sequence())
		p.continues()
		if !p.take("|") {
			return e
		}
	}
}

func (p *larkParser) sequence() *expr {
	e := &expr{op: exprSeq}
	for p.err == nil {
		if p.depth > 1 {
			// In a group the end of a line ends nothing.
			p.continues()
		}
		switch {
		case p.kind == larkName, p.kind == larkString, p.kind == larkRegex, p.is("("), p.is("["):
			e.subs = append(e.subs, p.repeated())
			continue
		case p.take("->"):
			p.name()
		}
		break
	}
	return e
}

// repeated reads an item and how often it may be there.
func (p *larkParser) repeated() *expr {
	p.nodes++
	if p.nodes > maxInputNodes {
		p.stop(unenforceable("it has too many expressions"))
	}

	e := p.item()

	switch {
	case p.take("?"):
		return &expr{op: exprRepeat, subs: []*expr{e}, least: 0, most: 1}
	case p.take("*"):
		return &expr{op: exprRepeat, subs: []*expr{e}, least: 0, most: -1}
	case p.take("+"):
		return &expr{op: exprRepeat, subs: []*expr{e}, least: 1, most: -1}
	case p.take("~"):
		at := p.at
		least := p.number()
		most := least
		if p.take("..") {
			most = p.number()
		}
		if most < least {
			p.fail(at, "the repetition ends at %d, before it begins at %d", most, least)
		}
		// An engine makes states of each of them.
		if most > maxInputRepeat && p.err == nil {
			p.stop(unenforceable(fmt.Sprintf("it repeats more than %d times", maxInputRepeat)))
		}
		return &expr{op: exprRepeat, subs: []*expr{e}, least: least, most: most}
	}
	return e
}

func (p *larkParser) item() *expr {
	at, token := p.at, p.token

	switch {
	case p.kind == larkName:
		// Lark's lexer knows terminals alone.
		if p.terminal && !isTerminal(token) {
			p.fail(at, "a terminal uses the rule %s", token)
		}
		if _, known := p.used[token]; !known {
			p.used[token] = at
		}
		p.next()
		if p.is("{") {
			p.stop(unenforceable("templates of rules are not supported"))
		}
		return &expr{op: exprName, text: token}
	case p.kind == larkString:
		return p.tokenOf(p.str())
	case p.kind == larkRegex:
		p.next()
		end := strings.LastIndexByte(token, '/')
		pattern, flags := token[1:end], token[end+1:]
		if strings.ContainsAny(flags, "xl") {
			p.stop(unenforceable("the flags x and l are not supported"))
		}
		// Python's u is what is done anyway.
		if flags = strings.ReplaceAll(flags, "u", ""); flags != "" {
			pattern = "(?" + flags + ":" + pattern + ")"
		}
		return p.tokenOf(p.regex(pattern, at))
	case p.take("("):
		e := p.alternatives()
		p.expect(")")
		return e
	}

	p.expect("[")
	e := p.alternatives()
	p.expect("]")
	return &expr{op: exprRepeat, subs: []*expr{e}, least: 0, most: 1}
}

// tokenOf marks an expression of a rule as a token, after which ignored text may be.
func (p *larkParser) tokenOf(e *expr) *expr {
	if p.terminal || p.err != nil {
		return e
	}
	return &expr{op: exprSeq, subs: []*expr{e, {op: exprName, text: larkIgnored}}}
}

// larkIgnored is the rule of the text that %ignore allows between tokens. No name of
// a grammar is like it.
const larkIgnored = "%ignore"

// str reads a string, or a range of characters.
func (p *larkParser) str() *expr {
	at := p.at
	first, folded := p.unquoted()
	if !p.take("..") {
		return literalExpr(first, folded)
	}
	var last []rune
	if p.kind == larkString {
		last, _ = p.unquoted()
	}
	if len(first) != 1 || len(last) != 1 || first[0] > last[0] {
		p.fail(at, `a range is of two characters in order, such as "a".."z"`)
		return &expr{}
	}
	return &expr{op: exprClass, ranges: []rune{first[0], last[0]}}
}

// unquoted reads a string with escapes as in Python.
func (p *larkParser) unquoted() (text []rune, folded bool) {
	at, end := p.at, strings.LastIndexByte(p.token, '"')
	flags, body := p.token[end+1:], p.token[1:end]
	if strings.Trim(flags, "i") != "" {
		p.fail(at, "a string has no flag but i")
	}

	p.next()
	for body != "" {
		// Python keeps the backslash of an escape that it does not know.
		if body[0] == '\\' && !strings.ContainsRune(`abfnrtvxuU01234567\"'`, rune(body[1])) {
			text, body = append(text, '\\'), body[1:]
			continue
		}

		quote := byte('"')
		if strings.HasPrefix(body, `\'`) {
			quote = '\''
		}

		r, _, rest, err := strconv.UnquoteChar(body, quote)
		if err != nil {
			p.fail(at, "the string has an escape that is not valid")
			return nil, false
		}
		text, body = append(text, r), rest
	}
	return text, flags != ""
}

func (p *larkParser) regex(pattern string, at int) *expr {
	re, err := parseInputRegex(p.account, pattern)
	var e *expr
	if err == nil {
		e, err = regexExpr(re)
	}

	switch {
	case err == nil:
		return e
	case errors.Is(err, ErrUnenforceable), p.account.Err() != nil:
		p.stop(err)
	default:
		p.fail(at, "the expression %s", err)
	}
	return &expr{}
}

// check looks for names that are not defined, and for a start that has no text.
func (p *larkParser) check() {
	missing := ""
	// The first use in the text is named, whatever the order of the map.
	for name, at := range p.used {
		if p.rules[name] == nil && (missing == "" || at < p.used[missing]) {
			missing = name
		}
	}

	if missing != "" {
		p.fail(p.used[missing], "%s is not defined", missing)
		return
	}

	if p.rules[startRule] == nil {
		p.fail(len(p.text), "there is no rule %s", startRule)
		return
	}

	if ends := p.finite(); p.err == nil && !ends[startRule] {
		p.fail(len(p.text), "the rule %s never ends: every alternative needs itself", startRule)
	}
}

// finite returns the rules that have a text.
func (p *larkParser) finite() map[string]bool {
	ends := map[string]bool{larkIgnored: true}
	for grown := true; grown; {
		// Each round looks at all expressions, of which a byte makes two at most.
		if err := p.account.Spend(len(p.text) / 4); err != nil {
			p.stop(err)
			return nil
		}
		grown = false
		for name, e := range p.rules {
			if !ends[name] && e.finite(ends) {
				ends[name], grown = true, true
			}
		}
	}
	return ends
}

// finite reports whether an expression has a text, given the rules that have one.
func (e *expr) finite(rules map[string]bool) bool {
	switch e.op {
	case exprName:
		return rules[e.text]
	case exprRepeat:
		return e.least == 0 || e.subs[0].finite(rules)
	case exprAlt:
		for _, sub := range e.subs {
			if sub.finite(rules) {
				return true
			}
		}
		return false
	}
	for _, sub := range e.subs {
		if !sub.finite(rules) {
			return false
		}
	}
	return true
}

// translated returns the rules with the ignored text: after every token, and before
// the first one.
func (p *larkParser) translated() map[string]*expr {
	ignored := &expr{op: exprText}
	if len(p.ignored) > 0 {
		ignored = &expr{op: exprRepeat, subs: []*expr{{op: exprAlt, subs: p.ignored}}, least: 0, most: -1}
	}

	// The ignored text is a rule of its own: it is named after each token, and written once.
	rules := map[string]*expr{larkIgnored: ignored}
	for name, e := range p.rules {
		if !isTerminal(name) {
			e = p.withTokens(e)
		}
		rules[name] = e
	}

	if len(p.ignored) > 0 {
		rules[startRule] = &expr{op: exprSeq, subs: []*expr{{op: exprName, text: larkIgnored}, rules[startRule]}}
	}
	return rules
}

// withTokens returns an expression of a rule whose terminals are followed by ignored
// text.
func (p *larkParser) withTokens(e *expr) *expr {
	if e.op == exprName {
		switch {
		case e.text == larkIgnored && len(p.ignored) == 0:
			return &expr{op: exprSeq}
		case isTerminal(e.text) && len(p.ignored) > 0:
			return &expr{op: exprSeq, subs: []*expr{e, {op: exprName, text: larkIgnored}}}
		}
		return e
	}

	// Expressions are immutable: one that changes is copied.
	c := *e
	c.subs = nil
	for _, sub := range e.subs {
		if sub.op == exprName && sub.text == larkIgnored && len(p.ignored) == 0 {
			continue
		}
		c.subs = append(c.subs, p.withTokens(sub))
	}
	return &c
}

// larkCommon are the terminals of Lark's library common, as regular expressions.
var larkCommon = map[string]string{
	"DIGIT": `[0-9]`, "HEXDIGIT": `[a-fA-F0-9]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL": `[0-9]+\.[0-9]*|\.[0-9]+`, "FLOAT": larkFloat, "SIGNED_FLOAT": `[+-]?(?:` + larkFloat + `)`,
	"NUMBER": larkFloat + `|[0-9]+`, "SIGNED_NUMBER": `[+-]?(?:` + larkFloat + `|[0-9]+)`,
	"ESCAPED_STRING": `"(?:[^"\\\n]|\\[^\n])*"`,
	"LCASE_LETTER":   `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[a-zA-Z]`,
	"WORD": `[a-zA-Z]+`, "CNAME": `[_a-zA-Z][_a-zA-Z0-9]*`,
	"WS_INLINE": `[ \t]+`, "WS": `[ \t\f\r\n]+`, "CR": `\r`, "LF": `\n`, "NEWLINE": `(?:\r?\n)+`,
	"SH_COMMENT": `#[^\n]*`, "CPP_COMMENT": `//[^\n]*`, "SQL_COMMENT": `--[^\n]*`,
	"C_COMMENT": `/\*(?:[^*]|\*+[^*/])*\*+/`,
}

const larkFloat = `[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?`
