package config

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// What a key of models needs beside its field of Model. All tests go by the type: a new key is
// asked for each place.

// notOfTurns are the keys that are no setting of turns, by where they take effect.
var notOfTurns = map[string]string{
	"match":          "Config.Model chooses the entry by it",
	"engine":         "filter/extproc/request.go makes the run's target of it",
	"context_length": "filter/models has it in place of what the engine reports, and hands it to TurnModel",
}

// freeTexts are the keys that take any text, by what they say.
var freeTexts = map[string]string{
	"match":            "a part of a model's name; Config.checkMatch",
	"engine":           "the name of an engine; Config.checkEngines",
	"upstream_model":   "the engine's own name of the model",
	"identity":         "a line of the prompt",
	"knowledge_cutoff": "a line of the prompt",
}

// otherModel is the defaults' model with another valid value of one key. No two numbers, and no
// two prices, are the same.
func otherModel(t *testing.T, k configKey) Model {
	t.Helper()
	m := Defaults().ModelDefaults
	field := reflect.ValueOf(&m).Elem().FieldByIndex(k.index)
	at := k.index[len(k.index)-1]
	switch field.Kind() {
	case reflect.String:
		// What is wrong with another word says which words there are.
		field.SetString("other")
		words := append(wordsOfKey(m, k), "other", fmt.Sprintf("7.%d", at))
		was := reflect.ValueOf(Defaults().ModelDefaults).FieldByIndex(k.index).String()
		for _, word := range words {
			if field.SetString(word); word != was && len(m.check("")) == 0 {
				return m
			}
		}
	case reflect.Int, reflect.Int64:
		field.SetInt(int64(7 + at))
		return m
	case reflect.Bool:
		field.SetBool(!field.Bool())
		return m
	}
	t.Fatalf("models[].%s: say in otherModel, filter/config/modelkeys_test.go, what a valid value of a %s is",
		k.path, field.Type())
	return m
}

// everyModelKey is a model of which each key has another value than that of the defaults.
func everyModelKey(t *testing.T) (m Model) {
	t.Helper()
	for _, k := range modelKeys {
		other := reflect.ValueOf(otherModel(t, k))
		reflect.ValueOf(&m).Elem().FieldByIndex(k.index).Set(other.FieldByIndex(k.index))
	}
	return m
}

var listOfWords = regexp.MustCompile(`must be one of (.*), not "`)

// wordsOfKey are the words that a key takes, by what check says of the model's own.
func wordsOfKey(m Model, k configKey) []string {
	for _, err := range m.check("m") {
		list := listOfWords.FindStringSubmatch(err.Error())
		if list != nil && strings.HasPrefix(err.Error(), "m."+k.path+": ") {
			return strings.Split(list[1], ", ")
		}
	}
	return nil
}

// effect is what the filter reads of a model's settings.
func effect(m Model) any {
	c := Defaults()
	return []any{c.TurnModel(&m, 0, Client{}), m.BudgetPrices()}
}

// A key that nothing reads is a setting without effect.
func TestModelKeysHaveAnEffect(t *testing.T) {
	t.Parallel()
	none, all := Defaults().ModelDefaults, everyModelKey(t)
	for _, k := range modelKeys {
		where := notOfTurns[k.path]
		// It counts among the defaults and among others: of several keys that make one value, each does.
		but := all
		reflect.ValueOf(&but).Elem().FieldByIndex(k.index).Set(reflect.ValueOf(none).FieldByIndex(k.index))
		read := !cmp.Equal(effect(none), effect(otherModel(t, k))) && !cmp.Equal(effect(all), effect(but))
		switch {
		case !read && where == "":
			t.Errorf("models[].%s has no effect: hand it to turn.Model in TurnModel (filter/config/turnmodel.go). If it "+
				"takes effect elsewhere, write where into notOfTurns (filter/config/modelkeys_test.go)", k.path)
		case read && where != "":
			t.Errorf("models[].%s is read by TurnModel or BudgetPrices: take it out of notOfTurns "+
				"(filter/config/modelkeys_test.go)", k.path)
		}
	}
}

// A setting of turns that no key sets is that of the zero value for ever.
func TestSettingsOfTurnsHaveAKey(t *testing.T) {
	t.Parallel()
	m, c := everyModelKey(t), Defaults()
	c.CanonicalSchemas = true
	settings := reflect.ValueOf(c.TurnModel(&m, 7, Client{})).Elem()
	for _, of := range []reflect.Value{settings, settings.FieldByName("Reasoning")} {
		for _, field := range reflect.VisibleFields(of.Type()) {
			if of.FieldByIndex(field.Index).IsZero() {
				t.Errorf("%s.%s is never set: TurnModel (filter/config/turnmodel.go) has to", of.Type(), field.Name)
			}
		}
	}
}

// An entry's own value counts; where it has none, that of model_defaults.
func TestModelKeysFallBack(t *testing.T) {
	t.Parallel()
	for _, k := range modelKeys {
		// The entry is found by it.
		if k.path == "match" {
			continue
		}
		c := Defaults()
		c.ModelDefaults = otherModel(t, k)
		want := reflect.ValueOf(c.ModelDefaults).FieldByIndex(k.index).Interface()
		of := func(entry Model) any {
			entry.Match = "gpt-oss"
			c.Models = []Model{entry}
			m, _ := c.Model("gpt-oss")
			return reflect.ValueOf(m).FieldByIndex(k.index).Interface()
		}

		if got := of(Model{}); got != want {
			t.Errorf("models[].%s is %v where an entry leaves it out, not %v as in model_defaults: Model.over "+
				"(filter/config/config.go)", k.path, got, want)
		}

		c.ModelDefaults = Defaults().ModelDefaults
		if got := of(otherModel(t, k)); got != want {
			t.Errorf("models[].%s is %v where an entry says %v: Model.over (filter/config/config.go)", k.path, got, want)
		}
	}
}

// A text is one of a few words, of which one is the default, unless it can be anything.
func TestWordsOfModelKeysAreChecked(t *testing.T) {
	t.Parallel()
	defaults := Defaults().ModelDefaults
	for _, k := range modelKeys {
		m := defaults
		field := reflect.ValueOf(&m).Elem().FieldByIndex(k.index)
		if field.Kind() != reflect.String {
			continue
		}

		was := field.String()
		field.SetString("no-such-word")
		refused := slices.ContainsFunc(m.check("m"), func(err error) bool {
			return strings.HasPrefix(err.Error(), "m."+k.path+": ")
		})
		words := wordsOfKey(m, k)
		switch {
		case refused == (freeTexts[k.path] != ""):
			t.Errorf("models[].%s: is any text refused: %v. A key that takes a few words has a line in Model.check "+
				"(filter/config/check.go), one of any text a line in freeTexts (filter/config/modelkeys_test.go)",
				k.path, refused)
		case words != nil && !slices.Contains(words, was):
			t.Errorf("models[].%s: the default is %q, which is none of %s: set it in Defaults "+
				"(filter/config/config.go)", k.path, was, strings.Join(words, ", "))
		}
	}
}

// The chart refuses a value that its schema does not have.
func TestModelKeysAreInTheChart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../charts/envoy-harmony/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties map[string]*schema
		Items      *schema
		Defs       map[string]*schema `json:"$defs"`
	}
	var values schema
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}

	keys := values.Defs["config"].Properties
	for path, at := range map[string]*schema{"model_defaults": keys["model_defaults"], "models[]": keys["models"].Items} {
		for _, k := range modelKeys {
			node := at
			for name := range strings.SplitSeq(k.path, ".") {
				if node != nil {
					node = node.Properties[name]
				}
			}
			if node == nil {
				t.Errorf("charts/envoy-harmony/values.schema.json does not have %s.%s: go test ./e2e/charts -update",
					path, k.path)
			}
		}
	}
}

// everyList is a valid configuration with an element in each list.
const everyList = `
tenant_header: x-tenant
engines: [{kind: sglang, urls: [http://a:1], prefill: [{url: http://b:1}]}]
model_defaults: {tool_strictness: none}
models: [{match: gpt-oss}]
aliases: [{name: a, model: gpt-oss}]
reasoning_budgets: [{tokens: 1}]
tool_strictness_for: [{tenant: a, strictness: names}]
token_budgets: [{name: a, tokens: 1, window: 1m, weights: {input: 1, cached: 1, output: 1, reasoning: 1}}]
rollout: [{percent: 5}]
loopback: 127.0.0.1:1
responses: {reasoning_events_for: [{tenant: a, events: reasoning}]}
tools: {servers: [{label: a, url: http://a:1}]}
`

// No number and no time of a configuration can be below 0.
func TestNumbersBelowZeroAreRefused(t *testing.T) {
	t.Parallel()
	numbers := 0
	var each func(at func(*Config) reflect.Value, path string)
	each = func(at func(*Config) reflect.Value, path string) {
		value := at(testConfig(t, everyList))
		switch {
		case value.Type() == reflect.TypeFor[Duration]():
			each(func(c *Config) reflect.Value { return at(c).Field(0) }, path)
		case value.CanInt():
			numbers++
			c := testConfig(t, everyList)
			at(c).SetInt(-1)
			// The message may be about several keys of a part.
			name := path[strings.LastIndex(path, ".")+1:]
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: -1 is taken (%v): refuse it by name in filter/config/check.go", path, err)
			}
		case value.Kind() == reflect.Pointer:
			each(func(c *Config) reflect.Value { return at(c).Elem() }, path)
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			if value.Len() == 0 {
				t.Fatalf("add an element of %s to everyList (filter/config/modelkeys_test.go)", path)
			}
			each(func(c *Config) reflect.Value { return at(c).Index(0) }, path+"[0]")
		case value.Kind() == reflect.Struct:
			for i, field := range reflect.VisibleFields(value.Type()) {
				if name := field.Tag.Get("json"); name != "" {
					each(func(c *Config) reflect.Value { return at(c).Field(i) }, below(path, name))
				}
			}
		}
	}
	each(func(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() }, "")
	if numbers < 60 {
		t.Errorf("only %d numbers were found", numbers)
	}
}

// What TurnModel sets, something reads: a setting that nobody reads has no effect.
func TestSettingsOfTurnsAreRead(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, "../config/") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	model := reflect.TypeFor[turn.Model]()
	reasoning, _ := model.FieldByName("Reasoning")
	for _, of := range []reflect.Type{model, reasoning.Type} {
		for _, field := range reflect.VisibleFields(of) {
			if !regexp.MustCompile(`(?i)\b(model|m|limits|l|reasoning|r)\.` + `(?-i)` + field.Name + `\b`).MatchString(code.String()) {
				t.Errorf("nobody reads %s.%s: use it where it takes effect, in a room of filter/turn or in an API", of, field.Name)
			}
		}
	}
}
