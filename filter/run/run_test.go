package run

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// A call that fails before the engine's first token is repeated, once.
func TestBrokenCallIsRetried(t *testing.T) {
	t.Parallel()
	good := answer("<|channel|>final<|message|>hi<|return|>")
	begins := bytesOf(event("", tokens("<|channel|>final<|message|>h")...))
	inBand := bytesOf(`data: {"error":{"message":"EngineCore encountered an issue.","code":500}}` + "\n\n")
	rejection := func(status int, field ...string) Event {
		h := http.Header{}
		if len(field) > 0 {
			h.Set(field[0], field[1])
		}
		return Answered(status, h, nil)
	}
	end, broken := Ended(nil), Broken(errBroken)
	for name, c := range map[string]struct {
		events  []Event
		retries int
		text    string
		code    string // of the error; "*": any
	}{
		"no failure":                    {good, 0, `"content":"hi"`, ""},
		"without an answer":             {slices.Concat([]Event{broken}, good), 1, `"content":"hi"`, ""},
		"after headers":                 {slices.Concat([]Event{ok(), broken}, good), 1, `"content":"hi"`, ""},
		"ended without a token":         {slices.Concat([]Event{ok(), end}, good), 1, `"content":"hi"`, ""},
		"twice":                         {[]Event{ok(), broken, ok(), broken}, 1, "", "engine_disconnected"},
		"in the answer":                 {[]Event{ok(), begins, broken}, 0, "", "engine_disconnected"},
		"rejected":                      {[]Event{rejection(429), end}, 0, "", "*"},
		"rejected with a 500":           {slices.Concat([]Event{rejection(500), end}, good), 1, `"content":"hi"`, ""},
		"rejected twice":                {[]Event{rejection(500), end, rejection(500), end}, 1, "", "*"},
		"rejected with a 504":           {[]Event{rejection(504), end}, 0, "", "*"},
		"rejected by Envoy":             {slices.Concat([]Event{rejection(503, header.Attempts, "1"), end}, good), 1, `"content":"hi"`, ""},
		"rejected by all replicas":      {[]Event{rejection(503, header.Attempts, "3"), end}, 0, "", "*"},
		"an error in band":              {slices.Concat([]Event{ok(), inBand}, good), 1, `"content":"hi"`, ""},
		"an error in band, twice":       {[]Event{ok(), inBand, ok(), inBand}, 1, "", "*"},
		"an error in band, in the text": {[]Event{ok(), begins, inBand}, 0, "", "*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startChat(t, "")
			r.feed(c.events...)
			if r.retries() != c.retries {
				t.Errorf("%d retries, want %d", r.retries(), c.retries)
			}
			d := r.downstream
			switch {
			case c.code == "" && (d.err != nil || !d.ended || !strings.Contains(d.text.String(), c.text)):
				t.Errorf("error %v, ended %t: %s", d.err, d.ended, &d.text)
			case c.code != "" && (d.err == nil || c.code != "*" && d.err.Code != c.code || d.text.Len() > 0):
				t.Errorf("error %v, want code %s: %s", d.err, c.code, &d.text)
			}
			if !r.Ended() {
				t.Error("the run has not ended")
			}
		})
	}
}

// A retry goes to another replica, by the third attempt at the latest: then the
// excluded replica may be the only one. What it answers before is not read.
func TestRetryAvoidsAReplica(t *testing.T) {
	t.Parallel()
	from := func(replica string) Event {
		return Answered(200, http.Header{http.CanonicalHeaderKey(header.Upstream): {replica}}, nil)
	}
	rejected := from("a")
	rejected.Status = 500
	rest := answer("<|channel|>final<|message|>hi<|return|>")[1:]
	broken := Broken(errBroken)
	for name, c := range map[string]struct {
		events   []Event
		attempts []Retry
		fails    bool
	}{
		"none is needed":      {slices.Concat([]Event{from("a")}, rest), []Retry{{}}, false},
		"another one answers": {slices.Concat([]Event{from("a"), broken, from("b")}, rest), []Retry{{}, {Number: 1, Excluded: "a"}}, false},
		"the third finds one": {slices.Concat([]Event{from("a"), broken, from("a"), rejected, from("b")}, rest), []Retry{{}, {Number: 1, Excluded: "a"}, {Number: 2, Excluded: "a"}, {Number: 3, Excluded: "a"}}, false},
		"there is no other":   {slices.Concat([]Event{from("a"), broken, from("a"), from("a"), from("a")}, rest), []Retry{{}, {Number: 1, Excluded: "a"}, {Number: 2, Excluded: "a"}, {Number: 3, Excluded: "a"}}, false},
		"no other, broken":    {[]Event{from("a"), broken, from("a"), from("a"), from("a"), broken}, []Retry{{}, {Number: 1, Excluded: "a"}, {Number: 2, Excluded: "a"}, {Number: 3, Excluded: "a"}}, true},
		"another one breaks":  {[]Event{from("a"), broken, from("b"), broken}, []Retry{{}, {Number: 1, Excluded: "a"}}, true},
		"the retry breaks":    {[]Event{from("a"), broken, broken}, []Retry{{}, {Number: 1, Excluded: "a"}}, true},
		"it is not known":     {slices.Concat([]Event{broken, from("a")}, rest), []Retry{{}, {Number: 1, Excluded: ""}}, false},
		"no replica is named": {slices.Concat([]Event{ok(), broken, ok()}, rest), []Retry{{}, {Number: 1, Excluded: ""}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startChat(t, "")
			r.feed(c.events...)
			if diff := cmp.Diff(c.attempts, r.executor.attempts); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			d := r.downstream
			if !r.Ended() || (d.err != nil) != c.fails || !c.fails && !strings.Contains(d.text.String(), `"content":"hi"`) {
				t.Errorf("ended %t, error %v: %s", r.Ended(), d.err, &d.text)
			}
		})
	}
}

// Once a stream has begun, a broken call is an error in it, and the stream has its
// end.
func TestBrokenStreamHasItsEnd(t *testing.T) {
	t.Parallel()
	r := startChat(t, `,"stream":true`)
	r.feed(ok(), bytesOf(event("", tokens("<|channel|>final<|message|>hello")...)), Broken(errBroken))
	d, text := r.downstream, r.downstream.text.String()
	if r.retries() != 0 || d.err != nil || !d.ended || !strings.Contains(text, "engine_disconnected") || !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Contains(text, errBroken.Error()) {
		t.Errorf("%d retries, error %v, ended %t:\n%s", r.retries(), d.err, d.ended, text)
	}
}

// A call is also retried if the stream's headers were sent because the engine was
// slow, as long as there is no output of the engine.
func TestBrokenCallAfterTheHeaderHold(t *testing.T) {
	t.Parallel()
	r := startChat(t, `,"stream":true`)
	r.feed(ok())
	r.wait(time.Minute, TimerHold)
	if len(r.downstream.header) == 0 {
		t.Fatal("the headers are still withheld")
	}
	r.feed(slices.Concat([]Event{Broken(errBroken)}, answer("<|channel|>final<|message|>hi<|return|>"))...)
	if text := r.downstream.text.String(); r.retries() != 1 || !r.downstream.ended || !strings.Contains(text, `"content":"hi"`) || strings.Contains(text, "error") {
		t.Errorf("%d retries, ended %t: %s", r.retries(), r.downstream.ended, text)
	}
}

// The status of a gRPC call is in its trailers, or in its headers where it has
// nothing else.
func TestTrailersHaveTheStatus(t *testing.T) {
	t.Parallel()
	status := func(code string) http.Header { return http.Header{"Grpc-Status": {code}} }
	ends := func(code string) Event { return Ended(status(code)) }
	for name, c := range map[string]struct {
		events  []Event
		retries int
		status  int
	}{
		"rejected at once":            {[]Event{Answered(200, status("3"), nil)}, 0, 400},
		"unavailable at once":         {[]Event{Answered(200, status("14"), nil)}, 0, 503},
		"failed before a token":       {[]Event{ok(), ends("13"), ok(), ends("13")}, 1, 502},
		"out of time before a token":  {[]Event{ok(), ends("4")}, 0, 504},
		"failed at once":              {[]Event{Answered(200, status("13"), nil), Answered(200, status("3"), nil)}, 1, 400},
		"unavailable before a token":  {[]Event{ok(), ends("14"), ok(), ends("8")}, 1, 429},
		"ended well without a choice": {[]Event{ok(), ends("0"), ok(), ends("0")}, 1, 502},
		"without trailers":            {[]Event{ok(), Ended(nil), ok(), Ended(nil)}, 1, 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestRun(t, chatRequest(t, "", false), api.Loop, "vllm-grpc")
			r.Start()
			r.feed(c.events...)
			if err := r.downstream.err; r.retries() != c.retries || err == nil || err.Status != c.status || !r.Ended() {
				t.Errorf("%d retries, error %v, ended %t; want %d, %d", r.retries(), err, r.Ended(), c.retries, c.status)
			}
		})
	}
}

// A slow job withholds the headers only for a while; then the client gets the
// events that came before it. Jobs lead to calls, and calls to jobs.
func TestRunTakesSteps(t *testing.T) {
	t.Parallel()
	call := func(id string) api.Step {
		return api.Step{Call: &engine.Request{ID: engine.CallID{Request: id}, N: 1, MaxTokens: 100}}
	}
	jobs := api.Step{Jobs: []api.Job{jobFunc(nil)}}
	r := newTestRun(t, &scriptedRequest{reply: scriptedReply{steps: []api.Step{jobs, call("one"), jobs, call("two"), call("three")}}}, api.Loop, "vllm")
	made, d := r.executor, r.downstream
	r.Start()
	if len(made.jobs) != 1 || len(made.calls) != 0 || d.header != nil {
		t.Fatalf("%d jobs, %d calls, headers %v", len(made.jobs), len(made.calls), d.header)
	}
	dialect := r.o.Target.Dialect
	r.o.Target.Dialect, _ = engine.ByKind("vllm-grpc") // one that reads the request for what it ignores
	r.wait(time.Minute, TimerHold)
	r.o.Target.Dialect = dialect
	if d.header == nil || d.text.String() != "data: 1 jobs\n\n" {
		t.Fatalf("headers %v, text %q", d.header, &d.text)
	}
	r.JobDone(JobDone{0, "tools", nil})
	r.feed(answer("x")...)
	if len(made.jobs) != 2 || len(made.calls) != 1 || !strings.HasSuffix(d.text.String(), "data: job 0: tools, <nil>\n\ndata: 1 tokens\n\ndata: 1 jobs\n\n") {
		t.Fatalf("%d jobs, %d calls:\n%s", len(made.jobs), len(made.calls), &d.text)
	}
	if r.timers.Armed(TimerFirst) || r.timers.Armed(TimerIdle) || r.timers.Armed(TimerGrace) {
		t.Error("a timer of the engine runs while a job does")
	}
	r.JobDone(JobDone{0, nil, errBroken})
	r.feed(Broken(errBroken))
	if len(made.calls) != 3 || made.calls[2].ID.String() != "-3-two" {
		t.Fatalf("%d calls", len(made.calls))
	}
	r.feed(answer("x")...)
	if len(made.calls) != 4 || r.timers.Armed(TimerIdle) || r.timers.Armed(TimerGrace) || !r.timers.Armed(TimerFirst) {
		t.Errorf("%d calls; the timers of the call before are on: %v", len(made.calls), r.timers)
	}
	r.feed(answer("x")...)
	if !r.Ended() || !d.ended || !strings.HasSuffix(d.text.String(), "data: [DONE]\n\n") || strings.Contains(d.text.String(), "failed") {
		t.Errorf("ended %t:\n%s", r.Ended(), &d.text)
	}
}

// While the last job of a reply goes on, comments keep the stream alive, and the
// deadline of the whole reply holds. What stores the failed reply has a deadline of
// its own.
func TestSlowLastJob(t *testing.T) {
	t.Parallel()
	save := api.Step{Jobs: []api.Job{jobFunc(nil)}}
	r := newTestRun(t, &scriptedRequest{reply: scriptedReply{
		steps: []api.Step{{Call: &engine.Request{ID: engine.CallID{Request: "one"}, N: 1, MaxTokens: 100}}, save}, onFail: []api.Step{save},
	}}, api.Loop, "vllm")
	r.Start()
	r.feed(answer("x")...)
	text := func() string {
		defer r.downstream.text.Reset()
		return r.downstream.text.String()
	}
	text()
	for range 3 {
		r.wait(15*time.Second, TimerKeepAlive)
		if got := text(); got != api.KeepAliveComment {
			t.Errorf("sent %q", got)
		}
	}
	r.wait(time.Hour, TimerTotal)
	if got := text(); got != "data: failed: engine_timeout\n\ndata: 1 jobs\n\n" || r.Ended() {
		t.Fatalf("out of time: sent %q, ended %t", got, r.Ended())
	}
	if !r.timers.Armed(TimerTotal) {
		t.Fatal("no deadline holds for the failed reply")
	}
	r.wait(failTimeout, TimerTotal)
	if got := text(); got != "data: failed: engine_timeout\n\ndata: [DONE]\n\n" || !r.Ended() || !r.timers.Next().IsZero() || r.rec.Err().Code != "engine_timeout" {
		t.Errorf("out of time again: sent %q, ended %t", got, r.Ended())
	}
}

// A client that leaves ends the run. What is left of the reply is stored all the
// same; of a run that was abandoned, nothing is.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end      func(r *testRun)
		detached int
	}{
		"left":               {func(r *testRun) { r.Cancel() }, 1},
		"left twice":         {func(r *testRun) { r.Cancel(); r.Cancel() }, 1},
		"abandoned":          {func(r *testRun) { r.Abandon(); r.Cancel() }, 0},
		"left at its end":    {func(r *testRun) { r.feed(answer("x")...); r.Cancel() }, 0},
		"left in the answer": {func(r *testRun) { r.feed(answer("x")[:2]...); r.Cancel() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestRun(t, &scriptedRequest{reply: scriptedReply{
				steps: []api.Step{{Call: &engine.Request{ID: engine.CallID{Request: "one"}, N: 1, MaxTokens: 100}}}, onCancel: []api.Job{jobFunc(nil)},
			}}, api.Loop, "vllm")
			r.Start()
			c.end(r)
			sent := r.downstream.text.String()
			r.feed(answer("x")...)
			r.JobDone(JobDone{})
			if len(r.executor.detached) != c.detached || !r.Ended() || r.downstream.text.String() != sent {
				t.Errorf("%d detached jobs, ended %t, sent %q after the end", len(r.executor.detached), r.Ended(), strings.TrimPrefix(r.downstream.text.String(), sent))
			}
		})
	}
}

// A failed request of a disaggregated engine fails the call. Before the first token
// both requests are repeated where another pair may do better.
func TestDisaggregatedFailures(t *testing.T) {
	t.Parallel()
	good := answer("<|channel|>final<|message|>hi<|return|>")
	begins := bytesOf(event("", tokens("<|channel|>final<|message|>h")...))
	fails := func(status int) Event { return Broken(apierror.New(status, "", "", "a request failed")) }
	inBand := bytesOf(`data: {"error":{"message":"KVTransferError","code":500}}` + "\n\n")
	prefilling := Prefilling()
	for name, c := range map[string]struct {
		events  []Event
		retries int
		text    string
		status  int // of the error
	}{
		"no failure":                    {slices.Concat([]Event{prefilling}, good), 0, `"content":"hi"`, 0},
		"unavailable":                   {slices.Concat([]Event{prefilling, fails(503), prefilling}, good), 1, `"content":"hi"`, 0},
		"failed":                        {slices.Concat([]Event{fails(502)}, good), 1, `"content":"hi"`, 0},
		"unavailable again":             {[]Event{fails(503), fails(503)}, 1, "", 503},
		"after the decode headers":      {slices.Concat([]Event{ok(), fails(503)}, good), 1, `"content":"hi"`, 0},
		"the request's fault":           {[]Event{fails(400)}, 0, "", 400},
		"too many requests":             {[]Event{fails(429)}, 0, "", 429},
		"after the first token":         {[]Event{ok(), begins, fails(503)}, 0, "", 503},
		"decode, in band":               {slices.Concat([]Event{ok(), inBand}, good), 1, `"content":"hi"`, 0},
		"in band after the first token": {[]Event{ok(), begins, inBand}, 0, "", 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startChat(t, "")
			r.o.Target.Disaggregated = true
			r.feed(c.events...)
			status := 0
			if err := r.downstream.err; err != nil {
				status = err.Status
			}
			if r.retries() != c.retries || status != c.status || !strings.Contains(r.downstream.text.String(), c.text) || (c.retries > 0) != (r.call.retry.Number == 1) {
				t.Errorf("%d retries, status %d, text %q", r.retries(), status, &r.downstream.text)
			}
		})
	}
}

// The usage of the prompt is the prefill engine's, where it reports it: the decode
// engine takes what it was handed over for cached.
func TestPromptUsage(t *testing.T) {
	t.Parallel()
	usage := `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}` + "\n\ndata: [DONE]\n\n"
	for want, prompt := range map[int]*engine.Usage{8: nil, 3: {CachedTokens: 3}, 0: {CachedTokens: engine.Unknown}} {
		r := startChat(t, "")
		r.reply = &usageReply{Reply: r.reply}
		events := answer("<|channel|>final<|message|>hi<|return|>")
		events[0].Prompt, events[0].Header = prompt, http.Header{"X-Harmony-Upstream": {"10.0.0.1:8000"}}
		r.feed(events[0], events[1], bytesOf(usage), events[2])
		if got := gjson.Get(r.downstream.text.String(), "usage.prompt_tokens_details.cached_tokens").Int(); int(got) != want {
			t.Errorf("cached %d, want %d: %s", got, want, &r.downstream.text)
		}
		replica := "10.0.0.1:8000"
		if prompt != nil { // whose replica is another one
			replica = ""
		}
		if got := r.reply.(*usageReply).usage; got.Replica != replica {
			t.Errorf("the replica is %q, want %q", got.Replica, replica)
		}
	}
}

// usageReply keeps what it gets of the usage.
type usageReply struct {
	api.Reply
	usage engine.Usage
}

func (r *usageReply) Push(dst []byte, c *engine.Chunk) ([]byte, *apierror.Error) {
	if c.Usage != nil {
		r.usage = *c.Usage
	}
	return r.Reply.Push(dst, c)
}

// A stream's headers do not wait for a long prompt.
func TestHeadersDoNotWaitForThePrompt(t *testing.T) {
	t.Parallel()
	r := startChat(t, `,"stream":true`)
	r.feed(Prefilling())
	if r.downstream.header != nil || !r.timers.Armed(TimerHold) {
		t.Error("the headers are not withheld")
	}
	r.wait(2*time.Second, TimerHold)
	if r.downstream.header == nil {
		t.Error("the headers are withheld for ever")
	}
}

// Of an engine's error only the beginning is kept.
func TestErrorBodyIsBounded(t *testing.T) {
	t.Parallel()
	r := startChat(t, "")
	r.feed(Answered(500, http.Header{}, nil))
	for range 10 {
		r.feed(bytesOf(strings.Repeat("x", 20_000)))
	}
	if n := len(r.call.errorBody); n != MaxErrorBody {
		t.Errorf("%d bytes are kept", n)
	}
}

// What an engine reports of the prompt is never more than can be true: neither in the usage
// nor in what is charged.
func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	prompt := int64(len(chatRequest(t, "", false).Engine().Prompt))
	for cached, want := range map[int64]int64{
		1_000_000_000_000_000: prompt, prompt + 1: prompt, prompt: prompt, 1: 1, -5: 0,
	} {
		usage := fmt.Sprintf(`data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,`+
			`"prompt_tokens_details":{"cached_tokens":%d}}}`+"\n\ndata: [DONE]\n\n", cached)
		for name, prefill := range map[string]*engine.Usage{
			"the engine": nil, "its prefill engine": {CachedTokens: int(cached)},
		} {
			r := startChat(t, "")
			events := answer("<|channel|>final<|message|>hi<|return|>")
			events[0].Prompt = prefill
			r.feed(events[0], events[1], bytesOf(usage), events[2])
			got := gjson.Get(r.downstream.text.String(), "usage.prompt_tokens_details.cached_tokens")
			if got.Int() != want || got.Exists() != (cached > 0) {
				t.Errorf("%s reports %d, the client gets %q, want %d", name, cached, got.Raw, want)
			}
			if got := r.usedSoFar().Cached; int64(max(got, 0)) != want {
				t.Errorf("%s reports %d, %d are charged, want %d", name, cached, got, want)
			}
		}
	}
}

// A grammar that the engine refuses is an error of the field that it comes from.
func TestRefusedGrammarNamesItsField(t *testing.T) {
	t.Parallel()
	for param, fields := range map[string]string{
		"guided_grammar":             `,"guided_grammar":"root ::= x"`,
		"structured_outputs.grammar": `,"structured_outputs":{"grammar":"root ::= x"}`,
		"tools":                      `,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{}}}}]`,
	} {
		r := newTestRun(t, chatRequest(t, fields, false), api.Loop, "sglang")
		r.Start()
		const message = "Failed to compile structural_tag grammar: [15:31:44] /cpp/grammar_parser.cc:820: EBNF parser error."
		r.feed(Answered(http.StatusBadRequest, http.Header{}, nil), bytesOf(`{"error":{"message":"`+message+`"}}`), Ended(nil))
		if err := r.downstream.err; err == nil || err.Param != param || !strings.HasSuffix(err.Message, ": EBNF parser error.") {
			t.Errorf("%s: %+v", param, err)
		}
	}
}
