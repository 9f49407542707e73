package enginesim

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An EBNF grammar, as real engines read it: rules of strings, classes, groups,
// alternatives and repetitions. Rules that begin with themselves accept nothing here.

var errEBNF = errors.New("the simulated engine does not support this EBNF grammar")

type ebnf map[string]*ebnfNode

type ebnfNode struct {
	text  string         // that it is, if there is nothing else
	class *regexp.Regexp // one character
	shown string         // a character of the class
	rule  string
	seq   []*ebnfNode
	alt   []*ebnfNode
	least int
	most  int // < 0: any number
	of    *ebnfNode
}

var (
	ebnfToken = regexp.MustCompile(`^(?:::=|"(?:[^"\\]|\\.)*"|\[(?:[^]\\]|\\.)*\]|` +
		`[a-z][a-z0-9_]*|[()|*+?]|\{[0-9]+(?:,[0-9]*)?\})`)
	ebnfEscape = regexp.MustCompile(`\\(?:u([0-9a-f]{4})|U([0-9a-f]{8}))`)
)

// readEBNF parses a grammar with one rule in each line.
func readEBNF(text string) (ebnf, error) {
	g := ebnf{}
	for line := range strings.Lines(text) {
		var tokens []string
		for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " ") {
			token := ebnfToken.FindString(rest)
			if token == "" {
				return nil, errEBNF
			}
			tokens, rest = append(tokens, token), rest[len(token):]
		}

		if len(tokens) < 3 || tokens[1] != "::=" {
			return nil, errEBNF
		}

		p := ebnfParser{tokens: tokens[2:]}
		g[tokens[0]] = p.alternatives()
		if p.err != nil || len(p.tokens) > 0 {
			return nil, errEBNF
		}
	}

	// xgrammar begins with the rule of this name.
	if g["root"] == nil {
		return nil, errEBNF
	}
	return g, nil
}

type ebnfParser struct {
	tokens []string
	err    error
}

func (p *ebnfParser) take(token string) bool {
	if len(p.tokens) == 0 || p.tokens[0] != token {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *ebnfParser) alternatives() *ebnfNode {
	n := &ebnfNode{}
	for {
		seq := &ebnfNode{seq: []*ebnfNode{}}
		for len(p.tokens) > 0 && p.tokens[0] != "|" && p.tokens[0] != ")" && p.err == nil {
			seq.seq = append(seq.seq, p.repeated())
		}
		n.alt = append(n.alt, seq)
		if !p.take("|") {
			return n
		}
	}
}

func (p *ebnfParser) repeated() *ebnfNode {
	n := p.item()
	if len(p.tokens) == 0 {
		return n
	}

	switch t := p.tokens[0]; {
	case p.take("*"):
		return &ebnfNode{of: n, most: -1}
	case p.take("+"):
		return &ebnfNode{of: n, least: 1, most: -1}
	case p.take("?"):
		return &ebnfNode{of: n, most: 1}

	case t[0] == '{':
		p.take(t)
		from, to, ranged := strings.Cut(strings.Trim(t, "{}"), ",")
		least, _ := strconv.Atoi(from)
		most, err := strconv.Atoi(to)
		// {2} has no upper number of its own, {2,} has none at all.
		if !ranged {
			most = least
		} else if err != nil {
			most = -1
		}
		return &ebnfNode{of: n, least: least, most: most}
	}

	return n
}

func (p *ebnfParser) item() *ebnfNode {
	t := p.tokens[0]
	p.tokens = p.tokens[1:]

	switch {
	case t == "(":
		n := p.alternatives()
		if !p.take(")") {
			p.err = errEBNF
		}
		return n

	case t[0] == '"':
		text, err := strconv.Unquote(t)
		if err != nil {
			p.err = errEBNF
		}
		return &ebnfNode{text: text}

	case t[0] == '[':
		// EBNF of xgrammar writes characters as \uXXXX and \UXXXXXXXX, which Go's expressions do not know.
		class, err := regexp.Compile(`^` + ebnfEscape.ReplaceAllString(t, `\x{$1$2}`))
		if err != nil {
			p.err = errEBNF
			return &ebnfNode{}
		}
		// From a space on, because a control character would be hard to read in the output of a test.
		for r := ' '; r < 0x110000; r++ {
			if class.MatchString(string(r)) {
				return &ebnfNode{class: class, shown: string(r)}
			}
		}
		return &ebnfNode{class: class}

	case t[0] >= 'a' && t[0] <= 'z':
		return &ebnfNode{rule: t}
	}

	p.err = errEBNF
	return &ebnfNode{}
}

// ebnfMatch matches one text. It remembers what it has found of each rule.
type ebnfMatch struct {
	grammar ebnf
	text    string
	found   map[ebnfPlace][]int
}

type ebnfPlace struct {
	rule string
	at   int
}

// ends returns where a text of the grammar can end that begins at a position of s.
func (g ebnf) ends(s string, at int) []int {
	m := ebnfMatch{g, s, map[ebnfPlace][]int{}}
	return m.ends(g["root"], []int{at})
}

func (m *ebnfMatch) ends(n *ebnfNode, from []int) []int {
	to := make([]int, 0, len(from))
	for _, at := range from {
		to = append(to, m.endsAt(n, at)...)
	}
	slices.Sort(to)
	return slices.Compact(to)
}

func (m *ebnfMatch) endsAt(n *ebnfNode, at int) []int {
	switch {
	case n.rule != "":
		place := ebnfPlace{n.rule, at}
		to, known := m.found[place]
		if !known && m.grammar[n.rule] != nil {
			// A rule that begins with itself arrives here again. It finds nothing then, instead of never ending.
			m.found[place] = nil
			to = m.endsAt(m.grammar[n.rule], at)
			m.found[place] = to
		}
		return to

	case n.class != nil:
		span := n.class.FindStringIndex(m.text[at:])
		if span == nil {
			return nil
		}
		// A negated class matches the marks, which stand for special tokens. No class of a grammar may accept
		// those.
		if r, _ := utf8.DecodeRuneInString(m.text[at:]); isMark(r) {
			return nil
		}
		return []int{at + span[1]}

	case n.alt != nil:
		var to []int
		for _, one := range n.alt {
			to = append(to, m.endsAt(one, at)...)
		}
		return to

	case n.seq != nil:
		to := []int{at}
		for _, part := range n.seq {
			to = m.ends(part, to)
		}
		return to

	case n.of != nil:
		return m.repeated(n, at)
	case strings.HasPrefix(m.text[at:], n.text):
		return []int{at + len(n.text)}
	}
	return nil
}

func (m *ebnfMatch) repeated(n *ebnfNode, at int) []int {
	last := []int{at}
	for range n.least {
		last = m.ends(n.of, last)
	}

	all := slices.Clone(last)
	for i := n.least; (n.most < 0 || i < n.most) && len(last) > 0; i++ {
		// A position that is known already leads nowhere new. Without this, a repetition of an empty text would
		// not end.
		last = slices.DeleteFunc(m.ends(n.of, last), func(p int) bool { return slices.Contains(all, p) })
		all = append(all, last...)
	}
	return all
}

// sample returns a short text of the grammar, and whether there is one.
func (g ebnf) sample() (string, bool) { return g.sampleOf(g["root"], 0) }

// maxSampleDepth bounds how deep the rules of a sample nest.
const maxSampleDepth = 12

func (g ebnf) sampleOf(n *ebnfNode, depth int) (string, bool) {
	switch {
	case n == nil || depth > maxSampleDepth:
		return "", false

	case n.rule != "":
		return g.sampleOf(g[n.rule], depth+1)
	case n.class != nil:
		return n.shown, n.shown != ""

	case n.alt != nil:
		var texts []string
		for _, one := range n.alt {
			if text, ok := g.sampleOf(one, depth); ok {
				texts = append(texts, text)
			}
		}
		return shortest(texts), len(texts) > 0

	case n.seq != nil:
		var whole strings.Builder
		for _, part := range n.seq {
			text, ok := g.sampleOf(part, depth)
			if !ok {
				return "", false
			}
			whole.WriteString(text)
		}
		return whole.String(), true

	case n.of != nil && n.least > 0:
		text, ok := g.sampleOf(n.of, depth)
		return strings.Repeat(text, n.least), ok
	}

	return n.text, true
}
