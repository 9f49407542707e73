//go:build clients

package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// The SDK reads the blocks of the tools that the filter runs, and sends them back.
func TestMessageToolsClient(t *testing.T) {
	interpreter, err := filepath.Abs("../.venv-clients/anthropic/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := install(".venv-clients/anthropic/.done"); err != nil {
		t.Fatal(err)
	}
	server, configure := stack.MessageTools(t)
	d := stack.Start(t, stack.Options{Config: configure})
	cmd := exec.CommandContext(t.Context(), interpreter, "clients/python/server-tools.py")
	cmd.Env = append(os.Environ(), "ANTHROPIC_BASE_URL="+d.CheckedURL(t), "ANTHROPIC_API_KEY=none", "MODEL="+stack.SGLangModel, "MCP_URL="+server.URL, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
