package responses

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

const approvedTool = `"tools":[{"type":"mcp","server_label":"docs","require_approval":"always"}]`

// question makes a response that ends with a request for approval, and returns both
// ids.
func (l *loop) question(t *testing.T) (response, request string) {
	t.Helper()
	first := l.play(t, `{"model":"m","input":"hi",`+approvedTool+`}`, searchCall("one"))
	request = first.Get("output.#(type==mcp_approval_request).id").Str
	if request == "" {
		t.Fatalf("nothing is asked: %s", first)
	}
	return first.Get("id").Str, request
}

func yes(request string) string {
	return `{"type":"mcp_approval_response","approval_request_id":"` + request + `","approve":true}`
}

func no(request string) string {
	return `{"type":"mcp_approval_response","approval_request_id":"` + request + `","approve":false,"reason":"too dear"}`
}

// asked is the request for approval as a client has it that keeps its conversation
// itself.
func asked(request, arguments string) string {
	return `{"role":"user","content":"hi"},{"type":"mcp_approval_request","id":"` + request + `","server_label":"docs","name":"search","arguments":"` + arguments + `"}`
}

const (
	oneArgument = `{\"q\":\"one\"}`
	notApproved = "The user did not approve this call. too dear"
)

// calls is how often the tool has been called.
func (l *loop) calls() (n int) {
	for _, j := range l.jobs {
		if j.Tool != "" {
			n++
		}
	}
	return n
}

// A request for approval is answered once: whichever request has a verdict later
// gets what came of the first.
func TestApprovalIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verdicts []func(request string) string
		result   tools.Result
		output   string // of all of them
		failure  string
		calls    int
	}{
		"approved":             {verdicts: []func(string) string{yes, yes}, output: "found one", calls: 1},
		"approved, and denied": {verdicts: []func(string) string{yes, no}, output: "found one", calls: 1},
		"denied":               {verdicts: []func(string) string{no, no}, failure: notApproved},
		"denied, and approved": {verdicts: []func(string) string{no, yes}, failure: notApproved},
		"a call that fails":    {verdicts: []func(string) string{yes, yes}, result: tools.Result{Error: "It is forbidden."}, failure: "It is forbidden.", calls: 1},
		"no output":            {verdicts: []func(string) string{yes, yes}, result: tools.Result{Content: []tools.Part{{Type: "image"}}}, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways := map[string]func(response, request, verdict string) string{
				"the same point": func(response, _, verdict string) string {
					return `"previous_response_id":"` + response + `","input":[` + verdict + `]`
				},
				"without the chain": func(_, _, verdict string) string { return `"input":[{"role":"user","content":"hi"},` + verdict + `]` },
				"stateless": func(_, request, verdict string) string {
					return `"store":false,"input":[` + asked(request, oneArgument) + `,` + verdict + `]`
				},
			}
			for first, begin := range ways {
				for next, again := range ways {
					l := newLoop(t)
					if c.result.Error != "" || c.result.Content != nil {
						l.results = map[string]tools.Result{"search": c.result}
					}
					response, request := l.question(t)
					items := make([]gjson.Result, 0, 2)
					for i, way := range []func(response, request, verdict string) string{begin, again} {
						got := l.play(t, `{"model":"m",`+way(response, request, c.verdicts[i](request))+`,`+approvedTool+`}`, doneText)
						items = append(items, got.Get("output.#(type==mcp_call)"))
						if prompt := l.prompts[len(l.prompts)-1]; !strings.Contains(prompt, c.output+c.failure+"<|end|><|start|>assistant") {
							t.Errorf("%s, %s: the prompt of request %d is\n%s", first, next, i, prompt)
						}
					}
					if n := l.calls(); n != c.calls {
						t.Errorf("%s, %s: %d calls, want %d", first, next, n, c.calls)
					}
					for _, item := range items {
						if item.Get("output").Str != c.output || item.Get("error.content.0.text").Str != c.failure || item.Get("approval_request_id").Str != request {
							t.Errorf("%s, %s: the call is %s", first, next, item)
						}
					}
					if items[0].Get("id").Str == items[1].Get("id").Str {
						t.Errorf("%s, %s: two items have one id", first, next)
					}
				}
			}
		})
	}
}

// A call of which nobody knows what came is not made again, nor is another one
// under the same approval.
func TestApprovalWithoutOutcome(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	response, request := l.question(t)
	body := func(more string) []byte {
		return []byte(`{"model":"m","previous_response_id":"` + response + `","input":[` + yes(request) + `],` + approvedTool + more + `}`)
	}
	call, err := l.api.decode(body(""), l.rc)
	if err != nil {
		t.Fatal(err)
	}
	r := newReply(call, api.Loop)
	var step api.Step
	for !callsTool(step) {
		l.do(r, nil, step.Jobs)
		if _, step, err = r.Step(nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, more := range []string{"", `,"stream":true`} { // while that call is made, or when its request has been cancelled
		got := l.play(t, string(body(more)), doneText)
		if kinds(got) != "mcp_call failed, message completed" || !strings.Contains(got.Get("output.0.error").Raw, "outcome of this call is not known") {
			t.Errorf("the output is %s", got.Get("output"))
		}
		if prompt := l.prompts[len(l.prompts)-1]; !strings.Contains(prompt, "It has not been made again.<|end|>") {
			t.Errorf("the prompt is\n%s", prompt)
		}
	}
	if n := l.calls(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// What is called is what was asked for: a request for approval that the client changes
// is refused, whether it is stored, or in the input twice.
func TestChangedApproval(t *testing.T) {
	t.Parallel()
	const changed = `{\"q\":\"two\"}`
	for name, c := range map[string]struct {
		input func(request string) string
		param string
	}{
		"other arguments than stored": {func(request string) string { return asked(request, changed) }, "input[1]"},
		"another tool than stored": {func(request string) string {
			return strings.Replace(asked(request, oneArgument), `"name":"search"`, `"name":"delete-all"`, 1)
		}, "input[1]"},
		"another server than stored": {func(request string) string {
			return strings.Replace(asked(request, oneArgument), `"server_label":"docs"`, `"server_label":"other"`, 1)
		}, "input[1]"},
		"twice in the input": {func(request string) string {
			return asked("mcpr_own", oneArgument) + `,` + asked("mcpr_own", changed) + `,` + asked(request, oneArgument)
		}, "input[3]"},
	} {
		for _, stored := range []string{"", `"store":false,`} {
			t.Run(name+stored, func(t *testing.T) {
				t.Parallel()
				l := newLoop(t)
				_, request := l.question(t)
				_, err := l.try(t, `{"model":"m",`+stored+`"input":[`+c.input(request)+`,`+yes(request)+`],`+approvedTool+`}`)
				if err == nil || err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, "not the one that was made") {
					t.Errorf("%v", err)
				}
				if n := l.calls(); n != 0 {
					t.Errorf("%d calls", n)
				}
			})
		}
	}
}

// A client that changes what it continues is refused too, and its next, honest request
// is answered: no approval was begun.
func TestChangedApprovalOfAChain(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	response, request := l.question(t)
	body := func(arguments string) string {
		return `{"model":"m","previous_response_id":"` + response + `","input":[` + asked(request, arguments) + `,` + yes(request) + `],` + approvedTool + `}`
	}
	if _, err := l.try(t, body(`{\"q\":\"two\"}`)); err == nil || err.Status != 400 || err.Param != "input[1]" {
		t.Errorf("changed: %v", err)
	}
	got := l.play(t, body(oneArgument), doneText)
	if got.Get("output.#(type==mcp_call).output").Str != "found one" || l.calls() != 1 {
		t.Errorf("unchanged: %d calls, %s", l.calls(), got.Get("output"))
	}
}

// callsTool reports whether a step calls one tool.
func callsTool(step api.Step) bool {
	if len(step.Jobs) != 1 {
		return false
	}
	return strings.HasSuffix(fmt.Sprintf("%T", step.Jobs[0]), ".toolJob")
}

// Another tenant's approval of the same id is another's.
func TestApprovalsOfTenants(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	for i, tenant := range []string{"a", "b"} {
		l.rc.Tenant = tenant
		got := l.play(t, `{"model":"m","input":[`+asked("mcpr_1", oneArgument)+`,`+yes("mcpr_1")+`],`+approvedTool+`}`, doneText)
		if got.Get("output.1.output").Str != "found one" || l.calls() != i+1 {
			t.Errorf("tenant %s: %d calls, %s", tenant, l.calls(), got.Get("output"))
		}
	}
}

// failingApprovals fails to begin records, or only to complete them.
type failingApprovals struct {
	store.Approvals
	begin bool
}

func (s failingApprovals) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	if s.begin {
		return "", errBroken
	}
	return s.Approvals.BeginApproval(ctx, tenant, name, text)
}

func (s failingApprovals) CompleteApproval(context.Context, string, string, string) error {
	return errBroken
}

// Nothing is called while the store does not answer; the client gets what has been called,
// and not called again.
func TestApprovalsWithoutStore(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	records := l.api.Approvals
	response, request := l.question(t)
	body := `{"model":"m","previous_response_id":"` + response + `","input":[` + yes(request) + `],` + approvedTool + `}`
	l.api.Approvals = failingApprovals{records, true}
	if _, err := l.try(t, body); err == nil || err.Status != 503 || l.calls() != 0 {
		t.Errorf("got %v, %d calls", err, l.calls())
	}
	l.api.Approvals = failingApprovals{records, false}
	if got := l.play(t, body, doneText); got.Get("output.0.output").Str != "found one" {
		t.Errorf("the output is %s", got.Get("output"))
	}
	l.api.Approvals = records
	if got := l.play(t, body, doneText); kinds(got) != "mcp_call failed, message completed" || l.calls() != 1 {
		t.Errorf("%d calls, the output is %s", l.calls(), got.Get("output"))
	}
}
