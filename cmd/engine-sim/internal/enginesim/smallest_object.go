package enginesim

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// member returns the schemas of a property; false if a schema allows no property of
// that name.
func member(flat []gjson.Result, name string) (schemas []gjson.Result, allowed bool) {
	for _, s := range flat {
		known := false
		if p, ok := s.Get("properties").Map()[name]; ok {
			schemas, known = append(schemas, p), true
		}
		s.Get("patternProperties").ForEach(func(k, v gjson.Result) bool {
			if re, err := regexp.Compile(goRegex(k.Str)); err == nil && re.MatchString(name) {
				schemas, known = append(schemas, v), true
			}
			return true
		})
		// A property that another keyword describes is no additional one.
		if more := s.Get("additionalProperties"); !known && more.Exists() {
			if more.Raw == "false" {
				return nil, false
			}
			schemas = append(schemas, more)
		}
	}
	return schemas, true
}

// object returns an object with the required properties, and as many others as
// minProperties asks for; nth varies the first property.
func (w *schemaWalk) object(flat []gjson.Result, nth, depth int) (string, bool) {
	names := requiredNames(flat)

	atLeast, _ := most(flat, "minProperties")
	n := int(min(atLeast, maxElements))
	// Without a property there is only one object.
	if nth > 0 && len(names) == 0 {
		n = max(n, 1)
	}

	for _, s := range flat {
		s.Get("properties").ForEach(func(k, _ gjson.Result) bool {
			if len(names) < n && !slices.Contains(names, k.Str) {
				names = append(names, k.Str)
			}
			return len(names) < n
		})
	}

	// The declared properties are not enough: names that the schema allows for others.
	for k := 0; len(names) < n; k++ {
		// Every second name may be one that the schema forbids or the object has.
		name, ok := w.freeName(flat, k, depth)
		if !ok || k > 2*maxElements {
			return "", false
		}
		if _, allowed := member(flat, name); allowed && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	members := make([]string, 0, len(names))
	for i, name := range names {
		schemas, allowed := member(flat, name)
		if !allowed {
			return "", false
		}
		variant := 0
		// Varying one property is enough for another object.
		if i == 0 {
			variant = nth
		}
		v, ok := w.value(schemas, name, variant, depth+1)
		if !ok {
			return "", false
		}
		members = append(members, quote(name)+": "+v)
	}

	return "{" + strings.Join(members, ", ") + "}", nth == 0 || len(names) > 0
}

// requiredNames returns the required properties: the declared ones in the order of
// their declaration, then the others.
func requiredNames(flat []gjson.Result) []string {
	required := map[string]bool{}
	var order []string
	for _, s := range flat {
		for _, k := range s.Get("required").Array() {
			if len(order) < maxElements && !required[k.Str] {
				required[k.Str] = true
				order = append(order, k.Str)
			}
		}
	}

	var names []string
	for _, s := range flat {
		s.Get("properties").ForEach(func(k, _ gjson.Result) bool {
			if required[k.Str] {
				names = append(names, k.Str)
				delete(required, k.Str)
			}
			return true
		})
	}

	for _, name := range order {
		if required[name] {
			names = append(names, name)
		}
	}
	return names
}

// freeName returns the nth name that propertyNames or patternProperties allow.
func (w *schemaWalk) freeName(flat []gjson.Result, nth, depth int) (string, bool) {
	schemas := []gjson.Result{gjson.Parse(`{"type":"string"}`)}
	for _, s := range flat {
		if names := s.Get("propertyNames"); names.Exists() {
			schemas = append(schemas, names)
		}
	}

	// propertyNames applies to every name, so patterns matter only without it.
	for _, s := range flat {
		if len(schemas) > 1 {
			break
		}
		s.Get("patternProperties").ForEach(func(k, _ gjson.Result) bool {
			schemas = append(schemas, gjson.Parse(`{"pattern":`+k.Raw+`}`))
			return false
		})
	}

	v, ok := w.value(schemas, "", nth, depth+1)
	return gjson.Parse(v).Str, ok
}
