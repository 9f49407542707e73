package charts

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	dialects "github.com/envoy-harmony/envoy-harmony/filter/engine"
)

var update = flag.Bool("update", false, "write the generated and the golden files")

const chart = "../../charts/envoy-harmony/"

type object = map[string]any

// golden compares text with a file, or writes the file with -update.
func golden(t *testing.T, path string, text []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("%s is not up to date (-file +test); after a check, write it with -update:\n%s", path, diff)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func readValues(t *testing.T) object {
	t.Helper()
	values := object{}
	if err := yaml.UnmarshalStrict(readFile(t, chart+"values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func readSchema(t *testing.T) object {
	t.Helper()
	schema := object{}
	if err := json.Unmarshal(readFile(t, chart+"values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestConfigSchema compares the schema of the value config with the keys of the
// filter's configuration, from which it is generated.
func TestConfigSchema(t *testing.T) {
	schema := readSchema(t)
	schema["$defs"] = object{"config": schemaOf(t, reflect.TypeFor[config.Config](), "", func(value any) any { return value })}
	engines := at(schema, "properties.engines.items.properties").(object)
	engines["kind"] = object{"enum": dialects.Kinds()}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(schema); err != nil {
		t.Fatal(err)
	}
	golden(t, chart+"values.schema.json", text.Bytes())
}

// schemaOf is the JSON Schema of a part of the configuration: of the key at path, to which
// set gives a value. The program itself says which words and sizes it takes there.
func schemaOf(t *testing.T, key reflect.Type, path string, set func(value any) any) object {
	t.Helper()
	if key == reflect.TypeFor[config.Duration]() {
		return object{"type": "string", "pattern": `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`}
	}

	switch key.Kind() {
	case reflect.Struct:
		properties := object{}
		for _, field := range reflect.VisibleFields(key) {
			if name := field.Tag.Get("json"); name != "" {
				below := strings.TrimPrefix(path+"."+name, ".")
				properties[name] = schemaOf(t, field.Type, below, func(value any) any { return set(object{name: value}) })
			}
		}
		return object{"type": "object", "additionalProperties": false, "properties": properties}
	case reflect.Map:
		entry := func(value any) any { return set(object{"a": value}) }
		return object{"type": "object", "additionalProperties": schemaOf(t, key.Elem(), path+".a", entry)}
	case reflect.Slice:
		entry := func(value any) any { return set([]any{value}) }
		return object{"type": "array", "items": schemaOf(t, key.Elem(), path+"[0]", entry)}
	case reflect.Pointer:
		return schemaOf(t, key.Elem(), path, set)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		// The message for a text says whether there are texts that it takes.
		if strings.Contains(fault(t, path, set("no-number")), "such as 32MiB") {
			return object{"type": []string{"integer", "string"}, "pattern": "^[0-9]+ *(KiB|MiB|GiB)$"}
		}
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		if words := wordsOf(t, path, set); words != nil {
			return object{"enum": words}
		}
		return object{"type": "string"}
	}

	panic(fmt.Sprintf("a key of the configuration has the type %s, which has no schema here", key))
}

// fault is what the program says about the key at path of a configuration; "" if nothing.
func fault(t *testing.T, path string, configuration any) string {
	t.Helper()
	text, err := yaml.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("config.yaml", text)
	if err == nil {
		err = c.Validate()
	}
	if err == nil {
		return ""
	}

	for line := range strings.SplitSeq(err.Error(), "\n") {
		// An error of the file has the file before the key.
		if _, said, ok := strings.Cut(line, path+": "); ok {
			return said
		}
	}
	return ""
}

var listOfWords = regexp.MustCompile(`^must be (?:one of )?((?:[a-zA-Z0-9_-]+(?:, | or )?)+), not "`)

// wordsOf are the words that the key at path takes; nil if it takes any text.
func wordsOf(t *testing.T, path string, set func(value any) any) (words []string) {
	t.Helper()
	list := listOfWords.FindStringSubmatch(fault(t, path, set("no-such-word")))
	if list == nil {
		return nil
	}

	words = strings.Split(strings.ReplaceAll(list[1], " or ", ", "), ", ")
	if path == "log.level" {
		words = append(words, "warn") // taken as a short form of warning
	}
	if fault(t, path, set("")) == "" {
		words = append(words, "") // the key may be left out
	}
	for _, word := range words {
		if said := fault(t, path, set(word)); said != "" {
			t.Errorf("%s: the program does not take %q: %s", path, word, said)
		}
	}
	return words
}

// TestRestartKeys compares the keys whose changes restart pods with those that the filter
// does not take over while it runs.
func TestRestartKeys(t *testing.T) {
	keys := map[string][]string{}
	addFixedKeys(keys, reflect.TypeFor[config.Config](), "")
	if len(keys) == 0 {
		t.Skip("this version of the filter does not say which keys it takes over")
	}
	for _, list := range keys {
		slices.Sort(list)
	}
	text, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, chart+"files/restart-keys.json", append(text, '\n'))
}

// addFixedKeys adds the keys of t that have the tag reload, by its value.
func addFixedKeys(keys map[string][]string, t reflect.Type, path string) {
	for _, field := range reflect.VisibleFields(t) {
		name := path + field.Tag.Get("json")
		if how := field.Tag.Get("reload"); how != "" {
			keys[how] = append(keys[how], name)
		} else if field.Type.Kind() == reflect.Struct {
			addFixedKeys(keys, field.Type, name+".")
		}
	}
}

// TestSchemaOfValues requires that values.yaml and its schema have the same keys, and
// that an unknown key is an error everywhere but in objects of Kubernetes.
func TestSchemaOfValues(t *testing.T) {
	compareKeys(t, "", readSchema(t), readValues(t))
}

// global is Helm's own key, which values.yaml does not have.
const global = "global"

func compareKeys(t *testing.T, path string, schema, values object) {
	t.Helper()
	properties, ok := schema["properties"].(object)
	if !ok {
		return // an object of Kubernetes, a mapping of names, or config
	}

	if schema["additionalProperties"] != false {
		t.Errorf("%s: additionalProperties is not false", path)
	}

	for _, name := range slices.Sorted(maps.Keys(values)) {
		if properties[name] == nil {
			t.Errorf("%s%s is in values.yaml and not in its schema", path, name)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(properties)) {
		value, ok := values[name]
		if !ok && name != global && len(values) > 0 {
			t.Errorf("%s%s is in the schema and not in values.yaml", path, name)
		}
		if child, ok := value.(object); ok {
			compareKeys(t, path+name+".", properties[name].(object), child)
		}
	}
}

// valueLine is a line of values.yaml with a key, commentLine one with a comment.
var (
	valueLine   = regexp.MustCompile(`^( *)([A-Za-z]+):`)
	commentLine = regexp.MustCompile(`^ *# ?(.*)$`)
)

// row is a value with its description.
type row struct{ key, description string }

// describedValues reads the values that have a description, a comment that begins with
// "-- ", in the order of the file.
func describedValues(text string) (rows []row) {
	var path []string
	description, described := "", false
	for line := range strings.SplitSeq(text, "\n") {
		if comment := commentLine.FindStringSubmatch(line); comment != nil {
			switch begin, ok := strings.CutPrefix(comment[1], "-- "); {
			case ok:
				description, described = begin, true
			case described:
				description += " " + comment[1]
			}
			continue
		}

		if key := valueLine.FindStringSubmatch(line); key != nil {
			path = append(path[:min(len(path), len(key[1])/2)], key[2])
			if described {
				rows = append(rows, row{strings.Join(path, "."), description})
			}
		}

		description, described = "", false
	}
	return rows
}

// at returns a part of the values.
func at(values object, key string) any {
	var node any = values
	for name := range strings.SplitSeq(key, ".") {
		o, _ := node.(object)
		node = o[name]
	}
	return node
}

// TestEveryValueIsDescribed requires a description of every value, or of a mapping that
// it is in.
func TestEveryValueIsDescribed(t *testing.T) {
	rows := describedValues(string(readFile(t, chart+"values.yaml")))
	described := make([]string, 0, len(rows))
	for _, r := range rows {
		described = append(described, r.key)
	}

	if len(described) < 100 {
		t.Fatalf("only %d values are described", len(described))
	}

	var check func(path string, node any)
	check = func(path string, node any) {
		children, ok := node.(object)
		if slices.Contains(described, path) {
			return
		}
		if !ok || len(children) == 0 {
			t.Errorf("%s has no description in values.yaml", path)
		}

		for _, name := range slices.Sorted(maps.Keys(children)) {
			check(strings.TrimPrefix(path+"."+name, "."), children[name])
		}
	}
	check("", readValues(t))
}

// TestValuesTable compares the table of values in the chart's README with values.yaml.
func TestValuesTable(t *testing.T) {
	const begin, end = "<!-- values: generated from values.yaml -->\n", "<!-- end of values -->"
	page := string(readFile(t, chart+"README.md"))
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("README.md has no lines %q and %q", begin, end)
	}
	values := readValues(t)
	var table strings.Builder
	table.WriteString("\n| value | default | |\n|---|---|---|\n")
	for _, r := range describedValues(string(readFile(t, chart+"values.yaml"))) {
		value, err := json.Marshal(at(values, r.key))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", r.key, strings.ReplaceAll(string(value), "|", `\|`), strings.ReplaceAll(r.description, "|", `\|`))
	}
	table.WriteString("\n")
	golden(t, chart+"README.md", []byte(before+begin+table.String()+end+after))
}
