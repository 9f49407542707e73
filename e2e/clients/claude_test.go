//go:build clients

package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// claude is a Claude Code CLI.
type claude struct {
	*agentRun
	model       string   // empty: the CLI's default
	environment []string // more variables
}

func newClaude(t *testing.T, d *agentPlane) *claude {
	t.Helper()
	return &claude{agentRun: newAgentRun(t, d, "claude-code"), model: stack.SGLangModel}
}

// claudeNotice is what the CLI prints about a model that it does not know. Anything
// else on standard error is a fault.
var claudeNotice = regexp.MustCompile(`(?m)^\[claude-code:unrecognized_model\].*\n?`)

// ask runs the CLI headless and returns its answer.
func (c *claude) ask(prompt string, arguments ...string) string {
	c.t.Helper()
	return c.runClaude(false, prompt, arguments...)
}

func (c *claude) runClaude(wantError bool, prompt string, arguments ...string) string {
	c.t.Helper()
	environment := append([]string{
		"ANTHROPIC_BASE_URL=" + c.base, "ANTHROPIC_AUTH_TOKEN=none",
		"CLAUDE_CODE_MAX_CONTEXT_TOKENS=131072", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"IS_SANDBOX=1", // otherwise root may not skip permissions
	}, c.environment...)
	if c.model != "" {
		environment = append(environment, "ANTHROPIC_MODEL="+c.model, "ANTHROPIC_DEFAULT_HAIKU_MODEL="+c.model)
	}
	answer := c.run(wantError, environment, prompt, "claude", append([]string{"--print", "--dangerously-skip-permissions"}, arguments...)...)
	if rest := claudeNotice.ReplaceAllString(c.stderr, ""); rest != "" {
		c.t.Errorf("claude prints %q", rest)
	}
	return answer
}

// messages returns the CLI's requests for model calls.
func (c *claude) messages() []agentRequest { return c.d.since(c.requestsBefore, "/v1/messages") }

// calls returns the model calls. No prompt has the line with the CLI's version.
func (c *claude) calls(n int) []stack.EngineRequest {
	c.t.Helper()
	calls := c.engineCalls()
	if len(calls) != n {
		c.t.Fatalf("the engine has had %d requests, want %d", len(calls), n)
	}
	for _, r := range calls {
		if strings.Contains(r.Prompt, "x-anthropic-billing-header") {
			c.t.Errorf("prompt %d has the billing line", r.Number)
		}
	}
	return calls
}

// TestClaudeCode runs the Claude Code CLI headless with its default settings against
// the data plane and checks what it does with the model's answers.
func TestClaudeCode(t *testing.T) {
	if _, err := os.Stat("clients/node_modules/.bin/claude"); err != nil {
		t.Fatal("there is no Claude Code CLI: run make test-clients")
	}
	d := startAgentPlane(t)

	for name, scenario := range map[string]func(*claude){
		"tools":            claudeTools,
		"resume":           claudeResumes,
		"events":           claudeEvents,
		"subagent":         claudeAgent,
		"mcp":              claudeServer,
		"mcp at once":      claudeServerAtOnce,
		"deferred tools":   claudeSearches,
		"compaction":       claudeCompacts,
		"context":          claudeCounts,
		"structured":       claudeStructured,
		"picture":          claudeImage,
		"another name":     claudeAlias,
		"too few tokens":   claudeLimit,
		"refused":          claudeRefused,
		"rate limit":       claudeRetries("status=429 retry-after=1", 429),
		"overload":         claudeRetries("status=503 body=empty", 529),
		"broken in stream": claudeBroken("fault=cut@8"),
		"error in stream":  claudeBroken("fault=error@8"),
		"too long":         claudeTooLong,
		"strict tools":     claudeStrict,
	} {
		t.Run(name, func(t *testing.T) { scenario(newClaude(t, d)) })
	}
}

// task is a prompt for three tool calls: read, write, shell.
func (c *claude) task() string {
	c.t.Helper()
	c.write("in.txt", "hello\n")
	return exact("All done.",
		"Read", `{"file_path":`+quote(c.file("in.txt"))+`}`,
		"Write", `{"file_path":`+quote(c.file("out.txt"))+`,"content":"made, 世界\n"}`,
		"Bash", `{"command":"cat in.txt out.txt > both.txt","description":"Join"}`)
}

// claudeTools: the model calls three tools; each prompt has all that came before,
// with the reasoning.
func claudeTools(c *claude) {
	c.want(c.ask(c.task()), "All done.")
	c.wantFile("out.txt", "made, 世界\n")
	c.wantFile("both.txt", "hello\nmade, 世界\n")
	c.wantTurn(c.calls(4))
	for i, r := range c.messages() {
		if gjson.Get(r.body, "stream").Raw != "true" {
			c.t.Errorf("request %d is not streamed", i+1)
		}
	}
}

// claudeResumes: a session ends and is resumed, by two processes.
func claudeResumes(c *claude) {
	c.want(c.ask(c.task()), "All done.")
	c.want(c.ask(exact("Second."), "--continue"), "Second.")
	id := gjson.Get(c.messages()[0].body, "metadata.user_id").Str
	c.want(c.ask(exact("Third."), "--resume", gjson.Get(id, "session_id").Str), "Third.")
	calls := c.calls(6)
	c.wantTurn(calls[:4])
	c.wantNextTurn(calls[:4], calls[4])
	c.wantNextTurn(calls[4:5], calls[5])
	for i, r := range c.messages() {
		if got := r.header.Get("X-Claude-Code-Session-Id"); got != gjson.Get(id, "session_id").Str {
			c.t.Errorf("request %d is of session %q", i+1, got)
		}
	}
}

// claudeEvents: the CLI prints its events, as the Agent SDKs read them: the reasoning
// is there with the answer.
func claudeEvents(c *claude) {
	output := c.ask("THINK Step by step, 世界.\nSAY Yes.", "--output-format", "stream-json", "--verbose")
	var blocks []string
	for line := range strings.Lines(output) {
		for _, block := range gjson.Get(line, "message.content").Array() {
			blocks = append(blocks, block.Get("type").Str+" "+block.Get("thinking").Str+block.Get("text").Str)
		}
	}
	c.want(strings.Join(blocks, ", "), "thinking Step by step, 世界., text Yes.")
}

// claudeAgent: the model starts another agent and waits for its answer.
func claudeAgent(c *claude) {
	task := "CALL Bash {\"command\":\"echo sub > sub.txt\"}\nSAY The agent is done."
	c.ask(`CALL Agent {"description":"Write a file","prompt":` + quote(task) + `,"subagent_type":"general-purpose","run_in_background":false}`)
	c.wantFile("sub.txt", "sub\n")
	var agents []agentRequest
	for _, r := range c.messages() {
		if r.header.Get("X-Claude-Code-Agent-Id") != "" {
			agents = append(agents, r)
		}
	}
	if len(agents) != 2 {
		c.t.Errorf("the agent makes %d requests", len(agents))
	}
	all := c.engineCalls()
	calls := c.calls(len(all))
	if last := calls[len(calls)-1].Prompt; !strings.Contains(last, "The agent is done.") {
		c.t.Errorf("the model does not get the agent's answer: %s", end(last))
	}
}

// servers returns arguments for an MCP server.
func (c *claude) servers() []string {
	server, err := filepath.Abs("clients/mcp-server.mjs")
	if err != nil {
		c.t.Fatal(err)
	}
	return []string{"--strict-mcp-config", "--mcp-config", `{"mcpServers":{"texts":{"command":"node","args":[` + quote(server) + `]}}}`}
}

// claudeServer: the model searches a tool of an MCP server and calls it. That the
// tool joins does not change what precedes.
func claudeServer(c *claude) {
	prompt := exact("Backwards.", "ToolSearch", `{"query":"select:mcp__texts__reverse","max_results":1}`, "mcp__texts__reverse", `{"text":"harmony"}`)
	c.want(c.ask(prompt, c.servers()...), "Backwards.")
	calls := c.calls(3)
	if strings.Contains(calls[0].Prompt, "type mcp__texts__reverse =") || !strings.Contains(calls[1].Prompt, "type mcp__texts__reverse =") {
		c.t.Error("the model does not see the tool's definition once it is found")
	}
	if !strings.Contains(calls[2].Prompt, "ynomrah") {
		c.t.Errorf("the model does not get the tool's result: %s", end(calls[2].Prompt))
	}
	c.wantTurn(calls)
}

// claudeServerAtOnce: without tool search all tools are there from the beginning.
func claudeServerAtOnce(c *claude) {
	c.environment = []string{"ENABLE_TOOL_SEARCH=false"}
	c.want(c.ask(exact("Backwards.", "mcp__texts__reverse", `{"text":"harmony"}`), c.servers()...), "Backwards.")
	calls := c.calls(2)
	if !strings.Contains(calls[1].Prompt, "ynomrah") {
		c.t.Errorf("the model does not get the tool's result: %s", end(calls[1].Prompt))
	}
	c.wantTurn(calls)
}

// claudeSearches: tools that are found stay for the next turn, at their place.
func claudeSearches(c *claude) {
	c.want(c.ask(exact("Listed.", "ToolSearch", `{"query":"select:CronList","max_results":1}`, "CronList", `{}`)), "Listed.")
	c.want(c.ask(exact("Again.", "CronList", `{}`), "--continue"), "Again.")
	calls := c.calls(5)
	c.wantTurn(calls[:3])
	c.wantTurn(calls[3:])
	c.wantNextTurn(calls[:3], calls[3])
	for _, r := range calls {
		if n := strings.Count(r.Prompt, "type DeferredToolPlaceholder"); n != 0 {
			c.t.Errorf("prompt %d has the placeholder of deferred tools", r.Number)
		}
	}
}

// claudeCompacts: the session is compacted, and the next prompt has the summary in
// place of the command's output.
func claudeCompacts(c *claude) {
	c.ask(`CALL Bash {"command":"` + loud + `","description":"Count"}` + "\nSAY Counted.")
	before := len(c.engineCalls())
	c.ask("/compact", "--continue")
	c.want(c.ask("SAY Back.", "--continue"), "Back.")
	all := c.engineCalls()
	calls := c.calls(len(all))
	if len(calls) < before+2 || !printed.MatchString(calls[before].Prompt) || !strings.Contains(calls[before].Prompt, "<summary>") {
		c.t.Fatalf("none of %d requests asks for a summary of the output", len(calls)-before)
	}
	c.wantBegins(calls[before].Number, calls[before].PromptIDs, calls[0].PromptIDs) // the summary is cheap
	last := calls[len(calls)-1].Prompt
	if !strings.Contains(last, "Hello there friend.") || printed.MatchString(last) {
		c.t.Errorf("the prompt is not compacted: %s", end(last))
	}
}

// claudeCounts: /context counts the tokens of each tool.
func claudeCounts(c *claude) {
	answer := c.ask("/context")
	if !strings.Contains(answer, "/ 131.1k") {
		c.t.Errorf("the context's length is not the model's: %s", answer)
	}
	counts := c.d.since(c.requestsBefore, "/v1/messages/count_tokens")
	if len(counts) == 0 {
		c.t.Error("no tokens were counted")
	}
	for i, r := range counts {
		if r.status != 200 {
			c.t.Errorf("count %d has status %d", i+1, r.status)
		}
	}
}

// claudeStructured: the answer follows a schema, by a tool that the model must call.
func claudeStructured(c *claude) {
	answer := c.ask(exact("{}", "StructuredOutput", `{"city":"Bern","celsius":21}`), "--output-format", "json", "--json-schema", `{"type":"object","properties":{"city":{"type":"string"},"celsius":{"type":"integer"}},"required":["city","celsius"]}`)
	c.want(gjson.Get(answer, "structured_output").Raw, `{"city":"Bern","celsius":21}`)
}

// claudeImage: a tool's result is a picture, which the model cannot see.
func claudeImage(c *claude) {
	c.writePicture("picture.png")
	c.want(c.ask(exact("A picture.", "Read", `{"file_path":`+quote(c.file("picture.png"))+`}`)), "A picture.")
	calls := c.calls(2)
	if !strings.Contains(calls[1].Prompt, turn.ImagePlaceholder) {
		c.t.Errorf("there is no placeholder for the picture: %s", end(calls[1].Prompt))
	}
	c.wantTurn(calls)
}

// claudeAlias: the model that the CLI asks for by itself is an alias.
func claudeAlias(c *claude) {
	c.model = ""
	c.want(c.ask("SAY Served."), "Served.")
	c.calls(1)
	if got := gjson.Get(c.messages()[0].body, "model").Str; !strings.HasPrefix(got, agentAlias) {
		c.t.Errorf("the CLI asks for %q", got)
	}
}

// claudeLimit: an answer that is cut goes on, with a limit that is far greater than
// the context leaves room for.
func claudeLimit(c *claude) {
	c.environment = []string{"CLAUDE_CODE_MAX_OUTPUT_TOKENS=20"}
	c.ask("NOTHINK\nWORDS 60")
	calls := c.calls(2)
	if !strings.Contains(calls[1].Prompt, "w1 w2 w3") {
		c.t.Errorf("the answer's beginning is lost: %s", end(calls[1].Prompt))
	}
}

// claudeRefused: an error that the client shows.
func claudeRefused(c *claude) {
	if answer := c.runClaude(true, "SIM status=400"); !strings.Contains(answer, "API Error: 400") {
		c.t.Errorf("claude prints %q", answer)
	}
}

// claudeRetries returns a scenario: a request fails, and the CLI retries it.
func claudeRetries(directives string, status int) func(*claude) {
	return func(c *claude) {
		c.d.failNext(directives, false)
		c.want(c.ask("SAY At last."), "At last.")
		requests := c.messages()
		if len(requests) != 2 || requests[0].status != status || requests[1].status != 200 {
			c.t.Errorf("the CLI has made %d requests, the first with status %d", len(requests), requests[0].status)
		}
	}
}

// claudeBroken returns a scenario: a reply breaks in mid-stream, and the CLI asks
// again.
func claudeBroken(directives string) func(*claude) {
	return func(c *claude) {
		c.d.failNext(directives, true)
		c.want(c.ask("SAY At last."), "At last.")
		if n := len(c.messages()); n != 2 {
			c.t.Errorf("the CLI has made %d requests", n)
		}
	}
}

// claudeTooLong: the CLI knows a prompt that is too long from its text.
func claudeTooLong(c *claude) {
	c.model = shortModel
	if answer := c.runClaude(true, "Hello"); !strings.HasPrefix(answer, "Prompt is too long") {
		c.t.Errorf("claude prints %q", answer)
	}
	if n := len(c.messages()); n != 1 {
		c.t.Errorf("the CLI has made %d requests", n)
	}
}
