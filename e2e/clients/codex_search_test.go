//go:build clients

package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// TestCodexSearch runs turns in which the model searches the web, which the filter does, and calls
// the shell. Codex sends back items of searches without their results: what the model has found must
// be in every later prompt of the turn, with a store and without.
func TestCodexSearch(t *testing.T) {
	builtins := stack.ServeBuiltins(t)
	for _, plane := range []struct {
		name string
		set  func(*config.Config)
	}{
		{"with a store", builtins},
		{"without a store", func(c *config.Config) {
			builtins(c)
			c.Responses.StoreBytes, c.Limits.KeptReasoningBytes = 0, 0
		}},
	} {
		d := startCodexPlaneAs(t, plane.set)
		for version, search := range map[string]string{
			"0.171,responses": `web_search = "live"`,
			"0.63,responses":  "tools.web_search = true",
		} {
			t.Run(plane.name+"/"+version, func(t *testing.T) {
				c := newCodex(t, d, version, "Envoy")
				c.addFirst(search)
				codexBrowses(c)
			})
		}
	}
}

// addFirst adds a line to the beginning of Codex' configuration.
func (c *codex) addFirst(line string) {
	c.t.Helper()
	path := filepath.Join(c.home, "config.toml")
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append([]byte(line+"\n"), before...), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// codexBrowses: the model searches, calls the shell, opens a page, and calls the shell twice.
func codexBrowses(c *codex) {
	c.wantAnswer("Cats are cheap.", strings.Join([]string{
		"THINK First I search.",
		`CALL browser.search {"query":"cats"}`, c.shell("touch one.txt"),
		`CALL browser.open {"id":0}`, c.shell("touch two.txt"), c.shell("ls"),
		"SAY Cats are cheap.",
	}, "\n"))
	c.wantFile("two.txt", "")

	for i, r := range c.wantTurn(6) {
		for from, want := range map[int]string{
			1: `{"query":"cats"}<|call|><|start|>browser.search to=assistant<|channel|>analysis<|message|>[0] cats`,
			3: `{"id":0}<|call|><|start|>browser.open to=assistant<|channel|>analysis<|message|>[1] The shop`,
		} {
			if got := strings.Count(r.Prompt, want); i >= from && got != 1 || i < from && got != 0 {
				c.t.Errorf("prompt %d has %q %d times: %s", i+1, want, got, end(r.Prompt))
			}
		}
	}
	c.wantStateless()
}
