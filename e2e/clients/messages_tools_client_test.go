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
	server, configure := stack.MessageTools(t)
	d := stack.Start(t, stack.Options{Config: configure})
	runAnthropic(t, d, "clients/python/server-tools.py", "MCP_URL="+server.URL)
}

// The SDK's newest types: tools that clients run, the search for tools, tools that come and go,
// settings of messages, and compaction.
func TestMessagesWholeClient(t *testing.T) {
	runAnthropic(t, stack.Start(t, stack.Options{}), "clients/python/messages-whole.py")
}

// runAnthropic runs a script with the newest Python SDK of Anthropic.
func runAnthropic(t *testing.T, d *stack.Dataplane, script string, env ...string) {
	t.Helper()
	interpreter, err := filepath.Abs("../.venv-clients/anthropic/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := install(".venv-clients/anthropic/.done"); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), interpreter, script)
	base := recorded(t, d.CheckedURL(t), "anthropic-python")
	cmd.Env = append(os.Environ(), "ANTHROPIC_BASE_URL="+base, "ANTHROPIC_API_KEY=none", "MODEL="+stack.SGLangModel, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
