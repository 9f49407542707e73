package upgrade

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// storeKind is which stores a check is for.
type storeKind int

const (
	anyStore storeKind = iota
	// shared stores outlive their processes; memory: is not one.
	shared
	notShared
)

// check is something that clients go on with after a change of the version.
type check struct {
	// name is in the table of docs/upgrading.md.
	name  string
	store storeKind
	// begin makes it with one version. What it returns goes on with it, at another.
	begin func(t *testing.T, f *fleet) func(t *testing.T)
}

// checks are all of them.
var checks = []check{
	{"responses", shared, storedResponses},
	{"conversations", shared, conversations},
	{"approvals", shared, approvals},
	{"kept-reasoning", shared, keptReasoning},
	{"background", shared, background},
	{"budgets", shared, budgets},
	{"memory", notShared, forgotten},
	{"sealed-reasoning", anyStore, sealedReasoning},
	{"signatures", anyStore, signatures},
	{"compactions", anyStore, compactions},
	{"keys", anyStore, affinityKeys},
}

// secretPlan is reasoning that prompts are searched for.
const secretPlan = "A plan nobody reads."

// analysisOf is how reasoning stands in a prompt.
func analysisOf(text string) string { return "<|channel|>analysis<|message|>" + text + "<|end|>" }

// wantPrompt checks that a prompt has a text.
func wantPrompt(t *testing.T, call stack.EngineRequest, text string) {
	t.Helper()
	if !strings.Contains(call.Prompt, text) {
		t.Errorf("the prompt has no %q:\n%s", text, call.Prompt)
	}
}

// quoted returns a text as JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a text always marshals
	return string(b)
}

// respond is a request for a response, with more members.
func respond(text, more string) string {
	return fmt.Sprintf(`{"model":%q,"input":%s%s}`, checkModel, quoted(text), more)
}

// kept reads objects, and returns a function that reads them again and compares.
func (f *fleet) kept(t *testing.T, paths ...string) func(t *testing.T) {
	t.Helper()
	was := map[string]string{}
	for _, path := range paths {
		was[path] = f.read(t, path)
	}
	return func(t *testing.T) {
		t.Helper()
		for _, path := range paths {
			stack.SameJSON(t, path, was[path], f.read(t, path))
		}
	}
}

// storedResponses is a chain of two responses, and a third one to delete.
func storedResponses(t *testing.T, f *fleet) func(t *testing.T) {
	first, _ := f.ask(t, "/v1/responses", respond("THINK Hm.\nSAY one", `,"instructions":"Be old."`))
	then := `,"previous_response_id":"` + first.Get("id").Str + `"`
	second, _ := f.ask(t, "/v1/responses", respond("THINK Hm.\nSAY two", then))
	last, _ := f.ask(t, "/v1/responses", respond("SAY x", ""))

	path := "/v1/responses/" + second.Get("id").Str
	same := f.kept(t, "/v1/responses/"+first.Get("id").Str, path, path+"/input_items")

	return func(t *testing.T) {
		same(t)
		_, call := f.ask(t, "/v1/responses", respond("SAY three", `,"previous_response_id":"`+second.Get("id").Str+`"`))
		wantPrompt(t, call, "one<|end|>")
		wantPrompt(t, call, "two<|end|>")

		gone := "/v1/responses/" + last.Get("id").Str
		if status, reply := f.send(t, http.MethodDelete, gone, "", f.id()); status != http.StatusOK {
			t.Errorf("delete: status %d: %s", status, reply)
		}
		if status, reply := f.send(t, http.MethodGet, gone, "", f.id()); status != http.StatusNotFound {
			t.Errorf("read what is deleted: status %d: %s", status, reply)
		}
	}
}

// forgotten is a response in the memory of a process: clients are told that it is gone.
func forgotten(t *testing.T, f *fleet) func(t *testing.T) {
	made, _ := f.ask(t, "/v1/responses", respond("SAY one", ""))
	id := made.Get("id").Str

	return func(t *testing.T) {
		if status, reply := f.send(t, http.MethodGet, "/v1/responses/"+id, "", f.id()); status != http.StatusNotFound {
			t.Errorf("read: status %d: %s", status, reply)
		}
		status, reply := f.send(t, http.MethodPost, "/v1/responses", respond("SAY two", `,"previous_response_id":"`+id+`"`),
			f.id())
		if status != http.StatusBadRequest || gjson.Get(reply, "error.code").Str != "previous_response_not_found" {
			t.Errorf("continue: status %d: %s", status, reply)
		}
	}
}

// conversations is a conversation with a response in it.
func conversations(t *testing.T, f *fleet) func(t *testing.T) {
	status, made := f.send(t, http.MethodPost, "/v1/conversations", `{"metadata":{"topic":"old"}}`, f.id())
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, made)
	}
	id := gjson.Get(made, "id").Str
	in := `,"conversation":"` + id + `"`
	f.ask(t, "/v1/responses", respond("THINK Hm.\nSAY one", in))
	same := f.kept(t, "/v1/conversations/"+id, "/v1/conversations/"+id+"/items")

	return func(t *testing.T) {
		same(t)
		_, call := f.ask(t, "/v1/responses", respond("SAY two", in))
		wantPrompt(t, call, "one<|end|>")
	}
}

// approvals is a call of a tool that waits for its approval.
func approvals(t *testing.T, f *fleet) func(t *testing.T) {
	const tools = `,"tools":[{"type":"mcp","server_label":"docs","require_approval":"always"}]`
	asking, _ := f.ask(t, "/v1/responses", respond("NOTHINK\nCALL docs.search {\"q\":\"pay\"}\nSAY done", tools))
	request := asking.Get(`output.#(type=="mcp_approval_request").id`).Str
	if request == "" {
		t.Fatalf("no request for approval: %s", asking)
	}

	return func(t *testing.T) {
		before := f.docs.Count("tools/call search")
		answered, _ := f.ask(t, "/v1/responses", fmt.Sprintf(`{"model":%q,"previous_response_id":%q,"input":[`+
			`{"type":"mcp_approval_response","approval_request_id":%q,"approve":true}]%s}`,
			checkModel, asking.Get("id").Str, request, tools))
		output := answered.Get(`output.#(type=="mcp_call").output`).Str
		if calls := f.docs.Count("tools/call search") - before; calls != 1 || !strings.Contains(output, "found pay") {
			t.Errorf("%d calls: %s", calls, answered)
		}
	}
}

// weather is a function of chat requests.
const weather = `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",` +
	`"properties":{"city":{"type":"string"}}}}}]`

// toolTurn is what the model says to a question that needs a tool.
const toolTurn = "THINK " + secretPlan + "\nCALL get_weather {\"city\":\"Bern\"}\nSAY sunny"

// keptReasoning is a turn of chat that waits for a tool: clients send no reasoning back.
func keptReasoning(t *testing.T, f *fleet) func(t *testing.T) {
	question := `{"role":"user","content":` + quoted(toolTurn) + `}`
	asking, _ := f.ask(t, "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[%s]%s}`, checkModel, question,
		weather))
	call := asking.Get("choices.0.message.tool_calls.0")

	return func(t *testing.T) {
		answered, last := f.ask(t, "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[%s,`+
			`{"role":"assistant","tool_calls":[%s]},{"role":"tool","tool_call_id":%q,"content":"sun"}]%s}`,
			checkModel, question, call.Raw, call.Get("id").Str, weather))
		wantPrompt(t, last, analysisOf(secretPlan))
		if text := answered.Get("choices.0.message.content").Str; text != "sunny" {
			t.Errorf("the answer is %q", text)
		}
	}
}

// background is a background response that has ended, with its stream.
func background(t *testing.T, f *fleet) func(t *testing.T) {
	status, made := f.send(t, http.MethodPost, "/v1/responses", respond("THINK Hm.\nWORDS 30", `,"background":true`),
		f.id())
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, made)
	}
	path := "/v1/responses/" + gjson.Get(made, "id").Str
	f.awaitStatus(t, path, "completed")
	stream := f.read(t, path+"?stream=true")
	same := f.kept(t, path)

	return func(t *testing.T) {
		same(t)
		if again := f.read(t, path+"?stream=true"); again != stream {
			t.Errorf("the stored stream has changed, from\n%s\nto\n%s", stream, again)
		}
		if rest := f.read(t, path+"?stream=true&starting_after=7"); rest != stack.EventsAfter(t, stream, 7) {
			t.Errorf("the rest of the stored stream is\n%s", rest)
		}
	}
}

// awaitStatus waits until a background response has ended, which must be in a state.
func (f *fleet) awaitStatus(t *testing.T, path, status string) gjson.Result {
	t.Helper()
	var r gjson.Result
	stack.Eventually(t, "the end of "+path, func() bool {
		r = gjson.Parse(f.read(t, path))
		return r.Get("status").Str != "queued" && r.Get("status").Str != "in_progress"
	})
	if r.Get("status").Str != status {
		t.Errorf("%s is not %s: %s", path, status, r)
	}
	return r
}

// budgets is what was taken of a token budget: the same request takes the same each time.
func budgets(t *testing.T, f *fleet) func(t *testing.T) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":100,"messages":[{"role":"user","content":"SAY x"}]}`, budgetModel)
	rest := func(t *testing.T) int {
		t.Helper()
		resp := f.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body))
		text := stack.ReadText(t, resp)
		n, err := strconv.Atoi(resp.Header.Get("x-ratelimit-remaining-tokens"))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
		}
		return n
	}

	first := rest(t)
	// What a reply has not used is returned after its end.
	second := 0
	stack.Eventually(t, "the return of unused tokens", func() bool {
		second = rest(t)
		taken := first - second
		first = second
		return taken > 0 && taken < 100
	})
	return func(t *testing.T) {
		if third := rest(t); third >= second || third < second-300 {
			t.Errorf("%d tokens were left, and %d are", second, third)
		}
	}
}

// sealedReasoning is a tool turn of a client that stores nothing here.
func sealedReasoning(t *testing.T, f *fleet) func(t *testing.T) {
	const more = `,"store":false,"include":["reasoning.encrypted_content"],"tools":[{"type":"function",` +
		`"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}]`
	asking, _ := f.ask(t, "/v1/responses", respond(toolTurn, more))
	sealed, call := asking.Get("output.0"), asking.Get(`output.#(type=="function_call")`)
	if sealed.Get("encrypted_content").Str == "" {
		t.Fatalf("no sealed reasoning: %s", asking)
	}

	return func(t *testing.T) {
		// Without its content, and with another id of the call, by which the store would have it, the
		// reasoning is in the sealed text alone.
		_, last := f.ask(t, "/v1/responses", fmt.Sprintf(`{"model":%q,"input":[{"role":"user","content":%s},`+
			`{"type":"reasoning","id":%q,"summary":[],"encrypted_content":%q},%s,`+
			`{"type":"function_call_output","call_id":"call_other","output":"sun"}]%s}`,
			checkModel, quoted(toolTurn), sealed.Get("id").Str, sealed.Get("encrypted_content").Str,
			strings.Replace(call.Raw, call.Get("call_id").Str, "call_other", 1), more))
		wantPrompt(t, last, analysisOf(secretPlan))
	}
}

// signatures is a tool turn of Messages, whose reasoning is in the signature.
func signatures(t *testing.T, f *fleet) func(t *testing.T) {
	const more = `"max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":2000,"display":"omitted"},"tools":[` +
		`{"name":"get_weather","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}]`
	question := `{"role":"user","content":` + quoted(toolTurn) + `}`
	asking, _ := f.ask(t, "/v1/messages", fmt.Sprintf(`{"model":%q,"messages":[%s],%s}`, checkModel, question, more))
	call := asking.Get(`content.#(type=="tool_use").id`).Str
	if call == "" || strings.Contains(asking.Raw, secretPlan) {
		t.Fatalf("no call, or the reasoning is not omitted: %s", asking)
	}

	return func(t *testing.T) {
		// As above: by the id of the call the store would have the reasoning.
		_, last := f.ask(t, "/v1/messages", fmt.Sprintf(`{"model":%q,"messages":[%s,{"role":"assistant","content":%s},`+
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_other","content":"sun"}]}],%s}`,
			checkModel, question, strings.Replace(asking.Get("content").Raw, call, "toolu_other", 1), more))
		wantPrompt(t, last, analysisOf(secretPlan))
	}
}

// compactions is a conversation that was compacted.
func compactions(t *testing.T, f *fleet) func(t *testing.T) {
	made, summary := f.ask(t, "/v1/responses/compact", fmt.Sprintf(`{"model":%q,"input":[`+
		`{"role":"user","content":"We launch on Tuesday."},{"role":"assistant","content":"Understood."}]}`, checkModel))
	items := strings.Trim(made.Get("output").Raw, "[]")
	// The text of the last message of the summary's own call.
	_, text, _ := strings.Cut(summary.Output[0], "final<|message|>")
	text, _, _ = strings.Cut(text, "<|")
	if !strings.Contains(items, `"compaction"`) || text == "" {
		t.Fatalf("no compaction, or no summary in %q: %s", summary.Output, made)
	}

	return func(t *testing.T) {
		body := fmt.Sprintf(`{"model":%q,"store":false,"input":[%s,{"role":"user","content":"SAY x"}]}`, checkModel, items)
		id := f.id()
		status, reply := f.send(t, http.MethodPost, "/v1/responses", body, id)
		if status == http.StatusOK {
			wantPrompt(t, f.AwaitEngine(t, id, stack.StateFinished), text)
			return
		}
		named := gjson.Get(reply, "error.param").Str == "input[1].encrypted_content"
		if status != http.StatusBadRequest || !named || !announced(t, "compactions") {
			t.Errorf("status %d: %s", status, reply)
		}
	}
}

// affinityKeys are the keys by which Envoy chooses the replica of an engine that has a
// conversation in its cache.
func affinityKeys(t *testing.T, f *fleet) func(t *testing.T) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"system","content":%s},{"role":"user","content":"SAY x"}]}`,
		checkModel, quoted(strings.Repeat("Be brief. ", 500)))
	keys := func(t *testing.T) string {
		_, call := f.ask(t, "/v1/chat/completions", body)
		return call.Header["x-harmony-prefix"] + " " + call.Header["x-harmony-session"]
	}
	was := keys(t)
	if strings.TrimSpace(was) == "" {
		t.Fatal("the engine's call has no keys")
	}

	return func(t *testing.T) {
		if is := keys(t); is != was && !announced(t, "keys") {
			t.Errorf("the keys were %q, and are %q", was, is)
		}
	}
}
