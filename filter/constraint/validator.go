package constraint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Validator validates texts against a JSON Schema, for engines that cannot enforce
// one, and for the parts that their grammars do not enforce. It implements JSON
// Schema, draft 2020-12 and draft 7, and ignores the keyword format. It can be used by
// several goroutines.
//
// It is not a library's because each value and each character that it looks at takes a step
// of the request's account: a schema can lead to one value in more ways than there is time
// for, and a check has to end with its request.
type Validator struct {
	root any
	// A $ref counts alone.
	draft7 bool
	// Of references.
	targets map[string]any
	// Nil: the pattern does not count.
	patterns map[string]*program
	// Of the patterns.
	states int
	// Asked before a pattern is compiled.
	room Room

	// The schemas that are objects.
	objects []map[string]any
	// Of the same, by their addresses.
	parts map[uintptr]visit
}

// Room takes room for so many bytes before they are made. The error is that there is none. nil:
// there is room for all.
type Room func(bytes int) error

func (r Room) take(n int) error {
	if r == nil {
		return nil
	}
	return r(n)
}

// visit is how far the search for cycles has come with a part of a schema.
type visit uint8

const (
	unvisited visit = iota
	entered
	left
)

// The other keywords that hold schemas, which grammars ignore.
var (
	testedValue = []string{"not", "if", "then", "else"} // one for the same value
	namedSame   = []string{"dependentSchemas", "dependencies"}
)

// What a validator looks for schemas in.
var (
	checkedOne  = slices.Concat(oneSchema, testedValue, []string{"contains"})
	checkedMaps = slices.Concat(schemaMaps, namedSame)
)

// stepsOfPart is what it takes to begin with a part of a schema, and a quarter of what it
// takes to read one.
const stepsOfPart = 20

var (
	errKeyword  = errors.New("has a keyword with a value that is not of its type")
	errPattern  = errors.New("has a pattern that cannot be checked")
	errDynamic  = errors.New(`uses "$dynamicRef", which is not checked: use "$ref"`)
	errIDInside = errors.New(`has an "$id" in one of its parts: leave it out`)
)

// NewValidator returns the validator of a schema that [CheckSchema] accepts. It takes room for
// the compiled patterns, which a few bytes of a schema can make large, and returns none. The
// error's text continues "the schema", unless it is that of the account or of room.
func NewValidator(account *work.Account, schema json.RawMessage, room Room) (*Validator, error) {
	root, ok := decoded(account, schema)
	if err := account.Err(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("is not valid JSON")
	}

	validator := &Validator{
		root: root, targets: map[string]any{}, patterns: map[string]*program{}, room: room,
		parts: map[uintptr]visit{},
	}
	// Without a word about it the draft is the newest.
	if object, _ := root.(map[string]any); object["$schema"] != nil {
		version, _ := object["$schema"].(string)
		validator.draft7 = strings.Contains(version, "draft-07")
	}

	if err := validator.read(account, root, true); err != nil {
		return nil, err
	}

	// Only now all parts are known that a reference may lead to.
	for ref := range validator.targets {
		if err := account.Spend(len(ref) * stepsOfRef); err != nil {
			return nil, err
		}
		target, ok := validator.find(ref)
		if !ok {
			return nil, errUnresolved
		}
		validator.targets[ref] = target
	}

	for _, object := range validator.objects {
		if err := validator.follow(object); err != nil {
			return nil, err
		}
	}

	return validator, nil
}

// stepsOfValue is what it takes to make a value of a JSON text, and to visit it.
const stepsOfValue = 2

// Values returns about how many values a JSON text has.
func Values(text []byte) int {
	return 1 + bytes.Count(text, []byte{','}) + bytes.Count(text, []byte{'['}) + bytes.Count(text, []byte{'{'})
}

// decoded returns the value of a JSON text, with the numbers as they are written. It is not
// ok either if the account refuses the steps that this takes.
func decoded(account *work.Account, text []byte) (value any, ok bool) {
	if account.Spend(len(text)/stepBytes+stepsOfValue*Values(text)) != nil {
		return nil, false
	}

	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil, false
	}

	// Nothing may follow the value.
	_, err := d.Token()

	return value, errors.Is(err, io.EOF)
}

func address(object map[string]any) uintptr { return reflect.ValueOf(object).Pointer() }

// read checks the keywords of a schema and of all within it, and compiles its patterns.
func (v *Validator) read(account *work.Account, s any, isRoot bool) error {
	object, isObject := s.(map[string]any)
	if _, isBool := s.(bool); isBool {
		return nil
	} else if !isObject {
		return errKeyword
	}

	if err := account.Spend(4 * stepsOfPart); err != nil {
		return err
	}

	v.objects = append(v.objects, object)
	v.parts[address(object)] = unvisited

	// Some clients write null for a keyword that they do not have.
	maps.DeleteFunc(object, func(keyword string, value any) bool { return value == nil && keyword != "const" })

	switch {
	case checkValues(object) != nil || !otherValues(object):
		return errKeyword
	case object["$dynamicRef"] != nil:
		return errDynamic
	case object["$id"] != nil && !isRoot:
		return errIDInside
	}

	if ref, ok := object["$ref"].(string); ok {
		v.targets[ref] = nil
	}

	if pattern, ok := object["pattern"].(string); ok {
		if err := v.compile(account, pattern, object["format"] != nil); err != nil {
			return err
		}
	}

	named, _ := object["patternProperties"].(map[string]any)
	for pattern := range named {
		if err := v.compile(account, pattern, false); err != nil {
			return err
		}
	}

	return parts(object, func(inner any, _ bool) error { return v.read(account, inner, false) })
}

// compile compiles a pattern. One that is not in Go's syntax does not count beside a
// format: it is another notation of the format.
func (v *Validator) compile(account *work.Account, pattern string, formatted bool) error {
	if known, compiled := v.patterns[pattern]; compiled {
		if known == nil && !formatted {
			// Beside a format it did not count.
			return errPattern
		}
		return nil
	}

	re, err := parsePattern(account, pattern)
	var p *program
	if err == nil {
		if err := v.room.take(countStates(re) * stateBytes); err != nil {
			return err
		}
		p, err = compile(account, re)
	}

	switch {
	case formatted && errors.Is(err, errSyntax):
	case errors.Is(err, errSyntax):
		return errPattern
	case err != nil:
		return fmt.Errorf("has a pattern that %w", err)
	default:
		if v.states += len(p.prog.Inst); v.states > maxStates {
			return fmt.Errorf("has patterns that together are one that %w", errStates)
		}
	}
	v.patterns[pattern] = p

	return nil
}

// otherValues reports whether the keywords that [checkValues] does not know have values of
// their types. Those that hold schemas are checked by parts.
func otherValues(object map[string]any) bool {
	for _, k := range []string{"minContains", "maxContains"} {
		if x, ok := number(object[k]); !ok || x < 0 {
			return false
		}
	}

	if _, ok := object["uniqueItems"].(bool); !ok && object["uniqueItems"] != nil {
		return false
	}

	if object["dependentRequired"] == nil {
		return true
	}

	lists, ok := object["dependentRequired"].(map[string]any)
	for _, list := range lists {
		// An empty list is one, and null is none.
		_, isList := texts(list)
		ok = ok && isList && list != nil
	}

	return ok
}

// parts calls f with the schemas in a schema, until one fails. same says that the schema is
// for the same value.
func parts(object map[string]any, visit func(schema any, same bool) error) error {
	for _, k := range checkedOne {
		list, isList := object[k].([]any)
		if !isList && object[k] != nil {
			list = []any{object[k]}
		}
		// Only items may be a list, in older drafts.
		if isList && k != "items" {
			return errKeyword
		}
		for _, schema := range list {
			if err := visit(schema, slices.Contains(testedValue, k)); err != nil {
				return err
			}
		}
	}

	for _, k := range schemaLists {
		list, ok := object[k].([]any)
		if !ok && object[k] != nil {
			return errKeyword
		}
		for _, schema := range list {
			if err := visit(schema, k != "prefixItems"); err != nil {
				return err
			}
		}
	}

	for _, k := range checkedMaps {
		members, ok := object[k].(map[string]any)
		if !ok && object[k] != nil {
			return errKeyword
		}
		for _, name := range sortedNames(members) {
			if _, names := texts(members[name]); names && k == "dependencies" && members[name] != nil {
				continue
			}
			if err := visit(members[name], slices.Contains(namedSame, k)); err != nil {
				return err
			}
		}
	}

	return nil
}

// find returns the target of a reference: # and a JSON pointer to a schema.
func (v *Validator) find(ref string) (target any, ok bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if plain, err := url.PathUnescape(pointer); err == nil {
		pointer = plain
	}

	for target = v.root; ok && pointer != ""; {
		var name string
		if name, pointer, ok = cutPointer(pointer); !ok {
			return nil, false
		}

		switch at := target.(type) {
		case map[string]any:
			target, ok = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if ok = err == nil && i >= 0 && i < len(at); ok {
				target = at[i]
			}
		default:
			ok = false
		}
	}

	// What is found may be no schema: a value of an enum, or a map of schemas.
	if object, isObject := target.(map[string]any); isObject {
		_, known := v.parts[address(object)]
		return target, ok && known
	}
	_, isBool := target.(bool)

	return target, ok && isBool
}

// follow looks for a part that leads back to itself for the same value.
func (v *Validator) follow(s any) error {
	object, isObject := s.(map[string]any)
	if !isObject {
		return nil
	}
	switch v.parts[address(object)] {
	case left:
		return nil
	case entered:
		return errCycle
	}

	v.parts[address(object)] = entered
	if ref, ok := object["$ref"].(string); ok {
		if err := v.follow(v.targets[ref]); err != nil {
			return err
		}
	}
	err := parts(object, func(inner any, same bool) error {
		if !same {
			return nil
		}
		return v.follow(inner)
	})
	v.parts[address(object)] = left

	return err
}
