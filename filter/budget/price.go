package budget

import (
	"fmt"
	"strconv"
	"strings"
)

// Prices are what a million tokens of each kind cost, in millionths of the currency's
// unit. The zero value has no prices.
type Prices struct {
	Input  int64 // prompt tokens that were not cached
	Cached int64
	Output int64
}

// Known reports whether there are prices.
func (p *Prices) Known() bool { return *p != Prices{} }

// Cost returns the cost of what was used, in the currency's unit.
func (p *Prices) Cost(u Usage) float64 {
	cached := min(max(u.Cached, 0), u.Input)
	parts := int64(u.Input-cached)*p.Input + int64(cached)*p.Cached + int64(u.Output)*p.Output
	return float64(parts) / (millionth * millionth)
}

// millionth is how many millionths a unit has, and priceDigits its decimal digits.
const (
	millionth   = 1_000_000
	priceDigits = 6
)

// ParsePrice reads the price of a million tokens, such as 0.15, exactly. It has at most
// six digits after the point. "" is 0.
func ParsePrice(text string) (millionths int64, err error) {
	if text == "" {
		return 0, nil
	}

	whole, fraction, point := strings.Cut(text, ".")
	digits := whole + fraction + strings.Repeat("0", max(0, priceDigits-len(fraction)))
	n, err := strconv.ParseUint(digits, 10, 53)
	if err != nil || whole == "" || point && fraction == "" || len(fraction) > priceDigits {
		return 0, fmt.Errorf(
			"%q is no price; write such as 0.15, with at most %d digits behind the point", text, priceDigits,
		)
	}

	return int64(n), nil //nolint:gosec // 53 bits
}
