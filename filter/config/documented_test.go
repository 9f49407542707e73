package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var (
	keyRow    = regexp.MustCompile("(?m)^\\| `([^`|]+)` \\| *([^|]*?) *\\| .*\\|$")
	wholeCode = regexp.MustCompile("^`([^`]*)`$")
)

// Every key of a configuration has one row in docs/configuration.md, with the default of the
// code. A cell that is no code, such as "the first engine", says what an empty value means.
func TestDefaultsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range keyRow.FindAllStringSubmatch(string(page), -1) {
		if _, twice := documented[row[1]]; twice {
			t.Errorf("docs/configuration.md has two rows of `%s`", row[1])
		}
		documented[row[1]] = row[2]
	}

	for _, fault := range wrongDefaults(documented) {
		t.Errorf("docs/configuration.md: %s", fault)
	}
	if len(documented) < 120 {
		t.Errorf("only %d rows", len(documented))
	}
}

// wrongDefaults compares the cells of defaults, by key, with the code.
func wrongDefaults(documented map[string]string) (faults []string) {
	defaults := reflect.ValueOf(Defaults()).Elem()
	for _, k := range configKeys() {
		cell, ok := documented[k.path]
		value := defaults.FieldByIndex(k.index)

		// It has a meaning only in an entry of models, and must be empty elsewhere.
		if k.path == "model_defaults.match" {
			continue
		}
		want := inDocument(value)
		stated := wholeCode.FindStringSubmatch(cell)
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("there is no row of `%s`: add | `%[1]s` | `%s` | what it does |", k.path, want))
		case stated != nil && stated[1] != want:
			faults = append(faults, fmt.Sprintf("the default of `%s` is %s, not %s", k.path, want, stated[1]))
		case stated == nil && !value.IsZero() && want != "[]":
			faults = append(faults, fmt.Sprintf("the default of `%s` is %s, and the row says %q", k.path, want, cell))
		}
	}
	return faults
}

// inDocument is a value as the document has it.
func inDocument(value reflect.Value) string {
	switch v := value.Interface().(type) {
	case Duration:
		text := regexp.MustCompile(`(\D)0s$`).ReplaceAllString(v.String(), "$1")
		return regexp.MustCompile(`(\D)0m$`).ReplaceAllString(text, "$1")
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	}
	if value.Kind() == reflect.Slice {
		return "[]"
	}
	return fmt.Sprint(value.Interface())
}

func TestWrongDefaultsAreFound(t *testing.T) {
	documented := map[string]string{}
	for _, k := range configKeys() {
		documented[k.path] = "`" + inDocument(reflect.ValueOf(Defaults()).Elem().FieldByIndex(k.index)) + "`"
	}
	if faults := wrongDefaults(documented); len(faults) > 0 {
		t.Errorf("of the code's own defaults: %q", faults)
	}
	for cell, want := range map[string]string{"`3s`": "the default of `limits.header_hold` is 2s, not 3s", "": "the default of `limits.header_hold` is 2s, and the row says"} {
		documented["limits.header_hold"] = cell
		if faults := wrongDefaults(documented); len(faults) != 1 || !strings.HasPrefix(faults[0], want) {
			t.Errorf("%q: %q, want %q", cell, faults, want)
		}
	}
	delete(documented, "limits.header_hold")
	if faults := wrongDefaults(documented); len(faults) != 1 || !strings.HasPrefix(faults[0], "there is no row of `limits.header_hold`: add | `limits.header_hold` | `2s` |") {
		t.Errorf("%q", faults)
	}
}
