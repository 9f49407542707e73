//go:build clients

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
	server, configure := messageTools(t)
	d := start(t, options{config: configure})
	cmd := exec.CommandContext(t.Context(), interpreter, "clients/python/server-tools.py")
	cmd.Env = append(os.Environ(), "ANTHROPIC_BASE_URL="+d.checkedURL(t), "ANTHROPIC_API_KEY=none", "MODEL="+sglangModel, "MCP_URL="+server.URL, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
