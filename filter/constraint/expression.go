package constraint

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Every expression of a request is read by [parseExpression], and compiled and matched as a
// [program]. Each takes its steps first: a few bytes can ask for much in all three.

const (
	// stepsOfByte is what a byte of an expression takes to parse, at most: as a group or a
	// class of its own. It is more than its time: what is made of a byte has some 450 bytes, and
	// what all expressions of a request allocate is bounded by their steps alone.
	stepsOfByte = 160
	// stepsOfUnicode is what a class such as \pL takes: up to 1,300 ranges are copied and
	// sorted, as many again where case has no meaning, and what is made of the expression has
	// them once more. Together they have 13 KB, so that it is more than its time, too.
	stepsOfUnicode = 7500
	// stepsOfFolding is what a class such as \w takes without regard to case.
	stepsOfFolding = 100
	// stepsOfState is what a state takes to compile.
	stepsOfState = 8
	// maxUnicode bounds the classes of Unicode in an expression, which take 5 KiB each.
	maxUnicode = 64
	// maxStates bounds the states of a compiled expression.
	maxStates = 1 << 16
	// stateBytes is what a state takes.
	stateBytes = 48
)

var (
	errUnicode = fmt.Errorf(`has more than %d classes of Unicode's characters, such as \p{L}: `+
		"name each once, or write out the characters", maxUnicode)
	errStates = fmt.Errorf("has more than %d states, which is too much to check: repeat less often", maxStates)
)

// parseExpression parses an expression in Go's syntax. The error is a [syntax.Error] or
// errUnicode, or that of the account.
func parseExpression(account *work.Account, pattern string) (*syntax.Regexp, error) {
	c := parseCost{}
	c.read(pattern)
	if c.classes > maxUnicode {
		return nil, errUnicode
	}

	if err := account.Spend(c.steps); err != nil {
		return nil, err
	}

	return syntax.Parse(pattern, syntax.Perl)
}

// parseCost is what an expression takes to parse. It is found without a parser, and is
// rather too high: a text that looks like a class counts as one.
type parseCost struct {
	steps int
	// Of Unicode.
	classes int
	folded  bool
}

// read adds what a pattern takes.
func (c *parseCost) read(pattern string) {
	c.folded = folds(pattern)
	c.steps += len(pattern) * stepsOfByte

	// The two characters before the one at hand: with a hyphen between them they are a range.
	first, last, hyphen := rune(-1), rune(-1), false
	for rest := pattern; rest != ""; {
		at, size := c.character(rest)
		// Each character of the range is looked up for its other cases.
		if hyphen && c.folded {
			c.steps += 2 * foldedBetween(first, at)
		}
		first, last, hyphen = last, at, rest[0] == '-'
		rest = rest[size:]
	}
}

// character returns the first character or class of a text, and its bytes; -1 for a class.
func (c *parseCost) character(text string) (at rune, size int) {
	switch {
	case strings.HasPrefix(text, "[:") && c.folded:
		c.steps += stepsOfFolding
	case text[0] == '\\' && len(text) > 1:
		return c.escaped(text[1:])
	}

	return utf8.DecodeRuneInString(text)
}

// escaped is character for the text after a backslash.
func (c *parseCost) escaped(text string) (at rune, size int) {
	code, digits := "", 1
	switch {
	case text[0] == 'p' || text[0] == 'P':
		c.classes++
		c.steps += stepsOfUnicode
		if c.folded {
			c.steps += stepsOfUnicode
		}
		// Of \p{Greek} what is in the brackets counts as characters: rather too much.
		return -1, 2
	case strings.IndexByte("dDsSwW", text[0]) >= 0:
		if c.folded {
			c.steps += stepsOfFolding
		}
		return -1, 2
	case strings.HasPrefix(text, "x{"):
		code, _, _ = strings.Cut(text[2:], "}")
		digits = len("x{}") + len(code)
	case text[0] == 'x' && len(text) > 2:
		code, digits = text[1:3], 3
	}

	if n, err := strconv.ParseUint(code, 16, 21); err == nil && digits <= len(text) {
		return rune(n), 1 + digits
	}
	at, size = utf8.DecodeRuneInString(text)

	return at, 1 + size
}

// folds reports whether a part of an expression may be read without regard to case.
func folds(pattern string) bool {
	for {
		_, flags, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		pattern = strings.TrimLeft(flags, "imsU-")
		if strings.Contains(flags[:len(flags)-len(pattern)], "i") {
			return true
		}
	}
}

// foldedBetween returns how many characters of a range are looked at for their other
// cases: those that have them are between these two.
func foldedBetween(from, to rune) int {
	const first, last = 'A', '\U0001e943'

	return max(0, int(min(to, last)-max(from, first))+1)
}

// program is a compiled expression. It is immutable.
type program struct {
	prog *syntax.Prog
	// A match begins where the text does.
	anchored bool
}

// matcher matches texts with a program, one after the other.
type matcher struct {
	*program
	now, next states
}

func (p *program) matcher() *matcher {
	n := len(p.prog.Inst)
	fresh := func() states { return states{make([]uint32, 0, n), make([]uint32, n)} }

	return &matcher{p, fresh(), fresh()}
}

// states are the states in which a text can be, each once: a sparse set.
type states struct {
	list []uint32
	// By state: where in the list it is, if it is there.
	at []uint32
}

func (s *states) add(state uint32) {
	if at := s.at[state]; int(at) >= len(s.list) || s.list[at] != state {
		s.at[state] = uint32(len(s.list))
		s.list = append(s.list, state)
	}
}

// compile returns the program of an expression. The error is errStates, or that of the
// account.
func compile(account *work.Account, re *syntax.Regexp) (*program, error) {
	n := countStates(re)
	if n > maxStates {
		return nil, errStates
	}
	if err := account.Spend(n * stepsOfState); err != nil {
		return nil, err
	}

	// Simplify spells repetitions out, which is why the states were counted before.
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}

	return &program{prog, prog.StartCond()&syntax.EmptyBeginText != 0}, nil
}

// countStates returns about how many states an expression has, at most one more than
// maxStates.
func countStates(re *syntax.Regexp) int {
	n := 2
	if re.Op == syntax.OpLiteral {
		n += len(re.Rune)
	}
	// Repetitions inside one another multiply, so that the number is cut on the way.
	for _, sub := range re.Sub {
		n = min(n+countStates(sub), maxStates+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}

	return min(n, maxStates+1)
}

const (
	// statesOfStep is how many states are looked at in a step.
	statesOfStep = 4
	// lookedAtOnce is how many states are looked at before the account is asked again.
	lookedAtOnce = 16 << 10
)

// matches reports whether a text has a match; if whole, whether all of it is one. The error is
// that of the account.
func (m *matcher) matches(account *work.Account, text []byte, whole bool) (bool, error) {
	// States, since the account was asked.
	looked := 0
	now, next := &m.now, &m.next
	now.list = now.list[:0]

	for at, last := 0, rune(-1); ; {
		// -1 stands for the end of the text: what needs no more is a match there.
		here, size := rune(-1), 0
		if at < len(text) {
			here, size = utf8.DecodeRune(text[at:])
		}

		// Each character may begin a match, unless the text's beginning has to.
		if at == 0 || !whole && !m.anchored {
			now.add(uint32(m.prog.Start))
		}
		if m.step(now, next, last, here) && (size == 0 || !whole) {
			return true, account.Spend(looked / statesOfStep)
		}

		looked += 1 + len(now.list)
		if looked >= lookedAtOnce {
			if err := account.Spend(looked / statesOfStep); err != nil {
				return false, err
			}
			looked = 0
		}

		if size == 0 || len(next.list) == 0 && (whole || m.anchored) {
			return false, account.Spend(looked / statesOfStep)
		}

		now, next = next, now
		at, last = at+size, here
	}
}

// step follows all states of now, between two characters, to those of next. It reports
// whether one of them is a match.
func (m *matcher) step(now, next *states, last, here rune) (matched bool) {
	next.list = next.list[:0]
	context := syntax.EmptyOpContext(last, here)

	// The list grows on the way: states that take no character lead to others at the same place.
	for i := 0; i < len(now.list); i++ {
		switch inst := &m.prog.Inst[now.list[i]]; inst.Op {
		case syntax.InstMatch:
			matched = true
		case syntax.InstAlt, syntax.InstAltMatch:
			now.add(inst.Out)
			now.add(inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			now.add(inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^context == 0 {
				now.add(inst.Out)
			}
		case syntax.InstFail:
		default:
			if here >= 0 && inst.MatchRune(here) {
				next.add(inst.Out)
			}
		}
	}

	return matched
}
