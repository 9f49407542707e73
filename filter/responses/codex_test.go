package responses

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
)

const (
	codexTools = `,"tools":[{"type":"function","name":"shell","parameters":{"type":"object","properties":{"cmd":{"type":"string"}}}},{"type":"custom","name":"apply_patch"}]`

	thinks   = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
	callsOne = thinks + ` to=functions.shell<|channel|>commentary json<|message|>{"cmd":"one"}<|call|>`
	callsTwo = thinks + ` to=functions.shell<|channel|>commentary json<|message|>{"cmd":"a"}<|end|><|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>{"input":"b"}<|call|>`
)

// codexServer is a server whose requests are in compatibility mode.
func codexServer() *server {
	s := newServer()
	s.ToolTimeout = 5 * time.Minute
	return s
}

// eachCodexServer runs a test with one that reads chains each time and with one
// that remembers them.
func eachCodexServer(t *testing.T, run func(*testing.T, *server)) {
	t.Parallel()
	t.Run("reads", func(t *testing.T) { run(t, codexServer()) })
	t.Run("remembers", func(t *testing.T) {
		s := codexServer()
		s.Chains = read.NewChains(1 << 20)
		run(t, s)
	})
}

// codexOutcome is what the mode makes of a request.
func (s *server) codexOutcome(members string) api.Outcome {
	body := []byte(`{"model":"gpt-oss-20b"` + codexTools + members + `}`)
	return s.endpoints().create(context.Background(), &api.HTTPRequest{Body: body, Context: s.rc, Codex: true})
}

func (s *server) decodeCodex(members string) (*write.Request, *apierror.Error) {
	return requestOf(s.codexOutcome(members))
}

// repeated is the response of an outcome that has been answered before.
func repeated(t testing.TB, o api.Outcome) string {
	t.Helper()
	if o.Stream == nil {
		return finalObject(t, false, string(o.Answer))
	}
	return finalObject(t, true, replayOf(t, o))
}

// replayOf is the stream of a request that has been answered before.
func replayOf(t testing.TB, o api.Outcome) string {
	t.Helper()
	if o.Stream == nil {
		t.Fatalf("the request has not been answered before: %+v", o)
	}
	sse, end, err := o.Stream.Next(context.Background(), unbounded)
	if err != nil || !end {
		t.Fatalf("the stream has more to come, or %v", err)
	}
	return string(sse)
}

// codex makes a response in compatibility mode, or returns the one that has been
// made of the request before.
func (s *server) codex(t *testing.T, members, output string) gjson.Result {
	t.Helper()
	o := s.codexOutcome(members)
	answered := o.Answer != nil || o.Stream != nil
	switch {
	case o.Err != nil:
		t.Fatalf("%s: %v (param %q)", members, o.Err, o.Err.Param)
	case answered && output != "":
		t.Fatalf("%s has been answered before", members)
	case !answered && output == "":
		t.Fatalf("%s has not been answered before", members)
	case answered:
		return gjson.Parse(repeated(t, o))
	}
	request := o.Request.(*write.Request)
	return gjson.Parse(final(t, request, run(t, request, apitest.Said(output).Chunks(apitest.Size(7)))))
}

func (s *server) codexFails(t *testing.T, members string) *apierror.Error {
	t.Helper()
	request, err := s.decodeCodex(members)
	if err == nil {
		t.Fatalf("%s is accepted: %v", members, request.ResponseID)
	}
	return err
}

// codexPrompt is what the model is shown after the tools.
func (s *server) codexPrompt(t *testing.T, members string) string {
	t.Helper()
	request, err := s.decodeCodex(members)
	if err != nil {
		t.Fatalf("%s: %v (param %q)", members, err, err.Param)
	}
	prompt := apitest.Spell(t, request.Engine().Prompt)
	return prompt[strings.Index(prompt, "<|start|>user"):]
}

func previous(r gjson.Result) string { return `,"previous_response_id":"` + r.Get("id").Str + `"` }

// back is an input of the calls of a response, or of their outputs.
func back(r gjson.Result, form func(call gjson.Result) string) string {
	var items []string
	for _, item := range r.Get("output").Array() {
		if item.Get("call_id").Exists() {
			items = append(items, form(item))
		}
	}
	return `,"input":[` + strings.Join(items, ",") + `]`
}

// echoed is a call as 2025's client sends it back.
func echoed(call gjson.Result) string {
	return `{"type":"` + call.Get("type").Str + `","call_id":"` + call.Get("call_id").Str + `","name":"` + call.Get("name").Str + `","status":"completed"}`
}

func outputs(text string) func(gjson.Result) string {
	return func(call gjson.Result) string {
		return `{"type":"` + call.Get("type").Str + `_output","call_id":"` + call.Get("call_id").Str + `","output":"` + text + `"}`
	}
}

func itemTypesOf(r gjson.Result) string {
	return strings.Join(types(r.Get("output")), " ")
}

func types(list gjson.Result) []string {
	all := make([]string, 0, len(list.Array()))
	for _, item := range list.Array() {
		all = append(all, item.Get("type").Str)
	}
	return all
}

// TestCodexTurn is one turn of three requests under one id.
func TestCodexTurn(t *testing.T) {
	eachCodexServer(t, testCodexTurn)
}

func testCodexTurn(t *testing.T, s *server) {
	before := s.codex(t, `,"input":"zero"`, said)
	first := s.codex(t, previous(before)+`,"stream":true,"input":"go","include":["usage.per_turn"]`, callsOne)
	second := s.codex(t, previous(first)+`,"stream":true,"include":["usage.per_turn"]`+back(first, outputs("1")), callsTwo)
	third := s.codex(t, previous(second)+`,"include":["usage.per_turn"]`+back(second, outputs("2")), said)
	for i, r := range []gjson.Result{second, third} {
		if r.Get("id").Str != first.Get("id").Str || r.Get("previous_response_id").Str != before.Get("id").Str || r.Get("created_at").Raw != first.Get("created_at").Raw {
			t.Errorf("continuation %d is another response: %s", i+1, r.Raw)
		}
	}
	for _, c := range []struct {
		r    gjson.Result
		want string
	}{{first, "reasoning function_call"}, {second, "reasoning function_call custom_tool_call"}, {third, "message"}} {
		if got := itemTypesOf(c.r); got != c.want {
			t.Errorf("the output has %s, want %s", got, c.want)
		}
	}
	if n := len(third.Get("usage.output_tokens_details.output_tokens_per_turn").Array()); n != 3 {
		t.Errorf("the usage lists %d model calls, want 3: %s", n, third.Get("usage").Raw)
	}
	got, err := s.do(http.MethodGet, Path+"/"+first.Get("id").Str)
	if err != nil || got != third.Raw {
		t.Errorf("the stored response (%v):\n%s\nwant\n%s", err, got, third.Raw)
	}
	list, err := s.do(http.MethodGet, Path+"/"+first.Get("id").Str+"/input_items?order=asc")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"message", "message", // of the turn before
		"message", "reasoning", "function_call", "function_call_output",
		"reasoning", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output",
	}
	if diff := cmp.Diff(want, types(gjson.Get(list, "data"))); diff != "" {
		t.Errorf("input items (-want +got):\n%s", diff)
	}

	next := s.codex(t, previous(third)+`,"input":"more"`, said)
	if next.Get("id").Str == first.Get("id").Str || next.Get("previous_response_id").Str != first.Get("id").Str {
		t.Errorf("the next turn is %s", next.Raw)
	}
}

// TestCodexInput shows the model the same, however a client sends outputs.
func TestCodexInput(t *testing.T) {
	eachCodexServer(t, testCodexInput)
}

func testCodexInput(t *testing.T, s *server) {
	const turn = "<|start|>user<|message|>go<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>" +
		`<|start|>assistant to=functions.shell<|channel|>commentary json<|message|>{"cmd":"a"}<|call|>` +
		`<|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>{"input":"b"}<|call|>`
	const shell, patch = "<|start|>functions.shell to=assistant<|channel|>commentary<|message|>", "<|start|>functions.apply_patch to=assistant<|channel|>commentary<|message|>"
	first := s.codex(t, `,"input":"go"`, callsTwo)
	reasoning, a, b := first.Get("output.0").Raw, first.Get("output.1"), first.Get("output.2")
	out := outputs("x")
	for _, c := range []struct{ name, input, want string }{
		{"outputs", out(a) + "," + out(b), shell + "x<|end|>" + patch + "x<|end|>"},
		{"in another order", out(b) + "," + out(a), patch + "x<|end|>" + shell + "x<|end|>"},
		{"calls only", echoed(a) + "," + echoed(b), shell + "<|end|>" + patch + "<|end|>"},
		{"calls with outputs", a.Raw + "," + b.Raw + "," + out(a) + "," + out(b), shell + "x<|end|>" + patch + "x<|end|>"},
		{"one of each", echoed(a) + "," + out(b), shell + "<|end|>" + patch + "x<|end|>"},
		{"all that was sent", reasoning + "," + a.Raw + "," + b.Raw + "," + out(a) + "," + out(b), shell + "x<|end|>" + patch + "x<|end|>"},
		{"references", `{"type":"item_reference","id":"` + a.Get("id").Str + `"},` + out(a) + "," + out(b), shell + "x<|end|>" + patch + "x<|end|>"},
		{"a message behind them", out(a) + "," + out(b) + `,{"role":"user","content":"and"}`, shell + "x<|end|>" + patch + "x<|end|><|start|>user<|message|>and<|end|>"},
	} {
		if diff := cmp.Diff(turn+c.want+"<|start|>assistant", s.codexPrompt(t, previous(first)+`,"input":[`+c.input+`]`)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	const aborted = `,{"role":"user","content":"Go on."}]`
	second := s.codex(t, previous(first)+strings.TrimSuffix(back(first, outputs("aborted")), "]")+aborted, callsOne)
	if got := s.codexPrompt(t, previous(second)+strings.TrimSuffix(back(second, outputs("aborted")), "]")+aborted); strings.Count(got, "<|start|>user<|message|>Go on.<|end|>") != 2 {
		t.Errorf("a message that is sent with each output:\n%s", got)
	}
	whole := `,"input":[{"role":"user","content":"go"},` + reasoning + "," + a.Raw + "," + b.Raw + "]"
	if got := s.codexPrompt(t, whole); !strings.HasSuffix(got, patch+"<|end|><|start|>assistant") || !strings.Contains(got, shell+"<|end|>") {
		t.Errorf("a history with calls that have no output:\n%s", got)
	}
}

// TestCodexRefused has the requests that a turn does not go on with.
func TestCodexRefused(t *testing.T) {
	eachCodexServer(t, testCodexRefused)
}

func testCodexRefused(t *testing.T, s *server) {
	first := s.codex(t, `,"input":"go"`, callsTwo)
	a := first.Get("output.1")
	for name, members := range map[string]string{
		"one of two outputs":           previous(first) + `,"input":[` + outputs("x")(a) + `]`,
		"a message, not the outputs":   previous(first) + `,"input":"well?"`,
		"an output of no call":         previous(first) + `,"input":[{"type":"function_call_output","call_id":"call_none","output":""}]`,
		"a call that is not completed": `,"input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"x","name":"shell","arguments":"{}"}]`,
	} {
		if err := s.codexFails(t, members); err.Status != http.StatusBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.rc.Tenant = "b"
	if err := s.codexFails(t, previous(first)+back(first, outputs("x"))); err.Status != http.StatusBadRequest {
		t.Errorf("another tenant's turn: %v", err)
	}
	s.rc.Tenant = "a"

	late := s.rc.Now().Add(s.ToolTimeout + time.Second)
	env := *s.rc.Env
	env.Now = func() time.Time { return late }
	s.rc.Env = &env
	if err := s.codexFails(t, previous(first)+back(first, outputs("x"))); err.Status != http.StatusBadRequest || err.Code != "previous_response_not_found" {
		t.Errorf("a turn that has waited too long: %v", err)
	}
}

// TestCodexAgain sends requests again that a turn has answered.
func TestCodexAgain(t *testing.T) {
	eachCodexServer(t, testCodexAgain)
}

func testCodexAgain(t *testing.T, s *server) {
	first := s.codex(t, `,"input":"go"`, callsOne)
	request := previous(first) + back(first, outputs("1"))
	message := strings.TrimSuffix(request, "]") + `,{"role":"user","content":"and"}]`
	second := s.codex(t, message, callsTwo)
	for _, members := range []string{"", `,"stream":true`} {
		again := s.codex(t, members+message, "")
		if diff := cmp.Diff(second.Raw, again.Raw); diff != "" {
			t.Errorf("the answer to a request that is sent again%s (-want +got):\n%s", members, diff)
		}
	}
	if err := s.codexFails(t, previous(first)+back(first, outputs("other"))); err.Status != http.StatusConflict {
		t.Errorf("another output: %v", err)
	}
	if err := s.codexFails(t, previous(first)+back(first, echoed)); err.Status != http.StatusConflict {
		t.Errorf("no output: %v", err)
	}
	third := s.codex(t, previous(second)+`,"input":[`+echoed(first.Get("output.1"))+","+echoed(second.Get("output.1"))+","+echoed(second.Get("output.2"))+`]`, said)
	if again := s.codex(t, previous(second)+`,"stream":true`+back(second, echoed), ""); again.Raw != third.Raw {
		t.Errorf("the answer to a request that is sent again:\n%s\nwant\n%s", again.Raw, third.Raw)
	}
	next := s.codexPrompt(t, previous(third)+`,"input":[`+echoed(first.Get("output.1"))+`,{"role":"user","content":"next"}]`)
	if !strings.HasSuffix(next, "answer<|end|><|start|>user<|message|>next<|end|><|start|>assistant") {
		t.Errorf("a turn after one whose first call is sent again:\n%s", next)
	}
	if err := s.codexFails(t, request); err.Status != http.StatusConflict {
		t.Errorf("a request before the last: %v", err)
	}
}

// TestCodexCut goes on with a turn whose last call was cut.
func TestCodexCut(t *testing.T) {
	eachCodexServer(t, testCodexCut)
}

func testCodexCut(t *testing.T, s *server) {
	request, err := s.decodeCodex(`,"input":"go"`)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(callsOne, "<|call|>") + `<|end|><|start|>assistant to=functions.shell<|channel|>commentary json<|message|>{"cm`
	first := gjson.Parse(final(t, request, run(t, request, apitest.Cut(text).Chunks(apitest.Size(7)))))
	if got := itemTypesOf(first); got != "reasoning function_call function_call" {
		t.Fatalf("the output has %s", got)
	}
	second := s.codex(t, previous(first)+`,"input":[`+outputs("x")(first.Get("output.1"))+`]`, said)
	list, err := s.do(http.MethodGet, Path+"/"+second.Get("id").Str+"/input_items?order=asc")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"message", "reasoning", "function_call", "function_call_output"}, types(gjson.Get(list, "data"))); diff != "" {
		t.Errorf("input items (-want +got):\n%s", diff)
	}
	s.codexPrompt(t, previous(second)+`,"input":[{"role":"user","content":"more"}]`)
}

// TestCodexOutrun ends two requests that go on with the same turn.
func TestCodexOutrun(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"", `,"stream":true`} {
		s := codexServer()
		first := s.codex(t, `,"input":"go"`, callsOne)
		request := previous(first) + stream + back(first, outputs("1"))
		slow, err := s.decodeCodex(request)
		if err != nil {
			t.Fatal(err)
		}
		second := s.codex(t, request, said)
		r := newReply(slow, api.SingleCall)
		out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop})
		if err != nil {
			t.Fatal(err)
		}
		out, err = apitest.End(t, r, out)
		if stream == "" {
			if err == nil || err.Status != http.StatusConflict {
				t.Errorf("the slower request: %v", err)
			}
		} else if object, err := responsestest.Stream(out); err != nil || gjson.GetBytes(object, "status").Str != item.StatusFailed {
			t.Errorf("the slower request (%v):\n%s", err, out)
		}
		if got, err := s.do(http.MethodGet, Path+"/"+first.Get("id").Str); err != nil || got != second.Raw {
			t.Errorf("stored is (%v) %s, want %s", err, got, second.Raw)
		}
	}
}

// TestCodexBrokenOff leaves a turn as it was when a continuation does not come
// to its end.
func TestCodexBrokenOff(t *testing.T) {
	eachCodexServer(t, testCodexBrokenOff)
}

func testCodexBrokenOff(t *testing.T, s *server) {
	first := s.codex(t, `,"input":"go"`, callsOne)
	request := previous(first) + `,"stream":true` + back(first, outputs("1"))
	for name, end := range map[string]func(*write.Reply){
		"cancelled": func(r *write.Reply) { cancel(t, r) },
		"failed": func(r *write.Reply) {
			fail(t, r, nil, apierror.New(http.StatusBadGateway, "engine_error", "", "broken"))
		},
	} {
		call, err := s.decodeCodex(request)
		if err != nil {
			t.Fatal(err)
		}
		r := newReply(call, api.SingleCall)
		if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(thinks)}); err != nil {
			t.Fatal(err)
		}
		end(r)
		if got, err := s.do(http.MethodGet, Path+"/"+first.Get("id").Str); err != nil || got != first.Raw {
			t.Errorf("%s: stored is (%v) %s, want %s", name, err, got, first.Raw)
		}
	}
	if got := s.codex(t, request, said); got.Get("status").Str != item.StatusCompleted {
		t.Errorf("the request again: %s", got.Raw)
	}
}

// TestCodexReplay compares the events of a replay with those of the first
// stream, whatever the response ended with.
func TestCodexReplay(t *testing.T) {
	t.Parallel()
	const call = " to=functions.%s<|channel|>commentary json<|message|>"
	for what, o := range map[string]apitest.Output{
		"an answer":         apitest.Said(thinks + said),
		"calls":             apitest.Said(callsTwo),
		"a cut answer":      apitest.Cut(thinks + "<|channel|>final<|message|>half an answ"),
		"cut reasoning":     apitest.Cut("<|channel|>analysis<|message|>I thi"),
		"a cut call":        apitest.Cut(thinks + strings.Replace(call, "%s", "shell", 1) + `{"cm`),
		"a cut custom call": apitest.Cut(thinks + strings.Replace(call, "%s", "apply_patch", 1) + `{"input":"ab`),
	} {
		s := codexServer()
		first := s.codex(t, `,"input":"go"`, callsOne)
		members := previous(first) + `,"stream":true,"reasoning":{"summary":"auto"}` + back(first, outputs("x"))
		slow, err := s.decodeCodex(members)
		if err != nil {
			t.Fatal(err)
		}
		sse := run(t, slow, o.Chunks(apitest.Size(7)))
		replayed := replayOf(t, s.codexOutcome(members))
		if diff := cmp.Diff(eventNames(sse), eventNames(replayed)); diff != "" {
			t.Errorf("%s: the events of the replay (-first +replay):\n%s", what, diff)
		}
		if a, b := final(t, slow, sse), finalObject(t, true, replayed); a != b {
			t.Errorf("%s: the replay ends with\n%s\nwant\n%s", what, b, a)
		}
	}
}

// TestCodexReplayOfFailed replays a response that was broken off: the item that
// was open then has no end.
func TestCodexReplayOfFailed(t *testing.T) {
	t.Parallel()
	s := codexServer()
	const result = `{"type":"function_call_output","call_id":"x","output":"1"}`
	request, err := s.decodeCodex(`,"stream":true,"input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"x","name":"shell","arguments":"{}"},` + result + `]`)
	if err != nil {
		t.Fatal(err)
	}
	r := newReply(request, api.SingleCall)
	sse, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(thinks + "<|channel|>final<|message|>half an answ")})
	if err != nil {
		t.Fatal(err)
	}
	sse = fail(t, r, sse, apierror.New(http.StatusBadGateway, "engine_error", "", "broken"))
	replayed := replayOf(t, s.codexOutcome(`,"stream":true,"previous_response_id":"`+request.ResponseID+`","input":[`+result+`]`))
	if diff := cmp.Diff(eventNames(string(sse)), eventNames(replayed)); diff != "" {
		t.Errorf("the events of the replay (-first +replay):\n%s", diff)
	}
	finalObject(t, true, replayed)
}

// eventNames are the names of a stream's events; of deltas one after the other
// only those of the first.
func eventNames(sse string) []string {
	var names []string
	deltas := map[string]bool{}
	for line := range strings.Lines(sse) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "event: ")
		switch {
		case !ok || deltas[name]:
			continue
		case strings.HasSuffix(name, ".delta"):
			deltas[name] = true
		default:
			clear(deltas)
		}
		names = append(names, name)
	}
	return names
}

// TestCodexWaitOfIncomplete counts the time that a turn waits for its tools
// from its last batch of calls, though that was cut.
func TestCodexWaitOfIncomplete(t *testing.T) {
	t.Parallel()
	s := codexServer()
	env := *s.rc.Env
	s.rc.Env = &env
	wait := func(d time.Duration) {
		at := s.rc.Now().Add(d)
		env.Now = func() time.Time { return at }
	}
	first := s.codex(t, `,"input":"go"`, callsOne)
	wait(s.ToolTimeout - time.Minute)
	call, err := s.decodeCodex(previous(first) + back(first, outputs("x")))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(callsOne, "<|call|>") + `<|end|><|start|>assistant to=functions.shell<|channel|>commentary json<|message|>{"cm`
	second := gjson.Parse(final(t, call, run(t, call, apitest.Cut(text).Chunks(apitest.Size(7)))))
	if got, err := s.do(http.MethodGet, Path+"/"+first.Get("id").Str); err != nil || got != second.Raw || second.Get("completed_at").Type != gjson.Null {
		t.Errorf("stored is (%v) %s, want %s", err, got, second.Raw)
	}
	request := previous(second) + `,"input":[` + outputs("y")(second.Get("output.1")) + `]`
	wait(s.ToolTimeout - time.Second)
	s.codexPrompt(t, request)
	wait(2 * time.Second)
	if err := s.codexFails(t, request); err.Code != "previous_response_not_found" {
		t.Errorf("a turn that has waited too long: %v", err)
	}
}

// TestCodexGone ends a request whose turn has been deleted meanwhile.
func TestCodexGone(t *testing.T) {
	t.Parallel()
	s := codexServer()
	first := s.codex(t, `,"input":"go"`, callsOne)
	request, err := s.decodeCodex(previous(first) + back(first, outputs("1")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.do(http.MethodDelete, Path+"/"+first.Get("id").Str); err != nil {
		t.Fatal(err)
	}
	r := newReply(request, api.SingleCall)
	if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop}); err != nil {
		t.Fatal(err)
	}
	if _, err := apitest.End(t, r, nil); err == nil || err.Status != http.StatusBadRequest || err.Code != "previous_response_not_found" {
		t.Errorf("the end of a turn that is gone: %v", err)
	}
}
