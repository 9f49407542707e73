package messages

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// deferredDocs is a server whose toolset has these members, beside other tools.
func deferredDocs(members, tools string) string {
	return docsServer + `,"tools":[{"type":"mcp_toolset","mcp_server_name":"docs"` + members + `}` + tools + `]`
}

const (
	laterDocs = `,"default_config":{"defer_loading":true}`
	bm25      = `,{"type":"tool_search_tool_bm25","name":"x"}`
)

// silent is an output without its reasoning, which later requests do not have.
func silent(output string) string {
	_, call, _ := strings.Cut(output, "<|end|><|start|>assistant")
	return call
}

// offers reports which of the server's tools a prompt has, before what joins it.
func offers(shown string) string {
	head, _, _ := strings.Cut(shown, "<|start|>user")
	var names []string
	for _, name := range []string{"look_up", "delete"} {
		if strings.Contains(head, "type "+name+" = (") {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// Deferred tools of a server are found by the search, run in the same reply, and stand in the next
// request where they were found.
func TestDeferredServerTools(t *testing.T) {
	t.Parallel()
	s := newService(t)
	body := func(messages string) string { return conversation(messages, deferredDocs(laterDocs, bm25)) }
	message := s.play(t, body(userHi), silent(callOf("tool_search_tool_bm25", `{"query":"looks up"}`)), silent(lookUpCall), doneText)
	if got := kinds(message); got != "server_tool_use tool_search_tool_result mcp_tool_use mcp_tool_result text end_turn" {
		t.Fatalf("the message is %s", message.Raw)
	}
	wantValues(t, message, map[string]string{
		"content.1.content.tool_references.#": "1", "content.1.content.tool_references.0.tool_name": "look.up",
		"content.2.name": "look.up", "content.2.server_name": "docs", "content.3.content.0.text": "found ü",
	})

	if got := offers(s.prompts[0]); got != "" || !strings.Contains(s.prompts[0], "- docs.look_up: Looks up.\n// - docs.delete: Deletes.") {
		t.Errorf("the first prompt offers %q:\n%s", got, s.prompts[0])
	}
	const found = "1 tools were found, and can be called now: docs.look_up<|end|><|start|>developer<|message|># Tools\n\n## docs\n\nnamespace docs {\n\n// Looks up."
	if !strings.Contains(s.prompts[1], found) {
		t.Errorf("the second prompt is\n%s", s.prompts[1])
	}

	// The next request begins with the prompt of the last call, and a search finds what is left.
	last := s.prompts[2]
	next := userHi + `,{"role":"assistant","content":` + message.Get("content").Raw + `},` + userHi
	again := s.play(t, body(next), callOf("tool_search_tool_bm25", `{"query":"looks up and deletes"}`), deleteCall, doneText)
	if !strings.HasPrefix(s.prompts[0], strings.TrimSuffix(last, "<|start|>assistant")) {
		t.Errorf("the prompt of the next request moves:\n%s\n\n%s", last, s.prompts[0])
	}
	if got := again.Get("content.1.content.tool_references.#.tool_name").Raw; got != `["delete"]` {
		t.Errorf("the second search finds %s", got)
	}

	// A compaction keeps what was found.
	block := s.play(t, conversation(next, deferredDocs(laterDocs, bm25)+compacts), summed).Get("content.0")
	if got, want := block.Get("tool_changes").Raw, "["+addition(`{"type":"mcp_tool_reference","server_name":"docs","name":"look.up"}`)+"]"; got != want {
		t.Errorf("the changes are %s, want %s", got, want)
	}
	s.play(t, body(`{"role":"assistant","content":[`+block.Raw+`]},`+userHi), lookUpCall, doneText)
	if !strings.Contains(s.prompts[0], "type look_up = (") || offers(s.prompts[0]) != "" {
		t.Errorf("after the compaction the prompt is\n%s", s.prompts[0])
	}
}

// Which tools of a server are deferred, and what else brings them into the prompt.
func TestDeferredServerToolsChosen(t *testing.T) {
	t.Parallel()
	const mine = `,{"name":"look.up","input_schema":{"type":"object"},"defer_loading":true}`
	load := changing(addition(`{"type":"mcp_tool_reference","server_name":"docs","name":"look.up"}`))
	for name, c := range map[string]struct{ messages, members, offered, joins string }{
		"one of them":          {userHi, deferredDocs(`,"configs":{"delete":{"defer_loading":true}}`, bm25), "look_up", ""},
		"all but one":          {userHi, deferredDocs(`,"configs":{"delete":{"defer_loading":false}}`+laterDocs, bm25), "delete", ""},
		"one that is off":      {userHi, deferredDocs(`,"configs":{"delete":{"enabled":false},"look.up":{}}`+laterDocs, bm25), "", ""},
		"one that is demanded": {userHi, deferredDocs(laterDocs, bm25) + `,"tool_choice":{"type":"tool","name":"look.up"}`, "look_up", ""},
		"one that is added":    {userHi + `,` + load, deferredDocs(laterDocs, bm25), "", "## docs\n\nnamespace docs {\n\n// Looks up."},
		"all that are added":   {userHi + `,` + changing(addition(`{"type":"mcp_toolset_reference","server_name":"docs"}`)), deferredDocs(laterDocs, bm25), "", "// Deletes."},
		"one that is back":     {userHi + `,` + load + `,` + changing(removal(`{"type":"mcp_tool_reference","server_name":"docs","name":"look.up"}`)), deferredDocs(laterDocs, bm25), "", goneHere + "docs.look_up"},
		"one that was unseen":  {userHi + `,` + changing(removal(`{"type":"mcp_tool_reference","server_name":"docs","name":"look.up"}`)), deferredDocs(laterDocs, bm25), "", "<|message|>Hi<|end|><|start|>assistant"},
		// A client's own search cannot have found them, and its functions come first.
		"without a search": {userHi, deferredDocs(laterDocs, ""), "look_up delete", ""},
		"a name twice": {
			userHi + `,{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_bm25","input":{}},` +
				`{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"delete"},{"type":"tool_reference","tool_name":"delete"}]}}]},` + userHi,
			deferredDocs(laterDocs, bm25), "", "1 tools were found, and can be called now: docs.delete<|end|>",
		},
		"a function's name": {
			userHi + `,{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_bm25","input":{}},` +
				`{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"look.up"},{"type":"tool_reference","tool_name":"gone"},{"type":"tool_reference","tool_name":"delete"}]}}]},` + userHi,
			deferredDocs(laterDocs, bm25+mine), "", "3 tools were found, and can be called now: functions.look_up, functions.gone, docs.delete<|end|><|start|>developer<|message|># Tools\n\n## docs\n\nnamespace docs {\n\n// Deletes.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			outputs := []string{doneText}
			if strings.Contains(c.members, "tool_choice") {
				outputs = []string{lookUpCall, doneText}
			}
			s.play(t, conversation(c.messages, c.members), outputs...)
			if got := offers(s.prompts[0]); got != c.offered || !strings.Contains(s.prompts[0], c.joins) {
				t.Errorf("it offers %q, want %q and %q:\n%s", got, c.offered, c.joins, s.prompts[0])
			}
		})
	}

	request, err := newService(t).Decode(t.Context(), []byte(ask(deferredDocs(laterDocs, ""))), apitest.NewContext())
	if err != nil || !slices.Equal(request.Ignored(), []string{"tools.defer_loading"}) {
		t.Errorf("without a search %v are ignored, %v", request.Ignored(), err)
	}
}
