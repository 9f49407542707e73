package config

import (
	"fmt"
	"slices"
	"strings"
)

// Alias is another name for a Harmony model, for clients that insist on names of
// their own.
type Alias struct {
	// Name is the name that requests have, case-insensitive. With a * at its end it is
	// the beginning of such names.
	Name string `json:"name"`
	// Model is the name that counts in its place: requests are handled as if they had
	// it, and replies repeat the alias.
	Model string `json:"model"`
}

// pattern returns the beginning that an alias with a * at its end stands for.
func (a Alias) pattern() (beginning string, ok bool) { return strings.CutSuffix(a.Name, "*") }

// matches reports whether the alias is for a name.
func (a Alias) matches(name string) bool {
	if beginning, ok := a.pattern(); ok {
		return len(name) >= len(beginning) && strings.EqualFold(name[:len(beginning)], beginning)
	}
	return strings.EqualFold(a.Name, name)
}

// unaliased returns the name of the model that a name is an alias of, else the name
// itself. The first entry that matches is taken. Names of Harmony models are not
// matched by patterns, so that a pattern can stand for all other names.
func (c *Config) unaliased(name string) string {
	for _, a := range c.Aliases {
		if _, pattern := a.pattern(); a.matches(name) && (!pattern || !c.isHarmony(name)) {
			return a.Model
		}
	}
	return name
}

// isHarmony reports whether harmony_models has a name.
func (c *Config) isHarmony(name string) bool {
	return slices.ContainsFunc(c.HarmonyModels, func(entry string) bool { return matches(entry, name) })
}

// IsAlias reports whether a name is an alias of a Harmony model.
func (c *Config) IsAlias(name string) bool { return c.unaliased(name) != name }

// AliasNames returns the aliases that are whole names, in the order of the file.
func (c *Config) AliasNames() []string {
	var names []string
	for _, a := range c.Aliases {
		if _, pattern := a.pattern(); !pattern {
			names = append(names, a.Name)
		}
	}
	return names
}

func (c *Config) checkAliases() (errs faults) {
	bad := func(i int, key, format string, args ...any) {
		errs.add("aliases[%d].%s: %w", i, key, fmt.Errorf(format, args...))
	}

	for i, a := range c.Aliases {
		beginning, _ := a.pattern()
		first := slices.IndexFunc(c.Aliases[:i], func(before Alias) bool { return before.covers(a) })
		switch {
		case a.Name == "":
			bad(i, "name", "write the name that requests have, such as gpt-5 or claude-sonnet-*")
		case strings.Contains(beginning, "*"):
			bad(i, "name", "%q: only the last character can be a *", a.Name)
		case first >= 0:
			bad(i, "name",
				"%q is never reached: aliases[%d], %q, takes all that it matches; put the narrower one first",
				a.Name, first, c.Aliases[first].Name)
		}

		switch {
		case a.Model == "":
			bad(i, "model", "write the name of the model that serves the alias, such as openai/gpt-oss-20b")
		case !c.isHarmony(a.Model):
			bad(i, "model", "harmony_models has no model %q: add it there, or name another one", a.Model)
		}
	}
	return errs
}

// covers reports whether a takes all that another alias takes.
func (a Alias) covers(other Alias) bool {
	// A pattern takes more names than any whole one.
	beginning, pattern := other.pattern()
	if _, wide := a.pattern(); pattern && !wide {
		return false
	}
	return a.matches(beginning)
}
