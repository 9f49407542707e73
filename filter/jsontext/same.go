package jsontext

import (
	"strconv"
	"strings"
)

// Same reports whether two texts of JSON have the same meaning: the same members in any
// order, strings and numbers of the same value, whatever their spelling and the white space
// between them. Texts that are no JSON are the same only if they are equal. So is what readers
// of JSON take in different ways: members of one name, half a surrogate pair, numbers that differ
// beyond what a float64 holds. It takes time in proportion to the texts.
func Same(a, b string) bool {
	if a == b {
		return true
	}
	if !Valid(a) || !Valid(b) {
		return false
	}

	c := comparison{a: a, b: b, left: passes * len(b)}
	_, _, same := c.value(skipSpace(a, 0), skipSpace(b, 0))
	return same
}

// passes bounds how often a byte of b is passed to find the members of the objects around it.
// Objects that nest deeper than this, and differ, count as different.
const passes = 16

// comparison compares two values that are valid JSON, without a copy.
type comparison struct {
	a, b string
	// How many bytes of b may still be passed.
	left int
}

// value compares the values at i and at j, and returns their ends if they are the same.
func (c *comparison) value(i, j int) (endA, endB int, same bool) {
	first := c.a[i]
	if isWord := first != '"' && first != '{' && first != '['; !isWord && first != c.b[j] {
		return 0, 0, false
	}

	switch first {
	case '{':
		return c.object(i, j)
	case '[':
		return c.array(i, j)
	case '"':
		endA, endB = stringEnd(c.a, i), stringEnd(c.b, j)
		return endA, endB, sameString(c.a[i:endA], c.b[j:endB])
	}

	// Another value of b than a number or a word is none here, as its first byte tells.
	endA, endB = valueEnd(c.a, i), valueEnd(c.b, j)
	x, y := c.a[i:endA], c.b[j:endB]
	return endA, endB, x == y || isNumber(x) && isNumber(y) && sameNumber(x, y)
}

func (c *comparison) array(i, j int) (endA, endB int, same bool) {
	for {
		// After the bracket or the comma.
		i, j = skipSpace(c.a, i+1), skipSpace(c.b, j+1)
		if c.a[i] == ']' || c.b[j] == ']' {
			return i + 1, j + 1, c.a[i] == c.b[j]
		}

		if i, j, same = c.value(i, j); !same {
			return 0, 0, false
		}
		i, j = skipSpace(c.a, i), skipSpace(c.b, j)
		if c.a[i] != c.b[j] {
			return 0, 0, false
		}
		if c.a[i] == ']' {
			return i + 1, j + 1, true
		}
	}
}

func (c *comparison) object(i, j int) (endA, endB int, same bool) {
	members, endB := c.members(j)
	if members == nil {
		return 0, 0, false
	}

	for {
		// After the bracket or the comma.
		i = skipSpace(c.a, i+1)
		if c.a[i] == '}' {
			return i + 1, endB, len(members) == 0
		}

		end := stringEnd(c.a, i)
		name := unquoted(c.a[i:end])
		at, found := members[name]
		if !found {
			return 0, 0, false
		}

		// So that a second member of the name finds none.
		delete(members, name)
		if i, _, same = c.value(afterColon(c.a, end), at); !same {
			return 0, 0, false
		}
		if i = skipSpace(c.a, i); c.a[i] == '}' {
			return i + 1, endB, len(members) == 0
		}
	}
}

// members returns where the values of the object's members at j are, by name, and the object's
// end. It is nil if two have one name, or if there is too much to pass.
func (c *comparison) members(j int) (members map[string]int, end int) {
	members = map[string]int{}
	for begin := j; ; {
		j = skipSpace(c.b, j+1)
		if c.b[j] == '}' {
			return members, j + 1
		}

		end := stringEnd(c.b, j)
		name := unquoted(c.b[j:end])
		if _, twice := members[name]; twice || strings.Contains(name, "\ufffd") {
			return nil, 0
		}
		members[name] = afterColon(c.b, end)

		j = skipSpace(c.b, valueEnd(c.b, members[name]))
		if c.left -= j - begin; c.left < 0 {
			return nil, 0
		}
		if begin = j; c.b[j] == '}' {
			return members, j + 1
		}
	}
}

func skipSpace(text string, i int) int {
	for i < len(text) && isSpace(text[i]) {
		i++
	}
	return i
}

// afterColon returns where the value begins whose name ends at i.
func afterColon(text string, i int) int { return skipSpace(text, skipSpace(text, i)+1) }

// sameString compares two strings with their quotes.
func sameString(x, y string) bool {
	if x == y {
		return true
	}

	// It also stands for half a surrogate pair, of which there are many.
	text := unquoted(x)
	return text == unquoted(y) && !strings.Contains(text, "\ufffd")
}

func isNumber(text string) bool { return text[0] == '-' || text[0] >= '0' && text[0] <= '9' }

// sameNumber compares two numbers. Clients that read them as float64 write 1e3 as 1000, and
// 0.10 as 0.1; an integer that has changed on the way is another one.
func sameNumber(x, y string) bool {
	a, okA := readDecimal(x)
	b, okB := readDecimal(y)
	switch {
	case !okA || !okB:
		return false
	case a == b:
		return true
	case a.exponent >= 0 || b.exponent >= 0:
		return false
	}

	// Both have a fraction, of which a float64 does not hold all digits. A client that has read it as
	// one writes the shortest form; another that it has written is a change.
	f, errF := strconv.ParseFloat(x, 64)
	g, errG := strconv.ParseFloat(y, 64)
	if errF != nil || errG != nil || f != g || f == 0 {
		return false
	}
	shortest, _ := readDecimal(strconv.FormatFloat(f, 'e', -1, 64))
	return a == shortest || b == shortest
}

// decimal is a number without the zeros around its digits.
type decimal struct {
	negative bool
	digits   string
	// Of the last digit.
	exponent int
}

// maxExponent bounds the exponents that are read. No float64 has a larger one.
const maxExponent = 100_000

// readDecimal reads a number; false if its exponent is too large.
func readDecimal(text string) (d decimal, ok bool) {
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa, exponent = text[:at], text[at+1:]
	}

	if exponent != "" {
		n, err := strconv.Atoi(exponent)
		if err != nil || n > maxExponent || n < -maxExponent {
			return d, false
		}
		d.exponent = n
	}

	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.exponent -= len(fraction)
	d.digits = strings.TrimLeft(whole+fraction, "0")
	stripped := strings.TrimRight(d.digits, "0")
	d.exponent += len(d.digits) - len(stripped)
	if d.digits = stripped; stripped == "" {
		d.exponent = 0
	}
	return d, true
}
