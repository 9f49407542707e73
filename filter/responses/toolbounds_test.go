package responses

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
)

// TestToolsOfItemsAreBounded sends as many tools as fit into a body of a megabyte. They
// are refused, and what that costs grows with the body only.
func TestToolsOfItemsAreBounded(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	many := func(count int, text string) string {
		parts := make([]string, count)
		for i := range parts {
			parts[i] = strings.ReplaceAll(text, "#", strconv.Itoa(i))
		}
		return strings.Join(parts, ",")
	}
	for name, c := range map[string]struct{ members, want string }{
		"in items":                 {`"input":[` + many(5000, `{"type":"additional_tools","tools":[{"type":"custom","name":"c#"}]}`) + `,` + user + `]`, "more than 512 tools"},
		"deferred, in items":       {`"input":[` + many(5000, `{"type":"additional_tools","tools":[{"type":"tool_search"},{"type":"custom","name":"c#","defer_loading":true}]}`) + `,` + user + `]`, "more than 512 tools"},
		"found by searches":        {`"input":[` + user + `,` + many(5000, `{"type":"tool_search_call","call_id":"c#","arguments":{}},{"type":"tool_search_output","call_id":"c#","tools":[{"type":"custom","name":"c#"}]}`) + `]`, "more than 512 tools"},
		"servers in items":         {`"input":[` + many(5000, `{"type":"additional_tools","tools":[{"type":"web_search"}]}`) + `,` + user + `]`, ""},
		"deferred, in a namespace": {`"input":"hi","tools":[{"type":"tool_search"},{"type":"namespace","name":"n","tools":[` + many(20000, `{"type":"function","name":"c#","defer_loading":true}`) + `]}]`, "more than 512 tools"},
		"deferred without search":  {`"input":"hi","tools":[{"type":"namespace","name":"n","tools":[` + many(20000, `{"type":"function","name":"c#","defer_loading":true}`) + `]}]`, "more than 512 tools"},
		"deferred, described":      {`"input":"hi","tools":[{"type":"tool_search"},{"type":"namespace","name":"n","description":"` + strings.Repeat("what it is, ", 40_000) + `","tools":[` + many(500, `{"type":"function","name":"c#","defer_loading":true}`) + `]}]`, ""},
		"one tool over and over":   {`"input":[` + many(5000, `{"type":"additional_tools","tools":[{"type":"function","name":"c","description":"#"}]}`) + `,` + user + `]`, ""},
	} {
		l := newLoop(t)
		body := []byte(`{"model":"m","store":false,` + c.members + `}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := l.api.decode(body, l.rc)
		runtime.ReadMemStats(&after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Message, c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if n := (after.TotalAlloc - before.TotalAlloc) / uint64(len(body)); n > 100 {
			t.Errorf("%s: %d bytes are allocated for each byte of the body", name, n)
		}
	}
}

// TestDeferredToolsOfItemsAreReplaced sends the deferred tools of a stored conversation
// again with each of its requests, as clients do. A search finds each once, in its last
// definition, and the stored conversation stays as it was.
func TestDeferredToolsOfItemsAreReplaced(t *testing.T) {
	t.Parallel()
	tools := func(description string) string {
		return `{"type":"additional_tools","tools":[{"type":"tool_search"},{"type":"function","name":"weather","description":"` + description + `","defer_loading":true}]}`
	}
	l := newLoop(t)
	first := l.play(t, askItems(tools("Weather of cities.")+`,{"role":"user","content":"Hi"}`), doneText)
	id := l.play(t, `{"model":"m","previous_response_id":"`+first.Get("id").Str+`","input":"Go on"}`, doneText).Get("id").Str
	l.api.Chains = read.NewChains(1 << 20) // so that the next request reads the chain, and remembers it
	for _, description := range []string{"Weather of lakes.", "Weather of hills."} {
		object := l.play(t, `{"model":"m","previous_response_id":"`+id+`","input":[`+tools(description)+`,{"role":"user","content":"Hi"}]}`, searchTurn(`{"query":"weather"}`), doneText)
		if got := object.Get("output.2.tools.#.description").Raw; got != `["`+description+`"]` {
			t.Errorf("the search has found %s, want one tool: %s", got, description)
		}
	}
	again := l.play(t, `{"model":"m","previous_response_id":"`+id+`","input":"Hi"}`, searchTurn(`{"query":"weather"}`), doneText)
	if got := gjson.Get(again.Raw, "output.2.tools.#.description").Raw; got != `["Weather of cities."]` {
		t.Errorf("the stored conversation has %s", got)
	}
}

// TestServerOfAnItemStaysDeferred sends a server whose tools only a search finds, and other
// tools in a later item.
func TestServerOfAnItemStaysDeferred(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	l.play(t, askItems(`{"type":"additional_tools","tools":[{"type":"tool_search"},{"type":"mcp","server_label":"docs","defer_loading":true}]},
		{"role":"user","content":"Hi"},{"type":"additional_tools","tools":[{"type":"function","name":"now"}]}`), doneText)
	if text := l.prompts[0]; strings.Contains(text, "namespace docs {") || !strings.Contains(text, "type now =") {
		t.Errorf("the prompt is %s", text)
	}
}
