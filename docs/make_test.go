package docs_test

import (
	"os/exec"
	"strings"
	"testing"
)

// "make test PKG=…" vets that package alone, and installs the Python clients for the packages that
// use them.
func TestMakeTestOfOnePackage(t *testing.T) {
	for packages, python := range map[string]bool{
		"./docs": false, "./filter/...": false, "./envoy": false, "./cmd/envoy-harmony": false,
		"./cmd/engine-sim/...": true, "./e2e/replies": true, "./docs ./e2e/replies": true, "./...": true,
	} {
		// No folder has what is fetched, so that it would be fetched. Nothing is: -n only prints.
		cmd := exec.CommandContext(t.Context(), "make", "-n", "-C", "..", "test", "RECORDING=yes", "PKG="+packages,
			"VENV=/nowhere", "ENVOY_BIN=/nowhere")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", packages, err, out)
		}
		if text := string(out); !strings.Contains(text, "go vet "+packages+"\n") || strings.Contains(text, "-m venv") != python {
			t.Errorf("%s:\n%s", packages, text)
		}
	}
}
