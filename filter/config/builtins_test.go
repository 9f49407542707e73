package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
)

// Each built-in tool has a key of its name, which names a server.
func TestBuiltinKeys(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	var unset Tools
	for name := range unset.builtinKeys() {
		if !slices.ContainsFunc(hosted.Builtins, func(b *hosted.Builtin) bool { return b.Name == name }) {
			t.Errorf("tools.%s is the key of no built-in tool, and would be ignored: add its row to Builtins "+
				"(filter/hosted/builtin.go)", name)
		}
	}
	for _, b := range hosted.Builtins {
		key := "tools." + string(b.Name)
		if _, known := unset.builtinKeys()[b.Name]; !known {
			t.Errorf("there is no %s: add the key to Tools and to its builtinKeys (filter/config/tools.go), and to "+
				"docs/configuration.md", key)
			continue
		}

		body := "tools:\n  servers: [{label: s, url: http://s}]\n  " + string(b.Name) + ": "
		cfg, err := Parse("", []byte(body+"s\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Tools.Builtins(); len(got) != 1 || got[b.Name] != "s" {
			t.Errorf("%s: s gives %v: builtinKeys (filter/config/tools.go) has another field for it", key, got)
		}
		cfg, err = Parse("", []byte(body+"nobody\n"))
		if err != nil {
			t.Fatal(err)
		}
		if errs := cfg.Tools.check(); len(errs) != 1 || !strings.Contains(errs[0].Error(), key) {
			t.Errorf("%s with an unknown label: %v", key, errs)
		}

		seen := "a namespace of this name"
		if b.System {
			seen = "`" + b.Namespace + "` in the system message"
		}
		row := regexp.MustCompile("\n\\|[^|]+\\| `" + string(b.Name) + "` \\| " + seen + " \\|[^|]+\\| `" + b.Item + "`")
		if !row.Match(page) {
			t.Errorf("docs/tools.md has no row for %s with the server of %s, how the model sees it (%s), and its item %s",
				b.Name, key, seen, b.Item)
		}
	}
}
