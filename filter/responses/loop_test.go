package responses

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// loop plays a reply that takes more than one step: outputs are what the model
// writes, one a call, and the server of the label "docs" answers by the name of
// the tool.
type loop struct {
	api     *API
	rc      *turn.RequestContext
	prompts []string // of the model calls
	jobs    []tools.Job
	dead    bool                    // the server cannot be reached
	results map[string]tools.Result // of tools, in place of the server's own
}

func newLoop(t *testing.T) *loop {
	t.Helper()
	client := tools.New(tools.Options{Servers: []tools.Server{
		{Label: "docs", URL: "http://127.0.0.1:1", Trusted: true}, {Label: "local", Command: []string{"true"}, Trusted: true},
	}})
	t.Cleanup(client.Close)
	rc := apitest.NewContext()
	memory := store.NewMemory(store.Options{TextBytes: 1 << 20, TextTTL: time.Hour, ResponseBytes: 1 << 24, ResponseTTL: time.Hour, Now: rc.Now})
	rc.Memory = memory
	rc.Limits.Turns = 4
	l := &loop{api: &API{Tools: client, Store: memory, Approvals: memory, Chains: read.NewChains(1 << 20)}, rc: rc}
	l.api.servers = l
	return l
}

// Do is what the server does.
func (l *loop) Do(_ context.Context, j tools.Job) tools.Result {
	l.jobs = append(l.jobs, j)
	if result, ok := l.results[j.Tool]; ok {
		return result
	}
	switch {
	case l.dead:
		return tools.Result{Error: "The server does not answer."}
	case j.Tool == "":
		return tools.Result{Tools: []tools.Tool{
			{Name: "search", Description: "Searches.", InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"},"vector_store_ids":{"type":"array"}}}`), Annotations: json.RawMessage(`{"readOnlyHint":true}`)},
			{Name: "delete-all", Description: "Deletes."},
		}}
	case j.Tool == "delete-all":
		return tools.Result{Error: "It is forbidden."}
	}
	return tools.Result{Text: "found " + gjson.Get(j.Arguments, "q").Str}
}

// play makes a response, and returns its object.
func (l *loop) play(t *testing.T, body string, outputs ...string) gjson.Result {
	t.Helper()
	object, err := l.try(t, body, outputs...)
	if err != nil {
		t.Fatalf("%v (param %q)", err, err.Param)
	}
	return object
}

func (l *loop) try(t *testing.T, body string, outputs ...string) (gjson.Result, *apierror.Error) {
	t.Helper()
	request, err := l.api.decode([]byte(body), l.rc)
	if err != nil {
		return gjson.Result{}, err
	}
	out, err := l.reply(t, newReply(request, api.Loop), outputs...)
	if err != nil {
		return gjson.Result{}, err
	}
	return gjson.Parse(final(t, request, string(out))), nil
}

// reply plays all steps of a reply, and returns its bytes.
func (l *loop) reply(t *testing.T, r *write.Reply, outputs ...string) (out []byte, err *apierror.Error) {
	t.Helper()
	said := make([]apitest.Output, len(outputs))
	for i, text := range outputs {
		said[i] = apitest.Said(text)
		if text, cut := strings.CutSuffix(text, "…"); cut {
			said[i] = apitest.Cut(text)
		}
	}
	out, prompts, err := apitest.PlayLoop(t, r, said, func(out []byte, jobs []api.Job) []byte { return l.do(r, out, jobs) })
	l.prompts = append(l.prompts, prompts...)
	return out, err
}

// do does the jobs of a step. The last one is done first.
func (l *loop) do(r *write.Reply, out []byte, jobs []api.Job) []byte {
	results, errs := make([]any, len(jobs)), make([]error, len(jobs))
	for i, j := range jobs {
		results[i], errs[i] = j.Do(context.Background())
	}
	for i := len(jobs) - 1; i >= 0; i-- {
		out = r.JobDone(out, i, results[i], errs[i])
	}
	return out
}

const docsTool = `"tools":[{"type":"mcp","server_label":"docs"}]`

func searchCall(q string) string {
	return `<|channel|>analysis<|message|>I need ` + q + `.<|end|><|start|>assistant to=docs.search<|channel|>commentary json<|message|>{"q":"` + q + `"}<|call|>`
}

const doneText = `<|channel|>final<|message|>done<|return|>`

// kinds is the types of the items of a response's output.
func kinds(object gjson.Result) string {
	items := object.Get("output").Array()
	list := make([]string, 0, len(items))
	for _, item := range items {
		list = append(list, strings.Trim(item.Get("type").Str+" "+item.Get("status").Str, " "))
	}
	return strings.Join(list, ", ")
}

func TestLoop(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"", `,"stream":true`} {
		l := newLoop(t)
		got := l.play(t, `{"model":"m","input":"hi",`+docsTool+stream+`}`, searchCall("one"), searchCall("two"), doneText)
		if want := "mcp_list_tools, reasoning completed, mcp_call completed, reasoning completed, mcp_call completed, message completed"; kinds(got) != want {
			t.Errorf("the output is\n%s, want\n%s", kinds(got), want)
		}
		if got := got.Get("output.4"); got.Get("output").Str != "found two" || got.Get("name").Str != "search" || got.Get("server_label").Str != "docs" {
			t.Errorf("the second call is %s", got)
		}
		if len(l.prompts) != 3 || !strings.Contains(l.prompts[0], "namespace docs") || !strings.HasPrefix(l.prompts[2], strings.TrimSuffix(l.prompts[1], "<|start|>assistant")) ||
			!strings.HasSuffix(l.prompts[2], `I need two.<|end|><|start|>assistant to=docs.search<|channel|>commentary json<|message|>{"q":"two"}<|call|><|start|>docs.search to=assistant<|channel|>commentary<|message|>found two<|end|><|start|>assistant`) {
			t.Errorf("the prompts are\n%s", strings.Join(l.prompts, "\n----\n"))
		}
		again := len(l.jobs)
		next := l.play(t, `{"model":"m","input":"go on","previous_response_id":"`+got.Get("id").Str+`",`+docsTool+stream+`}`, doneText)
		if kinds(next) != "message completed" || len(l.jobs) != again {
			t.Errorf("the tools are listed again: %s", kinds(next))
		}
		if prompt := l.prompts[3]; !strings.Contains(prompt, "namespace docs") || !strings.Contains(prompt, "found one<|end|>") {
			t.Errorf("the next request's prompt is\n%s", prompt)
		}
	}
}

const functionTool = `{"type":"function","name":"local","parameters":{"type":"object","properties":{}}}`

func TestLoopEnds(t *testing.T) {
	t.Parallel()
	parallel := `<|start|>assistant to=docs.search<|channel|>commentary json<|message|>{"q":"b"}<|call|>`
	for name, c := range map[string]struct {
		fields  string
		outputs []string
		kinds   string
		check   map[string]string
		jobs    int
	}{
		"a failing tool": {
			docsTool,
			[]string{` to=docs.delete-all<|channel|>commentary json<|message|>{}<|call|>`, doneText},
			"mcp_list_tools, mcp_call failed, message completed",
			map[string]string{"output.1.error.content.0.text": "It is forbidden."},
			2,
		},
		"two calls at a time": {
			docsTool,
			[]string{` to=docs.search<|channel|>commentary json<|message|>{"q":"a"}<|end|>` + parallel, doneText},
			"mcp_list_tools, mcp_call completed, mcp_call completed, message completed",
			map[string]string{"output.1.output": "found a", "output.2.output": "found b"},
			3,
		},
		"a call of the client's behind one of ours": {
			`"tools":[` + functionTool + `,{"type":"mcp","server_label":"docs"}]`,
			[]string{` to=docs.search<|channel|>commentary json<|message|>{"q":"a"}<|end|><|start|>assistant to=functions.local<|channel|>commentary json<|message|>{}<|call|>`},
			"mcp_list_tools, mcp_call completed, function_call completed",
			map[string]string{"status": "completed"},
			2,
		},
		"a call of the client's before one of ours": {
			`"tools":[` + functionTool + `,{"type":"mcp","server_label":"docs"}]`,
			[]string{` to=functions.local<|channel|>commentary json<|message|>{}<|end|>` + parallel},
			"mcp_list_tools, function_call completed, mcp_call completed", nil, 2,
		},
		"an unknown tool": {
			docsTool,
			[]string{` to=functions.nothing<|channel|>commentary json<|message|>{}<|call|>`, doneText},
			"mcp_list_tools, message completed", nil, 1,
		},
		"an unknown tool without servers": {
			`"tools":[` + functionTool + `]`,
			[]string{` to=functions.nothing<|channel|>commentary json<|message|>{}<|call|>`, doneText},
			"message completed", nil, 0,
		},
		"a call without tools":                {`"tools":[]`, []string{searchCall("a"), doneText}, "reasoning completed, message completed", nil, 0},
		"a call although tool_choice is none": {docsTool + `,"tool_choice":"none"`, []string{searchCall("a"), doneText}, "reasoning completed, message completed", nil, 0},
		"a call of a function although tool_choice is none": {
			`"tools":[` + functionTool + `],"tool_choice":"none"`,
			[]string{` to=functions.local<|channel|>commentary json<|message|>{}<|call|>`, doneText},
			"message completed", nil, 0,
		},
		"calls without tools, without end": {
			`"tools":[]`,
			[]string{searchCall("a"), searchCall("b"), searchCall("c"), searchCall("d")},
			"reasoning completed, reasoning completed, reasoning completed, reasoning completed",
			map[string]string{"status": "incomplete"},
			0,
		},
		"max_tool_calls": {
			docsTool + `,"max_tool_calls":1`,
			[]string{searchCall("a"), searchCall("b"), doneText},
			"mcp_list_tools, reasoning completed, mcp_call completed, reasoning completed, mcp_call failed, message completed", nil, 2,
		},
		"the turn limit": {
			docsTool,
			[]string{searchCall("a"), searchCall("b"), searchCall("c"), searchCall("d")},
			"mcp_list_tools, reasoning completed, mcp_call completed, reasoning completed, mcp_call completed, reasoning completed, mcp_call completed, reasoning completed, mcp_call completed",
			map[string]string{"status": "incomplete", "incomplete_details": ""},
			5,
		},
		"max_output_tokens": {
			docsTool + `,"max_output_tokens":20`,
			[]string{searchCall("a")},
			"mcp_list_tools, reasoning completed, mcp_call completed",
			map[string]string{"status": "incomplete", "incomplete_details.reason": "max_output_tokens"},
			2,
		},
		"a call that is cut": {
			docsTool,
			[]string{` to=docs.search<|channel|>commentary json<|message|>{"q":…`},
			"mcp_list_tools, mcp_call incomplete",
			map[string]string{"status": "incomplete"},
			1,
		},
		"tool_choice none":     {docsTool + `,"tool_choice":"none"`, []string{doneText}, "message completed", nil, 0},
		"tool_choice required": {docsTool + `,"tool_choice":"required"`, []string{searchCall("a"), doneText}, "mcp_list_tools, reasoning completed, mcp_call completed, message completed", nil, 2},
		"tool_choice of one tool": {
			docsTool + `,"tool_choice":{"type":"mcp","server_label":"docs","name":"search"}`,
			[]string{searchCall("a"), doneText},
			"mcp_list_tools, reasoning completed, mcp_call completed, message completed",
			map[string]string{"tool_choice.server_label": "docs"},
			2,
		},
		"hidden reasoning": {docsTool + `,"reasoning":{"effort":"none"}`, []string{searchCall("a"), doneText}, "mcp_list_tools, mcp_call completed, message completed", nil, 2},
		"allowed_tools":    {`"tools":[{"type":"mcp","server_label":"docs","allowed_tools":["search"]}]`, []string{doneText}, "mcp_list_tools, message completed", map[string]string{"output.0.tools.#": "1"}, 1},
		"allowed_tools that only read": {
			`"tools":[{"type":"mcp","server_label":"docs","allowed_tools":{"read_only":false}}]`,
			[]string{doneText},
			"mcp_list_tools, message completed",
			map[string]string{"output.0.tools.#": "1"},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stream := range []string{"", `,"stream":true`} {
				l := newLoop(t)
				got := l.play(t, `{"model":"m","input":"hi",`+c.fields+stream+`}`, c.outputs...)
				if kinds(got) != c.kinds {
					t.Errorf("the output is\n%s, want\n%s", kinds(got), c.kinds)
				}
				for path, want := range c.check {
					if value := got.Get(path).String(); value != want {
						t.Errorf("%s is %q, want %q", path, value, want)
					}
				}
				if len(l.jobs) != c.jobs {
					t.Errorf("%d jobs, want %d: %v", len(l.jobs), c.jobs, l.jobs)
				}
				if name == "hidden reasoning" && !strings.Contains(l.prompts[1], "I need a.") {
					t.Errorf("the second prompt has no reasoning:\n%s", l.prompts[1])
				}
				if prompt := l.prompts[0]; strings.HasPrefix(name, "allowed_tools") && strings.Contains(prompt, "type search") == strings.Contains(prompt, "type delete-all") {
					t.Errorf("the prompt has not just the tools that are allowed:\n%s", prompt)
				}
				if name == "an unknown tool" && !strings.Contains(l.prompts[1], `There is no tool "nothing"`) {
					t.Errorf("the second prompt does not tell of the unknown tool:\n%s", l.prompts[1])
				}
			}
		})
	}
}

// A call of a client's tool ends the response after the calls that are made here, and
// the next response continues with its output.
func TestLoopEndsWithClientTool(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	const both = `"stream":true,"tools":[{"type":"mcp","server_label":"docs"},{"type":"shell"}]`
	got := l.play(t, `{"model":"m","input":"hi",`+both+`}`, searchCall("a"), callShell)
	if kinds(got) != "mcp_list_tools, reasoning completed, mcp_call completed, shell_call completed" {
		t.Fatalf("the output is %s", kinds(got))
	}
	next := l.play(t, `{"model":"m","previous_response_id":"`+got.Get("id").Str+`","input":[{"type":"shell_call_output","output":"b.txt"}],`+both+`}`, doneText)
	if kinds(next) != "message completed" || !strings.Contains(l.prompts[len(l.prompts)-1], "functions.shell to=assistant<|channel|>commentary<|message|>b.txt<|end|>") {
		t.Errorf("the next output is %s after\n%s", kinds(next), l.prompts[len(l.prompts)-1])
	}
}

// The client sees that a server could not list its tools; the model continues
// without them, and the next request asks again.
func TestLoopWithoutServer(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	l.dead = true
	got := l.play(t, `{"model":"m","input":"hi","stream":true,`+docsTool+`}`, doneText)
	if kinds(got) != "mcp_list_tools, message completed" || got.Get("output.0.error").Str == "" {
		t.Errorf("the output is %s", got.Get("output"))
	}
	l.dead = false
	next := l.play(t, `{"model":"m","input":"again","previous_response_id":"`+got.Get("id").Str+`",`+docsTool+`}`, searchCall("a"), doneText)
	if kinds(next) != "mcp_list_tools, reasoning completed, mcp_call completed, message completed" {
		t.Errorf("the next output is %s", kinds(next))
	}
	l.dead = true
	late := l.play(t, `{"model":"m","input":"hi",`+docsTool+`}`, searchCall("a"), doneText)
	if kinds(late) != "mcp_list_tools, reasoning completed, message completed" || !strings.Contains(l.prompts[len(l.prompts)-1], `There is no tool "docs_search"`) {
		t.Errorf("a call of what is not there becomes %s", kinds(late))
	}
}

// A call that is asked for of a server that is down is an error that says so. With
// another tool it can be that one's.
func TestLoopRequiresServer(t *testing.T) {
	t.Parallel()
	for _, choice := range []string{
		`"required"`, `{"type":"mcp","server_label":"docs"}`, `{"type":"mcp","server_label":"docs","name":"search"}`,
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"mcp","server_label":"docs"}]}`,
	} {
		l := newLoop(t)
		l.dead = true
		_, err := l.try(t, `{"model":"m","input":"hi",`+docsTool+`,"tool_choice":`+choice+`}`)
		if err == nil || err.Status != 424 || err.Code != "tool_unavailable" || !strings.HasPrefix(err.Param, "tool_choice") || !strings.Contains(err.Message, `"docs" could not be listed: The server does not answer.`) {
			t.Errorf("%s: got %v", choice, err)
		}
	}
	l := newLoop(t)
	l.dead = true
	got := l.play(t, `{"model":"m","input":"hi","tools":[`+functionTool+`,{"type":"mcp","server_label":"docs"}],"tool_choice":"required"}`, ` to=functions.local<|channel|>commentary json<|message|>{}<|call|>`)
	if kinds(got) != "mcp_list_tools, function_call completed" {
		t.Errorf("the output is %s", kinds(got))
	}
	l = newLoop(t)
	l.results = map[string]tools.Result{"": {}}
	if _, err := l.try(t, `{"model":"m","input":"hi",`+docsTool+`,"tool_choice":"required"}`); err == nil || err.Status != 400 {
		t.Errorf("a server without tools: %v", err)
	}
}

// A call that needs approval ends the response. The next request's response
// begins with the call, whether the conversation is stored or sent again.
func TestLoopApproval(t *testing.T) {
	t.Parallel()
	tool := `"tools":[{"type":"mcp","server_label":"docs","require_approval":"always"}]`
	for _, stream := range []string{"", `,"stream":true`} {
		for _, stored := range []bool{true, false} {
			for _, approve := range []bool{true, false} {
				l := newLoop(t)
				first := l.play(t, `{"model":"m","input":"hi",`+tool+stream+`}`, searchCall("one"))
				if kinds(first) != "mcp_list_tools, reasoning completed, mcp_approval_request" || first.Get("status").Str != "completed" || len(l.jobs) != 1 {
					t.Fatalf("the output is %s, jobs %v", kinds(first), l.jobs)
				}
				request := first.Get("output.2")
				if request.Get("arguments").Str != `{"q":"one"}` || request.Get("name").Str != "search" || request.Get("server_label").Str != "docs" {
					t.Errorf("the request for approval is %s", request)
				}
				answer := `{"type":"mcp_approval_response","approval_request_id":"` + request.Get("id").Str + `","approve":` + map[bool]string{true: "true", false: `false,"reason":"too dear"`}[approve] + `}`
				history := `"previous_response_id":"` + first.Get("id").Str + `","input":[` + answer + `]`
				if !stored {
					items := strings.TrimSuffix(strings.TrimPrefix(first.Get("output").Raw, "["), "]")
					history = `"store":false,"input":[{"role":"user","content":"hi"},` + items + `,` + answer + `]`
				}
				next := l.play(t, `{"model":"m",`+history+`,`+tool+stream+`}`, doneText)
				call := next.Get("output.0")
				want, jobs := "mcp_call completed, message completed", 2
				if !approve {
					want, jobs = "mcp_call failed, message completed", 1
				}
				if kinds(next) != want || call.Get("approval_request_id").Str != request.Get("id").Str || len(l.jobs) != jobs {
					t.Errorf("stored %t, approve %t: the output is %s, %d jobs", stored, approve, next.Get("output"), len(l.jobs))
				}
				prompt := l.prompts[1]
				if !strings.Contains(prompt, `I need one.<|end|><|start|>assistant to=docs.search<|channel|>commentary json<|message|>{"q":"one"}<|call|><|start|>docs.search to=assistant<|channel|>commentary<|message|>`) ||
					strings.Contains(prompt, "too dear") == approve || strings.Contains(prompt, "found one") != approve {
					t.Errorf("stored %t, approve %t: the prompt is\n%s", stored, approve, prompt)
				}
				if !stored {
					continue
				}
				// The conversation goes on as it was, and nothing is called twice.
				l.play(t, `{"model":"m","input":"more","previous_response_id":"`+next.Get("id").Str+`",`+tool+stream+`}`, doneText)
				if len(l.jobs) != jobs {
					t.Errorf("an approved call is made again: %v", l.jobs)
				}
			}
		}
	}
}

func TestLoopRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, param, says string }{
		"an unknown server":            {`"input":"hi","tools":[{"type":"mcp","server_label":"other"}]`, "tools[0].server_url", "no server of this server_label"},
		"a server that is not allowed": {`"input":"hi","tools":[{"type":"mcp","server_label":"other","server_url":"https://example.com/mcp"}]`, "tools[0].server_url", "allowed_hosts"},
		"no label":                     {`"input":"hi","tools":[{"type":"mcp"}]`, "tools[0].server_label", "server_label"},
		"one label twice":              {`"input":"hi","tools":[{"type":"mcp","server_label":"docs"},{"type":"mcp","server_label":"docs"}]`, "tools[1].server_label", "Two"},
		"a connector":                  {`"input":"hi","tools":[{"type":"mcp","server_label":"docs","connector_id":"x"}]`, "tools[0].connector_id", "server_url"},
		"the functions' label":         {`"input":"hi","tools":[{"type":"mcp","server_label":"functions","server_url":"https://example.com/mcp"}]`, "tools[0].server_label", "namespace of the request's own tools"},
		"a label that is too long":     {`"input":"hi","tools":[{"type":"mcp","server_label":"` + strings.Repeat("x", 257) + `"}]`, "tools[0].server_label", "longer than 256 bytes"},
		"a strange approval":           {`"input":"hi","tools":[{"type":"mcp","server_label":"docs","require_approval":"sometimes"}]`, "tools[0].require_approval", "always"},
		"a header of HTTP's own":       {`"input":"hi","tools":[{"type":"mcp","server_label":"docs","headers":{"Host":"x"}}]`, "tools[0].headers", "Host"},
		"a header it does not take":    {`"input":"hi","tools":[{"type":"mcp","server_label":"docs","headers":{"X-Tenant":"x"}}]`, "tools[0].headers", "request_headers"},
		"authorization not to take":    {`"input":"hi","tools":[{"type":"mcp","server_label":"docs","authorization":"x"}]`, "tools[0].authorization", "request_headers"},
		"headers of a process":         {`"input":"hi","tools":[{"type":"mcp","server_label":"local","headers":{"X-N":"1"}}]`, "tools[0].headers", "is a process"},
		"authorization of a process":   {`"input":"hi","tools":[{"type":"mcp","server_label":"local","authorization":"x"}]`, "tools[0].authorization", "is a process"},
		"an approval of nothing":       {`"input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}],` + docsTool, "input[0].approval_request_id", "no mcp_approval_request"},
		"a choice without its server":  {`"input":"hi",` + docsTool + `,"tool_choice":{"type":"mcp","server_label":"other"}`, "tool_choice", "not one of the tools"},
		"an approval without the tool": {
			`"input":[{"role":"user","content":"hi"},{"type":"mcp_approval_request","id":"mcpr_1","server_label":"docs","name":"search","arguments":"{}"},{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}]`,
			"tools", "Send the tool again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t)
			_, err := l.api.decode([]byte(`{"model":"m",`+c.body+`}`), l.rc)
			if err == nil {
				_, err = l.try(t, `{"model":"m",`+c.body+`}`)
			}
			if err == nil || err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, c.says) {
				t.Errorf("got %v, param %q; want %q about %q", err, err.Param, c.says, c.param)
			}
		})
	}
}

// What a client says in approvals does not go beyond what the operator and the
// request allow, and counts once.
func TestApprovalsAreBounded(t *testing.T) {
	t.Parallel()
	asked := func(id, tool string) string {
		return `{"type":"mcp_approval_request","id":"mcpr_` + id + `","server_label":"docs","name":"` + tool + `","arguments":"{}"}`
	}
	verdict := func(id string) string {
		return `{"type":"mcp_approval_response","approval_request_id":"mcpr_` + id + `","approve":true}`
	}
	body := func(fields string, items ...string) string {
		return `{"model":"m","input":[{"role":"user","content":"hi"},` + strings.Join(items, ",") + `],` + fields + `}`
	}
	t.Run("a tool that is not allowed", func(t *testing.T) {
		t.Parallel()
		for _, fields := range []string{
			`"tools":[{"type":"mcp","server_label":"docs","allowed_tools":{"read_only":true}}]`,
			`"tools":[{"type":"mcp","server_label":"docs","allowed_tools":["search"]}]`,
		} {
			l := newLoop(t)
			got := l.play(t, body(fields, asked("1", "delete-all"), verdict("1")), doneText)
			if kinds(got) != "mcp_list_tools, mcp_call failed, message completed" || len(l.jobs) != 1 {
				t.Errorf("%s: %s, jobs %v", fields, kinds(got), l.jobs)
			}
		}
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		l := newLoop(t)
		if _, err := l.try(t, body(docsTool, asked("1", "search"), verdict("1"), verdict("1"))); err == nil || err.Status != 400 {
			t.Errorf("got %v", err)
		}
		first := l.play(t, body(docsTool, asked("1", "search"), verdict("1")), doneText)
		for _, cold := range []bool{false, true} {
			if cold {
				l.api.Chains = read.NewChains(1 << 20)
			}
			if _, err := l.try(t, `{"model":"m","previous_response_id":"`+first.Get("id").Str+`","input":[`+verdict("1")+`],`+docsTool+`}`); err == nil || err.Status != 400 {
				t.Errorf("cold %t: a call that is made can be approved again: %v", cold, err)
			}
		}
	})
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		l := newLoop(t)
		got := l.play(t, body(docsTool+`,"max_tool_calls":1`, asked("1", "search"), verdict("1"), asked("2", "search"), verdict("2")), doneText)
		if kinds(got) != "mcp_list_tools, mcp_call completed, mcp_call failed, message completed" {
			t.Errorf("the output is %s", kinds(got))
		}
		l.rc.Limits.Tools = 1
		if _, err := l.try(t, body(docsTool, asked("3", "search"), verdict("3"), asked("4", "search"), verdict("4"))); err == nil || err.Status != 400 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("before a request that is refused", func(t *testing.T) {
		t.Parallel()
		l := newLoop(t)
		call := `{"type":"function_call","call_id":"c","name":"local","arguments":"{}"}`
		if _, err := l.try(t, body(docsTool, call, asked("1", "search"), verdict("1"))); err == nil || err.Status != 400 || len(l.jobs) > 1 {
			t.Errorf("got %v after the jobs %v", err, l.jobs)
		}
	})
}

// A reply that ends before its tools are done has what there is of it.
func TestLoopIsCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tools, want string }{
		"a list":                  {docsTool, "mcp_list_tools"},
		"a list that nobody sees": {`"tools":[{"type":"file_search","vector_store_ids":["a"]}]`, ""},
		"both":                    {`"tools":[{"type":"file_search","vector_store_ids":["a"]},{"type":"mcp","server_label":"docs"}]`, "mcp_list_tools"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newBuiltinLoop(t)
			request, err := l.api.decode([]byte(`{"model":"m","input":"hi","stream":true,`+c.tools+`}`), l.rc)
			if err != nil {
				t.Fatal(err)
			}
			r := newReply(request, api.Loop)
			if _, _, err := r.Step(nil); err != nil {
				t.Fatal(err)
			}
			cancel(t, r)
			object, err := l.api.serve("GET", "/v1/responses/"+request.ResponseID, nil, l.rc)
			if err != nil || kinds(gjson.ParseBytes(object)) != c.want {
				t.Errorf("%v: %s", err, object)
			}
		})
	}
}

// A call that tool_choice does not allow is not made, however the output ends.
func TestRefusedCallIsNotMade(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	choice := docsTool + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"docs","name":"search"}]}`
	for _, end := range []string{"{}<|call|>", "{}<|call|><|start|>assistant<|channel|>final<|message|>and…", "{…"} {
		l.jobs = nil
		_, err := l.try(t, `{"model":"m","input":"hi",`+choice+`}`, ` to=docs.delete-all<|channel|>commentary json<|message|>`+end)
		if err == nil || err.Code != "constraint_not_kept" || len(l.jobs) > 1 {
			t.Errorf("%s: %v, the jobs %v", end, err, l.jobs)
		}
	}
}

// A call that was cut is no call of the next prompt; one that may have been made
// is.
func TestCutCallsInChain(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	first := l.play(t, `{"model":"m","input":"hi",`+docsTool+`}`, ` to=docs.search<|channel|>commentary json<|message|>{"q":"un…`)
	l.play(t, `{"model":"m","input":"more","previous_response_id":"`+first.Get("id").Str+`",`+docsTool+`}`, doneText)
	if prompt := l.prompts[1]; strings.Contains(prompt, "to=docs.search") {
		t.Errorf("the prompt has the cut call:\n%s", prompt)
	}
	l.play(t, `{"model":"m","input":[{"role":"user","content":"hi"},{"type":"mcp_call","id":"mcp_1","status":"incomplete","server_label":"docs","name":"search","arguments":"{}"}],`+docsTool+`}`, doneText)
	if prompt := l.prompts[2]; !strings.Contains(prompt, "to=docs.search") || !strings.Contains(prompt, "not known") {
		t.Errorf("the prompt is\n%s", prompt)
	}
}

// A context that the tools have filled ends the response with what there is.
func TestLoopOutOfContext(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	l.rc.Model.ContextLength = 400
	l.results = map[string]tools.Result{"search": {Text: strings.Repeat("words ", 1000)}}
	got := l.play(t, `{"model":"m","input":"hi",`+docsTool+`}`, searchCall("a"))
	if kinds(got) != "mcp_list_tools, reasoning completed, mcp_call completed" || got.Get("status").Str != "incomplete" {
		t.Errorf("%s: %s", got.Get("status"), kinds(got))
	}
}

// However many calls a turn has, and however much tools give, there is an end.
func TestLoopIsBounded(t *testing.T) {
	t.Parallel()
	call := `<|start|>assistant to=docs.search<|channel|>commentary json<|message|>{"q":"a"}<|end|>`
	many := strings.TrimPrefix(strings.Repeat(call, hosted.MaxTurnCalls+3), "<|start|>assistant")
	l := newLoop(t)
	got := l.play(t, `{"model":"m","input":"hi",`+docsTool+`}`, many, doneText)
	if made := len(l.jobs) - 1; made != hosted.MaxTurnCalls || strings.Count(kinds(got), "mcp_call failed") != 3 {
		t.Errorf("%d calls of a turn are made: %s", made, kinds(got))
	}
	l = newBuiltinLoop(t)
	l.results["python"] = tools.Result{Content: []tools.Part{{Type: "image", MIME: "image/png", Data: make([]byte, hosted.MaxResultBytes+1)}}}
	got = l.play(t, `{"model":"m","input":"hi","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`, pythonCall, pythonCall, doneText)
	if kinds(got) != "code_interpreter_call completed, code_interpreter_call failed, message completed" || len(l.jobs) != 1 {
		t.Errorf("after too large a result: %s, %d jobs", kinds(got), len(l.jobs))
	}
}
