package constraint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// MaxCount is the largest length or number in a schema, such as a maxLength: grammars
// count with states.
const MaxCount = 4096

type schemaCheck struct {
	account *work.Account
	root    any
	strict  bool
	// What grammars do not enforce is an error.
	exact bool
	cost  costBound
	// The references, as they are spelled.
	refs map[string]bool
	// By the path of a reference's target: true while its chain is followed, false after that.
	seen    map[string]bool
	targets map[string]refTarget
}

// CheckSchema returns an error if engines cannot compile a JSON Schema into a
// grammar. The caller bounds the schema's size and depth. The error's text continues
// "the schema", as in `uses "not", which …`. It contains no names of properties,
// which may be part of a prompt and must not be logged; [SchemaPath] returns the
// path.
//
// A strict schema is also rejected if it takes an engine too long to compile, or has
// a pattern that can be neither in a grammar nor checked; other schemas are enforced
// as far as possible. What grammars ignore of a schema is left to the check of the
// reply, see [Unenforced]. A $ref
// may lead back to a schema that contains it, as in a list or a tree, but only
// through a part for an inner value: otherwise no value follows the schema.
func CheckSchema(account *work.Account, schema json.RawMessage, strict bool) error {
	c := schemaCheck{account: account, strict: strict}
	return c.run(schema)
}

// Unenforced returns what grammars do not enforce of a schema that [CheckSchema]
// accepts as strict: a [Validator] has to check the reply. nil: they enforce all of
// it. The error is in the form of CheckSchema's.
func Unenforced(account *work.Account, schema json.RawMessage) error {
	c := schemaCheck{account: account, strict: true, exact: true}
	return c.run(schema)
}

// run makes the check. What its account refuses is the error, whatever else was found
// without it.
func (c *schemaCheck) run(schema json.RawMessage) error {
	err := c.check(schema)
	if refusal := c.account.Err(); refusal != nil && !errors.Is(err, refusal) {
		return refusal
	}

	return err
}

func (c *schemaCheck) check(schema json.RawMessage) error {
	// Texts are read once on each level.
	if err := c.account.Spend(len(schema) * jsontext.Depth(schema) / stepBytes); err != nil {
		return err
	}

	if hasNUL(schema) {
		return errors.New("has a NUL character in it")
	}

	root, ok := decoded(c.account, schema)
	if !ok {
		return errors.New("is not valid JSON")
	}
	if names, ok := duplicateNames(gjson.ParseBytes(schema), nil); !ok {
		return errorAt(names, errDuplicateName)
	}

	c.cost.account, c.cost.most = c.account, maxSchemaCost
	c.root, c.refs, c.seen, c.targets = root, map[string]bool{}, map[string]bool{}, map[string]refTarget{}
	if err := c.walk(root, nil, true); err != nil {
		return err
	}

	if _, copies := sizeOf(root); copies > maxCopied {
		return errCopied
	}
	for ref := range c.refs {
		if err := c.follow(ref); err != nil {
			return err
		}
	}
	return nil
}

// hasNUL reports whether a JSON text contains a NUL character or the escape of one:
// they crash the engines' grammar compilers.
func hasNUL(p []byte) bool {
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == 0 || bytes.HasPrefix(p[i:], []byte(`\u0000`)):
			return true
		// An escaped backslash before u0000 makes it a text.
		case p[i] == '\\':
			i++
		}
	}
	return false
}

// stepBytes is how many bytes of a text are read over in a step.
const stepBytes = 32

// refTarget is the target of a reference.
type refTarget struct {
	schema any
	// The same for all spellings of it.
	path string
	// There is a target.
	ok bool
}

// MaxRefs is the largest number of different references in a schema. Grammar
// compilers follow them by recursion: a chain of some thousands crashes the engine.
const MaxRefs = 500

// The keywords that hold schemas.
var (
	// For the same value.
	sameValue = []string{"anyOf", "oneOf", "allOf"}

	oneSchema = []string{
		"items", "additionalProperties", "propertyNames", "additionalItems", "unevaluatedItems",
		"unevaluatedProperties",
	}
	schemaMaps = []string{"properties", "patternProperties", "$defs", "definitions"}

	schemaLists = slices.Concat(sameValue, []string{"prefixItems"})
)

// unenforcedKeywords are the keywords that xgrammar does not enforce.
var unenforcedKeywords = []string{
	"not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "multipleOf",
	"dependentRequired", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef",
}

// walk checks every part of a schema. path is its path; nothing reports whether it
// may be false, because values need not follow it.
func (c *schemaCheck) walk(schema any, path []string, nothing bool) error {
	if all, ok := schema.(bool); ok {
		// Nothing may follow false. Only where values may be absent that is no fault.
		if !all && !nothing || !all && len(path) == 0 {
			return errorAt(path, errors.New("is false, or has a part that is, of which no value is: leave it out"))
		}
		return nil
	}

	object, ok := schema.(map[string]any)
	if !ok {
		return errorAt(path, errors.New("has a part that is neither an object nor a boolean"))
	}

	if err := c.keywords(object); err != nil {
		return errorAt(path, err)
	}
	return eachPart(object, path, c.walk)
}

// sortedNames returns the names of an object's members in order. Most parts of a schema have
// none, and cost nothing.
func sortedNames(members map[string]any) []string {
	if len(members) == 0 {
		return nil
	}

	return slices.Sorted(maps.Keys(members))
}

// eachPart calls f with the schemas in a schema, until one fails.
func eachPart(object map[string]any, path []string, visit func(s any, path []string, nothing bool) error) error {
	// Each part appends to an array of its own.
	path = path[:len(path):len(path)]

	list := func(k string, list []any) error {
		for i, s := range list {
			if err := visit(s, append(path, k, strconv.Itoa(i)), false); err != nil {
				return err
			}
		}
		return nil
	}

	for _, k := range oneSchema {
		var err error
		switch v := object[k].(type) {
		case nil:
		// Items, in older drafts.
		case []any:
			err = list(k, v)
		default:
			err = visit(v, append(path, k), k != "propertyNames")
		}
		if err != nil {
			return err
		}
	}

	for _, k := range schemaLists {
		elements, ok := object[k].([]any)
		if !ok && object[k] != nil {
			return errorAt(path, fmt.Errorf("has a %q that is no array", k))
		}
		if err := list(k, elements); err != nil {
			return err
		}
	}

	for _, k := range schemaMaps {
		members, ok := object[k].(map[string]any)
		if !ok && object[k] != nil {
			return errorAt(path, fmt.Errorf("has a %q that is no object", k))
		}
		for _, name := range sortedNames(members) {
			if err := visit(members[name], append(path, k, name), false); err != nil {
				return err
			}
		}
	}
	return nil
}

// keywords checks the keywords of one schema.
func (c *schemaCheck) keywords(object map[string]any) error {
	if err := checkValues(object); err != nil {
		return err
	}

	if ref, ok := object["$ref"].(string); ok {
		if c.refs[ref] = true; len(c.refs) > MaxRefs {
			return fmt.Errorf("has more than %d different references", MaxRefs)
		}
	}

	// Of a schema that is not strict what costs too much is left out.
	if err := checkSatisfiable(object); err != nil || !c.strict {
		return err
	}

	if c.exact {
		return c.checkEnforceable(object)
	}
	return c.cost.addSchema(object)
}

var (
	errUnresolved = errors.New(`has a "$ref" that leads nowhere; ` +
		`only references within the schema are followed, such as "#/$defs/name"`)
	errCycle         = errors.New(`has a "$ref" that leads back to itself`)
	errDuplicateName = errors.New("has a name twice in one object")
)

// stepsOfRef is what it takes to follow a reference, or a byte of one to find its target.
const stepsOfRef = 5

// follow checks the chain of references for the same value that begins with ref.
func (c *schemaCheck) follow(ref string) error {
	target := c.resolve(ref)
	if !target.ok {
		return errUnresolved
	}

	if open, seen := c.seen[target.path]; open {
		return errCycle
	} else if seen {
		return nil
	}

	// Open while the chain is followed: to come back here is a cycle.
	c.seen[target.path] = true
	err := c.followFrom(target.schema)
	c.seen[target.path] = false
	return err
}

func (c *schemaCheck) followFrom(s any) error {
	object, _ := s.(map[string]any)
	if ref, ok := object["$ref"].(string); ok {
		if err := c.follow(ref); err != nil {
			return err
		}
	}

	for _, k := range sameValue {
		list, _ := object[k].([]any)
		if err := c.account.Spend(len(list) * stepsOfRef); err != nil {
			return err
		}
		// A reference in an alternative is for the same value too.
		for _, alternative := range list {
			if err := c.followFrom(alternative); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolve returns the target of a reference, and finds each target once.
func (c *schemaCheck) resolve(ref string) refTarget {
	target, ok := c.targets[ref]
	if !ok {
		if c.account.Spend(len(ref)*stepsOfRef) == nil {
			target = c.find(ref)
		}
		c.targets[ref] = target
	}
	return target
}

// find finds the target of a reference: # and a JSON pointer to one of the schemas
// that walk checks.
func (c *schemaCheck) find(ref string) refTarget {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return refTarget{}
	}

	if plain, err := url.PathUnescape(pointer); err == nil {
		pointer = plain
	}

	// The path is the one spelling of the target, so that each is followed once.
	at, path := c.root, ""
	for pointer != "" {
		keyword, rest, ok := cutPointer(pointer)
		object, isObject := at.(map[string]any)
		// Only what walk has checked is a target.
		if !ok || !isObject || !holdsSchemas(keyword) {
			return refTarget{}
		}

		at, pointer = object[keyword], rest
		path += "/" + keyword

		switch value := at.(type) {
		case nil:
			return refTarget{}
		case []any:
			var name string
			if name, pointer, ok = cutPointer(pointer); !ok {
				return refTarget{}
			}
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(value) {
				return refTarget{}
			}
			at, path = value[i], path+"/"+strconv.Itoa(i)
		case map[string]any:
			if !slices.Contains(schemaMaps, keyword) {
				break
			}
			var name string
			if name, pointer, ok = cutPointer(pointer); !ok {
				return refTarget{}
			}
			if at, ok = value[name]; !ok {
				return refTarget{}
			}
			path += "/" + strings.ReplaceAll(name, "/", "~1")
		}
	}
	return refTarget{at, path, true}
}

// holdsSchemas reports whether walk checks the value of a keyword.
func holdsSchemas(keyword string) bool {
	return keyword == "prefixItems" || slices.Contains(oneSchema, keyword) || slices.Contains(sameValue, keyword) ||
		slices.Contains(schemaMaps, keyword)
}

// cutPointer splits a JSON pointer after its first name.
func cutPointer(pointer string) (name, rest string, ok bool) {
	pointer, ok = strings.CutPrefix(pointer, "/")
	name = pointer
	if i := strings.IndexByte(pointer, '/'); i >= 0 {
		name, rest = pointer[:i], pointer[i:]
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(name), rest, ok
}

// maxGrammarBytes bounds a grammar, maxChoiceBytes the texts of a choice.
const (
	maxGrammarBytes = 64 << 10
	MaxChoices      = 1024
	maxChoiceBytes  = 64 << 10
)

// CheckGrammar returns an error if a client's EBNF grammar must not be sent to an
// engine. Macros such as Token(200002) can break the engine for all clients.
// Therefore no name may stand before a parenthesis, except names of rules that begin
// with a lower-case letter. The error's text continues "the grammar".
func CheckGrammar(grammar string) error {
	switch {
	case len(grammar) > maxGrammarBytes:
		return fmt.Errorf("is longer than %d bytes", maxGrammarBytes)
	case strings.ContainsRune(grammar, 0):
		return errors.New("has a NUL character in it")
	case !strings.Contains(grammar, "root") || !strings.Contains(grammar, "::="):
		return errors.New(`has no rule "root ::= …"; only EBNF is supported`)
	case hasMacro(grammar):
		return errors.New(
			"uses a macro, a name with a capital letter before a parenthesis; only rules, strings and " +
				"character classes are supported")
	}
	return nil
}

// hasMacro reports whether a name that begins with a capital letter stands before a
// parenthesis, outside of strings, character classes and comments.
func hasMacro(grammar string) bool {
	// The first letter of the name that ends here; 0: none does.
	name := byte(0)
	inName := false

	for i := 0; i < len(grammar); i++ {
		switch char := grammar[i]; {
		case char == '#':
			// Grammars treat comments as white space: the name before one goes on to count.
			for i+1 < len(grammar) && grammar[i] != '\n' {
				i++
			}
			inName = false
		case char == '"' || char == '[':
			i = endOfQuoted(grammar, i)
			name, inName = 0, false
		case char == '(':
			if name >= 'A' && name <= 'Z' {
				return true
			}
			name, inName = 0, false
		case char == ' ' || char == '\t' || char == '\n' || char == '\r':
			inName = false
		case isNameChar(char):
			if !inName {
				name, inName = char, true
			}
		default:
			name, inName = 0, false
		}
	}
	return false
}

// isNameChar reports whether a name of a rule or of a macro can have a character.
func isNameChar(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

// endOfQuoted returns the index of the end of the string or character class that
// begins at i.
func endOfQuoted(g string, i int) int {
	end := byte('"')
	if g[i] == '[' {
		end = ']'
	}

	for i++; i < len(g) && g[i] != end; i++ {
		if g[i] == '\\' {
			i++
		}
	}
	return i
}

// spellsControl reports whether a text spells a control token.
func spellsControl(text string) bool {
	for c := range controls {
		if strings.Contains(text, c) {
			return true
		}
	}
	return false
}

// CheckChoice returns an error if an answer cannot be restricted to these texts. The
// error's text continues "the choice".
func CheckChoice(texts []string) error {
	size := 0
	for _, text := range texts {
		// The bound is for all texts together, which become one grammar.
		size += len(text)

		switch {
		case text == "":
			return errors.New("has an empty text")
		case strings.ContainsRune(text, 0):
			return errors.New("has a NUL character in it")
		case spellsControl(text):
			return errors.New("has a text that spells a control token")
		}
	}
	switch {
	case len(texts) == 0:
		return errors.New("is empty")
	case len(texts) > MaxChoices:
		return fmt.Errorf("has more than %d texts", MaxChoices)
	case size > maxChoiceBytes:
		return fmt.Errorf("is longer than %d bytes", maxChoiceBytes)
	}
	return nil
}
