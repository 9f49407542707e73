package responses

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

const (
	ownTools  = `,"tools":[{"type":"shell","environment":{"type":"local"}},{"type":"local_shell"},{"type":"apply_patch"}]`
	toShell   = " to=functions.shell<|channel|>commentary json<|message|>"
	toLocal   = " to=functions.local_shell<|channel|>commentary json<|message|>"
	toPatch   = " to=functions.apply_patch<|channel|>commentary json<|message|>"
	callShell = toShell + `{"commands":["ls"]}<|call|>`
)

// TestClientTools shows what calls of a client's tools become, in a stream and whole.
func TestClientTools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, members, text string
		finish              engine.Finish
		want                map[string]string // of the response
	}{
		{"shell", ownTools, callShell, "stop", map[string]string{
			"status": "completed", "output.0.type": "shell_call", "output.0.status": "completed", "output.0.action": `{"commands":["ls"]}`, "output.0.environment": `{"type":"local"}`,
			"tools.#.type": `["shell","local_shell","apply_patch"]`, "tools.0": `{"type":"shell","environment":{"type":"local"}}`,
		}},
		{"local shell", ownTools, toLocal + `{"command":["ls"]}<|call|>`, "stop", map[string]string{
			"output.0.type": "local_shell_call", "output.0.action": `{"type":"exec","command":["ls"],"env":{}}`,
		}},
		{"patch", ownTools, toPatch + `{"type":"create_file","path":"a","diff":"+x"}<|call|>`, "stop", map[string]string{
			"output.0.type": "apply_patch_call", "output.0.operation": `{"type":"create_file","path":"a","diff":"+x"}`,
		}},
		{"another spelling", ownTools, " to=shell<|channel|>commentary json<|message|>{\"command\":\"ls\"}<|call|>", "stop", map[string]string{"output.0.action.commands": `["ls"]`}},
		{"no arguments", ownTools, toShell + "<|call|>", "stop", map[string]string{"output.0.action.commands": `[]`}},
		{"no JSON", ownTools, toShell + "ls -l<|call|>", "stop", map[string]string{"output.0.action.commands": `["ls -l"]`}},
		{"a cut command is nobody's", ownTools, toShell + `{"commands":["rm -r /tmp/a`, "length", map[string]string{"status": "incomplete", "incomplete_details.reason": "max_output_tokens", "output": "[]"}},
		{"two calls", ownTools, callShell + "<|start|>assistant" + callShell, "stop", map[string]string{"output.#.type": `["shell_call","shell_call"]`}},
		{"one call only", ownTools + `,"parallel_tool_calls":false`, callShell + "<|start|>assistant" + callShell, "stop", map[string]string{"output.#.type": `["shell_call"]`}},
		{"withheld", ownTools + `,"tool_choice":"none"`, callShell + "<|start|>assistant<|channel|>final<|message|>x<|return|>", "stop", map[string]string{"output.#.type": `["message"]`}},
		{"chosen", ownTools + `,"tool_choice":{"type":"shell"}`, callShell, "stop", map[string]string{"output.0.type": "shell_call", "tool_choice": `{"type":"shell"}`}},
		{"the local shell chosen", ownTools + `,"tool_choice":{"type":"local_shell"}`, toLocal + `{"command":[]}<|call|>`, "stop", map[string]string{"output.0.type": "local_shell_call", "tool_choice": `{"type":"function","name":"local_shell"}`}},
		{"chosen as a function", ownTools + `,"tool_choice":{"type":"function","name":"shell"}`, callShell, "stop", map[string]string{"output.0.type": "shell_call"}},
		{"allowed", ownTools + `,"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"apply_patch"},{"type":"local_shell"}]}`, toPatch + `{"type":"delete_file","path":"a"}<|call|>`, "stop", map[string]string{
			"output.0.type": "apply_patch_call", "tool_choice.tools": `[{"type":"apply_patch"},{"type":"local_shell"}]`,
		}},
		{"a custom tool with the name", mixedTools, toPatch + "a<|call|>", "stop", map[string]string{"output.0.type": "custom_tool_call"}},
		{"a function with the name", `,"tools":[{"type":"function","name":"shell"}]`, callShell, "stop", map[string]string{"output.0.type": "function_call", "output.0.arguments": `{"commands":["ls"]}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := reply(t, c.members, c.text, c.finish)
			for path, want := range c.want {
				if got := r.Get(path).String(); got != want {
					t.Errorf("%s is %q, want %q", path, got, want)
				}
			}
		})
	}
}

// TestClientToolsAreEnforced shows that a forced call has the tool's own schema.
func TestClientToolsAreEnforced(t *testing.T) {
	t.Parallel()
	e := mustDecode(t, ask(ownTools+`,"tool_choice":{"type":"shell"}`)).Engine()
	if tag := string(constraint.AppendStructuralTag(nil, e.Constraint)); !strings.Contains(tag, "functions.shell") || !strings.Contains(tag, "commands") || strings.Contains(tag, "apply_patch") {
		t.Errorf("the structural tag is %s", tag)
	}
}

// TestToolsThatTheClientDoesNotRun shows tools that are not offered, and that the client
// is told.
func TestToolsThatTheClientDoesNotRun(t *testing.T) {
	t.Parallel()
	for tool, ignored := range map[string]string{
		`{"type":"shell","environment":{"type":"container_auto"}}`:                              "tools.shell",
		`{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}`: "tools.shell",
		`{"type":"apply_patch","allowed_callers":["programmatic"]}`:                             "tools.apply_patch",
		`{"type":"namespace","name":"a","tools":[{"type":"shell"}]}`:                            "tools.shell",
		`{"type":"computer"}`: "tools.computer",
		`{"type":"computer_use_preview","display_width":1,"display_height":1,"environment":"x"}`: "tools.computer_use_preview",
	} {
		request := mustDecode(t, ask(`,"tools":[`+tool+`]`))
		if diff := cmp.Diff([]string{ignored}, request.Ignored()); diff != "" {
			t.Errorf("%s: %s", tool, diff)
		}
		if prompt := apitest.Spell(t, request.Engine().Prompt); strings.Contains(prompt, "namespace") {
			t.Errorf("%s is offered:\n%s", tool, prompt)
		}
	}
	for _, tool := range []string{`{"type":"shell"}`, `{"type":"shell","environment":null}`, `{"type":"apply_patch","allowed_callers":["programmatic","direct"]}`} {
		if request := mustDecode(t, ask(`,"tools":[`+tool+`]`)); len(request.Ignored()) > 0 || !strings.Contains(apitest.Spell(t, request.Engine().Prompt), "namespace functions") {
			t.Errorf("%s is not offered: %q", tool, request.Ignored())
		}
	}
	for _, members := range []string{
		`,"tool_choice":{"type":"shell"}`,
		`,"tool_choice":{"type":"shell"},"tools":[{"type":"shell","environment":{"type":"container_auto"}}]`,
		`,"tool_choice":{"type":"computer"},"tools":[{"type":"computer"}]`,
	} {
		if _, err := (&API{}).decode([]byte(ask(members)), apitest.NewContext()); err == nil || err.Param != "tool_choice" {
			t.Errorf("%s: %v", members, err)
		}
	}
}

// TestClientToolsAnyChunking is the property of TestAnyChunking for calls with actions.
func TestClientToolsAnyChunking(t *testing.T) {
	t.Parallel()
	testAPI.AnyChunking(t, apitest.Chunking{
		Rounds: 200,
		Model: apitest.Model{
			Openings: []string{toShell, toShell + `{"commands":["`, toPatch + "*** Begin Patch\n*** Update File: "},
			Pieces: []string{
				"<|start|>assistant" + toShell, "<|start|>assistant" + toLocal, "<|start|>assistant" + toPatch, "<|start|>assistant" + toShell + `{"commands":["`,
				`","`, `"]}`, `"`, `\`, `\ud83d\ude42`, "\n*** Delete File: ", `{"type":"delete_file","path":"`,
			},
		},
		Requests: []string{ownTools, ownTools + `,"parallel_tool_calls":false`, ownTools + `,"reasoning":{"effort":"none"}`},
	})
}

// shellLoop makes a response that calls the shell, and returns it with the client's
// output.
func shellLoop(t *testing.T, s *server, members string) (first gjson.Result, output string) {
	t.Helper()
	first = s.create(t, members+`,"input":"list"`+ownTools, "<|channel|>analysis<|message|>thought<|end|><|start|>assistant"+callShell)
	call := first.Get("output.1")
	return first, `{"type":"shell_call_output","call_id":"` + call.Get("call_id").Str + `","output":[{"stdout":"a.txt\n","stderr":"","outcome":{"type":"exit","exit_code":0}}]}`
}

const shellTurn = "<|start|>user<|message|>list<|end|><|start|>assistant<|channel|>analysis<|message|>thought<|end|>" +
	"<|start|>assistant to=functions.shell<|channel|>commentary json<|message|>{\"commands\":[\"ls\"]}<|call|>" +
	"<|start|>functions.shell to=assistant<|channel|>commentary<|message|>a.txt\n[exit code 0]<|end|><|start|>assistant"

// TestClientToolsAreStored continues a stored call by its id, by its history, by
// references and in a conversation: the model sees the same.
func TestClientToolsAreStored(t *testing.T) {
	t.Parallel()
	for name, chains := range map[string]bool{"remembered": true, "read again": false} {
		s := newServer()
		first, output := shellLoop(t, s, "")
		if !chains {
			s.Chains = nil
		}
		var items, references []string
		first.Get("output").ForEach(func(_, v gjson.Result) bool {
			items = append(items, v.Raw)
			references = append(references, `{"type":"item_reference","id":"`+v.Get("id").Str+`"}`)
			return true
		})
		for way, members := range map[string]string{
			"chain":               previous(first) + `,"input":[` + output + `]`,
			"history":             `,"input":[{"role":"user","content":"list"},` + strings.Join(items, ",") + `,` + output + `]`,
			"references":          `,"input":[{"role":"user","content":"list"},` + strings.Join(references, ",") + `,` + output + `]`,
			"chain and the call":  previous(first) + `,"input":[` + items[1] + `,` + output + `]`,
			"output without id":   previous(first) + `,"input":[` + strings.Replace(output, `"call_id"`, `"x"`, 1) + `]`,
			"output that is text": previous(first) + `,"input":[{"type":"shell_call_output","call_id":"` + first.Get("output.1.call_id").Str + `","output":"a.txt\n[exit code 0]"}]`,
		} {
			if prompt := s.prompt(t, members); !strings.HasSuffix(prompt, shellTurn) {
				t.Errorf("%s, %s:\n%s", name, way, prompt)
			}
		}
	}
}

// TestClientToolsInConversation also lists the items.
func TestClientToolsInConversation(t *testing.T) {
	t.Parallel()
	s := newServer()
	id, path := s.conversation(t, `{}`)
	in := `,"conversation":"` + id + `"`
	_, output := shellLoop(t, s, in)
	second := s.create(t, in+`,"input":[`+output+`]`+ownTools, said)
	list := s.must(t, "GET", path+"/items?order=asc", "")
	if diff := cmp.Diff([]string{"message", "reasoning", "shell_call", "shell_call_output", "message"}, types(list.Get("data"))); diff != "" {
		t.Error(diff)
	}
	inputs, err := s.do("GET", "/v1/responses/"+second.Get("id").Str+"/input_items")
	if err != nil || !strings.Contains(inputs, `"shell_call_output"`) {
		t.Errorf("%v: %s", err, inputs)
	}
	if prompt := s.prompt(t, in+`,"store":false,"input":"next"`); !strings.Contains(prompt, "a.txt\n[exit code 0]<|end|><|start|>assistant<|channel|>final<|message|>answer<|end|><|start|>user<|message|>next") {
		t.Error(prompt)
	}
}

// TestRepeatedOutputs shows that an output which the stored part of a conversation has
// already is skipped, and one that nothing waits for is not.
func TestRepeatedOutputs(t *testing.T) {
	t.Parallel()
	for name, chains := range map[string]bool{"remembered": true, "read again": false} {
		s := newServer()
		first, output := shellLoop(t, s, "")
		second := s.create(t, previous(first)+`,"input":[`+output+`]`+ownTools, callShell)
		if !chains {
			s.Chains = nil
		}
		newer := strings.Replace(strings.Replace(output, first.Get("output.1.call_id").Str, second.Get("output.0.call_id").Str, 1), "a.txt", "b.txt", 1)
		want := s.prompt(t, previous(second)+`,"input":[`+newer+`,{"role":"user","content":"next"}]`)
		if got := s.prompt(t, previous(second)+`,"input":[`+output+`,`+newer+`,{"role":"user","content":"next"}]`); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		third := s.create(t, previous(second)+`,"input":[`+output+`,`+newer+`]`+ownTools, said)
		inputs, err := s.do("GET", "/v1/responses/"+third.Get("id").Str+"/input_items?order=asc&limit=100")
		if n := strings.Count(inputs, "a.txt"); err != nil || n != 1 {
			t.Errorf("%s: the repeated output is stored %d times: %v", name, n, err)
		}
		made := strings.Replace(output, first.Get("output.1.call_id").Str, "call_none", 1)
		if err := s.fails(t, previous(second)+`,"input":[`+newer+`,`+made+`]`); err.Param != "input[1]" || !strings.Contains(err.Message, "call_none") {
			t.Errorf("%s: an output of no call: %v", name, err)
		}
		if err := s.fails(t, previous(second)+`,"input":[`+newer+`,`+newer+`]`); err.Param != "input[1]" {
			t.Errorf("%s: an output twice in the request: %v", name, err)
		}
	}
}

// TestOutputsWithoutCallID shows to which calls they belong.
func TestOutputsWithoutCallID(t *testing.T) {
	t.Parallel()
	const calls = `{"type":"function_call","call_id":"a","name":"f"},{"type":"function_call","call_id":"b","name":"g"},{"type":"function_call","call_id":"c","name":"f"}`
	out := func(members string) string { return `,{"type":"function_call_output"` + members + `}` }
	for _, c := range []struct{ name, outputs, want string }{
		{"the order of the calls", out(`,"output":"1"`) + out(`,"output":"2"`) + out(`,"output":"3"`), "f1 g2 f3"},
		{"by name", out(`,"output":"1","name":"g"`) + out(`,"output":"2","name":"f"`) + out(`,"output":"3","name":"f"`), "g1 f2 f3"},
		{"beside others", out(`,"output":"1","call_id":"a"`) + out(`,"output":"2","name":"f"`) + out(`,"output":"3"`), "f1 f2 g3"},
	} {
		prompt := apitest.Spell(t, mustDecode(t, askItems(calls+c.outputs)).Engine().Prompt)
		for i, want := range strings.Fields(c.want) {
			if !strings.Contains(prompt, "<|start|>functions."+want[:1]+" to=assistant<|channel|>commentary<|message|>"+want[1:]) {
				t.Errorf("%s: output %d is not %s:\n%s", c.name, i, want, prompt)
			}
		}
	}
	for _, outputs := range []string{out(`,"output":"1","name":"h"`), strings.Repeat(out(`,"output":"1"`), 4)} {
		_, err := (&API{}).decode([]byte(askItems(calls+outputs)), apitest.NewContext())
		if err == nil || !strings.HasSuffix(err.Param, ".call_id") || !strings.Contains(err.Message, "no call before it") {
			t.Errorf("%s: %v", outputs, err)
		}
	}
}

// TestClientToolsReplay repeats a request in Codex compatibility mode: the replay has
// the events of the first stream. A call that is sent as completed has an output.
func TestClientToolsReplay(t *testing.T) {
	t.Parallel()
	s := codexServer()
	outcome := func(members string) api.Outcome {
		return s.endpoints().create(context.Background(), &api.HTTPRequest{Body: []byte(`{"model":"gpt-oss-20b","stream":true` + ownTools + members + `}`), Context: s.rc, Codex: true})
	}
	play := func(members, output string) (gjson.Result, string) {
		request, err := requestOf(outcome(members))
		if err != nil {
			t.Fatal(err)
		}
		sse := run(t, request, apitest.Said(output).Chunks(apitest.Size(7)))
		return gjson.Parse(final(t, request, sse)), sse
	}
	first, _ := play(`,"input":"go"`, callShell)
	again := previous(first) + `,"input":[` + first.Get("output.0").Raw + `]`
	second, sse := play(again, thinks+toShell+`{"commands":["a","b"]}<|end|><|start|>assistant`+toLocal+`["c"]<|end|><|start|>assistant`+toPatch+"x<|call|>")
	if first.Get("id").Str != second.Get("id").Str {
		t.Error("the turn is not continued under its id")
	}
	replayed := replayOf(t, outcome(again))
	if diff := cmp.Diff(eventNames(sse), eventNames(replayed)); diff != "" {
		t.Errorf("the events of the replay (-first +replay):\n%s", diff)
	}
	if got := finalObject(t, true, replayed); got != second.Raw {
		t.Errorf("the replay ends with\n%s\nwant\n%s", got, second.Raw)
	}
}
