package arguments

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file makes true arguments and damages them, as models do and worse. Each damage is of
// a family, and works on the tokens of the arguments or on the text of all of them.

// member is a member of an object.
type member struct {
	name  string
	value any
}

// object is an object: its members have an order.
type object []member

// number is a number or literal, as JSON writes it.
type number string

// nasty are pieces of names and strings that look like something else.
var nasty = []string{
	"a", "b", "go", "path", "x1", "é", "日本", "😀", " ", "  ", "\n", "\t", "\x01", "\r\n", "1", "-2.5", "0x1F", "True", "None", "null",
	"\"", "'", "`", "\\", "\\\\", ",", ":", ";", "=", "{", "}", "[", "]", "(", ")", "<", ">", "/", "|", "$", "#", "*", "%", "&",
	"\"}", "'}", "\"]", "']", "\": \"", "': '", "\", \"", "', '", "\",\"", "','", "},{", "\",", "',", "\":", "':", "}}", "]}", ", ", ": ", "\",}", "',}",
	"it's", "dogs'", "'tis", "rock 'n' roll", "O'Brien", "say \"hi\"", "“x”", "‘y’", "isn’t",
	"```", "```json\n", "\n```", "\ufeff", "Sure! ", "Here is the call: ", "true", "// c", "/* c */", "# c\n",
	"`date`", "$(id)", "echo 'it'\\''s'", "grep -E \"\\d+\" x", "sed 's/\\n/\"/'", "C:\\new\\table", "awk '{print $1}'", "f('x', 'y')", "f(\"x\", \"y\")",
	"{\"k\": \"v\"}", "{'k': 'v'}", "[1, 2]", "\\n", "\\u00e9", "\\x41", "\\'", "\\\"", "<b>x</b>", "k=v", "k: v", "key", "\u00a0", "\u2028", "if (a) { b(); }", "d = {'a': [1]}",
}

// generator makes cases.
type generator struct {
	*rand.Rand
	parameter string
}

func (g *generator) oneOf(list ...string) string { return list[g.IntN(len(list))] }

// chance reports true once in n times.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func (g *generator) string() string {
	switch g.IntN(4) {
	case 0:
		return g.oneOf("", "hello", "Paris", "/tmp/a", "two words", "ls -l", "main.go", "x, y", "some longer text of words")
	case 1:
		return g.oneOf(nasty...)
	}
	var b strings.Builder
	for range 1 + g.IntN(7) {
		b.WriteString(g.oneOf(nasty...))
	}
	return b.String()
}

func (g *generator) name() string {
	if g.chance(3) {
		return g.string()
	}
	return g.oneOf("path", "content", "query", "a", "b", "items", "options", "n", "command", "x_y", "old string", "")
}

func (g *generator) object(depth int) object {
	made := object{}
	for range g.IntN(5) {
		name := g.name()
		if !slices.ContainsFunc(made, func(m member) bool { return m.name == name }) {
			made = append(made, member{name, g.value(depth)})
		}
	}
	return made
}

func (g *generator) value(depth int) any {
	switch n := g.IntN(10); {
	case n == 0 && depth > 0:
		return g.object(depth - 1)
	case n == 1 && depth > 0, n == 2 && depth > 0:
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.value(depth-1))
		}
		return list
	case n < 5:
		return number(g.oneOf("0", "1", "-7", "12", "2.5", "1e9", "-0.25E-3", "true", "false", "null", "true", "null"))
	}
	return g.string()
}

// token is a token of arguments.
type token struct {
	// '"' for a string, a bracket, a comma, a colon, or '0' for a number or literal.
	kind byte
	text string
	// White space after it.
	space string
	// Its text before it was damaged.
	plain string
	// Of a string.
	value  string
	isName bool
}

// arguments are true arguments and what became of them.
type damaged struct {
	*generator
	truth object
	// The tokens of the truth, and what is left of them.
	original, tokens []token
	// Around the tokens.
	head, tail string
	// In place of all: what is around it is lost.
	whole *string
	// The output's limit has cut the arguments.
	cut bool
}

func newDamaged(g *generator) *damaged {
	d := &damaged{generator: g, truth: g.object(3)}
	if g.parameter != "" && g.chance(2) {
		d.truth = object{{g.parameter, g.string()}}
	}

	d.write(d.truth)
	d.original = slices.Clone(d.tokens)

	// The white space of a style.
	colon, comma, line := "", "", ""

	switch g.IntN(3) {
	case 0:
		colon, comma = " ", " "
	case 1:
		colon, comma, line = " ", "", "\n"
	}

	depth := 0
	for i := range d.tokens {
		t := &d.tokens[i]
		switch t.kind {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ':':
			t.space = colon
		case ',':
			t.space = comma
		}

		closes := i+1 < len(d.tokens) && strings.IndexByte("}]", d.tokens[i+1].kind) >= 0
		if line == "" || t.kind == ':' || depth == 0 || !closes && strings.IndexByte("{[,", t.kind) < 0 {
			continue
		}

		indent := depth
		if closes {
			indent--
		}

		t.space = line + strings.Repeat("  ", indent)
	}

	return d
}

func newToken(kind byte, text string) token { return token{kind: kind, text: text, plain: text} }

func (d *damaged) add(kind byte, text string) {
	d.tokens = append(d.tokens, token{kind: kind, text: text, plain: text})
}

func (d *damaged) write(v any) {
	switch v := v.(type) {
	case object:
		d.add('{', "{")
		for i, m := range v {
			if i > 0 {
				d.add(',', ",")
			}
			d.tokens = append(d.tokens, token{kind: '"', text: quoted(m.name), plain: quoted(m.name), value: m.name, isName: true})
			d.add(':', ":")
			d.write(m.value)
		}
		d.add('}', "}")

	case []any:
		d.add('[', "[")
		for i, e := range v {
			if i > 0 {
				d.add(',', ",")
			}
			d.write(e)
		}
		d.add(']', "]")

	case string:
		d.tokens = append(d.tokens, token{kind: '"', text: quoted(v), plain: quoted(v), value: v})
	case number:
		d.add('0', string(v))
	}
}

// end gives the last member another text, which the tokens have then too.
func (d *damaged) end(value string) {
	d.truth = slices.Clone(d.truth)
	d.truth[len(d.truth)-1].value = value
	again := damaged{generator: d.generator}
	again.write(d.truth)
	d.tokens = again.tokens
}

// quoted returns a string as JSON.
func quoted(s string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}

// text returns what the model has written.
func (d *damaged) text() string {
	if d.whole != nil {
		return d.head + *d.whole + d.tail
	}
	var b strings.Builder
	b.WriteString(d.head)
	for _, t := range d.tokens {
		b.WriteString(t.text + t.space)
	}
	return b.String() + d.tail
}

// plain returns the same with strings, numbers and literals as they were.
func (d *damaged) plain() string {
	if d.whole != nil {
		return d.text()
	}
	var b strings.Builder
	b.WriteString(d.head)
	for _, t := range d.tokens {
		b.WriteString(t.plain + t.space)
	}
	return b.String() + d.tail
}

// canonical returns a value as a text that is the same for the same value.
func canonical(v any) string {
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case object:
		b.WriteString("{")
		for _, m := range v {
			fmt.Fprintf(b, "%q:", m.name)
			writeCanonical(b, m.value)
		}
		b.WriteString("}")
	case []any:
		b.WriteString("[")
		for _, e := range v {
			writeCanonical(b, e)
		}
		b.WriteString("]")
	case string:
		fmt.Fprintf(b, "%q,", v)
	case number:
		b.WriteString(string(v) + ",")
	}
}

// literal reads a text that is whole as it stands: JSON, or what Python takes for a literal,
// with apostrophes. It is no repairer: it fails on anything that is damaged.
type literal struct {
	text   string
	python bool
	failed bool
}

// readLiteral returns the value of a text, and nil if it is no object.
func readLiteral(text string, python bool) any {
	l := &literal{text: text, python: python}
	v := l.value()
	l.space()
	if o, isObject := v.(object); isObject && !l.failed && l.text == "" {
		return o
	}
	return nil
}

func (l *literal) space() { l.text = strings.TrimLeft(l.text, " \n\t\r") }

func (l *literal) eat(c string) bool {
	l.space()
	rest, found := strings.CutPrefix(l.text, c)
	l.text = rest
	return found
}

func (l *literal) value() any {
	l.space()
	switch {
	case l.failed || l.text == "":
		l.failed = true
		return nil

	case l.eat("{"):
		o := object{}
		for !l.failed && !l.eat("}") {
			if len(o) > 0 && !l.eat(",") || l.python && len(o) > 0 && l.eat("}") {
				break
			}
			name := l.string()
			l.failed = l.failed || !l.eat(":")
			o = append(o, member{name, l.value()})
			l.space()
			l.failed = l.failed || l.text == "" || strings.IndexByte(",}", l.text[0]) < 0
		}
		return o

	case l.eat("["):
		list := []any{}
		for !l.failed && !l.eat("]") {
			if len(list) > 0 && !l.eat(",") || l.python && len(list) > 0 && l.eat("]") {
				break
			}
			list = append(list, l.value())
			l.space()
			l.failed = l.failed || l.text == "" || strings.IndexByte(",]", l.text[0]) < 0
		}
		return list

	case l.text[0] == '"' || l.text[0] == '\'':
		return l.string()
	}

	n := 0
	for n < len(l.text) && isWord(l.text[n]) {
		n++
	}

	word := l.text[:n]
	l.text = l.text[n:]
	if l.python && word != "" && strings.Contains("True False None", word) {
		word = map[string]string{"True": "true", "False": "false", "None": "null"}[word]
	}

	l.failed = l.failed || !json.Valid([]byte(word))
	return number(word)
}

func (l *literal) string() string {
	l.space()
	if l.text == "" || l.text[0] != '"' && (l.text[0] != '\'' || !l.python) {
		l.failed = true
		return ""
	}

	quote := l.text[0]
	for i := 1; i < len(l.text); i++ {
		switch c := l.text[i]; {
		case c == '\\':
			i++
		case c == '\'' && i+1 < len(l.text) && isLetter(l.text[:i], true) && isLetter(l.text[i+1:], false):
			// No Python, and no doubt: it is an apostrophe.
		case c == quote:
			text := l.text[:i+1]
			l.text = l.text[i+1:]
			return l.unquoted(text)
		}
	}

	l.failed = true
	return ""
}

// isLetter reports whether a text begins or ends with a letter.
func isLetter(text string, end bool) bool {
	r, _ := utf8.DecodeRuneInString(text)
	if end {
		r, _ = utf8.DecodeLastRuneInString(text)
	}
	return unicode.IsLetter(r)
}

func (l *literal) unquoted(text string) string {
	var s string
	if text[0] == '"' && json.Unmarshal([]byte(text), &s) == nil {
		return s
	}

	if !l.python || strings.ContainsAny(text, "\n\r") {
		l.failed = true
		return ""
	}

	var b strings.Builder
	for rest := text[1 : len(text)-1]; rest != ""; {
		c, _, tail, err := strconv.UnquoteChar(rest, 0)
		switch {
		case strings.HasPrefix(rest, `\'`), strings.HasPrefix(rest, `\"`):
			c, tail = rune(rest[1]), rest[2:]
		case err != nil && (strings.HasPrefix(rest, `\u`) || strings.HasPrefix(rest, `\x`)):
			l.failed = true
			return ""
		case err != nil:
			c, tail = rune(rest[0]), rest[1:]
		}

		b.WriteRune(c)
		rest = tail
	}

	return b.String()
}

// damage is a way to damage arguments.
type damage struct {
	name string
	// Damages of a family hide one another: each case has at most one of them.
	family string
	// A careful reader has one reading of the text, if this is all that happened to it.
	clear bool
	// It loses something that another damage which loses something can seem to restore.
	loses bool
	// apply damages arguments, and reports whether they can be damaged in this way.
	apply func(d *damaged) bool
}

// each changes the tokens of a kind, or the one that is chosen if all is false.
func (d *damaged) each(all bool, fits func(t *token) bool, change func(t *token)) bool {
	var found []*token
	for i := range d.tokens {
		if fits(&d.tokens[i]) {
			found = append(found, &d.tokens[i])
		}
	}
	if len(found) == 0 {
		return false
	}
	if !all {
		found = []*token{found[d.IntN(len(found))]}
	}
	for _, t := range found {
		change(t)
	}
	return true
}

func isKind(kinds string) func(t *token) bool {
	return func(t *token) bool { return strings.IndexByte(kinds, t.kind) >= 0 }
}

// inside returns the text of a string between its quotes; "" of one that has lost them.
func inside(t *token) string {
	if len(t.text) < 2 || t.text[0] != '"' && t.text[0] != '\'' {
		return ""
	}
	return t.text[1 : len(t.text)-1]
}

// has returns whether a string's JSON has a text.
func has(text string) func(t *token) bool {
	return func(t *token) bool { return t.kind == '"' && strings.Contains(inside(t), text) }
}

// repr returns a string as Python writes it.
func repr(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}

	var b strings.Builder
	for _, c := range s {
		switch {
		case string(c) == quote || c == '\\':
			b.WriteString(`\` + string(c))
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0xa0:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c == 0x2028 || c == 0xfeff:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}

	return quote + b.String() + quote
}

// single puts a string of JSON into single quotes, as it is.
func single(t *token) { t.text = "'" + strings.ReplaceAll(inside(t), `\"`, `"`) + "'" }

func isString(t *token) bool { return t.kind == '"' }

func (d *damaged) insert(at int, t token) { d.tokens = slices.Insert(d.tokens, at, t) }

// drop drops a token of these kinds, if it is none of the first and the last.
func (d *damaged) drop(kinds string, from, to int) bool {
	var found []int
	for i := from; i < to; i++ {
		if strings.IndexByte(kinds, d.tokens[i].kind) >= 0 {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return false
	}
	at := found[d.IntN(len(found))]
	d.tokens = slices.Delete(d.tokens, at, at+1)
	return true
}

// replaced is a change of all strings or one of them, chosen at random.
func replaced(fits func(t *token) bool, change func(t *token)) func(d *damaged) bool {
	return func(d *damaged) bool { return d.each(d.chance(2), fits, change) }
}

// around puts one of these texts before and one after the arguments, in pairs.
func around(pairs ...[2]string) func(d *damaged) bool {
	return func(d *damaged) bool {
		p := pairs[d.IntN(len(pairs))]
		d.head, d.tail = d.head+p[0], p[1]+d.tail
		return true
	}
}

// aroundMembers is around for arguments with members: {}} may be the end of something.
func aroundMembers(pairs ...[2]string) func(d *damaged) bool {
	put := around(pairs...)
	return func(d *damaged) bool { return len(d.truth) > 0 && put(d) }
}

// become replaces all by a text.
func (d *damaged) become(text string) bool {
	d.head, d.tail = "", ""
	d.whole = &text
	return true
}

// only returns the text of the tool's only parameter, if there is no other one.
func (d *damaged) only() (string, bool) {
	if d.parameter == "" || len(d.truth) != 1 || d.truth[0].name != d.parameter {
		return "", false
	}
	s, ok := d.truth[0].value.(string)
	return s, ok
}

func escapeNumber(d *damaged) bool {
	return d.each(false, isKind("0"), func(t *token) {
		t.text = d.oneOf("NaN", "Infinity", "-Infinity", "undefined", "nil", "TRUE", "Null", "0x1F", "+1", "01", ".5", "1.", "1_000", "1,000.5", "--1", "tru", "yes", "1e", "∞")
	})
}

var damages = []damage{
	// Quotes.
	{"python strings", "quotes", true, false, func(d *damaged) bool {
		return d.each(true, isString, func(t *token) { t.text = repr(t.value) })
	}},
	{"python strings, some", "quotes", true, false, func(d *damaged) bool {
		return d.each(false, isString, func(t *token) { t.text = repr(t.value) })
	}},
	{"single quotes as they are", "quotes", false, true, func(d *damaged) bool { return d.each(true, isString, single) }},
	{"single quotes of one string", "quotes", false, true, func(d *damaged) bool { return d.each(false, isString, single) }},
	{"single quotes of words", "quotes", true, false, func(d *damaged) bool {
		plain := func(t *token) bool { return t.kind == '"' && !strings.ContainsAny(t.text, `'\`) }
		return d.each(true, plain, single)
	}},
	{"quote of another kind", "quotes", false, false, func(d *damaged) bool {
		return d.each(false, isString, func(t *token) {
			if d.chance(2) {
				t.text = "'" + t.text[1:]
			} else {
				t.text = t.text[:len(t.text)-1] + "'"
			}
		})
	}},
	{"quote missing", "quotes", false, true, func(d *damaged) bool {
		if d.chance(2) {
			d.each(true, isString, single)
		}
		// One of two quotes leaves a string that is whole.
		sure := func(t *token) bool { return t.kind == '"' && strings.Trim(t.value, `"'`) == t.value && t.value != "" }
		return d.each(false, sure, func(t *token) {
			if d.chance(2) {
				t.text = t.text[1:]
			} else {
				t.text = t.text[:len(t.text)-1]
			}
		})
	}},
	{"comma and quote missing", "quotes", false, true, func(d *damaged) bool {
		for i := 1; i+1 < len(d.tokens); i++ {
			before, behind := &d.tokens[i-1], &d.tokens[i+1]
			if isKind(",:")(&d.tokens[i]) && isString(before) && d.chance(2) {
				d.each(true, isString, single)
				before.text = before.text[:len(before.text)-1]
				if isString(behind) && d.chance(2) {
					before.text, behind.text = before.text+"'", behind.text[1:]
				}
				d.tokens = slices.Delete(d.tokens, i, i+1)
				return true
			}
		}
		return false
	}},
	{"two quotes of another kind", "quotes", false, true, func(d *damaged) bool {
		return d.each(false, isString, func(t *token) { t.text = "'" + t.text[1:] }) &&
			d.each(false, isString, func(t *token) { t.text = t.text[:len(t.text)-1] + "'" })
	}},
	// Of words: what looks like a part of JSON is one without its quotes.
	{"quotes missing", "quotes", false, true, replaced(func(t *token) bool {
		return t.kind == '"' && !strings.ContainsAny(inside(t), `{}[],:"'`) && (!t.isName || !strings.Contains(t.value, " "))
	}, func(t *token) {
		t.text = inside(t)
	})},
	{"names without quotes", "quotes", false, true, replaced(func(t *token) bool { return t.isName && !strings.Contains(t.value, " ") }, func(t *token) { t.text = inside(t) })},
	{"smart quotes", "quotes", false, false, replaced(isString, func(t *token) { t.text = "“" + inside(t) + "”" })},
	{"back quotes", "quotes", false, false, replaced(isString, func(t *token) { t.text = "`" + inside(t) + "`" })},
	{"three quotes", "quotes", false, true, replaced(isString, func(t *token) { t.text = `""` + t.text + `""` })},
	{"two quotes", "quotes", false, true, replaced(isString, func(t *token) { t.text = `"` + t.text + `"` })},
	{"doubled single quotes", "quotes", false, true, replaced(isString, func(t *token) {
		t.text = "'" + strings.ReplaceAll(inside(t), "'", "''") + "'"
	})},
	{"strings of other languages", "quotes", false, false, func(d *damaged) bool {
		return d.each(false, isString, func(t *token) {
			t.text = d.oneOf("r", "b", "f", "u", "@", "$") + d.oneOf(t.text, repr(t.value))
		})
	}},
	{"strings in two parts", "quotes", false, true, func(d *damaged) bool {
		return d.each(false, isString, func(t *token) {
			t.text = quoted(t.value[:len(t.value)/2]) + d.oneOf("", " ", " + ", "\n") + quoted(t.value[len(t.value)/2:])
		})
	}},
	{"quotes not escaped", "quotes", false, true, replaced(has(`\"`), func(t *token) {
		t.text = `"` + strings.ReplaceAll(inside(t), `\"`, `"`) + `"`
	})},

	// Escapes.
	{"control characters", "escapes", true, false, replaced(func(t *token) bool { return has(`\n`)(t) || has(`\t`)(t) }, func(t *token) {
		t.text = rawControls(t.text)
	})},
	{"backslashes not escaped", "escapes", false, true, replaced(has(`\\`), func(t *token) {
		t.text = t.text[:1] + strings.ReplaceAll(inside(t), `\\`, `\`) + t.text[len(t.text)-1:]
	})},
	{"apostrophes escaped", "escapes", false, false, replaced(has(`'`), func(t *token) {
		t.text = t.text[:1] + strings.ReplaceAll(inside(t), `'`, `\'`) + t.text[len(t.text)-1:]
	})},
	{"characters escaped", "escapes", false, false, func(d *damaged) bool {
		c := d.oneOf(" ", "$", "(", "a", "`", "é", "-", "_", "<")
		return d.each(true, has(c), func(t *token) {
			t.text = t.text[:1] + strings.ReplaceAll(inside(t), c, `\`+c) + t.text[len(t.text)-1:]
		})
	}},
	{"half an escape", "escapes", false, false, func(d *damaged) bool {
		return d.each(false, has(`\u`), func(t *token) { t.text = strings.Replace(t.text, `\u00`, `\u`, 1) })
	}},
	{"python escapes", "escapes", false, false, replaced(has(`\u00`), func(t *token) { t.text = strings.ReplaceAll(t.text, `\u00`, `\x`) })},

	// Words and numbers.
	{"python words", "words", true, false, replaced(isWordToken, func(t *token) {
		t.text = map[string]string{"true": "True", "false": "False", "null": "None"}[t.text]
	})},
	{"no number", "words", false, false, escapeNumber},
	{"word as a text", "words", false, true, func(d *damaged) bool {
		return d.each(false, isKind("0"), func(t *token) { t.text += d.oneOf("x", "'", `"`, " 2", "%", " // c", "px") })
	}},

	// Commas and colons.
	{"trailing comma", "commas", true, false, func(d *damaged) bool {
		var found []int
		for i := 1; i < len(d.tokens); i++ {
			if isKind("}]")(&d.tokens[i]) && !isKind("{[,")(&d.tokens[i-1]) {
				found = append(found, i)
			}
		}
		if len(found) == 0 {
			return false
		}
		at := found[d.IntN(len(found))]
		d.insert(at, token{kind: ',', text: ",", space: d.oneOf("", " ", "\n")})
		return true
	}},
	{"comma missing", "commas", false, true, func(d *damaged) bool { return d.drop(",", 0, len(d.tokens)) }},
	{"colon missing", "commas", false, false, func(d *damaged) bool { return d.drop(":", 0, len(d.tokens)) }},
	{"another separator", "commas", false, true, func(d *damaged) bool {
		return d.each(d.chance(2), isKind(",:"), func(t *token) {
			t.text = d.oneOf(";", ",,", "=", "=>", ":", ",", "->", "\n", "::", "|", ",'", ",\"", "、", "：")
		})
	}},
	{"comma too many", "commas", false, false, func(d *damaged) bool {
		at := 1 + d.IntN(len(d.tokens)-1)
		if isKind("}]")(&d.tokens[at]) {
			return false
		}
		d.insert(at, token{kind: ',', text: ",", plain: ","})
		return true
	}},
	{"comment", "commas", false, false, func(d *damaged) bool {
		d.insert(1+d.IntN(len(d.tokens)-1), newToken('#', d.oneOf("// c\n", "/* \"c\" */", "# it's\n", "<!-- c -->", "-- c\n", "// }\n", "...", "…", "\ufeff", "\u00a0")))
		return true
	}},
	{"value missing", "commas", false, true, func(d *damaged) bool {
		for i := range d.tokens {
			if d.tokens[i].kind == ':' && i+2 < len(d.tokens) && isKind(`"0`)(&d.tokens[i+1]) {
				d.tokens = slices.Delete(d.tokens, i+1, i+2)
				return true
			}
		}
		return false
	}},

	// Brackets.
	{"last bracket missing", "brackets", true, false, func(d *damaged) bool {
		last := len(d.tokens) - 1
		d.tokens = d.tokens[:last]
		return !isKind("0{")(&d.tokens[last-1])
	}},
	{"last brackets missing", "brackets", false, true, func(d *damaged) bool {
		last := len(d.tokens) - 1
		for last > 1 && isKind("}]")(&d.tokens[last]) && (!d.chance(3) || last == len(d.tokens)-1) {
			last--
		}
		d.tokens = d.tokens[:last+1]
		return true
	}},
	{"bracket missing", "brackets", false, true, func(d *damaged) bool { return d.drop("{}[]", 0, len(d.tokens)) }},
	{"two brackets missing", "brackets", false, true, func(d *damaged) bool {
		for range 2 {
			if !d.drop("{}[]", 0, len(d.tokens)) {
				return false
			}
		}
		// Without its brackets an empty value is lost.
		for i := 1; i < len(d.tokens); i++ {
			if isKind("}]")(&d.tokens[i]) && isKind(",")(&d.tokens[i-1]) {
				return false
			}
		}
		return true
	}},
	{"inner and last bracket missing", "brackets", false, true, func(d *damaged) bool {
		d.tokens = d.tokens[:len(d.tokens)-1]
		return d.drop("}]", 0, len(d.tokens))
	}},
	{"brackets too many", "brackets", true, false, aroundMembers([2]string{"", "}"}, [2]string{"", "]"}, [2]string{"", "}}"}, [2]string{"", "\n}\n"}, [2]string{"", "]]"})},
	{"brackets too many, and more", "brackets", true, false, aroundMembers(
		[2]string{"", "}\nThat's it."}, [2]string{"", "] text"}, [2]string{"", "}}\n```"}, [2]string{"", "]\n```\nDone."},
		[2]string{"```json\n", "]\n```"}, [2]string{"```\n", "\n}\n```\n"}, [2]string{"Sure! ", "}"}, [2]string{"Here's the JSON you want:\n", "]"}, [2]string{"\ufeff", "]"},
		[2]string{"[", "}]"})},
	{"bracket too many", "brackets", false, true, func(d *damaged) bool {
		d.insert(1+d.IntN(len(d.tokens)-1), newToken('#', d.oneOf("{", "}", "[", "]", "(", ")")))
		return true
	}},
	{"closed too early", "brackets", false, true, func(d *damaged) bool {
		at := d.IntN(len(d.tokens))
		var open []byte
		for i := range at {
			switch kind := d.tokens[i].kind; kind {
			case '{', '[':
				open = append(open, kind+2)
			case '}', ']':
				open = open[:len(open)-1]
			}
		}
		if d.tokens[at].kind != ',' || len(open) < 2 {
			return false
		}
		for levels := 1 + d.IntN(min(2, len(open)-1)); levels > 0; levels-- {
			last := len(open) - 1
			d.insert(at, newToken(open[last], string(open[last])))
			open, at = open[:last], at+1
		}
		return true
	}},
	{"another bracket", "brackets", false, true, func(d *damaged) bool {
		return d.each(d.chance(4), isKind("{}[]"), func(t *token) {
			t.text = d.oneOf("{", "}", "[", "]", "(", ")", "<", ">")
			t.plain = t.text
		})
	}},
	{"bracket moved", "brackets", false, true, func(d *damaged) bool {
		at, to := d.IntN(len(d.tokens)), d.IntN(len(d.tokens))
		t := d.tokens[at]
		if !isKind("{}[],:")(&t) {
			return false
		}
		d.tokens = slices.Insert(slices.Delete(d.tokens, at, at+1), to, t)
		return true
	}},
	{"outer brackets missing", "brackets", false, true, func(d *damaged) bool {
		d.tokens = d.tokens[1 : len(d.tokens)-1]
		return true
	}},

	{"quote and bracket swapped", "brackets", false, true, func(d *damaged) bool {
		// The text ends with a bracket that closes one of its own.
		i := len(d.tokens) - 2
		if i < 1 || d.tokens[i].kind != '"' || d.tokens[i].isName {
			return false
		}
		value, bracket := d.oneOf("", "if (a) ", "echo $", d.tokens[i].value)+"{"+d.oneOf("", "b", "HOME", "return 1; "), "}"
		if d.chance(3) {
			value, bracket = strings.ReplaceAll(value, "{", "["), "]"
		}
		d.end(value + bracket)
		last := &d.tokens[len(d.tokens)-2]
		last.text = quoted(value)
		last.plain = last.text
		d.insert(len(d.tokens)-1, newToken('#', bracket))
		return true
	}},
	{"bracket in the last text", "brackets", false, true, func(d *damaged) bool {
		// One or more of the brackets behind the last text have come into it.
		last := len(d.tokens) - 1
		for last > 0 && isKind("}]")(&d.tokens[last]) {
			last--
		}
		t := &d.tokens[last]
		if t.kind != '"' || t.isName || strings.ContainsAny(t.value, "{}[]") {
			return false
		}
		var brackets strings.Builder
		for range 1 + d.IntN(len(d.tokens)-last-1) {
			brackets.WriteString(d.tokens[last+1].text)
			d.tokens = slices.Delete(d.tokens, last+1, last+2)
		}
		t.text = t.text[:len(t.text)-1] + brackets.String() + d.oneOf(`"`, `"`, "")
		t.plain = t.text
		return true
	}},

	// Members.
	{"member twice", "members", false, false, func(d *damaged) bool {
		if len(d.truth) == 0 {
			return false
		}
		m := d.truth[d.IntN(len(d.truth))]
		if d.chance(2) {
			m.value = d.value(1)
		}
		again := damaged{generator: d.generator}
		again.write(object{m})
		added := append([]token{{kind: ',', text: ","}}, again.tokens[1:len(again.tokens)-1]...)
		if d.chance(2) {
			added[1].text = repr(m.name)
		}
		d.tokens = slices.Insert(d.tokens, len(d.tokens)-1, added...)
		return true
	}},

	// What is around it.
	{"fence", "around", true, false, around([2]string{"```json\n", "\n```"}, [2]string{"```\n", "\n```\n"}, [2]string{"```JSON\n", "```"}, [2]string{"\n```json ", "\n```"})},
	{"fence with words", "around", true, false, around(
		[2]string{"Sure! Here is the call:\n\n```json\n", "\n```"}, [2]string{"```json\n", "\n```\nLet me know."}, [2]string{"Okay.\n```\n", "\n```\n\nThat's all!"})},
	{"half a fence", "around", true, false, around([2]string{"```json\n", ""}, [2]string{"", "\n```"}, [2]string{"", "```\n"})},
	{"byte order mark", "around", true, false, around([2]string{"\ufeff", ""})},
	{"introduction", "around", true, false, around([2]string{"Sure! ", ""}, [2]string{"Here's the JSON you want:\n", ""}, [2]string{"Okay, I'll do it now. ", ""}, [2]string{"The arguments are: ", ""})},
	{"remark about code", "around", true, false, around(
		[2]string{"", "\nThis writes main.go; then I run the tests (go test)."}, [2]string{"", "\n\nNow we run `go vet` - it takes 5 % of the time."},
		[2]string{"", " A well-known call of write_file, see docs/a.md"})},
	{"list of one, and more", "around", true, false, aroundMembers(
		[2]string{"[[", "]]"}, [2]string{"[\n[ ", " ]\n]"}, [2]string{"[", "]]"}, [2]string{"[", "] text"}, [2]string{"Sure! [", "]"},
		[2]string{"```json\n[", "]\n```"}, [2]string{"Here you are.\n```json\n[\n", "\n]\n```\nThat's all!"}, [2]string{"\ufeff[", "]"}, [2]string{"[", "]\n```"})},
	{"lists or brackets of two kinds", "around", false, true, around(
		[2]string{"", "]}"}, [2]string{"", "}]"}, [2]string{"[", "]}"}, [2]string{"[[", "]"}, [2]string{"[", ""}, [2]string{"[", "},"}, [2]string{"[", ",]"},
		[2]string{"[", ", {\"a\": 1}]"}, [2]string{"[{\"a\": 1}, ", "]"}, [2]string{"[{}, ", "]"}, [2]string{"[", ", null]"}, [2]string{"[", "] [1]"}, [2]string{"[1, ", "]"})},
	{"closed before the last member", "around", false, true, func(d *damaged) bool {
		if len(d.truth) < 2 {
			return false
		}
		last := d.truth[len(d.truth)-1]
		if strings.TrimSpace(last.name) == "" {
			return false
		}
		rest := damaged{generator: d.generator}
		rest.write(d.truth[:len(d.truth)-1])
		value := damaged{generator: d.generator}
		value.write(last.value)
		plain := fmt.Sprint(last.value)
		return d.become(rest.text() + d.oneOf("", " ", "\n", "] ", "} ", "}} ", "\n```\n") + d.oneOf(
			", "+quoted(last.name)+": "+value.text()+"}", quoted(last.name)+": "+value.text()+"}", quoted(last.name)+": "+value.text(),
			last.name+": "+value.text(), last.name+": "+plain, ", "+last.name+": "+plain, last.name+" = "+plain, last.name+"="+plain,
			"and then "+last.name+": "+plain, "with "+last.name+"="+plain, repr(last.name)+": "+plain, "// "+last.name+": "+plain,
			"<"+last.name+">"+plain+"</"+last.name+">", "; "+last.name+"; "+plain+" "))
	}},
	{"closed in a string", "around", false, true, func(d *damaged) bool {
		// The text after it is of the last string, which has a quote and a bracket in it.
		i := len(d.tokens) - 2
		if i < 1 || d.tokens[i].kind != '"' || d.tokens[i].isName {
			return false
		}
		value := d.oneOf("rm x", "text", d.tokens[i].value) + "\"" + d.oneOf("}", "}]", "}}", "]", "} ]") + d.oneOf("", " text", " and then it's done.", "\n```\n", "\n")
		d.end(value)
		last := &d.tokens[len(d.tokens)-2]
		last.text = `"` + strings.ReplaceAll(inside(last), `\"`, `"`) + `"`
		return true
	}},
	{"remark", "around", true, false, around([2]string{"", " text"}, [2]string{"", "\nThat's it."}, [2]string{"", "\n\nI wait for 2 results, then go on!"})},
	{"list of one", "around", true, false, around([2]string{"[", "]"}, [2]string{"[ ", " ]"}, [2]string{"[\n", "\n]\n"})},
	{"something around", "around", false, true, around(
		[2]string{"run(", ")"}, [2]string{"<call>", "</call>"}, [2]string{"arguments: ", ""}, [2]string{`"arguments": `, ""}, [2]string{"args = ", ""},
		[2]string{"'", "'"}, [2]string{`"`, `"`}, [2]string{"`", "`"}, [2]string{"(", ")"}, [2]string{"{", "}"}, [2]string{"json\n", ""},
		[2]string{"", ", "}, [2]string{"", ";"}, [2]string{"", " # it's"}, [2]string{"", "\n// c"}, [2]string{"", "</call>"}, [2]string{"", ` "x"`}, [2]string{"", " 5"}, [2]string{"", `, "b": 1}`}, [2]string{"", " null"}, [2]string{"", " None"}, [2]string{"", " && rm -rf x"}, [2]string{"", " | less than"}, [2]string{"", " -l and -a"}, [2]string{"", " or b: 2, c: 3"},
		[2]string{"a: ", ""}, [2]string{"a b: ", ""}, [2]string{`{"a": 1} `, ""}, [2]string{"", ` {"a": 1}`}, [2]string{"", "{}"}, [2]string{"{} ", ""}, [2]string{"a, b: 1, c: ", ""})},
	{"twice", "around", false, false, func(d *damaged) bool {
		text := d.text()
		return d.become(text + d.oneOf("", "\n", ",", " or ", "\n\n") + text)
	}},
	{"in a string", "around", true, false, func(d *damaged) bool { return d.become(quoted(d.text())) }},
	{"in a string, damaged", "around", false, false, func(d *damaged) bool {
		return d.become(d.oneOf(`"`+d.text()+`"`, strings.Trim(quoted(d.text()), `"`), repr(d.text()), "'"+strings.Trim(quoted(d.text()), `"`)+"'"))
	}},

	// Other notations than JSON.
	{"bare text", "around", true, false, func(d *damaged) bool {
		only, ok := d.only()
		return ok && d.become(only)
	}},
	{"bare string", "around", true, false, func(d *damaged) bool {
		only, ok := d.only()
		return ok && d.become(quoted(only))
	}},
	{"bare string, damaged", "around", false, true, func(d *damaged) bool {
		only, ok := d.only()
		text := quoted(only)
		return ok && d.become(d.oneOf(text[1:], text[:len(text)-1], inside(&token{text: text}), repr(only), "```\n"+only+"\n```", "\ufeff"+only))
	}},
	{"half of the quotes of a bare text", "around", false, true, func(d *damaged) bool {
		only, ok := d.only()
		return ok && d.become(only+d.oneOf("'", "`", `"`, "’", "'\n"))
	}},
	{"a fence without back quotes", "around", false, true, func(d *damaged) bool {
		only, ok := d.only()
		return ok && strings.TrimSpace(only) != "" && d.become(d.oneOf("bash", "json", "Python", "sh ", "text")+"\n"+only)
	}},
	{"a sentence about a bare text", "around", false, true, func(d *damaged) bool {
		only, ok := d.only()
		if !ok || strings.Contains(only, "`") {
			return false
		}
		return d.become(d.oneOf("I'll list the files with ", "Sure, let me clean up with ", "Sure! I run ", "First: ") + "`" + only + "`" +
			d.oneOf("", ".", " now.", ", and then I go on."))
	}},
	{"a literal in place of a bare text", "around", false, true, func(d *damaged) bool {
		_, ok := d.only()
		return ok && d.become(d.oneOf("NaN", "NULL", "undefined", "Infinity", "TRUE", "none", "nil", " Null\n"))
	}},
	{"another notation", "around", false, false, func(d *damaged) bool {
		if len(d.truth) == 0 {
			return false
		}
		name, space := d.truth[0].name, d.oneOf("", " ")
		if name == "" || strings.ContainsAny(name, " \t\n") {
			return false
		}
		text := fmt.Sprint(d.truth[0].value)
		notations := []string{
			name + space + ":" + space + text, name + space + "=" + space + text, "<" + name + ">" + text + "</" + name + ">",
			`"` + name + `": ` + text, `<parameter name="` + name + `">` + text + "</parameter>", "--" + name + "=" + text,
			"f(" + name + "=" + text + ")", "{" + name + "=" + text + "}", "- " + name + ": " + text,
		}
		// Of a tool that takes a text, nothing but the parameter's name is known.
		if d.parameter == "" || name == d.parameter {
			notations = append(notations, "please "+name+": "+text, "please run with "+name+"="+text, "x --"+name+" = "+text)
		}
		return d.become(d.oneOf(notations...))
	}},
	{"head lost", "around", false, true, func(d *damaged) bool {
		// What begins further on may be an object of its own.
		at := 1 + d.IntN(len(d.tokens[0].text+d.tokens[1].text))
		d.head = ""
		return d.become(strings.ToValidUTF8(d.text()[at:], ""))
	}},

	// Ends.
	{"cut by the limit", "end", false, false, func(d *damaged) bool {
		text := d.text()
		d.cut = true
		return d.become(text[:d.IntN(len(text)+1)])
	}},
	{"cut in a token or behind a separator", "end", false, true, func(d *damaged) bool {
		if d.whole != nil || d.head != "" || d.tail != "" {
			return false
		}
		at := d.IntN(len(d.tokens))
		last := &d.tokens[at]
		switch {
		case last.kind == ',' || last.kind == ':':
		case len(last.text) > 1:
			last.text, last.space = last.text[:1+d.IntN(len(last.text)-1)], ""
		default:
			return false
		}
		d.tokens = d.tokens[:at+1]
		return true
	}},
}

func isWordToken(t *token) bool {
	return t.kind == '0' && (t.text == "true" || t.text == "false" || t.text == "null")
}

func rawControls(text string) string {
	var b strings.Builder
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, `\n`):
			b.WriteString("\n")
			rest = rest[2:]
		case strings.HasPrefix(rest, `\t`):
			b.WriteString("\t")
			rest = rest[2:]
		case rest[0] == '\\':
			b.WriteString(rest[:2])
			rest = rest[2:]
		default:
			b.WriteString(rest[:1])
			rest = rest[1:]
		}
	}
	return b.String()
}
