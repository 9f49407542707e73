package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// What a schema may cost the engine's compiler of grammars. The times are those of
// xgrammar 0.2.8 with the o200k vocabulary, of processor time.
const (
	// maxOptional bounds the properties of an object that are not required: 200
	// take 0.3 s, 400 1 s, 800 9 s. Required ones cost next to nothing.
	maxOptional = 200
	// maxCounted bounds what minProperties or maxProperties makes of an object: the
	// greatest number that it counts to and twice that of the properties, multiplied.
	// 50 properties of which 50 may be there take 0.5 s, 100 of which 50 4.5 s, 200
	// of which one must more than 25 s.
	maxCounted = 250_000
	// maxPatternNames bounds the patternProperties of an object, which take from
	// 0.2 s for 20 to more than 20 s for 100, by what they have in common.
	maxPatternNames = 32
	// maxEnum and maxEnumBytes bound an enum: 1,000 values of 60 bytes take 1.5 s,
	// 5,000 of them 38 s.
	maxEnum      = 2000
	maxEnumBytes = 64 << 10
	// maxSchemaCost bounds the patterns and lengths of a schema together. A length
	// costs its number and no more than maxLengthCost: a maxLength of 50 takes 4 s,
	// of 128 9 s, and every one above 16 s, to which others add a quarter of that.
	maxSchemaCost = 1280
	maxLengthCost = 256
)

var errTotal = errors.New("has patterns and lengths that take an engine too long together: use fewer different ones")

// budget is what the patterns and lengths of a schema have cost so far. The same
// one again costs nothing.
type budget struct {
	spent int
	paid  map[string]bool
}

func (b *budget) pay(what string, cost int) error {
	if b.paid[what] {
		return nil
	}
	if b.spent+cost > maxSchemaCost {
		return errTotal
	}
	if b.paid == nil {
		b.paid = map[string]bool{}
	}
	b.paid[what] = true
	b.spent += cost
	return nil
}

// of pays for one schema. The error says what cannot be enforced, or is too much.
func (b *budget) of(object map[string]any) error {
	if err := fewEnough(object); err != nil {
		return err
	}
	if err := countable(object); err != nil {
		return err
	}
	if pattern, ok := object["pattern"].(string); ok {
		if _, err := b.pattern(pattern); err != nil && !enforcedFormat(object) {
			return err
		}
	}
	patterns, _ := object["patternProperties"].(map[string]any)
	for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
		if _, err := b.pattern(pattern); err != nil {
			return err
		}
	}
	return b.lengths(object)
}

// pattern pays for a pattern and gives it as engines get it.
func (b *budget) pattern(pattern string) (string, error) {
	text, cost, err := engineRegex(pattern, true)
	if err != nil {
		return "", fmt.Errorf("has a pattern that %w", err)
	}
	return text, b.pay("pattern "+text, cost)
}

// lengths pays for those of strings.
func (b *budget) lengths(object map[string]any) error {
	least, _ := number(object["minLength"])
	most, _ := number(object["maxLength"])
	if most <= 1 && least <= 1 {
		return nil
	}
	if most > MaxCount {
		return fmt.Errorf(`has a "maxLength" beyond %d`, MaxCount)
	}
	return b.pay("length "+strconv.Itoa(int(least))+"-"+strconv.Itoa(int(most)), min(int(max(least, most)), maxLengthCost))
}

// fewEnough bounds the members and the values of a schema.
func fewEnough(object map[string]any) error {
	if optional(object) > maxOptional {
		return fmt.Errorf("has more than %d properties in one object that are not required: require them, with the type null where they may be absent, or group them in objects", maxOptional)
	}
	patterns, _ := object["patternProperties"].(map[string]any)
	if len(patterns) > maxPatternNames {
		return fmt.Errorf(`has more than %d "patternProperties" in one object: use fewer`, maxPatternNames)
	}
	return enumerable(object)
}

// optional is how many of an object's properties are not required.
func optional(object map[string]any) int {
	declared, _ := object["properties"].(map[string]any)
	n := len(declared)
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

// countable bounds the numbers of properties that a grammar has to count.
func countable(object map[string]any) error {
	n := optional(object)
	least, _ := number(object["minProperties"])
	most, capped := object["maxProperties"]
	times := float64(n)
	switch x, _ := number(most); {
	case capped:
		times = min(times, x)
	case least == 0:
		return nil
	}
	if float64(n)*float64(n)*times > maxCounted {
		return errors.New(`has a "minProperties" or "maxProperties" of too many properties that are not required: leave it out, or require some`)
	}
	return nil
}

// enumerable bounds the values of an enum.
func enumerable(object map[string]any) error {
	values, _ := object["enum"].([]any)
	size := 0
	for _, v := range values {
		if text, ok := v.(string); ok {
			size += len(text)
		} else if text, err := json.Marshal(v); err == nil {
			size += len(text)
		}
	}
	if len(values) > maxEnum || size > maxEnumBytes {
		return fmt.Errorf(`has an "enum" of more than %d values or %d bytes: use fewer, or a pattern`, maxEnum, maxEnumBytes)
	}
	return nil
}
