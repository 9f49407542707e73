//go:build clients

package clients

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// TestNode runs the client scripts of node/, which check what they receive.
func TestNode(t *testing.T) {
	if _, err := os.Stat("node/node_modules/.package-lock.json"); err != nil {
		t.Fatal("there is no Node client: run make test-clients")
	}
	scripts, err := filepath.Glob("node/*.test.mjs")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}

	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Responses.SealKeys = []string{stack.SealKey} }})
	base := recorded(t, d.CheckedURL(t)+"/v1", "openai-node")

	for _, script := range scripts {
		for _, model := range stack.HarmonyModels {
			t.Run(filepath.Base(script)+"/"+model, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", script)
				cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+base, "OPENAI_API_KEY=none", "MODEL="+model)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out

				err := cmd.Run()
				t.Logf("%s", &out)
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
