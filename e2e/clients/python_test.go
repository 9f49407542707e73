package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// TestPython runs the client scripts of python/, which check what they receive.
func TestPython(t *testing.T) {
	if _, err := os.Stat(stack.Python); err != nil {
		t.Fatal("there are no Python clients: run make venv")
	}
	scripts, err := filepath.Glob("python/*_client.py")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Responses.SealKeys = []string{stack.SealKey} }})
	base := recorded(t, d.CheckedURL(t)+"/v1", "openai-python")
	for _, script := range scripts {
		for _, model := range stack.HarmonyModels {
			t.Run(filepath.Base(script)+"/"+model, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), stack.Python, script)
				cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+base, "OPENAI_API_KEY=none", "MODEL="+model)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
