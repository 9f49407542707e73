package upgrade

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// readRecords inspects and replays what the earlier version has recorded, with this one.
func (f *fleet) readRecords(t *testing.T, current, earlier release) {
	folder := f.records(earlier)
	out, log, exit := current.command(t, nil, "inspect", "-brief", folder)
	shown := strings.Count(out, "\n")
	if exit != 0 || shown < 100 {
		t.Errorf("inspect ends with %d, and shows %d records: %s", exit, shown, log)
	}

	keys, err := json.Marshal(sealKeys["current"])
	if err != nil {
		t.Fatal(err)
	}
	out, log, exit = current.command(t, []string{"ENVOY_HARMONY_RESPONSES_SEAL_KEYS=" + string(keys)}, "replay", folder)
	t.Logf("replay of the earlier version's records:\n%s", out)
	// A prompt that changes is announced, because engines have begun to cache it. Replies may have
	// more fields, and accesses to the store are no promise.
	prompts := otherPrompts.MatchString(out) && !announced(t, "prompts")
	if prompts || exit != 0 && !strings.Contains(log, " 0 files and 0 configurations cannot be read") {
		t.Errorf("replay ends with %d, other prompts: %t: %s", exit, prompts, log)
	}
}

// otherPrompts is a row of replay's table of causes.
var otherPrompts = regexp.MustCompile(`(?m)^ +prompt +\d+$`)

// TestConfiguration: a file that the earlier version takes is valid for this one, and means
// the same. It has every key, because it is what the earlier version prints as in effect.
func TestConfiguration(t *testing.T) {
	earlier, current := releases(t)
	f := newFleet(t, earlier, "memory:")
	given := f.file(earlier)

	printed, log, exit := earlier.command(t, nil, "check", "--config", given)
	if exit != 0 {
		t.Fatalf("the earlier version: %s", log)
	}
	whole := filepath.Join(t.TempDir(), "whole.yaml")
	// A secret is printed as its hash: here the keys are put back in their order.
	text := printed
	for _, key := range sealKeys[earlier.name] {
		text = strings.Replace(text, hiddenSecret.FindString(text), key, 1)
	}
	if err := os.WriteFile(whole, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, file := range map[string]string{"given": given, "whole": whole} {
		now, log, exit := current.command(t, nil, "check", "--config", file)
		if exit != 0 {
			t.Errorf("%s: this version: %s", name, log)
			continue
		}
		was, is := flatten(t, printed), flatten(t, now)
		for key, value := range was {
			if now, found := is[key]; (!found || !cmp.Equal(value, now)) && !announced(t, "config "+key) {
				t.Errorf("%s: %s was %v, and is %v (there: %t)", name, key, value, now, found)
			}
		}
	}
}

// hiddenSecret is a secret as the program prints it.
var hiddenSecret = regexp.MustCompile(`'\[hidden\][^']*'`)

// flatten returns the values of YAML by the path of their keys.
func flatten(t *testing.T, text string) map[string]any {
	t.Helper()
	var root map[string]any
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}

	all := map[string]any{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				walk(strings.TrimPrefix(path+"."+key, "."), member)
			}
		case []any:
			for i, element := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), element)
			}
		default:
			all[path] = v
		}
	}

	walk("", root)
	return all
}

// flagName is a flag in the help of a command.
var flagName = regexp.MustCompile(`(?m)^  -([a-z-]+)`)

// TestFlags: commands of the earlier version are there still, with their flags.
func TestFlags(t *testing.T) {
	earlier, current := releases(t)
	for _, command := range []string{"run", "serve", "check", "envoy-config", "ask", "inspect", "replay", "render"} {
		flags := func(r release) []string {
			out, log, _ := r.command(t, nil, command, "-h")
			var names []string
			for _, found := range flagName.FindAllStringSubmatch(out+log, -1) {
				names = append(names, found[1])
			}
			return names
		}
		was, is := flags(earlier), flags(current)
		if len(was) == 0 && command != "render" {
			t.Errorf("%s has no flags", command)
		}
		for _, name := range was {
			if !slices.Contains(is, name) {
				t.Errorf("%s has no flag %s any more", command, name)
			}
		}
	}
}
