package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// The bounds of what a schema costs the engine's grammar compiler. The times are
// processor time of xgrammar 0.2.8 with the o200k vocabulary.
const (
	// maxOptional bounds the properties of an object that are not required: 200
	// take 0.3 s, 400 1 s, 800 9 s. Required ones cost next to nothing.
	maxOptional = 200
	// maxCounted bounds the cost of minProperties and maxProperties: the square of the
	// number of optional properties, times the largest number to count to. 50
	// properties of which at most 50 are allowed take 0.5 s, 100 of which at most 50
	// are allowed 4.5 s, 200 of which at least one is required more than 25 s.
	maxCounted = 250_000
	// maxPatternNames bounds the patternProperties of an object: 20 take 0.2 s, 100
	// more than 20 s, depending on what the patterns have in common.
	maxPatternNames = 32
	// maxEnum and maxEnumBytes bound an enum: 1,000 values of 60 bytes take 1.5 s,
	// 5,000 of them 38 s.
	maxEnum      = 2000
	maxEnumBytes = 64 << 10
	// maxSchemaCost bounds the total cost of the patterns and lengths of a schema. The
	// cost of a length is its number, up to maxLengthCost: a maxLength of 50 takes
	// 4 s, of 128 9 s, and a larger one 16 s, of which each further one takes a
	// quarter.
	maxSchemaCost = 1280
	maxLengthCost = 256
)

var errTotalCost = errors.New(
	"has patterns and lengths that take an engine too long together: use fewer different ones")

// costBound is the cost of the patterns and lengths of a schema so far. A repeated one
// costs nothing.
type costBound struct {
	account *work.Account
	most    int
	spent   int
	paid    map[string]bool
	// That were read already.
	patterns map[string]enginePattern
}

// spend adds the cost of a pattern or length.
func (b *costBound) spend(what string, cost int) error {
	if b.paid[what] {
		return nil
	}
	// An engine compiles equal patterns once.
	if b.spent+cost > b.most {
		return errTotalCost
	}
	if b.paid == nil {
		b.paid = map[string]bool{}
	}

	b.paid[what] = true
	b.spent += cost
	return nil
}

// addSchema adds the cost of one schema. The error says what cannot be enforced, or
// costs too much.
func (b *costBound) addSchema(object map[string]any) error {
	if err := checkSizes(object); err != nil {
		return err
	}
	if err := checkCounts(object); err != nil {
		return err
	}

	// Why the pattern is not in the grammar.
	var unkept error
	if pattern, ok := object["pattern"].(string); ok {
		// A format that is enforced stands for the pattern beside it.
		if _, unkept = b.pattern(pattern); unkept != nil && !enforcedFormat(object) &&
			!leftToCheck(unkept, object["format"] != nil) {
			return unkept
		}
	}

	patterns, _ := object["patternProperties"].(map[string]any)
	for _, pattern := range sortedNames(patterns) {
		if _, err := b.pattern(pattern); err != nil && !leftToCheck(err, false) {
			return err
		}
	}

	if describesStrings(object, unkept != nil) {
		return nil
	}
	return b.lengths(object)
}

// leftToCheck reports whether a pattern that is not in the grammar for a reason is left to
// the check of the reply: it can be checked, or it is another notation of the format
// beside it.
func leftToCheck(reason error, formatted bool) bool {
	for _, anyway := range []error{errAnchor, errBoundary, errRanges, errEscaped, errNothing} {
		if errors.Is(reason, anyway) {
			return true
		}
	}

	return formatted && errors.Is(reason, errSyntax)
}

// describesStrings reports whether a grammar has a pattern or a format for the
// strings of a schema, and therefore no lengths; unkept reports that the pattern is
// not in the grammar.
func describesStrings(object map[string]any, unkept bool) bool {
	return object["pattern"] != nil && !unkept || enforcedFormat(object) && allows(object, "string")
}

// enginePattern is a pattern in the syntax of engines, with its cost.
type enginePattern struct {
	text string
	cost int
	err  error
}

// pattern adds the cost of a pattern and returns it in the syntax of engines.
func (b *costBound) pattern(pattern string) (string, error) {
	p, read := b.patterns[pattern]
	if !read {
		p.text, p.cost, p.err = engineRegex(b.account, pattern, true)
		if b.patterns == nil {
			b.patterns = map[string]enginePattern{}
		}
		b.patterns[pattern] = p
	}

	// The cost of a pattern that is not in the grammar is not the engine's.
	if p.err != nil {
		return "", fmt.Errorf("has a pattern that %w", p.err)
	}

	return p.text, b.spend("pattern "+p.text, p.cost)
}

// lengths adds the cost of the lengths of strings.
func (b *costBound) lengths(object map[string]any) error {
	least, _ := number(object["minLength"])
	most, _ := number(object["maxLength"])
	if most > MaxCount {
		// It is not in the grammar.
		most = 0
	}
	if most <= 1 && least <= 1 {
		return nil
	}

	// Equal lengths are one rule of a grammar.
	what := "length " + strconv.Itoa(int(least)) + "-" + strconv.Itoa(int(most))
	return b.spend(what, min(int(max(least, most)), maxLengthCost))
}

// checkSizes bounds the members and the values of a schema.
func checkSizes(object map[string]any) error {
	if countOptional(object) > maxOptional {
		return fmt.Errorf(
			"has more than %d properties in one object that are not required: require them, with the type "+
				"null where they may be absent, or group them in objects", maxOptional)
	}

	patterns, _ := object["patternProperties"].(map[string]any)
	if len(patterns) > maxPatternNames {
		return fmt.Errorf(`has more than %d "patternProperties" in one object: use fewer`, maxPatternNames)
	}
	return checkEnum(object)
}

// countOptional returns how many of an object's properties are not required.
func countOptional(object map[string]any) int {
	declared, _ := object["properties"].(map[string]any)
	n := len(declared)

	// A name that is required twice counts once.
	required, _ := texts(object["required"])
	counted := make(map[string]bool, len(required))
	for _, name := range required {
		if _, ok := declared[name]; ok && !counted[name] {
			counted[name] = true
			n--
		}
	}
	return n
}

// checkCounts bounds the numbers of properties that a grammar has to count.
func checkCounts(object map[string]any) error {
	n := countOptional(object)
	least, _ := number(object["minProperties"])
	most, capped := object["maxProperties"]
	times := float64(n)

	// With a maximum a grammar counts up to it, with a minimum alone through all of them.
	switch x, _ := number(most); {
	case capped:
		times = min(times, x)
	case least == 0:
		return nil
	}

	if float64(n)*float64(n)*times > maxCounted {
		return errors.New(`has a "minProperties" or "maxProperties" of too many properties that are not required: ` +
			"leave it out, or require some")
	}
	return nil
}

// checkEnum bounds the values of an enum.
func checkEnum(object map[string]any) error {
	values, _ := object["enum"].([]any)
	size := 0
	// A grammar spells each value as JSON.
	for _, v := range values {
		if text, ok := v.(string); ok {
			size += len(text)
		} else if text, err := json.Marshal(v); err == nil {
			size += len(text)
		}
	}

	if len(values) > maxEnum || size > maxEnumBytes {
		return fmt.Errorf(`has an "enum" of more than %d values or %d bytes: use fewer, or a pattern`,
			maxEnum, maxEnumBytes)
	}
	return nil
}
