package enginesim

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// numberOf returns the nth number of some schemas, beginning with 1 or the minimum.
func numberOf(flat []gjson.Result, integer bool, nth int) (string, bool) {
	low, hasLow := most(flat, "minimum")
	above, hasAbove := most(flat, "exclusiveMinimum")
	high, hasHigh := least(flat, "maximum")
	below, hasBelow := least(flat, "exclusiveMaximum")
	step, stepped := most(flat, "multipleOf")
	if !stepped || step <= 0 {
		step = 1
	}

	of := func(x float64) bool {
		for _, s := range flat {
			if m := s.Get("multipleOf"); m.Exists() && m.Num > 0 && math.Trunc(x/m.Num) != x/m.Num {
				return false
			}
		}
		return (!hasLow || x >= low) && (!hasAbove || x > above) &&
			(!hasHigh || x <= high) && (!hasBelow || x < below) && (!integer || x == math.Trunc(x))
	}

	var candidates []float64
	if hasLow {
		candidates = append(candidates, low)
	} else {
		candidates = append(candidates, 1)
	}

	floor, roof := max(low, above), high
	if !hasLow {
		floor = above
	}
	if hasBelow && (!hasHigh || below < high) {
		roof = below
	}

	// Multiples near both ends. Several schemas with multipleOf may exclude the first ones, so 100 are
	// tried.
	for k := range 100 {
		candidates = append(candidates, (math.Ceil(floor/step)+float64(k))*step)
	}
	for k := range 100 {
		candidates = append(candidates, (math.Floor(roof/step)-float64(k))*step)
	}
	// An open interval between two whole numbers has only fractions.
	if hasLow || hasAbove {
		candidates = append(candidates, (floor+roof)/2, floor+0.5)
	}
	candidates = append(candidates, roof-0.5)

	seen := map[float64]bool{}
	for _, x := range candidates {
		if !of(x) || seen[x] {
			continue
		}
		if seen[x] = true; len(seen) > nth {
			return formatNumber(x), true
		}
	}
	return "", false
}

// numberIsOf reports whether a number keeps the limits of a schema, and a multipleOf
// that is a whole number.
func numberIsOf(x float64, s gjson.Result) bool {
	keeps := func(k string, ok func(limit float64) bool) bool {
		limit := s.Get(k)
		return limit.Type != gjson.Number || ok(limit.Num)
	}
	return keeps("minimum", func(limit float64) bool { return x >= limit }) &&
		keeps("maximum", func(limit float64) bool { return x <= limit }) &&
		keeps("exclusiveMinimum", func(limit float64) bool { return x > limit }) &&
		keeps("exclusiveMaximum", func(limit float64) bool { return x < limit }) &&
		keeps("multipleOf", func(m float64) bool { return m < 1 || m != math.Trunc(m) || math.Mod(x, m) == 0 })
}

func formatNumber(x float64) string {
	if math.Abs(x) < 1<<63 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// formatValues are values of formats, with a place for a number.
var formatValues = map[string]string{
	"date": "2026-01-%02d", "date-time": "2026-01-01T00:00:%02dZ", "time": "00:00:%02dZ", "duration": "P%dD",
	"email": "a%d@example.com", "hostname": "a%d.example.com", "ipv4": "192.0.2.%d", "ipv6": "2001:db8::%d",
	"uri": "https://example.com/%d", "uri-reference": "/a%d", "uri-template": "/a%d",
	"uuid": "00000000-0000-4000-8000-%012d", "json-pointer": "/a%d", "relative-json-pointer": "%d",
}

// stringOf returns the nth string of some schemas.
func stringOf(flat []gjson.Result, name string, nth int) (string, bool) {
	atLeast, _ := most(flat, "minLength")
	atMost, capped := least(flat, "maxLength")

	var patterns []*regexp.Regexp
	format := ""
	for _, s := range flat {
		if p := s.Get("pattern"); p.Exists() {
			if re, err := regexp.Compile(goRegex(p.Str)); err == nil {
				patterns = append(patterns, re)
			}
		}
		if f := s.Get("format").Str; formatValues[f] != "" {
			format = f
		}
	}

	fits := func(text string) bool {
		n := float64(utf8.RuneCountInString(text))
		for _, re := range patterns {
			if !re.MatchString(text) {
				return false
			}
		}
		return n >= atLeast && (!capped || n <= atMost)
	}

	// A longer text is never sent, and would be made for nothing.
	if atLeast > maxInstance {
		return "", false
	}

	seen := map[string]bool{}
	atLeastBytes, atMostBytes := int(atLeast), int(min(atMost, maxInstance))
	for _, text := range stringCandidates(patterns, format, name, nth, atLeastBytes, atMostBytes, capped) {
		if !fits(text) || seen[text] {
			continue
		}
		// The candidates of a format differ by nth themselves.
		if seen[text] = true; len(seen) > nth || format != "" && len(patterns) == 0 {
			return text, true
		}
	}

	return "", false
}

// maxRepeats bounds how often the repetitions of a pattern are repeated in search of
// a text.
const maxRepeats = 64

// stringCandidates returns texts that may be of a schema.
func stringCandidates(
	patterns []*regexp.Regexp, format, name string, nth, atLeast, atMost int, capped bool,
) []string {
	plain := stringValue(name)
	if len(patterns) == 0 && format != "" {
		text := fmt.Sprintf(formatValues[format], nth+1)
		pad := strings.Repeat("x", max(0, atLeast-len(text)))
		return []string{text, text + pad, pad + text}
	}

	var texts []string
	for k := range nth + 1 {
		text := plain
		if k > 0 {
			text += strconv.Itoa(k)
		}
		if n := atLeast - len(text); n > 0 {
			text += strings.Repeat("x", n)
		}
		if capped && len(text) > atMost {
			text = text[:atMost]
			// The number must survive the cut, because it is what makes the texts differ.
			if digits := strconv.Itoa(k); k > 0 && len(digits) <= atMost {
				text = text[:atMost-len(digits)] + digits
			}
		}
		texts = append(texts, text)
	}

	for _, re := range patterns {
		parsed, err := syntax.Parse(re.String(), syntax.Perl)
		if err != nil {
			continue
		}
		for k := range nth + 1 {
			texts = append(texts, matchOf(parsed, 0, k), matchOf(parsed, 1, k))
		}
		// Some lengths fit only with more repetitions, or with text after the match.
		for k := range maxRepeats {
			texts = append(texts, matchOf(parsed, k, nth), matchOf(parsed, k, 0)+plain)
		}
	}

	return texts
}

// matchOf returns a text that an expression matches, with so many repetitions, and
// with the nth character of classes.
func matchOf(re *syntax.Regexp, times, nth int) string {
	all := func(n int) string {
		// Repetitions nest, so each level is bounded.
		if n > maxInstance>>4 {
			return ""
		}
		return strings.Repeat(matchOf(re.Sub[0], times, nth), n)
	}

	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		return string(classMember(re.Rune, nth))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return string(rune('a' + nth%26))
	case syntax.OpCapture:
		return matchOf(re.Sub[0], times, nth)
	case syntax.OpStar:
		return all(times)
	case syntax.OpPlus:
		return all(max(times, 1))
	case syntax.OpQuest:
		return all(min(times, 1))

	case syntax.OpRepeat:
		n := max(times, re.Min)
		if re.Max >= 0 {
			n = min(n, re.Max)
		}
		return all(n)
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			if b.Len() < maxInstance>>4 {
				b.WriteString(matchOf(sub, times, nth))
			}
		}
		return b.String()

	case syntax.OpAlternate:
		return matchOf(re.Sub[nth%len(re.Sub)], times, nth)
	}
	return ""
}

// classMember returns the nth character of a class, printable ones first.
func classMember(ranges []rune, nth int) rune {
	for i := 0; i+1 < len(ranges); i += 2 {
		first := max(ranges[i], ' ')
		if n := int(ranges[i+1]-first) + 1; n > 0 {
			if nth < n {
				return first + rune(nth)
			}
			nth -= n
		}
	}
	if len(ranges) == 0 {
		return 'a'
	}
	return ranges[0]
}
