//go:build clients

package clients

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// Lines of a provider. With the first one Codex asks for the list of models, with the
// second one it does not.
const (
	commandAuth = "[model_providers.envoy.auth]\ncommand = \"echo\"\nargs = [\"key\"]"
	envKey      = `env_key = "OPENAI_API_KEY"`
)

const (
	// smallContext is a context that a few loud commands fill.
	smallContext = 16384
	// unknownContext is the window that Codex assumes for a model without a card.
	unknownContext = 272000
)

// cardsPath is how a Codex asks for the list of models.
func (c *codex) cardsPath() string { return "/v1/models?client_version=" + c.number() + ".0" }

// carded are the CLIs whose form of a card the filter knows.
var carded = []string{codexes[0], "0.169,responses"}

// TestCodexCard runs Codex with an engine whose context is small: Codex learns of it from
// the card of the model, or from its own configuration.
func TestCodexCard(t *testing.T) {
	d := startCodexPlane(t, false, "--context-length", strconv.Itoa(smallContext))
	for _, tt := range []struct {
		name string
		auth string
		run  func(*codex)
	}{
		{"tools", commandAuth, cardTools},
		{"long session", commandAuth, cardCompacts},
		{"too large a window configured", commandAuth, cardBounds},
		{"picture", commandAuth, cardPicture},
		{"env_key", envKey, cardMissing},
		{"env_key with a window", envKey, windowConfigured},
		{"env_key with the saved list", envKey, cardSaved},
	} {
		for _, version := range carded {
			t.Run(tt.name+"/"+version, func(t *testing.T) {
				before := len(d.listsSince(0))
				c := newCodex(t, d, version, "Envoy", tt.auth)
				tt.run(c)

				for _, path := range d.listsSince(before) {
					if path != c.cardsPath() {
						t.Errorf("codex asks for %s", path)
					}
				}
				if asked := len(d.listsSince(before)) > 0; asked != (tt.auth == commandAuth) {
					t.Errorf("codex asks for the list: %t", asked)
				}
			})
		}
	}
}

// cardTools: the model calls the shell and the patch tool, which Codex has for it because
// of the card. The engine keeps the patch to its grammar.
func cardTools(c *codex) {
	patch := "*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n*** End Patch\n"
	c.wantAnswer("Patched.", strings.Join([]string{
		c.shell("echo 1 > one.txt"), `CALL apply_patch {"input":` + quote(patch) + "}", "SAY Patched.",
	}, "\n"))
	c.wantFile("one.txt", "1\n")
	c.wantFile("new.txt", "one\ntwo\n")
	for _, r := range c.wantTurn(3) {
		if !strings.Contains(string(r.Params), "*** Begin Patch") {
			c.t.Errorf("the engine has no grammar of a patch: %s", r.Params)
		}
	}

	first := gjson.Parse(c.d.postsSince(c.requestsBefore)[0])
	if !strings.HasPrefix(first.Get("input.0.content.0.text").Str, "You are a coding agent in the Codex CLI.") {
		c.t.Errorf("the first item is %s", first.Get("input.0"))
	}
	if first.Get(`tools.#(name=="apply_patch").type`).Str != "custom" || first.Get("reasoning.effort").Str != "medium" {
		c.t.Errorf("the tools are %s, the effort is %s", first.Get("tools"), first.Get("reasoning"))
	}
	c.wantWindow(true, smallContext)
}

// cardCompacts: a long session is compacted before a prompt is too long for the engine,
// although the output of its command has twice the tokens that Codex counts.
func cardCompacts(c *codex) {
	c.wantLongSession(loud)
	c.wantWindow(true, smallContext)
}

// windowConfigured: so is the session of a model without a card, if the window is
// configured.
func windowConfigured(c *codex) {
	c.wantLongSession(wordy, "-c", fmt.Sprintf("model_context_window=%d", smallContext))
	c.wantWindow(false, smallContext)
}

const (
	// wordy is a command that prints more than Codex keeps.
	wordy = "yes 'the quick brown fox jumps over the lazy dog' | head -n 1000"
	// longSession is how many turns a session has whose commands fill the context.
	longSession = 8
)

// wantLongSession runs turns with a command, and checks that no prompt was too long, and
// that the session goes on after its compaction.
func (c *codex) wantLongSession(command string, options ...string) {
	c.t.Helper()
	c.exec(append(slices.Clone(options), "REMEMBER blue\n"+c.shell(command)+"\nSAY Noted.")...)
	for range longSession - 2 {
		// After a compaction in mid-turn the simulated model has a summary to answer.
		c.exec(append(slices.Clone(options), "resume", "--last", c.shell(command)+"\nSAY Noted.")...)
	}
	c.wantAnswer("RECALL:blue", append(slices.Clone(options), "resume", "--last", "RECALL")...)

	compactions, longest := 0, 0
	for _, r := range c.requests() {
		longest = max(longest, len(r.PromptIDs))
		if strings.Contains(r.Prompt, "CONTEXT CHECKPOINT COMPACTION") {
			compactions++
		}
	}
	if compactions == 0 || longest < smallContext/4*3 || longest > smallContext {
		c.t.Errorf("%d compactions; the longest prompt has %d tokens", compactions, longest)
	}
}

// cardBounds: the card bounds what is configured, too.
func cardBounds(c *codex) {
	c.wantAnswer("Yes.", "-c", "model_context_window=200000", "SAY Yes.")
	c.wantWindow(true, smallContext)
}

// cardPicture: Codex sends no picture to a model that cannot see.
func cardPicture(c *codex) {
	if r := c.showPicture(); !strings.Contains(r.Prompt, "image content omitted") {
		c.t.Errorf("codex does not say that there is a picture: %s", end(r.Prompt))
	}
	if posts := c.d.postsSince(c.requestsBefore); strings.Contains(posts[0], "input_image") {
		c.t.Error("codex sends the picture")
	}
}

// cardMissing: without a card and a configured window the session ends in an error.
func cardMissing(c *codex) {
	c.wantAnswer("Noted.", "SAY Noted.")
	c.wantWindow(false, unknownContext)
	for range longSession {
		_, err := c.attempt("node", append(slices.Clone(execArguments), "resume", "--last", c.shell(wordy)+"\nSAY Noted.")...)
		if err != nil && !strings.Contains(c.printed, "ran out of room") {
			c.t.Errorf("codex prints %s", c.printed)
		}
		if err != nil {
			return
		}
	}
	c.t.Error("codex does not fail")
}

// cardSaved: the list that Codex does not ask for is saved, as its catalogue.
func cardSaved(c *codex) {
	resp := c.d.Do(c.t, http.MethodGet, c.cardsPath(), "", http.NoBody)
	list, err := io.ReadAll(resp.Body)
	path := filepath.Join(c.home, "models.json")
	if err == nil {
		err = os.WriteFile(path, list, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.wantAnswer("Yes.", "-c", "model_catalog_json="+quote(path), "SAY Yes.")
	c.wantWindow(true, smallContext)
}

// wantWindow checks whether Codex has a card of the model, and which window it assumes.
func (c *codex) wantWindow(known bool, window int64) {
	c.t.Helper()
	if warned := strings.Contains(c.printed, "Model metadata for"); warned == known {
		c.t.Errorf("codex prints %s", c.printed)
	}

	files, err := filepath.Glob(filepath.Join(c.home, "sessions", "*", "*", "*", "rollout-*.jsonl"))
	if err != nil || len(files) == 0 {
		c.t.Fatalf("there is no session: %v", err)
	}
	session, err := os.ReadFile(slices.Max(files))
	if err != nil {
		c.t.Fatal(err)
	}

	// Codex keeps a twentieth for itself.
	want := []string{fmt.Sprintf(`"model_context_window":%d`, window*95/100)}
	found := regexp.MustCompile(`"model_context_window":\d+`).FindAllString(string(session), -1)
	if got := slices.Compact(found); !slices.Equal(got, want) {
		c.t.Errorf("the windows are %q, want %q", got, want)
	}
}
