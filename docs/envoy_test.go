package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// The first cell of a row, and the list items of the section about pacing.
	settingCell = regexp.MustCompile(`(?m)^(?:\| ([^|]*) \||- (.*(?:\n  .*)*))`)
	// A setting with its value, which may be a flow mapping.
	settingWord = regexp.MustCompile(`^[a-z_.]+`)
)

// TestEnvoySettings compares the settings that gateways/envoy.md demands of an Envoy with the
// configurations that "envoy-harmony envoy-config" writes: each stands in one of the examples,
// with its value.
func TestEnvoySettings(t *testing.T) {
	found := 0
	examples := squeeze(examplesText(t))
	for _, cell := range settingCell.FindAllStringSubmatch(section(t, "gateways/envoy.md", "## What an Envoy needs"), -1) {
		for _, setting := range quoted.FindAllStringSubmatch(cell[1]+cell[2], -1) {
			if !isEnvoySetting(setting[1]) {
				continue
			}
			found++
			for _, part := range strings.Split(setting[1], ".") {
				// A path of messages stands as keys one below the other.
				if !strings.Contains(setting[1], ":") && !strings.Contains(examples, part) {
					t.Errorf("no example has %s of `%s`", part, setting[1])
				}
			}
			if value := lastKey(setting[1]); strings.Contains(setting[1], ":") && !strings.Contains(examples, squeeze(value)) {
				t.Errorf("no example has `%s`", value)
			}
		}
	}
	if found < 35 {
		t.Errorf("only %d settings were found", found)
	}
}

// isEnvoySetting reports whether a span is one of Envoy's settings: not a key of the filter, a
// header or a suffix.
func isEnvoySetting(span string) bool {
	word := settingWord.FindString(span)
	if word == "" || strings.HasPrefix(span, "x-harmony-") || strings.HasPrefix(span, "x-gateway-") {
		return false
	}
	// codec_type is the default.
	return !strings.HasPrefix(word, "limits.") && word != "tenant_header" && word != "session_id" && word != "codec_type"
}

// lastKey returns a setting without the path that leads to its key.
func lastKey(setting string) string {
	path, value, _ := strings.Cut(setting, ":")
	return path[strings.LastIndex(path, ".")+1:] + ":" + value
}

// squeeze removes what YAML lets authors choose: spaces and quotation marks.
func squeeze(text string) string { return strings.NewReplacer(" ", "", `"`, "").Replace(text) }

// examplesText returns all examples of bootstraps.
func examplesText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	// The examples are made of the template, which has more for other engines.
	for _, pattern := range []string{
		"../envoy/examples/*.yaml", "../envoy/examples/*/*.yaml", "../envoy/bootstrap.yaml.tmpl",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}
