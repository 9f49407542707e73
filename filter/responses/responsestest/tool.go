package responsestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// The items of tools that the server runs.
var (
	listItem = both(object(map[string]member{
		"type": must(name), "id": must(prefixed("mcpl_")), "server_label": must(name), "error": may(name),
		"tools": must(array(object(map[string]member{
			"name": must(name), "description": may(text), "input_schema": must(anyObject), "annotations": may(anyObject),
		}))),
	}), func(v gjson.Result) error {
		if v.Get("error").Exists() && len(v.Get("tools").Array()) > 0 {
			return errors.New("a list that failed has tools")
		}
		return nil
	})

	serverCall = both(object(map[string]member{
		"type": must(name), "id": must(prefixed("mcp_")), "status": must(word("in_progress", "calling", "completed", "incomplete", "failed")),
		"server_label": must(name), "name": must(name), "arguments": must(text), "approval_request_id": may(prefixed("mcpr_")),
		"output": may(text), "error": may(callError),
	}), func(v gjson.Result) error {
		status := v.Get("status").Str
		if v.Get("output").Exists() != (status == "completed") || v.Get("error").Exists() != (status == "failed") {
			return fmt.Errorf("a call that is %s has output: %v, error: %v", status, v.Get("output").Exists(), v.Get("error").Exists())
		}
		return nil
	})

	// What went wrong, in one of three forms.
	callError = oneOf(map[string]check{
		"mcp_tool_execution_error": object(map[string]member{"type": must(name), "content": must(array(object(map[string]member{"type": must(word("text")), "text": must(name)})))}),
		"mcp_protocol_error":       object(map[string]member{"type": must(name), "code": must(number), "message": must(name)}),
		"http_error":               object(map[string]member{"type": must(name), "code": must(count), "message": must(name)}),
	})

	approvalRequest = object(map[string]member{
		"type": must(name), "id": must(prefixed("mcpr_")), "server_label": must(name), "name": must(name), "arguments": must(text),
	})
	approvalResponse = object(map[string]member{
		"type": must(name), "id": must(name), "approval_request_id": must(name), "approve": must(boolean), "reason": may(text),
	})

	webSearchCall = object(map[string]member{
		"type": must(name), "id": must(prefixed("ws_")), "status": must(word("in_progress", "searching", "completed", "incomplete", "failed")),
		"action": must(oneOf(map[string]check{
			"search": object(map[string]member{
				"type": must(name), "query": may(text), "queries": may(array(text)),
				"sources": may(array(object(map[string]member{"type": must(word("url")), "url": must(name)}))),
			}),
			"open_page":    object(map[string]member{"type": must(name), "url": may(name)}),
			"find_in_page": object(map[string]member{"type": must(name), "pattern": must(text), "url": must(text)}),
		})),
	})

	codeCall = object(map[string]member{
		"type": must(name), "id": must(prefixed("ci_")), "status": must(word("in_progress", "interpreting", "completed", "incomplete", "failed")),
		"code": must(nullable(text)), "container_id": must(name),
		"outputs": must(nullable(array(oneOf(map[string]check{
			"logs":  object(map[string]member{"type": must(name), "logs": must(text)}),
			"image": object(map[string]member{"type": must(name), "url": must(name)}),
		})))),
	})

	fileSearchCall = object(map[string]member{
		"type": must(name), "id": must(prefixed("fs_")), "status": must(word("in_progress", "searching", "completed", "incomplete", "failed")),
		"queries": must(array(text)), "results": must(nullable(array(object(map[string]member{
			"file_id": may(text), "filename": may(text), "text": may(text), "score": may(number), "attributes": may(nullable(anyObject)),
		})))),
	})

	imageCall = object(map[string]member{
		"type": must(name), "id": must(prefixed("ig_")), "status": must(word("in_progress", "generating", "completed", "incomplete", "failed")),
		"result": must(nullable(name)), "revised_prompt": may(text),
	})

	// Of what is secret in it there is nothing.
	serverTool = sent(map[string]member{
		"type": must(name), "server_label": must(name), "headers": may(absent), "authorization": may(absent),
		"server_url": may(func(v gjson.Result) error {
			if !strings.HasSuffix(v.Str, "/<redacted>") {
				return errors.New("it may have a path")
			}
			return nil
		}),
	})
)

func both(first, second check) check {
	return func(v gjson.Result) error {
		if err := first(v); err != nil {
			return err
		}
		return second(v)
	}
}

func prefixed(prefix string) check {
	return func(v gjson.Result) error {
		if v.Type != gjson.String || !strings.HasPrefix(v.Str, prefix) || v.Str == prefix {
			return fmt.Errorf("%.60s is no id that begins with %s", v.Raw, prefix)
		}
		return nil
	}
}

// statusless are the items that have no status.
var statusless = []string{"compaction", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"}

func hasStatus(item gjson.Result) bool { return !slices.Contains(statusless, item.Get("type").Str) }

// toolEvents tell what the server does for an item.
type toolEvents struct {
	event string   // what their names begin with
	steps []string // that are to come, in their order
	fails bool     // the last may be that it failed
	ended string   // the last of them, once it has come

	repeated string // that may come any number of times; "": none may
}

const (
	theText   = "its text"
	completed = "completed"
	failed    = "failed"
)

// newToolEvents is nil for items for which the server runs no tool.
func newToolEvents(kind string) *toolEvents {
	switch kind {
	case "compaction":
		return &toolEvents{event: "response.compaction", repeated: "compacting"}
	case "mcp_list_tools":
		return &toolEvents{event: "response.mcp_list_tools", steps: []string{"in_progress", completed}, fails: true}
	case "mcp_call":
		return &toolEvents{event: "response.mcp_call", steps: []string{"in_progress", theText, completed}, fails: true}
	case "web_search_call":
		return &toolEvents{event: "response.web_search_call", steps: []string{"in_progress", "searching", completed}}
	case "file_search_call":
		return &toolEvents{event: "response.file_search_call", steps: []string{"in_progress", "searching", completed}}
	case "image_generation_call":
		return &toolEvents{event: "response.image_generation_call", steps: []string{"in_progress", "generating", completed}}
	case "code_interpreter_call":
		return &toolEvents{event: "response.code_interpreter_call", steps: []string{"in_progress", theText, "interpreting", completed}}
	}

	return nil
}

// step takes the next step.
func (t *toolEvents) step(step string) error {
	switch {
	case t.repeated != "" && step == t.repeated:
		return nil
	case len(t.steps) == 0:
		return fmt.Errorf("%s after the last step", step)
	// An access may fail in the place of its last step, and only there.
	case step != t.steps[0] && (step != failed || t.steps[0] != completed || !t.fails):
		return fmt.Errorf("%s where %s should come", step, t.steps[0])
	}

	t.steps = t.steps[1:]
	if len(t.steps) == 0 {
		t.ended = step
	}

	return nil
}

// over checks that the steps tell the same of the item's end as the item.
func (t *toolEvents) over(item gjson.Result) error {
	status := item.Get("status").Str
	// A compaction has steps for its progress, and none for its end.
	if t.repeated != "" {
		if item.Get("encrypted_content").Str == "" {
			return fmt.Errorf("%s has no summary", item.Raw)
		}
		return nil
	}

	// The item has no status; its error says how it has ended.
	if item.Get("type").Str == "mcp_list_tools" {
		status = completed
		if item.Get("error").Exists() {
			status = failed
		}
	}

	// An item that was cut has no last step, and neither has one whose failure has no event.
	if status != completed && (status != failed || !t.fails) {
		status = ""
	}

	if t.ended != status {
		return fmt.Errorf("the last step was %q, but the item is %s", t.ended, item.Raw)
	}

	return nil
}

func absent(gjson.Result) error { return errors.New("it is there") }
