package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// What overrides the configuration file: the environment, and flags for single
// keys.

// ApplyEnv overrides c from an environment as [os.Environ] returns it.
// ENABLE_HARMONY_FOR_MODELS, a comma-separated list, sets harmony_models. Every
// key KEY of the file is also read from ENVOY_HARMONY_KEY, in capitals and with _
// for the dot between levels: ENVOY_HARMONY_LIMITS_HEADER_HOLD=5s. Empty variables
// count as unset. Variables with the prefix and another name are returned, sorted:
// they may be misspelt.
func (c *Config) ApplyEnv(environ []string) (unknown []string, err error) {
	var errs faults
	values := map[string]string{}
	for _, entry := range environ {
		// Templates of charts and Compose files leave a variable out by an empty value.
		if name, value, _ := strings.Cut(entry, "="); value != "" {
			values[name] = value
		}
	}

	// Before the keys: the variable of the key itself is the more precise one, and wins.
	if list := values[envModels]; list != "" {
		c.HarmonyModels = splitList(list)
	}
	for _, key := range settableKeys(reflect.TypeFor[Config](), "") {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
		value, set := values[name]
		if !set {
			continue
		}
		if err := c.Set(key, value); err != nil {
			errs.add("environment variable %s: %w", name, err)
		}
		delete(values, name)
	}

	// What is left is no key.
	for name := range values {
		if strings.HasPrefix(name, envPrefix) && !serviceLink.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown, errors.Join(errs...)
}

// serviceLink matches the variables that Kubernetes adds for a Service of a name
// that begins with envoy-harmony.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|` +
	`_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// Set sets one key, such as limits.header_hold, to a value written in YAML.
func (c *Config) Set(key, value string) error {
	field := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(key, ".") {
		parent := field
		if field = fieldByKey(parent, name); field.IsValid() {
			continue
		}
		if parent.Kind() != reflect.Struct {
			return fmt.Errorf("unknown key %s: a list, a mapping or a value has no keys to set", key)
		}
		return unknownKey(parent.Type(), key, name)
	}
	if field.Kind() == reflect.String { // text as it stands, never YAML's idea of it
		field.SetString(value)
		return nil
	}
	// As YAML it would be null, which sets nothing and says nothing.
	if value == "" {
		return fmt.Errorf("%s: the value is missing", key)
	}

	err := readYAML([]byte(value), field.Addr().Interface(), key)
	if unread := (notYAML{}); errors.As(err, &unread) {
		return fmt.Errorf("%s: the value is no YAML: %w", key, err)
	}
	return err
}

// splitList cuts a comma-separated list and drops its empty entries.
func splitList(list string) []string {
	var out []string
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	return out
}
