package constraint

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// The values of JSON here are those of package encoding/json, with [json.Number].

const (
	// stepsOfNumber is what it takes to read a number for a comparison, and digitsOfStep how
	// many digits are read in a step.
	stepsOfNumber = 4
	digitsOfStep  = 4
	// squareOfStep bounds what it takes to read an integer of many digits: package big takes
	// the square of their number, divided by this, in steps.
	squareOfStep = 16_384
	// stepsOfDivision is what it takes to divide once by a number, and divisorOfStep how many
	// of its digits take a step more.
	stepsOfDivision = 4
	divisorOfStep   = 128
)

// word returns a number that is a whole one of 64 bits, and is written as one.
func word(n json.Number) (value int64, ok bool) {
	// The error of a long text would have a copy of it.
	if len(n) > len("-9223372036854775808") {
		return 0, false
	}
	value, err := n.Int64()

	return value, err == nil
}

// compareNumbers returns the sign of a-b.
func compareNumbers(a, b json.Number) int {
	x, okX := word(a)
	y, okY := word(b)
	if okX && okY {
		return cmp.Compare(x, y)
	}

	return decimalOf(a).compare(decimalOf(b))
}

func isWhole(n json.Number) bool {
	if _, ok := word(n); ok {
		return true
	}

	return decimalOf(n).isWhole()
}

// takenTogether is how many steps a meter collects before it takes them.
const takenTogether = 4096

// meter takes steps of an account bit by bit. After a refusal it has an error, and what is
// computed with it means nothing.
type meter struct {
	account *work.Account
	// That were not taken yet.
	steps int
	err   error
}

// spend reports whether there are so many steps. Small numbers are taken together.
func (m *meter) spend(steps int) bool {
	m.steps += steps
	if m.steps >= takenTogether && m.err == nil {
		m.err = m.account.Spend(m.steps)
		m.steps = 0
	}

	return m.err == nil
}

// end takes the rest.
func (m *meter) end() error {
	if m.err == nil {
		m.err = m.account.Spend(m.steps)
		m.steps = 0
	}

	return m.err
}

// numbers takes the steps of reading numbers.
func (m *meter) numbers(all ...json.Number) bool {
	for _, n := range all {
		if _, ok := word(n); ok {
			m.spend(1)
			continue
		}
		m.spend(stepsOfNumber + len(n)/digitsOfStep)

		// An exponent that no word has room for is an integer of any size.
		if at := strings.IndexAny(string(n), "eE"); at >= 0 && len(n)-at > maxSmall {
			m.square(len(n) - at)
		}
	}

	return m.err == nil
}

// square takes the steps of reading an integer of so many digits.
func (m *meter) square(digits int) bool {
	return m.spend(int(min(float64(digits)*float64(digits)/squareOfStep, work.PerRequest+1)))
}

// isMultiple reports whether a number is a whole multiple of another one, which is above 0.
func (m *meter) isMultiple(n, of json.Number) bool {
	x, okX := word(n)
	y, okY := word(of)
	if okX && okY && y != 0 {
		return x%y == 0
	}

	value, unit := decimalOf(n), decimalOf(of)
	pieces := (len(value.digits)+max(0, value.zerosOf(unit)))/digitsAtOnce + 2
	if !m.square(len(unit.digits)) || !m.spend(pieces*(stepsOfDivision+len(unit.digits)/divisorOfStep)) {
		return false
	}

	return value.isMultiple(unit)
}

// equal reports whether two values are equal.
func (m *meter) equal(a, b any) bool {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && len(x) == len(y) && m.spend(1+len(x)/stepBytes) && x == y
	case json.Number:
		y, ok := b.(json.Number)
		return ok && m.numbers(x, y) && compareNumbers(x, y) == 0
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !m.spend(1) || !m.equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name, v := range x {
			if w, has := y[name]; !m.spend(2) || !has || !m.equal(v, w) {
				return false
			}
		}
		return true
	}
	m.spend(1)

	return a == b
}

// appendKey appends a text that is the same for equal values only.
func (m *meter) appendKey(dst []byte, value any) []byte {
	if !m.spend(2) {
		return dst
	}

	switch value := value.(type) {
	case string:
		m.spend(len(value) / 4)
		return jsontext.AppendString(dst, value)
	case json.Number:
		if !m.numbers(value) {
			return dst
		}
		return decimalOf(value).appendKey(dst)
	case bool:
		return strconv.AppendBool(dst, value)
	case []any:
		dst = append(dst, '[')
		for _, element := range value {
			dst = append(m.appendKey(dst, element), ',')
		}
		return append(dst, ']')
	case map[string]any:
		m.spend(8 * len(value))
		dst = append(dst, '{')
		// Sorted, because order means nothing.
		for _, name := range slices.Sorted(maps.Keys(value)) {
			dst = append(m.appendKey(dst, name), ':')
			dst = append(m.appendKey(dst, value[name]), ',')
		}
		return append(dst, '}')
	}

	return append(dst, "null"...)
}
