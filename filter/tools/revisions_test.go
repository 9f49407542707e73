package tools

import (
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// docs/tools.md names the revision of MCP that is asked for, and those that are taken.
func TestRevisions(t *testing.T) {
	page, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(page)), " ")

	revisions := mcp.SupportedProtocolVersions()
	last := len(revisions) - 1
	for _, want := range []string{
		"The filter asks for revision " + protocol + " of MCP",
		"It takes " + strings.Join(revisions[:last], ", ") + " or " + revisions[last] + ".",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("tools.md does not say: %s", want)
		}
	}
}
