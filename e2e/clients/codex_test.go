//go:build clients

package clients

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// codexPatience bounds one run of Codex.
const codexPatience = 2 * time.Minute

// codex is a Codex CLI with its own home and working directory.
type codex struct {
	t                    *testing.T
	d                    *codexPlane
	base                 string // URL of the API
	version              string // version and, after a comma, the API that it is configured for
	home                 string // holds its configuration and its sessions
	folder               string // working directory of its shell commands
	engineRequestsBefore int    // number of the engine's requests before this run
	printed              string // what the last run has written to its standard error
	requestsBefore       int    // number of the data plane's requests before this run
}

// codexPlane is a data plane that records requests.
type codexPlane struct {
	*stack.Dataplane
	base          string
	compatibility bool // in compatibility mode

	mu    sync.Mutex
	posts []string // bodies of the requests
	lists []string // requests for the list of models
}

// startCodexPlane starts a data plane with an engine that has these flags.
func startCodexPlane(t *testing.T, compat bool, engine ...string) *codexPlane {
	t.Helper()
	d := startCodexPlaneAs(t, func(c *config.Config) { c.Responses.CodexCompatibility = compat }, engine...)
	d.compatibility = compat
	return d
}

// startCodexPlaneAs is startCodexPlane with settings of the filter.
func startCodexPlaneAs(t *testing.T, set func(*config.Config), engine ...string) *codexPlane {
	t.Helper()
	sim, _ := stack.StartSimAs(t, &stack.LogFile{Quiet: true}, engine...)
	d := &codexPlane{Dataplane: stack.Start(t, stack.Options{SimURL: sim, Config: func(c *config.Config) {
		c.Responses.SealKeys = []string{stack.SealKey}
		set(c)
		c.HarmonyModels = append(c.HarmonyModels, "="+customModel)
		c.Models = append(c.Models,
			config.Model{Match: "=" + customModel, UpstreamModel: stack.SGLangModel},
			config.Model{Match: "=" + strictModel, UpstreamModel: stack.SGLangModel, ToolStrictness: turn.StrictnessAll},
		)
	}})}

	target, err := url.Parse(d.CheckedURL(t))
	if err != nil {
		t.Fatal(err)
	}

	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: d.Client.Transport, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.note(r, string(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))

	t.Cleanup(server.Close)
	d.base = server.URL + "/v1"
	return d
}

func (d *codexPlane) note(r *http.Request, body string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Method == http.MethodPost {
		d.posts = append(d.posts, body)
	} else {
		d.lists = append(d.lists, r.URL.RequestURI())
	}
}

// listsSince returns the requests for the list of models after the first n.
func (d *codexPlane) listsSince(n int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lists[n:])
}

// postsSince returns the bodies of requests after the first n.
func (d *codexPlane) postsSince(n int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.posts[n:])
}

// codexes are the CLIs in e2e/clients with the APIs that they support.
var codexes = []string{"0.171,responses", "0.63,responses", "0.63,chat"}

// customModel is a model for which Codex 0.63 has a custom tool. Here it is an
// alias of gpt-oss.
const customModel = "gpt-5-codex"

// dialects are the tool names by version.
var dialects = map[string]struct{ shell, reverse string }{
	"0.171": {`CALL exec_command {"cmd":%s}`, `CALL mcp__texts.reverse {"text":%s}`},
	"0.169": {`CALL exec_command {"cmd":%s}`, `CALL mcp__texts.reverse {"text":%s}`},
	"0.63":  {`CALL shell {"command":["bash","-lc",%s]}`, `CALL mcp__texts__reverse {"text":%s}`},
	"0.1":   {`CALL shell {"command":["bash","-lc",%s]}`, ""},
}

// newCodex writes the configuration of a CLI: a provider with a display name and
// lines of its own, a model and an MCP server.
func newCodex(t *testing.T, d *codexPlane, version, provider string, lines ...string) *codex {
	t.Helper()
	number, _, _ := strings.Cut(version, ",")
	c := &codex{t: t, d: d, base: stack.Recorded(t, d.base, "codex", number), version: version, home: t.TempDir(), folder: t.TempDir(), engineRequestsBefore: len(d.EngineRequests(t, "")), requestsBefore: len(d.postsSince(0))}
	server, err := filepath.Abs("clients/mcp-server.mjs")
	if err != nil {
		t.Fatal(err)
	}
	_, api, _ := strings.Cut(version, ",")
	config := fmt.Sprintf(`model = %q
model_provider = "envoy"

[model_providers.envoy]
name = %q
base_url = %q
wire_api = %q
%s

[mcp_servers.texts]
command = "node"
args = [%q]
`, stack.SGLangModel, provider, c.base, api, strings.Join(lines, "\n"), server)
	if err := os.WriteFile(filepath.Join(c.home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *codex) number() string {
	number, _, _ := strings.Cut(c.version, ",")
	return number
}

// shell returns the line by which the model calls the shell.
func (c *codex) shell(command string) string {
	return fmt.Sprintf(dialects[c.number()].shell, quote(command))
}

// reverse returns the line by which the model calls the MCP server.
func (c *codex) reverse(text string) string {
	return fmt.Sprintf(dialects[c.number()].reverse, quote(text))
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // marshaling a string cannot fail
	}
	return string(quoted)
}

// errorOutput matches what a successful run never prints. 0.171 warns about a model
// that it does not know; 0.63 does not.
var errorOutput = regexp.MustCompile(`(?i)\berror\b|disconnected|reconnecting|unsupported call`)

// ownFault matches an error that 0.169 and 0.171 have with themselves: they read their file of models
// while another task of them writes the file.
var ownFault = regexp.MustCompile("failed to load models cache")

// exec runs "codex exec" and returns its standard output, which is the answer.
// Codex's own sandbox is off: it is not part of the test, and few containers
// support it.
func (c *codex) exec(arguments ...string) string {
	c.t.Helper()
	return c.run("node", append(slices.Clone(execArguments), arguments...)...)
}

var execArguments = []string{"exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"}

// newNode is the Node.js of e2e/clients.
const newNode = ""

// run runs the CLI, which has to succeed, and returns its standard output.
func (c *codex) run(node string, arguments ...string) string {
	c.t.Helper()
	stdout, err := c.attempt(node, arguments...)
	if err != nil {
		c.t.Fatalf("codex %s: %v\n%s", c.version, err, c.printed)
	}
	for line := range strings.Lines(c.printed) {
		if errorOutput.MatchString(line) && !ownFault.MatchString(line) {
			c.t.Errorf("codex %s prints %q", c.version, line)
		}
	}
	return stdout
}

// attempt runs the CLI, which may fail, and returns its standard output.
func (c *codex) attempt(node string, arguments ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), codexPatience)
	defer cancel()

	modules, err := filepath.Abs("clients/node_modules")
	if err != nil {
		c.t.Fatal(err)
	}
	if node == newNode {
		node = filepath.Join(modules, "node", "bin", "node")
	}

	program := filepath.Join(modules, "codex-"+c.number(), "bin", "codex.js")
	cmd := exec.CommandContext(ctx, node, append([]string{program}, arguments...)...)
	cmd.Dir = c.folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.home, "CODEX_HOME=" + c.home, "OPENAI_API_KEY=none", "OPENAI_BASE_URL=" + c.base}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	err = cmd.Run()
	c.printed = stderr.String()
	return strings.TrimSpace(stdout.String()), err
}

// wantAnswer runs "codex exec" and checks its answer.
func (c *codex) wantAnswer(want string, arguments ...string) {
	c.t.Helper()
	if got := c.exec(arguments...); got != want {
		c.t.Errorf("codex %s answers %q, want %q", c.version, got, want)
	}
}

// requests returns the model calls of the CLI, which must all have finished.
func (c *codex) requests() []stack.EngineRequest {
	c.t.Helper()
	requests := c.d.EngineRequests(c.t, "")[c.engineRequestsBefore:]
	for _, r := range requests {
		if r.State != stack.StateFinished {
			c.t.Errorf("model call %d is %s", r.Number, r.State)
		}
	}
	return requests
}

// wantTurn checks that n model calls form one turn: each prompt starts with the
// previous prompt and its output, as the model wrote it.
func (c *codex) wantTurn(n int) []stack.EngineRequest {
	c.t.Helper()
	requests := c.requests()
	if len(requests) != n {
		c.t.Fatalf("the engine has had %d requests, want %d", len(requests), n)
	}
	for i, r := range requests[:n-1] {
		before, next := r.Prompt+r.Output[0], requests[i+1].Prompt
		if !strings.HasPrefix(next, before) {
			at := sharedPrefix(before, next)
			c.t.Errorf("prompt %d does not continue prompt and output %d; from byte %d on it has\n%s\nwant\n%s", i+2, i+1, at, next[at:], before[at:])
		}
	}
	return requests
}

// sharedPrefix returns the number of leading bytes that two texts share.
func sharedPrefix(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// end returns the end of a prompt. The beginning has some ten thousand words.
func end(prompt string) string { return prompt[max(0, len(prompt)-1000):] }

// wantFile checks a file that a shell command has written.
func (c *codex) wantFile(name, want string) {
	c.t.Helper()
	if got, err := os.ReadFile(filepath.Join(c.folder, name)); err != nil || string(got) != want {
		c.t.Errorf("%s has %q (%v), want %q", name, got, err, want)
	}
}

// TestCodex runs the Codex CLIs in e2e/clients with their default settings against
// the data plane and checks what they do with the model's answers.
func TestCodex(t *testing.T) {
	if _, err := os.Stat("clients/node_modules/.package-lock.json"); err != nil {
		t.Fatal("there is no Codex CLI: run make test-clients")
	}
	for _, mode := range []struct {
		name   string
		compat bool
	}{{"", false}, {" in compatibility mode", true}} {
		d := startCodexPlane(t, mode.compat)
		for _, scenario := range codexScenarios {
			for _, version := range scenario.codexes {
				t.Run(scenario.name+mode.name+"/"+version, func(t *testing.T) {
					scenario.run(newCodex(t, d, version, scenario.provider))
				})
			}
		}
	}
}

// codexScenarios are the tests of each CLI. 0.63 gets no token counts from the chat
// API, so it never compacts there, and it does not support namespaces. Codex
// requests compaction only from a provider named OpenAI.
var codexScenarios = []struct {
	name     string
	codexes  []string
	provider string
	run      func(*codex)
}{
	{"shell", codexes, "Envoy", codexShell},
	{"shell of the first CLI", []string{"0.1,responses"}, "Envoy", codexChains},
	{"strict tools", codexes[:1], "Envoy", codexStrict},
	{"mcp", codexes, "Envoy", codexServer},
	{"namespace", codexes[:1], "Envoy", codexAgents},
	{"tool search", codexes[:1], "Envoy", codexSearches},
	{"agents of version 2", codexes[:1], "Envoy", codexTeams},
	{"custom tool", []string{"0.63,responses"}, "Envoy", codexPatches},
	{"picture", codexes, "Envoy", codexImage},
	{"resume", codexes, "Envoy", codexResumes},
	{"compaction", codexes[:2], "Envoy", codexSummarizes},
	{"compaction by the server", codexes[:1], "OpenAI", codexCompacts},
}

// codexShell: the model calls the shell twice.
func codexShell(c *codex) {
	c.wantAnswer("All done.", strings.Join([]string{
		"THINK First one, then two.", c.shell("echo 1 > one.txt"), c.shell("cat one.txt > two.txt; echo 2 >> two.txt"), "SAY All done.",
	}, "\n"))
	c.wantFile("one.txt", "1\n")
	c.wantFile("two.txt", "1\n2\n")
	c.wantTurn(3)
	c.wantStateless()
}

// wantStateless checks that no request asks for storage, and that each one has the
// whole turn with an output for every call.
func (c *codex) wantStateless() {
	c.t.Helper()
	for i, body := range c.d.postsSince(c.requestsBefore) {
		items := gjson.Get(body, "input")
		if items.Exists() && (gjson.Get(body, "store").Raw != "false" || gjson.Get(body, "previous_response_id").Exists()) {
			c.t.Errorf("request %d is not stateless", i+1)
		}
		for _, call := range items.Get(`#(type=="function_call")#.call_id`).Array() {
			if !items.Get(`#(type=="function_call_output")#|#(call_id==` + quote(call.Str) + `)`).Exists() {
				c.t.Errorf("request %d has a call without its output", i+1)
			}
		}
	}
}

// codexChains: the TypeScript CLI of 2025 calls the shell twice and continues
// stored responses. Its quiet mode does not wait for what the model writes at the
// end of a turn.
func codexChains(c *codex) {
	prompt := strings.Join([]string{"THINK First one, then two.", c.shell("echo 1 > one.txt"), c.shell("cat one.txt > two.txt"), "SAY All done."}, "\n")
	c.run(newNode, "--quiet", "--approval-mode", "full-auto", "--model", stack.SGLangModel, prompt)
	c.wantFile("one.txt", "1\n")
	c.wantFile("two.txt", "1\n")
	c.wantTurn(3)
	posts := c.d.postsSince(c.requestsBefore)
	previous := make([]string, 0, len(posts))
	for _, body := range posts {
		previous = append(previous, gjson.Get(body, "previous_response_id").Str)
	}
	if len(previous) != 3 || previous[0] != "" || previous[1] == "" || (previous[1] == previous[2]) != c.d.compatibility {
		c.t.Errorf("the requests continue %q", previous)
	}
}

// codexServer: the model calls a tool of an MCP server.
func codexServer(c *codex) {
	c.exec("THINK Backwards.\n" + c.reverse("harmony"))
	if r := c.wantTurn(2)[1]; !strings.Contains(r.Prompt, "ynomrah") {
		c.t.Errorf("the model does not get the tool's result: %s", end(r.Prompt))
	}
}

// codexPatches has the model call apply_patch, a custom tool with a grammar.
func codexPatches(c *codex) {
	patch := "*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n*** End Patch\n"
	c.wantAnswer("Patched.", "--model", customModel, `CALL apply_patch {"input":`+quote(patch)+"}\nSAY Patched.")
	c.wantFile("new.txt", "one\ntwo\n")
	c.wantTurn(2)
	posts := c.d.postsSince(c.requestsBefore)
	if last := gjson.Get(posts[len(posts)-1], `input.#(type=="custom_tool_call").input`); last.Str != patch {
		c.t.Errorf("the repeated call has the input %s", last.Raw)
	}
}

// codexImage: the model gets an image, which it cannot see.
func codexImage(c *codex) {
	if r := c.showPicture(); !strings.Contains(r.Prompt, turn.ImagePlaceholder) {
		c.t.Errorf("there is no placeholder for the picture: %s", end(r.Prompt))
	}
}

// showPicture runs a turn of one request that has a picture, and returns that request.
func (c *codex) showPicture() stack.EngineRequest {
	c.t.Helper()
	const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	png, err := base64.StdEncoding.DecodeString(picture)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.folder, "picture.png"), png, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.wantAnswer("A picture.", "--image=picture.png", "\nSAY A picture.") // on a line of its own
	return c.wantTurn(1)[0]
}

// codexResumes: a session ends and is resumed.
func codexResumes(c *codex) {
	c.wantAnswer("Noted.", strings.Join([]string{"REMEMBER blue", c.shell("echo 1 > one.txt"), "SAY Noted."}, "\n"))
	c.wantAnswer("RECALL:blue", "resume", "--last", "RECALL")
	c.wantAnswer("LAST:RECALL:blue", "resume", "--last", "LAST_ASSISTANT")
	requests := c.requests()
	if last := requests[len(requests)-1].Prompt; strings.Contains(last, "<|channel|>analysis<|message|>") {
		c.t.Error("the prompt has the reasoning of earlier turns")
	}
}

// In a session that is compacted, a command prints more than fits into the limit
// after the instructions of any version.
const (
	loud         = "seq 1 4000"
	compactLimit = "model_auto_compact_token_limit=12000"
)

// printed matches a prompt with the output of loud, plain or in JSON.
var printed = regexp.MustCompile(`99(\n|\\n)100`)

// codexSummarizes: the session grows until Codex asks for a summary itself, with an
// ordinary prompt.
func codexSummarizes(c *codex) {
	c.exec("-c", compactLimit, "REMEMBER blue\n"+c.shell(loud))
	c.wantAnswer("RECALL:blue", "-c", compactLimit, "resume", "--last", "RECALL")
	requests := c.requests()
	asked := slices.IndexFunc(requests, func(r stack.EngineRequest) bool {
		return strings.Contains(r.Prompt, "CONTEXT CHECKPOINT COMPACTION")
	})
	if asked < 0 {
		c.t.Fatalf("none of %d requests asks for a summary", len(requests))
	}
	if before := requests[asked].Prompt; !printed.MatchString(before) {
		c.t.Error("the prompt for the summary lacks the command's output")
	}
	c.wantCompacted(requests[asked+1:], "Hello there friend.") // the simulated model's summary
}

// wantCompacted checks that prompts have a summary in place of the command's
// output.
func (c *codex) wantCompacted(requests []stack.EngineRequest, summary string) {
	c.t.Helper()
	if len(requests) == 0 {
		c.t.Fatal("there is no request after the compaction")
	}
	for _, r := range requests {
		if !strings.Contains(r.Prompt, summary) || printed.MatchString(r.Prompt) {
			c.t.Errorf("the prompt of request %d is not compacted: %s", r.Number, end(r.Prompt))
		}
	}
}

// codexCompacts: Codex requests compaction like from OpenAI. The last input item is
// a compaction_trigger, and the answer is a compaction item.
func codexCompacts(c *codex) {
	c.exec("-c", compactLimit, "REMEMBER blue\n"+c.shell(loud))
	c.wantAnswer("RECALL:blue", "-c", compactLimit, "resume", "--last", "RECALL")
	requests := c.requests()
	asked := slices.IndexFunc(requests, func(r stack.EngineRequest) bool {
		return strings.Contains(r.Prompt, "Write a summary of our conversation")
	})
	if asked < 0 || slices.ContainsFunc(requests, func(r stack.EngineRequest) bool { return strings.Contains(r.Prompt, "CONTEXT CHECKPOINT COMPACTION") }) {
		c.t.Fatalf("codex summarizes by itself, or not at all: %d requests", len(requests))
	}
	if before := requests[asked].Prompt; !printed.MatchString(before) {
		c.t.Error("the prompt for compaction lacks the command's output")
	}
	c.wantCompacted(requests[asked+1:], "Hello there friend.")
}

// codexAgents: the model starts another agent and waits for it, with tools of the
// namespace multi_agent_v1.
func codexAgents(c *codex) {
	task := c.shell("echo sub > sub.txt") + "\nSAY The agent is done."
	c.exec(strings.Join([]string{
		`CALL multi_agent_v1.spawn_agent {"message":` + quote(task) + `}`,
		`CALL multi_agent_v1.wait_agent {"targets":["${agent_id}"]}`,
	}, "\n"))
	c.wantFile("sub.txt", "sub\n")
	requests := c.requests()
	if last := requests[len(requests)-1].Prompt; !regexp.MustCompile(`multi_agent_v1\.wait_agent to=assistant.*The agent is done\.`).MatchString(last) {
		c.t.Errorf("the model does not get the agent's answer: %s", end(last))
	}
}
