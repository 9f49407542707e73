package constraint

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// schemaForEngines returns a schema that [CheckSchema] accepts in the form for engines:
// patterns are rewritten by [engineRegex], required properties are declared, and
// parts that grammars cannot enforce, or that take too long to compile, are left
// out; strict schemas have no such parts. The rest is unchanged and in the same
// order, which is the order in which the model has to write properties.
func schemaForEngines(account *work.Account, schema json.RawMessage) []byte {
	root, ok := decoded(account, schema)
	if !ok {
		return jsontext.AppendCompact(nil, string(schema))
	}
	text, _ := writeDecoded(account, schema, root, maxSchemaCost)

	return text
}

// MaxCost is the largest cost that one schema may have: that of its patterns and lengths.
const MaxCost = maxSchemaCost

// CheckLoose is [CheckSchema] and [NewValue] of a schema that is not strict. It returns what
// the schema costs the engine's compiler too, by its patterns and lengths: those beyond most, which
// is at most [MaxCost], are left out. Many tools with a cost take an engine too long.
func CheckLoose(account *work.Account, schema json.RawMessage, most int) (v Value, cost int, err error) {
	c := schemaCheck{account: account}
	if err := c.run(schema); err != nil {
		return Value{}, 0, err
	}
	text, cost := writeDecoded(account, schema, c.root, most)

	return Value{text}, cost, nil
}

// writeDecoded writes a schema whose value has been decoded. What costs more than most is left out.
func writeDecoded(account *work.Account, schema json.RawMessage, root any, most int) (written []byte, cost int) {
	w := schemaWriter{cost: costBound{account: account, most: most}}
	w.schema(gjson.ParseBytes(schema), root)

	return w.dst, w.cost.spent
}

type schemaWriter struct {
	dst  jsontext.Writer
	cost costBound
}

// schema writes a schema; raw is its text.
func (w *schemaWriter) schema(raw gjson.Result, s any) {
	object, ok := s.(map[string]any)
	if !ok {
		// True or false.
		w.dst = jsontext.AppendCompact(w.dst, raw.Raw)
		return
	}

	object, added := weaker(object)
	kept := w.engineKeywords(object)

	w.dst = w.dst.Open()
	raw.ForEach(func(k, v gjson.Result) bool {
		if name := kept(k.Str); name != "" && object[k.Str] != nil {
			w.dst = w.dst.ClientKey(name)
			w.keyword(k.Str, v, object, raw)
		}
		return true
	})

	// What the schema means and engines do not see is written out, after what it says.
	if len(undeclared(object)) > 0 && object["properties"] == nil && kept("properties") != "" {
		w.dst = w.dst.Key("properties")
		w.members(gjson.Result{}, "properties", object, raw)
	}
	for _, name := range added {
		w.dst = w.dst.Literal(name, "true")
	}
	if onlyCounts(object) && kept("minProperties") != "" {
		w.dst = w.dst.Literal("additionalProperties", "true")
	}
	w.dst = w.dst.Close()
}

// engineKeywords returns the function that returns the name for engines of a keyword
// of a schema; "" if the keyword is left out.
func (w *schemaWriter) engineKeywords(object map[string]any) func(k string) string {
	out := map[string]bool{}
	if checkSizes(object) != nil {
		// Of what is too large, values are left out by themselves, properties with all that is about
		// them.
		if checkEnum(object) != nil {
			out["enum"] = true
		} else {
			drop(out, objectKeywords)
		}
	}

	if checkCounts(object) != nil {
		drop(out, []string{"minProperties", "maxProperties"})
	}

	if pattern, ok := object["pattern"].(string); ok {
		_, err := w.cost.pattern(pattern)
		if err != nil {
			out["pattern"] = true
		} else {
			// Engines enforce one of the two, and the pattern says more.
			out["format"] = true
		}
	}

	patterns, _ := object["patternProperties"].(map[string]any)
	for _, pattern := range sortedNames(patterns) {
		if _, err := w.cost.pattern(pattern); err != nil {
			drop(out, objectKeywords)
		}
	}

	switch {
	case describesStrings(object, out["pattern"]):
		drop(out, []string{"minLength", "maxLength"})
	case w.cost.lengths(object) != nil:
		out["maxLength"] = true
	}

	for _, k := range []string{"maxLength", "maxItems", "maxProperties"} {
		if most, _ := number(object[k]); most > MaxCount {
			out[k] = true
		}
	}

	// Tuples are written in the draft that engines read, whatever draft the client's are in.
	_, tuple := object["items"].([]any)
	return func(k string) string {
		switch {
		case out[k], tuple && k == "prefixItems":
			return ""
		case tuple && k == "items":
			return "prefixItems"
		case tuple && k == "additionalItems":
			return "items"
		}
		return k
	}
}

// objectKeywords are the keywords that are left out of an object's schema together.
var objectKeywords = []string{
	"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
	"minProperties", "maxProperties",
}

func drop(out map[string]bool, keywords []string) {
	for _, k := range keywords {
		out[k] = true
	}
}

// keyword writes the value of a keyword of a schema; text is the schema's text.
func (w *schemaWriter) keyword(k string, raw gjson.Result, object map[string]any, text gjson.Result) {
	switch value := object[k].(type) {
	case string:
		if k == "pattern" {
			pattern, _ := w.cost.pattern(value)

			w.dst = jsontext.AppendString(w.dst, pattern)
			return
		}
	case []any:
		if k == "items" || k == "prefixItems" || slices.Contains(sameValue, k) {
			// Schemas in lists have a form for engines too.
			w.list(raw, value)
			return
		}
	case map[string]any:
		switch {
		case slices.Contains(oneSchema, k):
			w.schema(raw, value)
			return
		case slices.Contains(schemaMaps, k):
			w.members(raw, k, object, text)
			return
		}
	}
	w.dst = jsontext.AppendCompact(w.dst, raw.Raw)
}

func (w *schemaWriter) list(raw gjson.Result, list []any) {
	w.dst = w.dst.OpenList()
	i := 0
	raw.ForEach(func(_, v gjson.Result) bool {
		w.dst = w.dst.Element()
		w.schema(v, list[i])
		i++
		return true
	})
	w.dst = w.dst.CloseList()
}

// members writes the named schemas of a keyword, and after those of properties the
// required properties that are not declared.
func (w *schemaWriter) members(raw gjson.Result, k string, object map[string]any, text gjson.Result) {
	members, _ := object[k].(map[string]any)
	w.dst = w.dst.Open()
	raw.ForEach(func(name, v gjson.Result) bool {
		as := name.Str
		if k == "patternProperties" {
			as, _ = w.cost.pattern(as)
		}
		w.dst = w.dst.ClientKey(as)
		w.schema(v, members[name.Str])
		return true
	})

	if k == "properties" {
		w.undeclared(object, text)
	}
	w.dst = w.dst.Close()
}

// undeclared writes the required properties of a schema that it does not declare; text is the
// schema's text.
func (w *schemaWriter) undeclared(object map[string]any, text gjson.Result) {
	names := undeclared(object)
	if len(names) == 0 {
		return
	}

	rest := text.Get("additionalProperties")
	for _, name := range names {
		w.dst = w.dst.ClientKey(name)
		if rest.IsObject() {
			w.schema(rest, object["additionalProperties"])
		} else {
			w.dst = append(w.dst, "true"...)
		}
	}
}

// undeclared returns the properties that a schema requires and does not declare.
// xgrammar ignores them.
func undeclared(object map[string]any) (names []string) {
	has := func(k string) bool { return object[k] != nil }
	of, _ := typesOf(object)
	if of != nil && !slices.Contains(of, "object") || has("patternProperties") || has("propertyNames") ||
		slices.ContainsFunc(soleKeywords, has) {
		return nil
	}
	declared, _ := object["properties"].(map[string]any)
	required, _ := texts(object["required"])
	seen := make(map[string]bool, len(required))
	for _, name := range required {
		if _, ok := declared[name]; !ok && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// maxCopied bounds the total bytes of copies of additionalProperties schemas, which
// are written for [undeclared] properties. If such schemas nest, the numbers of
// their copies multiply.
const maxCopied = 64 << 10

var errCopied = fmt.Errorf(`requires properties that it does not declare, and has for them an "additionalProperties" `+
	"that is too large for their number (over %d bytes): declare them", maxCopied)

// sizeOf returns the approximate size of a schema, and the size of the copies for
// engines, which is capped after maxCopied, in bytes of JSON.
func sizeOf(s any) (size, copies int) {
	object, _ := s.(map[string]any)
	for k, v := range object {
		size += len(k) + len(`"":,`)
		// Schemas are counted below, by their parts.
		if !holdsSchemas(k) {
			text, _ := json.Marshal(v)
			size += len(text)
		}
	}

	_ = eachPart(object, nil, func(part any, path []string, _ bool) error {
		inner, more := sizeOf(part)
		size += inner + len(path[len(path)-1]) + len(`"":{},`)
		copies += more
		if len(path) == 1 && path[0] == "additionalProperties" {
			copies += len(undeclared(object)) * (inner + more)
		}
		copies = min(copies, maxCopied+1)
		return nil
	})
	return size, copies
}

// onlyCounts reports whether a schema counts properties and does not describe them:
// then xgrammar allows none.
func onlyCounts(object map[string]any) bool {
	if object["minProperties"] == nil {
		return false
	}
	for _, k := range objectKeywords[:6] {
		if object[k] != nil {
			return false
		}
	}
	return true
}
