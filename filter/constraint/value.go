package constraint

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// The values of JSON here are those of package encoding/json, with [json.Number].

const (
	// stepsOfNumber is what it takes to compare with a number that is none of 64 bits, and
	// digitsOfStep how many of its digits are read in a step.
	stepsOfNumber = 100
	digitsOfStep  = 4
	// maxExact bounds the digits and the exponent of a number that is compared as it is
	// written. Others are rounded, as most readers of JSON do.
	maxExact = 1000
)

// rational returns a number.
func rational(n json.Number) *big.Rat {
	text := string(n)
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	e, err := strconv.Atoi(strings.TrimPrefix(exponent, "+"))
	exact := exponent == "" || err == nil && max(e, -e) <= maxExact
	if exact && len(mantissa) <= maxExact {
		if x, ok := new(big.Rat).SetString(text); ok {
			return x
		}
	}

	// A number of a thousand digits, or with such an exponent, would take long to compare as it is.
	f, _ := n.Float64()
	if x := new(big.Rat).SetFloat64(f); x != nil {
		return x
	}

	// What is too large to be rounded.
	beyond := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 1024))
	if strings.HasPrefix(text, "-") {
		beyond.Neg(beyond)
	}

	return beyond
}

// compareNumbers returns the sign of a-b.
func compareNumbers(a, b json.Number) int {
	x, errX := a.Int64()
	y, errY := b.Int64()
	if errX != nil || errY != nil {
		return rational(a).Cmp(rational(b))
	}

	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}

	return 0
}

// isMultiple reports whether a number is a whole multiple of another one, which is above 0.
func isMultiple(n, of json.Number) bool {
	x, errX := n.Int64()
	y, errY := of.Int64()
	if errX == nil && errY == nil {
		return x%y == 0
	}

	divisor := rational(of)

	return divisor.Sign() > 0 && new(big.Rat).Quo(rational(n), divisor).IsInt()
}

func isWhole(n json.Number) bool {
	if _, err := n.Int64(); err == nil {
		return true
	}

	return rational(n).IsInt()
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

// numbers takes the steps of comparing numbers.
func (m *meter) numbers(all ...json.Number) bool {
	for _, n := range all {
		if _, err := n.Int64(); err != nil {
			// Numbers of 64 bits are compared in one step.
			m.spend(stepsOfNumber + min(len(n), maxExact)/digitsOfStep)
		}
	}

	return m.spend(1)
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
		m.numbers(value)
		// 0 and -0 are equal, and so are 1 and 1.0: as rational numbers they have one text.
		if _, err := value.Int64(); err == nil && value != "-0" {
			return append(dst, value...)
		}
		return append(dst, rational(value).RatString()...)
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
