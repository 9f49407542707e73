package gateways

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/e2e/recipe"
	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// recipesPage is the page whose commands these tests run.
const recipesPage = "../docs/gateways/recipes.md"

// recipeFolder makes a folder that has copies of files of the project, in which texts are
// replaced that belong to a place, and programs. Each text must be in one of the files.
func recipeFolder(t *testing.T, replace map[string]string, files ...string) string {
	t.Helper()
	folder, used := t.TempDir(), map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		for old, by := range replace {
			used[old] = used[old] || strings.Contains(string(text), old)
			text = []byte(strings.ReplaceAll(string(text), old, by))
		}
		writeProgram(t, filepath.Join(folder, name), string(text))
	}

	for old := range replace {
		if !used[old] {
			t.Fatalf("none of the files has %q", old)
		}
	}
	return folder
}

// writeProgram writes a file that can be executed, and its folder.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	//nolint:gosec // the commands of the page execute some of the files
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// The recipe for Envoy alone: the commands of the page, with a real Envoy.
func TestRecipeEnvoy(t *testing.T) {
	log := stack.LogOf(t)
	sim := stack.StartSim(t, log)
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	program, err := stack.BuildProgram()
	if err != nil {
		t.Fatal(err)
	}

	sockets, port := stack.SocketDir(t), stack.FreePort(t)
	folder := recipeFolder(t, map[string]string{
		"/run/envoy-harmony":                     sockets,
		`address: "0.0.0.0", port_value: 10443`:  `address: "127.0.0.1", port_value: ` + port,
		"port_value: 9901":                       "port_value: 0",
		"127.0.0.1:9003":                         "127.0.0.1:0",
		"http://127.0.0.1:8000":                  sim,
		`address: "127.0.0.1", port_value: 8000`: atURL(sim),
	}, "docs/gateways/recipes/filter.yaml", "docs/gateways/recipes/bill.jq", "envoy/examples/api-keys.yaml")

	// Other Envoys of the machine may have the base id of an Envoy that is not told one.
	programs := filepath.Join(folder, "programs")
	writeProgram(t, filepath.Join(programs, "envoy"), fmt.Sprintf("#!/bin/sh\nexec %s --use-dynamic-base-id --concurrency 1 \"$@\"\n", binary))
	if err := os.Symlink(program, filepath.Join(programs, "envoy-harmony")); err != nil {
		t.Fatal(err)
	}

	shell := recipe.NewShell(t, folder, "PATH="+programs+":"+os.Getenv("PATH"))
	t.Cleanup(func() { shell.LogOnFailure("filter.log", "envoy.log") })
	sections := recipe.Read(t, recipesPage)
	places := strings.NewReplacer("/run/envoy-harmony", sockets, "10443", port)
	shell.Run(sections["Certificate and keys"]...)
	for _, step := range sections["Envoy alone"] {
		shell.Run(recipe.Step{Commands: places.Replace(step.Commands)})
	}
	shell.CheckTenants(sections, "401")
}

// What the page shows of a file is in it, and both configurations of the filter are the
// same where they should be.
func TestRecipeFiles(t *testing.T) {
	shown, err := os.ReadFile("../docs/gateways/recipes/envoy-gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	blocks := recipe.Blocks(t, recipesPage, "yaml")
	if len(blocks) != 1 || !strings.Contains(string(shown), "---\n"+blocks[0]) {
		t.Errorf("the page shows objects that its files do not have: %q", blocks)
	}

	var filter map[string]any
	var values struct{ Config map[string]any }
	for name, into := range map[string]any{"filter": &filter, "values": &values} {
		text, err := os.ReadFile("../docs/gateways/recipes/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	for _, place := range []string{"listen", "loopback", "admin", "engines"} {
		delete(filter, place)
	}
	if diff := cmp.Diff(filter, values.Config); diff != "" || len(filter) != 3 {
		t.Errorf("filter.yaml and values.yaml differ (-filter +values):\n%s", diff)
	}
}
