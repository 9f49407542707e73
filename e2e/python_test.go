package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// python is the interpreter that has the clients installed.
const python = "../.venv/bin/python"

// TestPython runs the client scripts of python/, which check what they receive.
func TestPython(t *testing.T) {
	if _, err := os.Stat(python); err != nil {
		t.Fatal("there are no Python clients: run make venv")
	}
	scripts, err := filepath.Glob("python/*_client.py")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	d := start(t, options{config: func(c *config.Config) { c.Responses.SealKeys = []string{sealKey} }})
	base := d.checkedURL(t) + "/v1"
	for _, script := range scripts {
		for _, model := range harmonyModels {
			t.Run(filepath.Base(script)+"/"+model, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), python, script)
				cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+base, "OPENAI_API_KEY=none", "MODEL="+model)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
