package constraint

import (
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number as JSON writes it, exactly: 0.DIGITS times 10 to the power of exponent.
// Equal numbers have equal fields, whatever their texts are. It takes no more memory than the
// text, because a number such as 1e1000000 is never written out.
type decimal struct {
	negative bool
	// The digits from the first to the last that is not 0; "" of 0.
	digits string
	// The power of 10. Its own digits are not bounded by JSON, so it is an int of any size.
	exponent power
}

// power is a whole number of any size: most have 64 bits, and no memory of their own.
type power struct {
	small int64
	// Beyond 64 bits; nil: small is the number.
	large *big.Int
}

// maxSmall is the most digits of an exponent that is an int64 together with the length of any text.
const maxSmall = 17

// decimalOf reads a number that is valid JSON.
func decimalOf(n json.Number) decimal {
	text, negative := strings.CutPrefix(string(n), "-")
	mantissa, exponent := text, ""
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa, exponent = text[:at], text[at+1:]
	}

	whole, fraction, _ := strings.Cut(mantissa, ".")
	whole = strings.TrimLeft(whole, "0")
	point := len(whole)
	// Without a whole part the zeros behind the point belong to the exponent.
	if whole == "" {
		trimmed := strings.TrimLeft(fraction, "0")
		point -= len(fraction) - len(trimmed)
		fraction = trimmed
	}

	digits := strings.TrimRight(fraction, "0")
	if digits == "" {
		digits = strings.TrimRight(whole, "0")
	} else if whole != "" {
		digits = whole + digits
	}

	// 0, -0 and 0e9 are one number.
	if digits == "" {
		return decimal{}
	}

	return decimal{negative, digits, powerOf(exponent, point)}
}

// powerOf returns the exponent of a number as it is written, "" for none, plus an offset.
func powerOf(exponent string, offset int) power {
	sign, magnitude := "", strings.TrimPrefix(exponent, "+")
	if rest, isNegative := strings.CutPrefix(magnitude, "-"); isNegative {
		sign, magnitude = "-", rest
	}
	magnitude = strings.TrimLeft(magnitude, "0")

	if len(magnitude) <= maxSmall {
		// Its only error is that of no digits, with which it is 0.
		small, _ := strconv.ParseInt(sign+magnitude, 10, 64)
		return power{small: small + int64(offset)}
	}

	large, _ := new(big.Int).SetString(sign+magnitude, 10)
	large.Add(large, big.NewInt(int64(offset)))

	// The same number in the same form, so that equal numbers have equal ones.
	if large.IsInt64() {
		return power{small: large.Int64()}
	}

	return power{large: large}
}

// integer returns the power as an int of any size.
func (p power) integer() *big.Int {
	if p.large != nil {
		return p.large
	}

	return big.NewInt(p.small)
}

// compare returns the sign of p-other.
func (p power) compare(other power) int {
	if p.large == nil && other.large == nil {
		return cmp.Compare(p.small, other.small)
	}

	return p.integer().Cmp(other.integer())
}

// over returns p-other, or a number that is farther from 0 than the length of any text.
func (p power) over(other power) int64 {
	if p.large == nil && other.large == nil {
		return p.small - other.small
	}

	difference := new(big.Int).Sub(p.integer(), other.integer())
	if difference.IsInt64() {
		return difference.Int64()
	}

	return int64(difference.Sign()) * (math.MaxInt64 / 2)
}

// compare returns the sign of d-other.
func (d decimal) compare(other decimal) int {
	sign := 1
	switch {
	case d.negative != other.negative:
		if d.negative {
			return -1
		}
		// 0 has no sign: nothing negative follows it.
		return 1
	case d.negative:
		sign = -1
	}

	// The exponent of 0 says nothing.
	if d.digits == "" || other.digits == "" {
		return sign * cmp.Compare(len(d.digits), len(other.digits))
	}

	// The first digit is not 0, so the higher exponent is the larger number.
	if order := d.exponent.compare(other.exponent); order != 0 {
		return sign * order
	}

	return sign * strings.Compare(d.digits, other.digits)
}

// isWhole reports whether no digit stands behind the point.
func (d decimal) isWhole() bool { return d.exponent.compare(power{small: int64(len(d.digits))}) >= 0 }

// appendKey appends a text that is the same for equal numbers only.
func (d decimal) appendKey(dst []byte) []byte {
	if d.negative {
		dst = append(dst, '-')
	}
	dst = append(append(dst, d.digits...), 'e')
	if d.exponent.large != nil {
		return d.exponent.large.Append(dst, 10)
	}

	return strconv.AppendInt(dst, d.exponent.small, 10)
}

const (
	// digitsAtOnce are the most digits that a word has room for.
	digitsAtOnce = 18
	// factorsOfDigit is more than how often a number is divisible by 2, and by 5, for each
	// of its digits.
	factorsOfDigit = 4
)

// zerosOf returns how many zeros make d a whole number of the same unit as the other one
// has; negative: the other one's unit is larger.
//
// A power of 10 helps a number to be a multiple only by its factors 2 and 5, of which
// the other one has few. So it needs few zeros, however large its exponent is.
func (d decimal) zerosOf(other decimal) int {
	zeros := d.exponent.over(other.exponent) + int64(len(other.digits)) - int64(len(d.digits))

	return int(max(-1, min(zeros, factorsOfDigit*int64(len(other.digits)))))
}

// isMultiple reports whether d is a whole multiple of another number.
func (d decimal) isMultiple(other decimal) bool {
	if d.digits == "" || other.digits == "" {
		return other.digits != ""
	}

	// The last digit of d is not 0, so it is divisible by no power of 10.
	zeros := d.zerosOf(other)
	if zeros < 0 {
		return false
	}

	divisor, _ := new(big.Int).SetString(other.digits, 10)
	var rest, piece, unit, quotient big.Int
	// As in a division by hand: piece by piece, so that no number is longer than the divisor
	// and a piece.
	take := func(value uint64, digits int) {
		unit.SetUint64(powersOf10[digits])
		rest.Add(rest.Mul(&rest, &unit), piece.SetUint64(value))
		quotient.QuoRem(&rest, divisor, &rest)
	}
	for digits := d.digits; digits != ""; {
		n := min(len(digits), digitsAtOnce)
		value, _ := strconv.ParseUint(digits[:n], 10, 64)
		take(value, n)
		digits = digits[n:]
	}
	for ; zeros > 0 && rest.Sign() != 0; zeros -= digitsAtOnce {
		take(0, min(zeros, digitsAtOnce))
	}

	return rest.Sign() == 0
}

// powersOf10 are those of a word.
var powersOf10 = func() (powers [digitsAtOnce + 1]uint64) {
	powers[0] = 1
	for i := range digitsAtOnce {
		powers[i+1] = 10 * powers[i]
	}
	return powers
}()
