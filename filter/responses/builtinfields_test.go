package responses

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

const storeSchema = `{"type":"object","properties":{"q":{"type":"string"},"vector_store_ids":{"type":"array"},"max_num_results":{"type":"integer"}}}`

// fileServer is a server of file search whose tool search has the schema; its tool
// open has none.
func fileServer(t *testing.T, schema string) *loop {
	l := newBuiltinLoop(t)
	l.results = map[string]tools.Result{"": {Tools: []tools.Tool{{Name: "search", InputSchema: json.RawMessage(schema)}, {Name: "open"}}}}
	return l
}

// oneByOne lets servers that are not safe for concurrent use be used so.
type oneByOne struct {
	mu      sync.Mutex
	servers hosted.Runner
}

// Do implements hosted.Runner.
func (o *oneByOne) Do(ctx context.Context, j tools.Job) tools.Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.servers.Do(ctx, j)
}

// TestFieldsOfBuiltins shows that the fields of a built-in tool are arguments of its
// calls, whatever the model writes there, and that tools which cannot be limited are
// not offered.
func TestFieldsOfBuiltins(t *testing.T) {
	t.Parallel()
	const fields = `"tools":[{"type":"file_search","vector_store_ids":[ "vs_1" ],"max_num_results":3,"ranking_options":{}}]`
	for name, arguments := range map[string]string{
		"the model writes none":       `{"q":"x"}`,
		"the model writes another":    `{"vector_store_ids":["vs_2"],"q":"x","max_num_results":50}`,
		"the model writes it twice":   `{"vector_store_ids":["vs_1"],"q":"x","vector_store_ids":["vs_2"]}`,
		"the model writes it escaped": `{"q":"x","\u0076ector_store_ids":["vs_2"],"Vector_Store_IDs":["vs_3"]}`,
	} {
		l := fileServer(t, storeSchema)
		got := l.play(t, `{"model":"m","input":"hi",`+fields+`}`, ` to=file_search.search<|channel|>commentary json<|message|>`+arguments+`<|call|>`, doneText)
		if want := `{"q":"x","vector_store_ids":["vs_1"],"max_num_results":3}`; l.jobs[1].Arguments != want {
			t.Errorf("%s: called with %s, want %s", name, l.jobs[1].Arguments, want)
		}
		if prompt := l.prompts[0]; !strings.Contains(prompt, "type search") || strings.Contains(prompt, "type open") {
			t.Errorf("%s: the prompt has not just the tool that can be limited:\n%s", name, prompt)
		}
		if want := `[{"type":"file_search","vector_store_ids":["vs_1"],"max_num_results":3,"ranking_options":{}}]`; got.Get("tools").Raw != want {
			t.Errorf("%s: the tools are %s", name, got.Get("tools").Raw)
		}
	}
}

// TestFieldsWithoutEffect shows which fields are ignored, and which are refused.
func TestFieldsWithoutEffect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tool, schema   string
		ignored, param string
	}{
		"a place":                         {`{"type":"web_search","user_location":{"type":"approximate"},"search_context_size":"low"}`, "", "tools.user_location tools.search_context_size", ""},
		"a filter of pages":               {`{"type":"web_search","filters":{"allowed_domains":["x"]}}`, "", "", "tools[0].filters"},
		"no filter":                       {`{"type":"web_search","filters":null}`, "", "", ""},
		"files of a container":            {`{"type":"code_interpreter","container":{"type":"auto","file_ids":["f"]}}`, "", "tools.container.file_ids", ""},
		"stores that the server has not":  {`{"type":"file_search","vector_store_ids":["a"]}`, `{"type":"object","properties":{"q":{}}}`, "", "tools[0].vector_store_ids"},
		"filters that the server has not": {`{"type":"file_search","vector_store_ids":["a"],"filters":{"type":"eq"}}`, storeSchema, "", "tools[0].filters"},
		"a ranking":                       {`{"type":"file_search","vector_store_ids":["a"],"ranking_options":{}}`, storeSchema, "tools.ranking_options", ""},
		"a size":                          {`{"type":"image_generation","size":"auto"}`, storeSchema, "tools.size", ""},
	} {
		l := fileServer(t, c.schema)
		l.api.servers = &oneByOne{servers: l}
		body := []byte(`{"model":"m","input":"hi","tools":[` + c.tool + `]}`)
		rc := *l.rc
		rc.Unbounded = true // the tools are listed at once
		request, err := l.api.decode(body, &rc)
		switch {
		case c.param != "":
			if err == nil || err.Status != 400 || err.Param != c.param {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := l.try(t, string(body), doneText); err == nil || err.Param != c.param {
				t.Errorf("%s: a reply ends with %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !slices.Equal(request.Ignored(), strings.Fields(c.ignored)):
			t.Errorf("%s: ignored %v", name, request.Ignored())
		}
	}
}

// TestRepeatsEveryTool shows that a response repeats also the tools that are not offered.
func TestRepeatsEveryTool(t *testing.T) {
	t.Parallel()
	request := mustDecode(t, ask(`,"tools":[{"type":"computer_use_preview"},{"type":"function","name":"f","async":true}]`))
	if got := gjson.Get("{"+string(request.Echo)+"}", "tools.#.type").Raw; got != `["computer_use_preview","function"]` {
		t.Errorf("the response repeats %s", got)
	}
	if got := request.Ignored(); !slices.Equal(got, []string{"tools.computer_use_preview", "tools.async"}) {
		t.Errorf("ignored %v", got)
	}
}

// TestCountsEveryTool shows that the count of a prompt's tokens, and the prompt that is
// shown, have the tools of MCP servers, and that nothing is stored or called.
func TestCountsEveryTool(t *testing.T) {
	t.Parallel()
	for name, toolsOf := range map[string]string{
		"a server":              `{"type":"mcp","server_label":"docs"}`,
		"some tools of it":      `{"type":"mcp","server_label":"docs","allowed_tools":["search"],"require_approval":"always"}`,
		"a built-in tool":       `{"type":"file_search","vector_store_ids":["a"]},{"type":"image_generation"}`,
		"a server and the rest": `{"type":"web_search"},{"type":"mcp","server_label":"docs"},{"type":"function","name":"f"}`,
	} {
		body := ask(`,"tools":[` + toolsOf + `]`)
		made := newBuiltinLoop(t)
		made.play(t, body, doneText)
		l := newBuiltinLoop(t)
		l.api.servers = &oneByOne{servers: l}
		counted, err := l.api.serve("POST", InputTokensPath, []byte(body), l.rc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		shown, err := l.api.serve("POST", RenderPath, []byte(body), l.rc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := apitest.Tokens(made.prompts[0])
		if got := gjson.GetBytes(counted, "input_tokens").Int(); got != int64(len(want)) {
			t.Errorf("%s: %d tokens are counted, the prompt has %d", name, got, len(want))
		}
		if got := gjson.GetBytes(shown, "text").Str; got != made.prompts[0] {
			t.Errorf("%s: shown as\n%s\nwant\n%s", name, got, made.prompts[0])
		}
		for _, j := range l.jobs {
			if j.Tool != "" {
				t.Errorf("%s: %s was called", name, j.Tool)
			}
		}
	}
	dead := newBuiltinLoop(t)
	dead.dead, dead.api.servers = true, &oneByOne{servers: dead}
	if _, err := dead.api.serve("POST", InputTokensPath, []byte(ask(`,"tools":[{"type":"mcp","server_label":"docs"}]`)), dead.rc); err != nil {
		t.Errorf("a server that does not answer: %v", err)
	}
}
