//go:build clients

package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// codingAgent is how a coding agent with an OpenAI-compatible API is run.
type codingAgent struct {
	name   string
	client string // as in its manifest
	api    string // path of its requests
	// configure writes its configuration.
	configure func(a *agentRun)
	// ask runs it with a prompt; again continues the last session.
	ask func(a *agentRun, wantError, again bool, prompt string) string
	// breaks is what the agent puts before the user's words and leaves out of the next
	// request, so that the prefix ends there; empty: nothing.
	breaks string
	// read and write are its tools with the names of their arguments.
	read, write [3]string
}

var codingAgents = []codingAgent{
	{
		name: "opencode", client: "opencode", api: "/v1/chat/completions",
		configure: func(a *agentRun) {
			a.configure(".config/opencode/opencode.json", `{"model":"envoy/%[2]s","small_model":"envoy/%[2]s","autoupdate":false,"share":"disabled","permission":"allow","provider":{"envoy":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"%[1]s","apiKey":"none"},"models":{"%[2]s":{"reasoning":true,"tool_call":true,"limit":{"context":131072,"output":32000}}}}}}`)
		},
		ask: func(a *agentRun, wantError, again bool, prompt string) string {
			return a.run(wantError, []string{"OPENCODE_DISABLE_MODELS_FETCH=1"}, prompt, "opencode", append([]string{"run", "--pure", "--title", "Test"}, continued(again)...)...)
		},
		read: [3]string{"read", "filePath"}, write: [3]string{"write", "filePath", "content"},
	},
	{
		name: "qwen-code", client: "qwen-code", api: "/v1/chat/completions",
		configure: func(a *agentRun) {
			a.configure(".qwen/settings.json", `{"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true},"memory":{"enableManagedAutoMemory":false}}`)
		},
		ask: func(a *agentRun, wantError, again bool, prompt string) string {
			return a.run(wantError, []string{"OPENAI_BASE_URL=" + a.base + "/v1", "OPENAI_API_KEY=none", "OPENAI_MODEL=" + stack.SGLangModel}, prompt, "qwen", append([]string{"--auth-type", "openai", "--yolo", "--chat-recording"}, continued(again)...)...)
		},
		breaks: "<system-reminder>\nThe current date is: ",
		read:   [3]string{"read_file", "file_path"}, write: [3]string{"write_file", "file_path", "content"},
	},
	piAgent("chat", "openai-completions", "/v1/chat/completions"),
	piAgent("responses", "openai-responses", "/v1/responses"),
}

func piAgent(name, api, path string) codingAgent {
	return codingAgent{
		name: "pi, " + name, client: "pi", api: path,
		configure: func(a *agentRun) {
			a.configure(".pi/agent/models.json", `{"providers":{"envoy":{"baseUrl":"%[1]s","apiKey":"none","api":"`+api+`","models":[{"id":"%[2]s","reasoning":true,"contextWindow":131072,"maxTokens":32000}]}}}`)
		},
		ask: func(a *agentRun, wantError, again bool, prompt string) string {
			return a.run(wantError, []string{"PI_OFFLINE=1"}, prompt, "pi", append([]string{"--print", "--model", "envoy/" + stack.SGLangModel}, continued(again)...)...)
		},
		read: [3]string{"read", "path"}, write: [3]string{"write", "path", "content"},
	}
}

func continued(again bool) []string {
	if again {
		return []string{"--continue"}
	}
	return nil
}

// configure writes a file below the home folder. %[1]s is the API's URL, %[2]s the
// model.
func (a *agentRun) configure(path, format string) {
	a.t.Helper()
	text := format
	if strings.Contains(format, "%[1]s") {
		text = fmt.Sprintf(format, a.base+"/v1", stack.SGLangModel)
	}
	path = filepath.Join(a.home, path)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// TestCodingAgents runs coding agents headless against the data plane: a task of two
// tool calls, two further turns in other processes, and errors.
func TestCodingAgents(t *testing.T) {
	if _, err := os.Stat("clients/node_modules/.bin/opencode"); err != nil {
		t.Fatal("there are no coding agents: run make test-clients")
	}
	d := startAgentPlane(t)
	for _, agent := range codingAgents {
		for name, scenario := range map[string]func(*agentRun, codingAgent){
			"task": agentTask, "broken in stream": agentBroken, "too long": agentTooLong, "refused": agentRefused,
		} {
			t.Run(agent.name+"/"+name, func(t *testing.T) {
				a := newAgentRun(t, d, agent.client)
				agent.configure(a)
				scenario(a, agent)
			})
		}
	}
}

// agentTask: the model reads and writes a file in the first turn. Each prompt begins
// with all tokens of the one before.
func agentTask(a *agentRun, agent codingAgent) {
	a.write("in.txt", "hello\n")
	a.write("out.txt", "") // qwen-code shows the model the folder
	prompt := exact("All done.",
		agent.read[0], fmt.Sprintf("{%q:%s}", agent.read[1], quote(a.file("in.txt"))),
		agent.read[0], fmt.Sprintf("{%q:%s}", agent.read[1], quote(a.file("out.txt"))),
		agent.write[0], fmt.Sprintf("{%q:%s,%q:%s}", agent.write[1], quote(a.file("out.txt")), agent.write[2], quote("made, 世界\n")))

	a.want(agent.ask(a, false, false, prompt), "All done.")
	a.wantFile("out.txt", "made, 世界\n")
	a.want(agent.ask(a, false, true, exact("Second.")), "Second.")
	a.want(agent.ask(a, false, true, exact("Third.")), "Third.")

	calls := a.engineCalls()
	if len(calls) != 6 {
		a.t.Fatalf("the engine has had %d requests", len(calls))
	}
	if !strings.Contains(calls[1].Prompt, "hello") {
		a.t.Errorf("the model does not get the file: %s", end(calls[1].Prompt))
	}

	a.wantForms(calls[:3])
	a.wantTurn(calls[:4])
	if agent.breaks == "" {
		a.wantNextTurn(calls[:4], calls[4])
		a.wantNextTurn(calls[4:5], calls[5])
	} else {
		a.wantBreaks(agent.breaks, calls[0].Prompt, calls[4].Prompt)
		a.wantBreaks(agent.breaks, calls[4].Prompt, calls[5].Prompt)
	}

	for i, r := range a.d.since(a.requestsBefore, agent.api) {
		if gjson.Get(r.body, "stream").Raw != "true" {
			a.t.Errorf("request %d is not streamed", i+1)
		}
	}
}

// agentBroken: a reply breaks in mid-stream, and the agent asks again.
func agentBroken(a *agentRun, agent codingAgent) {
	a.d.failNext("fault=cut@8", true)
	a.want(agent.ask(a, false, false, "SAY At last."), "At last.")
	if n := len(a.d.since(a.requestsBefore, agent.api)); n != 2 {
		a.t.Errorf("the agent has made %d requests", n)
	}
}

// wantBreaks checks that the next prompt is as the prompt before up to a text that
// the agent leaves out.
func (a *agentRun) wantBreaks(text, before, next string) {
	a.t.Helper()
	at := sharedPrefix(before, next)
	if !strings.HasPrefix(before[at:], text) || strings.HasPrefix(next[at:], text) {
		a.t.Errorf("the prompts differ from byte %d on: %.300q, before %.300q", at, next[at:], before[at:])
	}
}

// agentTooLong: the agent knows a prompt that is too long, by itself or from the
// error's text. pi asks for a summary, and cannot shorten its only message.
func agentTooLong(a *agentRun, agent codingAgent) {
	pi := strings.HasPrefix(agent.name, "pi")
	agent.ask(a, !pi, false, strings.Repeat("word ", 140_000))
	requests := a.d.since(a.requestsBefore, agent.api)
	switch {
	case agent.name == "qwen-code":
		if len(requests) != 0 || !strings.Contains(a.stderr, "Context is too large") {
			a.t.Errorf("%d requests, and the agent prints %q", len(requests), a.stderr)
		}
	case len(requests) < 2 || requests[0].status != 400 || !strings.Contains(strings.ToLower(requests[1].body), "summar"):
		a.t.Errorf("the agent makes %d requests and asks for no summary: %s", len(requests), a.stderr)
	}
}

// agentRefused: an error that the agent shows.
func agentRefused(a *agentRun, agent codingAgent) {
	output := agent.ask(a, true, false, "SIM status=400") + a.stderr
	if !strings.Contains(output, "The engine refused the request") {
		a.t.Errorf("the agent prints %q", output)
	}
}
