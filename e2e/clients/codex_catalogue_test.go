//go:build clients

package clients

import (
	"path/filepath"
	"strings"

	"github.com/tidwall/gjson"
)

// catalogue returns the option that gives Codex a catalogue in which the model has
// use_responses_lite and supports_search_tool, as the models of its own catalogue.
func (c *codex) catalogue() []string {
	c.t.Helper()
	path, err := filepath.Abs("testdata/codex-catalogue.json")
	if err != nil {
		c.t.Fatal(err)
	}
	return []string{"-c", "model_catalog_json=" + quote(path)}
}

// codexSearches: for a model of the catalogue Codex sends its tools in an item
// additional_tools, and defers the MCP server's tool. The model searches for it, calls
// it, and calls the shell.
func codexSearches(c *codex) {
	c.wantAnswer("Found it.", append(c.catalogue(), strings.Join([]string{
		"THINK Backwards.", `CALL tool_search {"query":"reverse text","limit":4}`, c.reverse("harmony"), c.shell("echo 1 > one.txt"), "SAY Found it.",
	}, "\n"))...)
	c.wantFile("one.txt", "1\n")
	requests := c.wantTurn(4)
	if first := requests[0].Prompt; strings.Contains(first, "type reverse =") || !strings.Contains(first, "type tool_search =") || !strings.Contains(first, "type exec_command =") {
		c.t.Errorf("the first prompt has other tools: %s", end(first))
	}
	if last := requests[3].Prompt; strings.Count(last, "type reverse =") != 1 || !strings.Contains(last, "ynomrah") {
		c.t.Errorf("the tool that was found is not shown once, or has not answered: %s", end(last))
	}
	for i, body := range c.d.postsSince(c.requestsBefore) {
		if gjson.Get(body, "input.0.type").Str != "additional_tools" || gjson.Get(body, "tools").Exists() {
			c.t.Errorf("request %d has its tools elsewhere", i+1)
		}
	}
}

// codexTeams: with the feature multi_agent_v2 the model starts another agent, which gets
// its task in an item agent_message, and waits for its answer, which comes in another.
func codexTeams(c *codex) {
	task := c.shell("echo sub > sub.txt") + "\nSAY The agent is done."
	c.exec(append(c.catalogue(), "--enable", "multi_agent_v2", strings.Join([]string{
		`CALL collaboration.spawn_agent {"task_name":"child","message":` + quote(task) + `}`, "CALL collaboration.wait_agent {}", "SAY All done.",
	}, "\n"))...)
	c.wantFile("sub.txt", "sub\n")
	messages := 0
	for _, body := range c.d.postsSince(c.requestsBefore) {
		messages += len(gjson.Get(body, `input.#(type=="agent_message")#`).Array())
	}
	if messages == 0 {
		c.t.Error("no request has an agent_message")
	}
	requests := c.requests()
	if last := requests[len(requests)-1].Prompt; !strings.Contains(last, "The agent is done.") {
		c.t.Errorf("the model does not get the agent's answer: %s", end(last))
	}
}
