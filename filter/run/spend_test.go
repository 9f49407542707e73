package run

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// budgetedRun is the run of a chat request that a token budget bounds. Its jobs are done
// when the test says so.
type budgetedRun struct {
	*testRun
	t      *testing.T
	store  *store.Memory
	budget budget.Budget
}

func startBudgeted(t *testing.T, request api.Request, b budget.Budget) *budgetedRun {
	t.Helper()
	return startBudgetedAt(t, "vllm", request, b)
}

func startBudgetedAt(t *testing.T, kind string, request api.Request, b budget.Budget) *budgetedRun {
	t.Helper()
	b.Name, b.Window, b.Weights = "year", 365*24*time.Hour, budget.Weights{Input: 100, Cached: 100, Output: 100, Reasoning: 100}
	b.Applies = func(budget.Subject) bool { return true }
	s := store.NewMemory(store.Options{})
	r := &budgetedRun{testRun: newTestRun(t, request, api.Loop, kind), t: t, store: s, budget: b}
	r.o.Quota = budget.New(s, []budget.Budget{b}).Account(budget.Subject{})
	r.spend.quota = r.o.Quota
	r.o.Limits = (&api.Endpoint{}).Limits
	output, err := r.o.Quota.Reserve(t.Context(), budget.Usage{}, BudgetCall(request.Engine()))
	if err != nil {
		t.Fatal(err)
	}
	LimitOutput(request.Engine(), output)
	r.Start()
	return r
}

// charged is the tokens that the store has counted.
func (r *budgetedRun) charged() int64 {
	r.t.Helper()
	charge := store.Charge{Budget: "year", Name: "year 8760h0m0s", Window: r.budget.Window}
	c, err := r.store.Charge(r.t.Context(), []store.Charge{charge})
	if err != nil {
		r.t.Fatal(err)
	}
	return c.Counts[0].Used / 100
}

// do does the jobs of one kind that were begun, and returns how many.
func (r *budgetedRun) do(list *[]api.Job) int {
	r.t.Helper()
	begun := *list
	*list = nil
	for i, job := range begun {
		result, err := job.Do(r.t.Context())
		if err != nil {
			r.t.Error(err)
		}
		r.JobDone(JobDone{Index: i, Result: result})
	}
	return len(begun)
}

// toTheModel is a chat whose calls to unknown tools go back to the model.
func toTheModel(t *testing.T, fields string) api.Request {
	t.Helper()
	return decodeChat(t, fields+`,"tools":[{"type":"function","function":{"name":"f"}}]`, false, &turn.Model{UnknownTools: turn.UnknownToModel})
}

const unknownCall = "<|channel|>commentary to=functions.nope<|message|>{}<|call|>"

// Each further call of a reply waits until what it can use is reserved, and the reply
// is charged with what it has used.
func TestEachCallIsReserved(t *testing.T) {
	t.Parallel()
	r := startBudgeted(t, toTheModel(t, `,"max_tokens":100,"stream":true,"stream_options":{"include_usage":true}`), budget.Budget{Tokens: 10_000})
	first := r.executor.calls[0]
	if got := r.charged(); got != int64(len(first.Prompt)+100) || len(r.executor.jobs) != 0 {
		t.Errorf("%d tokens are charged for the first call", got)
	}
	r.feed(answer(unknownCall)...)
	if len(r.executor.calls) != 1 || len(r.executor.jobs) != 1 || r.Ended() {
		t.Fatalf("%d calls and %d jobs", len(r.executor.calls), len(r.executor.jobs))
	}
	r.do(&r.executor.jobs)
	if len(r.executor.calls) != 2 {
		t.Fatalf("%d calls", len(r.executor.calls))
	}
	prompts, wrote := len(first.Prompt)+len(r.executor.calls[1].Prompt), len(tokens(unknownCall))
	if got, want := r.charged(), int64(prompts+wrote+r.executor.calls[1].MaxTokens); got != want {
		t.Errorf("%d tokens are charged for both calls, want %d", got, want)
	}
	r.feed(answer("<|channel|>final<|message|>hi<|return|>")...)
	if n := r.do(&r.executor.detached); n != 1 || !r.Ended() {
		t.Fatalf("%d jobs are left, ended %t", n, r.Ended())
	}
	if want := int64(prompts + wrote + len(tokens("<|channel|>final<|message|>hi<|return|>"))); r.charged() != want {
		t.Errorf("%d tokens are charged, want %d", r.charged(), want)
	}
	if !slices.Contains(r.downstream.header, engine.Header{Name: "x-ratelimit-limit-tokens", Value: "10000"}) {
		t.Errorf("headers %v", r.downstream.header)
	}
}

// A further call that does not fit ends the reply with an error.
func TestFurtherCallIsRefused(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]string{"stream": `,"stream":true`, "object": ""} {
		r := startBudgeted(t, toTheModel(t, `,"max_tokens":100`+fields), budget.Budget{Tokens: 250})
		r.feed(answer(unknownCall)...)
		r.do(&r.executor.jobs)
		if len(r.executor.calls) != 1 || !r.Ended() {
			t.Fatalf("%s: %d calls, ended %t", name, len(r.executor.calls), r.Ended())
		}
		if err := r.downstream.err; name == "object" && (err == nil || err.Status != http.StatusTooManyRequests || err.Limit == nil) || name == "stream" && err == nil && !strings.Contains(r.downstream.text.String(), "rate_limit_exceeded") {
			t.Errorf("%s: %v, %s", name, r.downstream.err, r.downstream.text.String())
		}
		r.do(&r.executor.detached)
		if want := int64(len(r.executor.calls[0].Prompt) + len(tokens(unknownCall))); r.charged() != want {
			t.Errorf("%s: %d tokens are charged, want %d", name, r.charged(), want)
		}
	}
}

// A request that names no limit of its output gets one for each model call, which is what is
// reserved: a share of what is left. However much the engine makes, no more is charged.
func TestCallsWithoutLimit(t *testing.T) {
	t.Parallel()
	r := startBudgeted(t, toTheModel(t, `,"stream":true`), budget.Budget{Tokens: 40_000})
	first := r.executor.calls[0]
	share := (40_000 - len(first.Prompt)) / 8
	if first.MaxTokens != share || r.charged() != int64(len(first.Prompt)+share) {
		t.Errorf("the first call has %d tokens, %d are charged, want %d", first.MaxTokens, r.charged(), share)
	}

	r.feed(answer(unknownCall)...)
	r.do(&r.executor.jobs)
	if len(r.executor.calls) != 2 {
		t.Fatalf("%d calls: %v", len(r.executor.calls), r.downstream.err)
	}

	second := r.executor.calls[1]
	used := len(first.Prompt) + len(tokens(unknownCall)) + len(second.Prompt)
	if want := (40_000 - used) / 8; second.MaxTokens != want {
		t.Errorf("the second call has %d tokens, want %d", second.MaxTokens, want)
	}

	r.feed(ok(), piece(192_005))
	if text := r.downstream.text.String(); !strings.Contains(text, `"finish_reason":"length"`) || !r.Ended() {
		t.Errorf("the reply does not end at its limit: %.300s", text)
	}
	r.do(&r.executor.detached)
	if want := int64(used + second.MaxTokens); r.charged() != want {
		t.Errorf("%d tokens are charged, want %d", r.charged(), want)
	}
}

// Several choices share a reservation, and no choice has less than it needs to end.
func TestChoicesWithoutLimit(t *testing.T) {
	t.Parallel()
	request := chatRequest(t, `,"n":3,"min_tokens":4000`, false)
	prompt := len(request.Engine().Prompt)
	r := startBudgeted(t, request, budget.Budget{Tokens: 80_000})
	call := r.executor.calls[0]
	if want := (80_000 - prompt) / 8 / 3; call.MaxTokens != want || call.MinTokens != want || r.charged() < int64(prompt+3*want) {
		t.Errorf("%d to %d tokens, %d are charged, want %d", call.MinTokens, call.MaxTokens, r.charged(), want)
	}

	call = &engine.Request{N: 3, MaxTokens: 90_000, Unlimited: true}
	if got := BudgetCall(call).Least; got != 3*budget.LeastOutput {
		t.Errorf("the least is %d", got)
	}
}

// piece is some output without an end.
func piece(n int) Event { return bytesOf(event("", tokens(strings.Repeat(" a", n))...)) }

// Output that ends with the budget is reserved in steps while it streams. Where there is
// no more, each choice ends as if its limit was reached.
func TestOutputEndsWithTheBudget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields  string
		choices int
	}{"one": {`,"stream":true`, 1}, "two": {`,"stream":true,"n":2`, 2}, "object": {"", 1}} {
		request := chatRequest(t, `,"max_tokens":1000`+c.fields, false)
		prompt := len(request.Engine().Prompt)
		r := startBudgeted(t, request, budget.Budget{Tokens: int64(prompt) + 250, End: true, Reserve: 100})
		r.feed(ok())
		for i := range c.choices {
			r.feed(bytesOf(strings.Replace(event("", tokens("<|channel|>final<|message|>")...), `"index":0`, `"index":`+string(rune('0'+i)), 1)))
		}
		r.feed(piece(60))
		if n := r.do(&r.executor.beside); n != 1 || r.charged() != int64(prompt+200) {
			t.Errorf("%s: %d jobs, %d tokens are charged", name, n, r.charged())
		}
		r.feed(piece(95))
		if n := r.do(&r.executor.beside); n != 1 || !r.Ended() {
			t.Fatalf("%s: %d jobs, ended %t", name, n, r.Ended())
		}
		if got := strings.Count(r.downstream.text.String(), `"finish_reason":"length"`); got != c.choices || r.downstream.err != nil {
			t.Errorf("%s: %d choices have ended: %s", name, got, r.downstream.text.String())
		}
		r.feed(piece(10)) // on its way when the output has ended
		r.do(&r.executor.detached)
		if want := int64(prompt + 155 + c.choices*3); r.charged() != want {
			t.Errorf("%s: %d tokens are charged, want %d", name, r.charged(), want)
		}
	}
}

// However a reply ends, it is settled once.
func TestSettledOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *budgetedRun){
		"canceled":  func(r *budgetedRun) { r.Cancel() },
		"abandoned": func(r *budgetedRun) { r.Abandon() },
		"failed": func(r *budgetedRun) {
			r.Fail(apierror.New(http.StatusServiceUnavailable, apierror.CodeShutdown, "", "It ends."))
		},
		"lost": func(r *budgetedRun) { r.feed(Broken(errors.New("gone"))) },
	} {
		request := chatRequest(t, `,"max_tokens":1000,"stream":true`, false)
		r := startBudgeted(t, request, budget.Budget{Tokens: 5000})
		r.feed(ok(), bytesOf(event("", tokens("<|channel|>final<|message|>a")...)))
		end(r)
		r.Cancel()
		r.Abandon()
		if n := r.do(&r.executor.detached); n != 1 || !r.Ended() {
			t.Errorf("%s: %d jobs, ended %t", name, n, r.Ended())
		}
		if want := int64(len(request.Engine().Prompt) + 4); r.charged() != want {
			t.Errorf("%s: %d tokens are charged, want %d", name, r.charged(), want)
		}
	}
	// Before an engine has begun to answer: the prompt was sent, and may have been read.
	r := startBudgeted(t, chatRequest(t, "", false), budget.Budget{Tokens: 500_000})
	r.Cancel()
	if got := r.finish(); got != 0 {
		t.Errorf("%d tokens are charged beside the prompt, for no answer", got)
	}
}

// finish does what the end of a run has left, and returns what is charged for output.
func (r *budgetedRun) finish() int64 {
	r.t.Helper()
	if n := r.do(&r.executor.detached); n != 1 || !r.Ended() {
		r.t.Fatalf("%d jobs are left, ended %t: %s", n, r.Ended(), r.downstream.text.String())
	}
	return r.charged() - int64(len(r.executor.calls[0].Prompt))
}

// asObject are the fields of a request whose answer the filter checks itself, where the engine
// takes no grammar.
const asObject = `,"max_tokens":50,"response_format":{"type":"json_object"}`

// Output that is held back for a check is charged though its client leaves.
func TestHeldOutputIsCharged(t *testing.T) {
	t.Parallel()
	request := decodeChat(t, asObject, true, &turn.Model{})
	r := startBudgetedAt(t, "llamacpp", request, budget.Budget{Tokens: 10_000})
	const output = `<|channel|>final<|message|>{"a":[1,2,3`
	made := llamacppAnswer(output, "eos")
	r.feed(made[:len(made)-2]...)
	if r.downstream.text.Len() > 0 || r.Ended() {
		t.Fatalf("the output is not held back: %s", r.downstream.text.String())
	}
	r.Cancel()
	if got := r.finish(); got != int64(len(tokens(output))) {
		t.Errorf("%d tokens are charged, want %d", got, len(tokens(output)))
	}
}

// Of two generations both are charged, and the second one is made only if there is room.
func TestBothGenerationsAreCharged(t *testing.T) {
	t.Parallel()
	const (
		wrong = `<|channel|>final<|message|>no object at all<|return|>`
		kept  = `<|channel|>final<|message|>{"a":1}<|return|>`
	)
	prompt := len(chatRequest(t, asObject, true).Engine().Prompt)
	for name, c := range map[string]struct {
		room  int
		calls int
	}{"room": {100, 2}, "just enough": {50 + len(tokens(wrong)), 2}, "none": {50 + len(tokens(wrong)) - 1, 1}} {
		request := decodeChat(t, asObject, true, &turn.Model{})
		r := startBudgetedAt(t, "llamacpp", request, budget.Budget{Tokens: int64(prompt + c.room)})
		answer := llamacppAnswer(wrong, "eos")
		r.feed(answer[:len(answer)-2]...)
		if n := r.do(&r.executor.jobs); n != 1 || len(r.executor.calls) != c.calls {
			t.Fatalf("%s: %d jobs, %d calls, want %d", name, n, len(r.executor.calls), c.calls)
		}
		want := len(tokens(wrong))
		if c.calls == 2 {
			if got := r.charged(); got != int64(prompt+want+50) {
				t.Errorf("%s: %d tokens are reserved, want %d", name, got, prompt+want+50)
			}
			r.feed(llamacppAnswer(kept, "eos")...)
			want += len(tokens(kept))
		} else if err := r.downstream.err; err == nil || err.Status != http.StatusTooManyRequests {
			t.Errorf("%s: error %v", name, err)
		}
		if got := r.finish(); got != int64(want) {
			t.Errorf("%s: %d tokens are charged, want %d", name, got, want)
		}
	}
}

// What an engine makes for choices that are interrupted meanwhile, or that wait for others,
// is charged. Where there is no room to make the rest again, the choices end in good order.
func TestDroppedOutputIsCharged(t *testing.T) {
	t.Parallel()
	const fields = `,"max_tokens":60,"n":2,"thinking_token_budget":2`
	choice := func(i int, finish, text string) Event {
		return bytesOf(strings.Replace(event(finish, tokens(text)...), `"index":0`, `"index":`+string(rune('0'+i)), 1))
	}
	const beginning, ending = "<|channel|>analysis<|message|> a a", "<|end|><|start|>assistant<|channel|>final<|message|>"
	prompt := len(chatRequest(t, fields, false).Engine().Prompt)
	dropped := strings.Repeat(" b", 40)
	made := int64(2*len(tokens(beginning)) + 2*len(tokens(dropped)))
	for name, c := range map[string]struct {
		room  int
		calls int
	}{"room": {300, 3}, "none": {120, 1}} {
		r := startBudgeted(t, chatRequest(t, fields, false), budget.Budget{Tokens: int64(prompt + c.room)})
		r.feed(ok(), choice(0, "", beginning+dropped), choice(1, "", beginning+dropped))
		r.do(&r.executor.jobs)
		for range c.calls - 1 {
			r.feed(ok(), choice(0, "stop", "c<|return|>"), Ended(nil))
		}
		want := made + int64(len(tokens(ending)))
		if c.calls == 3 {
			want += int64(len(tokens(ending))) + 4
		} else if !strings.Contains(r.downstream.text.String(), `"finish_reason":"length"`) {
			t.Errorf("%s: %s", name, r.downstream.text.String())
		}
		if len(r.executor.calls) != c.calls || r.downstream.err != nil {
			t.Fatalf("%s: %d calls, want %d, %v", name, len(r.executor.calls), c.calls, r.downstream.err)
		}
		if got := r.finish(); got != want || got > int64(c.room) {
			t.Errorf("%s: %d tokens are charged, want %d", name, got, want)
		}
	}
}

// However much an engine makes, no more is charged than the request allows.
func TestOvershootIsNotCharged(t *testing.T) {
	t.Parallel()
	r := startBudgeted(t, chatRequest(t, `,"max_tokens":50,"stream":true`, false), budget.Budget{Tokens: 10_000})
	r.feed(ok(), piece(192_005))
	if got := r.finish(); got != 50 {
		t.Errorf("%d tokens are charged", got)
	}
}

// A call that was sent is charged with its prompt, though no engine has begun to answer when the
// client leaves: it was free once, and prompts of any length could be computed for nothing.
func TestClientThatLeavesPaysThePrompt(t *testing.T) {
	t.Parallel()
	ends := map[string]func(r *budgetedRun){
		"canceled":  func(r *budgetedRun) { r.Cancel() },
		"abandoned": func(r *budgetedRun) { r.Abandon() },
	}
	before := map[string][]Event{
		"sent":                         {},
		"the prefill engine answers":   {{Kind: EventPrefilling}},
		"sent again, behind a failure": {Broken(errBroken)},
	}
	for name, end := range ends {
		for when, events := range before {
			r := startBudgeted(t, chatRequest(t, `,"max_tokens":50`, false), budget.Budget{Tokens: 10_000})
			r.feed(events...)
			if r.Ended() {
				t.Fatalf("%s, %s: ended", name, when)
			}
			end(r)
			if got := r.finish(); got != 0 {
				t.Errorf("%s, %s: %d tokens are charged beside the prompt", name, when, got)
			}
		}
	}
}

// rejection is an answer of an engine with an error.
func rejection(status int) []Event {
	return []Event{Answered(status, http.Header{}, nil), bytesOf(`{"error":{"message":"no"}}`), Ended(nil)}
}

// What an engine refuses, and what cannot reach one, costs nothing, and nor does a reply whose
// call was not sent. A client that leaves while the error is being read does not change that.
func TestFailuresCostNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *budgetedRun){
		"refused":             func(r *budgetedRun) { r.feed(rejection(http.StatusBadRequest)...) },
		"too many":            func(r *budgetedRun) { r.feed(rejection(http.StatusTooManyRequests)...) },
		"refused, and leaves": func(r *budgetedRun) { r.feed(rejection(http.StatusBadRequest)[0]); r.Cancel() },
		"connection errors": func(r *budgetedRun) {
			for range 10 {
				r.feed(Broken(errBroken))
			}
		},
		"5xx": func(r *budgetedRun) {
			for range 10 {
				r.feed(rejection(http.StatusInternalServerError)...)
			}
		},
		"no answer in time": func(r *budgetedRun) {
			for range 10 {
				if !r.Ended() {
					r.wait(time.Hour, TimerFirst)
				}
			}
		},
	} {
		r := startBudgeted(t, chatRequest(t, `,"max_tokens":50`, false), budget.Budget{Tokens: 10_000})
		end(r)
		if r.do(&r.executor.detached); r.charged() != 0 || !r.Ended() {
			t.Errorf("%s: %d tokens are charged, ended %t", name, r.charged(), r.Ended())
		}
	}
}
