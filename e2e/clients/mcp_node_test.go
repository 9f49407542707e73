//go:build clients

package clients

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// everything is the program of the MCP reference server with all features.
const everything = "mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js"

// startEverything starts the MCP reference server on a free port and returns its
// URL.
func startEverything(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is missing: install Node.js, then run make smoke-clients")
	}
	if _, err := os.Stat(everything); err != nil {
		t.Fatal("the MCP reference server is missing: run make smoke-clients")
	}

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()

	log := &stack.LogFile{}
	cmd := exec.CommandContext(t.Context(), "node", everything, "streamableHttp")
	_, port, _ := strings.Cut(address, ":")
	cmd.Env = append(os.Environ(), "PORT="+port)
	cmd.Stdout, cmd.Stderr = log.Named("mcp"), log.Named("mcp")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Wait() // ended by the test's context
		if t.Failed() {
			t.Logf("log of the MCP server:\n%s", log)
		}
	})

	for deadline := time.Now().Add(stack.Patience); !strings.Contains(log.String(), "listening on port "+port); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the MCP server does not start:\n%s", log)
		}
	}
	return "http://" + address + "/mcp"
}

// TestMCPEverything uses the MCP reference server, over streamable HTTP and as a
// process.
func TestMCPEverything(t *testing.T) {
	url := startEverything(t)
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{
			{Label: "remote", URL: url},
			{Label: "local", Command: []string{"node", everything, "stdio"}},
		}
	}})

	stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
		for _, label := range []string{"remote", "local"} {
			tools := stack.JSONArray(`{"type":"mcp","server_label":"` + label + `","allowed_tools":["echo","get-sum","get-tiny-image","get-structured-content","get-resource-links"]}`)

			ask := func(calls ...string) []string {
				call := "\nCALL " + label + "."
				text := "NOTHINK" + call + strings.Join(calls, call)
				r := c.Create(t, "completed", map[string]any{"input": text, "tools": tools})
				var outputs []string
				for _, call := range stack.ItemsOfType(r, "mcp_call") {
					outputs = append(outputs, call.Get("status").Str+": "+call.Get("output").Str+call.Get("error.content.0.text").Str)
				}

				if len(outputs) != len(calls) {
					t.Errorf("%s: %s", label, r.Get("output"))
				}
				return outputs
			}

			got := ask(`echo {"message":"hi"}`, `get-sum {"a":2,"b":3}`, `get-sum {"a":"two"}`, `get-tiny-image {}`, `get-structured-content {"location":"Chicago"}`, `get-resource-links {"count":2}`)
			for i, want := range []string{"completed: Echo: hi", "completed: The sum of 2 and 3 is 5.", "failed: ", "completed: ", "completed: {", "completed: "} {
				if !strings.HasPrefix(got[i], want) || len(got[i]) > 4096 {
					t.Errorf("%s: call %d returns %.300q, want %q", label, i, got[i], want)
				}
			}
			stack.WantPrompt(t, c.Prompts(t)[0], "namespace "+label+" {", "type get-sum = (_: {")
		}
	})
}
