package docs_test

import (
	"os/exec"
	"strings"
	"testing"
)

// "make test PKG=…" vets that package alone, and fetches Envoy and the Python clients for the packages
// that use them.
func TestMakeTestOfOnePackage(t *testing.T) {
	type needs struct{ envoy, python bool }
	for packages, want := range map[string]needs{
		"./docs": {}, "./filter/...": {}, "./envoy": {envoy: true}, "./cmd/envoy-harmony": {envoy: true},
		"./cmd/...": {true, true}, "./cmd/engine-sim/...": {python: true}, "./e2e/replies": {true, true},
		"./e2e/stores": {envoy: true}, "./e2e/corpus ./e2e/charts ./docs": {}, "./docs ./e2e/replies": {true, true},
		"./e2e/...": {true, true}, "./...": {true, true},
	} {
		// No folder has what is fetched, so that it would be fetched. Nothing is: -n only prints.
		cmd := exec.CommandContext(t.Context(), "make", "-n", "-C", "..", "test", "RECORDING=yes", "PKG="+packages,
			"VENV=/nowhere", "BIN=/nowhere", "ENVOY=/nowhere/envoy")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", packages, err, out)
		}
		text := string(out)
		got := needs{strings.Contains(text, "Downloading Envoy"), strings.Contains(text, "Installing the Python clients")}
		if !strings.Contains(text, "go vet "+packages+"\n") || got != want {
			t.Errorf("%s: %+v, want %+v (TEST_NEEDS in the Makefile):\n%s", packages, got, want, text)
		}
	}
}
