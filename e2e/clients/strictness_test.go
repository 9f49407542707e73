//go:build clients

package clients

import (
	"strings"

	"github.com/tidwall/gjson"
)

// strictModel is the model of agents whose calls are enforced by tool_strictness: all_arguments.
const strictModel = "gpt-oss-strict"

// claudeStrict: arguments that break the tool's schema never reach the CLI, which says nothing of strict.
func claudeStrict(c *claude) {
	c.model = strictModel
	c.ask("NOTHINK\nCALL Bash {\"command\":5,\"description\":[]}\nCALL Bash {\"command\":\"echo ok > ok.txt\",\"description\":\"Write\"}\nSAY Done.")
	c.wantFile("ok.txt", "ok\n")

	calls := 0
	messages := c.messages()
	gjson.Get(messages[len(messages)-1].body, "messages").ForEach(func(_, m gjson.Result) bool {
		for _, block := range m.Get("content").Array() {
			if block.Get("type").Str != "tool_use" {
				continue
			}
			calls++
			if command := block.Get("input.command"); command.Type != gjson.String || block.Get("input.description").IsArray() {
				c.t.Errorf("the CLI got %s", block.Raw)
			}
		}
		return true
	})
	if calls != 2 {
		c.t.Errorf("the CLI got %d calls", calls)
	}
}

// codexStrict: the same of Codex, which says that none of its tools is strict.
func codexStrict(c *codex) {
	name, _, _ := strings.Cut(strings.TrimPrefix(c.shell(""), "CALL "), " ")
	c.wantAnswer("Done.", "--model", strictModel, strings.Join([]string{
		"NOTHINK", "CALL " + name + ` {"cmd":{"x":1},"command":{"x":1}}`, c.shell("echo 1 > one.txt"), "SAY Done.",
	}, "\n"))
	c.wantFile("one.txt", "1\n")

	posts := c.d.postsSince(c.requestsBefore)
	calls := gjson.Get(posts[len(posts)-1], `input.#(type=="function_call")#.arguments`).Array()
	if len(calls) != 2 {
		c.t.Errorf("Codex got %d calls", len(calls))
	}
	for _, arguments := range calls {
		for _, member := range []string{"cmd", "command"} {
			if v := gjson.Get(arguments.Str, member); v.IsObject() {
				c.t.Errorf("Codex got %s", arguments.Str)
			}
		}
	}
}
