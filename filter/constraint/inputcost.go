package constraint

import (
	"slices"
	"unicode"
)

// inputCost measures what rules cost an engine's compiler: about the states that
// repetitions make, as [regexCost] counts them. What is not repeated costs next to
// nothing.
type inputCost struct {
	rules map[string]*expr
	// The costs of rules that are repeated.
	repeated map[string]int
	// Of rules and of what is repeated.
	ambiguity map[*expr]bool
}

// total returns the cost of all rules together, at most one more than [MaxInputCost].
func (c *inputCost) total() (cost int) {
	c.repeated, c.ambiguity = map[string]int{}, map[*expr]bool{}
	for _, e := range c.rules {
		cost = min(cost+c.of(e, false), MaxInputCost+1)
	}
	return cost
}

// of returns the cost of an expression. inside says that a repetition has it, which copies
// it with the rules that it names. A rule that names itself counts once.
func (c *inputCost) of(e *expr, inside bool) int {
	switch e.op {
	case exprText:
		if inside {
			return len([]rune(e.text))
		}
		return 0
	case exprClass:
		// A class up to the last character is as costly alone as it is repeated.
		if n := len(e.ranges); n > 0 && e.ranges[n-1] == unicode.MaxRune {
			return wideCost
		}
		if inside {
			return 1
		}
		return 0
	case exprName:
		if inside {
			return c.rule(e.text)
		}
		return 0
	case exprRepeat:
		return c.repetition(e, inside)
	}

	cost := 0
	for _, sub := range e.subs {
		cost = min(cost+c.of(sub, inside), MaxInputCost+1)
	}
	return cost
}

func (c *inputCost) repetition(e *expr, inside bool) int {
	times := max(e.least, e.most, 1)
	cost := c.of(e.subs[0], inside || times > 1)

	if times > 1 && c.ambiguous(e.subs[0]) {
		cost *= ambiguousCost
	}

	// A repetition beyond what engines take is split, and each piece costs as much again.
	return min(cost*times*((times+maxRepeat-1)/maxRepeat), MaxInputCost+1)
}

// rule returns the cost of a rule that is repeated.
func (c *inputCost) rule(name string) int {
	if cost, known := c.repeated[name]; known {
		return cost
	}
	// Where it names itself.
	c.repeated[name] = 1
	cost := max(1, c.of(c.rules[name], true))
	c.repeated[name] = cost
	return cost
}

// ambiguous is [ambiguous] for expressions with rules. Each expression is looked at once.
func (c *inputCost) ambiguous(e *expr) bool {
	found, known := c.ambiguity[e]
	if !known {
		// Where a rule names itself.
		c.ambiguity[e] = false
		found = c.findAmbiguity(e)
		c.ambiguity[e] = found
	}

	return found
}

func (c *inputCost) findAmbiguity(e *expr) bool {
	switch e.op {
	case exprRepeat:
		return e.least != e.most || c.ambiguous(e.subs[0])
	case exprName:
		return c.ambiguous(c.rules[e.text])
	case exprAlt:
		return slices.ContainsFunc(e.subs, c.ambiguous)
	case exprSeq:
		return len(e.subs) > 0 && !slices.ContainsFunc(e.subs, func(sub *expr) bool { return !c.ambiguous(sub) })
	}

	return false
}
