package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// Removed returns the keys that c sets and that next leaves at the defaults, and those
// whose lists have become shorter. Each may be a wall, such as a token budget: who removes
// one should see it.
func (c *Config) Removed(next, defaults *Config) (keys []string) {
	for _, k := range configKeys() {
		was := reflect.ValueOf(c).Elem().FieldByIndex(k.index)
		is := reflect.ValueOf(next).Elem().FieldByIndex(k.index)
		unset := reflect.ValueOf(defaults).Elem().FieldByIndex(k.index)

		shorter := was.Kind() == reflect.Slice && is.Len() < was.Len()
		goneBack := reflect.DeepEqual(is.Interface(), unset.Interface()) &&
			!reflect.DeepEqual(was.Interface(), is.Interface())
		if shorter || goneBack {
			keys = append(keys, k.path)
		}
	}
	return keys
}

// errTenantsJoined refuses the one change that no file can make: without the header all
// responses, conversations and quotas are one tenant's, and a file without it may be the half
// of one.
var errTenantsJoined = errors.New(
	"tenant_header: cannot be removed while the process runs, since all clients would become one tenant: " +
		"put it back, or restart the process if that is meant")

// CheckReload returns an error that names every key in which next differs from c
// and that a running process cannot change. ownEnvoy says that Envoy's
// configuration was made from c.
func (c *Config) CheckReload(next *Config, ownEnvoy bool) error {
	changed := c.Changed(next)

	var errs []error
	if c.TenantHeader != "" && next.TenantHeader == "" {
		errs = append(errs, errTenantsJoined)
	}
	for _, k := range configKeys() {
		if slices.Contains(changed, k.path) && (k.reload == reloadRestart || ownEnvoy && k.reload == reloadEnvoy) {
			errs = append(errs, fmt.Errorf(
				"%s: cannot be changed while the process runs: restart it, or undo the change", k.path))
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

// keysOf lists the keys of t that hold a value: structs are descended into, lists
// are values.
func keysOf(t reflect.Type, path string, index []int) (keys []configKey) {
	for _, field := range reflect.VisibleFields(t) {
		name := field.Tag.Get("json")
		if name == "" {
			continue
		}
		at := slices.Concat(index, field.Index)
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[Duration]() {
			keys = append(keys, keysOf(field.Type, path+name+".", at)...)
			continue
		}
		keys = append(keys, configKey{path + name, at, field.Tag.Get(reloadTag)})
	}
	return keys
}
