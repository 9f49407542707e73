package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
)

// What a running process can change. A field with the tag reload:"restart" is fixed
// when the process starts: sockets, the store, pools of a size. One with the tag
// reload:"envoy" is fixed where Envoy's configuration was made from it. All other
// keys can change. docs/configuration.md lists the fixed ones.
const (
	reloadTag     = "reload"
	reloadRestart = "restart"
	reloadEnvoy   = "envoy"
)

// Changed returns the keys whose values differ between two configurations, in the
// order of the file.
func (c *Config) Changed(next *Config) (keys []string) {
	for _, k := range configKeys() {
		was, is := reflect.ValueOf(c).Elem().FieldByIndex(k.index), reflect.ValueOf(next).Elem().FieldByIndex(k.index)
		if !reflect.DeepEqual(was.Interface(), is.Interface()) {
			keys = append(keys, k.path)
		}
	}
	return keys
}

// Removed returns the keys that c sets and that next leaves at the defaults, also those
// within an element of a list, such as token_budgets[day].tokens, and the lists of which
// elements are gone. Each may be a wall, such as a token budget: who removes one should see
// it.
func (c *Config) Removed(next, defaults *Config) (keys []string) {
	for _, k := range configKeys() {
		was := reflect.ValueOf(c).Elem().FieldByIndex(k.index)
		is := reflect.ValueOf(next).Elem().FieldByIndex(k.index)
		unset := reflect.ValueOf(defaults).Elem().FieldByIndex(k.index)
		keys = append(keys, removed(k.path, was, is, unset)...)
	}
	return keys
}

// removed returns what is gone of the value of a key. unset is what the value is where no
// file sets it.
func removed(path string, was, is, unset reflect.Value) (keys []string) {
	switch was.Kind() {
	case reflect.Slice:
		// Only a shorter list counts: one that was reordered or extended has lost nothing.
		if is.Len() < was.Len() {
			keys = append(keys, path)
		}
		if was.Type().Elem().Kind() == reflect.Struct {
			keys = append(keys, removedOfElements(path, was, is)...)
		}
		// The list and each element that is gone name the same path.
		return slices.Compact(keys)
	case reflect.Map:
		if is.Len() < was.Len() {
			keys = append(keys, path)
		}
		return keys
	}

	goneBack := reflect.DeepEqual(is.Interface(), unset.Interface()) &&
		!reflect.DeepEqual(was.Interface(), is.Interface())
	if goneBack {
		keys = append(keys, path)
	}
	return keys
}

// removedOfElements compares the elements of a list that stand for the same thing. An
// element that stands for nothing in the new list is gone.
func removedOfElements(path string, was, is reflect.Value) (keys []string) {
	taken := make([]bool, is.Len())
	for i := range was.Len() {
		before := was.Index(i)
		// Elements are found by their names, because an edit of the file may move them.
		names := namesOf(before)
		at := -1
		for j := range is.Len() {
			if !taken[j] && slices.Equal(namesOf(is.Index(j)), names) {
				at = j
				break
			}
		}
		if at < 0 {
			keys = append(keys, path)
			continue
		}

		taken[at] = true
		after := is.Index(at)
		// An element has no default of its own: what is not written is zero.
		unset := reflect.Zero(before.Type())
		for _, k := range keysOf(before.Type(), path+"["+strings.Join(names, " ")+"].", nil) {
			field := removed(k.path, before.FieldByIndex(k.index), after.FieldByIndex(k.index),
				unset.FieldByIndex(k.index))
			keys = append(keys, field...)
		}
	}
	return keys
}

// namesOf returns what an element of a list stands for: the values of those of its keys that
// say so.
func namesOf(element reflect.Value) (names []string) {
	for _, k := range keysOf(element.Type(), "", nil) {
		value := element.FieldByIndex(k.index)
		if slices.Contains([]string{"name", "label", "match", "tenant"}, k.path) && value.Kind() == reflect.String &&
			value.String() != "" {
			names = append(names, value.String())
		}
	}
	return names
}

// errTenantsMoved refuses a change that no file can make: without the header all responses,
// conversations and quotas are one tenant's, and of another header Envoy may not know that it
// must remove it from clients' requests. A file without it, or with half of its name, may be
// the half of one.
var errTenantsMoved = errors.New(
	"tenant_header: cannot be removed or renamed while the process runs, since it says who every client is: " +
		"put it back, or restart the process if that is meant")

// CheckReload returns an error that names every key in which next differs from c
// and that a running process cannot change. ownEnvoy says that Envoy's
// configuration was made from c.
func (c *Config) CheckReload(next *Config, ownEnvoy bool) error {
	changed := c.Changed(next)

	var errs faults
	if c.TenantHeader != "" && next.TenantHeader != c.TenantHeader {
		errs = append(errs, errTenantsMoved)
	}
	for _, k := range configKeys() {
		if slices.Contains(changed, k.path) && (k.reload == reloadRestart || ownEnvoy && k.reload == reloadEnvoy) {
			errs.add("%s: cannot be changed while the process runs: restart it, or undo the change", k.path)
		}
	}
	return errors.Join(errs...)
}

// configKey is a key that holds a value.
type configKey struct {
	path   string
	index  []int // of the field in Config
	reload string
}

// configKeys are the keys of a configuration.
func configKeys() []configKey { return keysOf(reflect.TypeFor[Config](), "", nil) }

// modelKeys are the keys of an entry of models, and of model_defaults.
var modelKeys = keysOf(reflect.TypeFor[Model](), "", nil)

// keysOf lists the keys of t that hold a value: structs are descended into, lists
// are values.
func keysOf(t reflect.Type, path string, index []int) (keys []configKey) {
	for _, field := range reflect.VisibleFields(t) {
		name := field.Tag.Get("json")
		if name == "" {
			continue
		}
		at := slices.Concat(index, field.Index)
		// A Duration is a struct for the sake of its YAML: it is one value.
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[Duration]() {
			keys = append(keys, keysOf(field.Type, path+name+".", at)...)
			continue
		}
		keys = append(keys, configKey{path + name, at, field.Tag.Get(reloadTag)})
	}
	return keys
}
