package filter

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// audience is a client that writes down what it gets.
type audience struct {
	header []engine.Header
	text   strings.Builder
	ended  bool
	err    *apierror.Error
}

func (a *audience) begin(header []engine.Header) { a.header = header }
func (a *audience) refuse(err *apierror.Error)   { a.err = err }
func (a *audience) write(p []byte, end bool) {
	a.text.Write(p)
	a.ended = end
}

// repetitions counts the calls that are made of it.
type repetitions struct{ n *int }

func (r repetitions) call(*engine.Request, detour) *apierror.Error { *r.n++; return nil }
func (r repetitions) work([]tools.Job)                             {}

// newTestRun is a run of a chat call, and how often the call was made again.
func newTestRun(t *testing.T, fields string) (r *run, a *audience, again *int) {
	t.Helper()
	s := newScript(t, nil)
	m, _ := s.x.s.cfg.Model("gpt-oss")
	x := s.x
	x.target = target{true, m, x.s.dialects[m.Engine]}
	call, err := chat.Decode(context.Background(), []byte(ask(fields)), x.s.scope(x))
	if err != nil {
		t.Fatal(err)
	}
	a, again = &audience{}, new(int)
	r = newRun(x.s, a, chatCall{call}, x.target, &x.rec, &x.timers, "abc", s.now)
	r.start(repetitions{again}, http.Header{})
	*again = 0
	return r, a, again
}

func headersNews() engineEvent { return engineEvent{status: 200, header: http.Header{}} }

func bytesNews(text string) engineEvent { return engineEvent{body: []byte(text)} }

var errBroken = errors.New("connection reset")

// A call that fails before the engine has said anything is made again, once.
func TestBrokenCallIsMadeAgain(t *testing.T) {
	t.Parallel()
	said := event("stop", tokens("<|channel|>final<|message|>hi<|return|>")...)
	const told = `data: {"error":{"message":"EngineCore encountered an issue.","code":500}}` + "\n\n"
	refusal := func(status int, header ...string) engineEvent {
		h := http.Header{}
		if len(header) > 0 {
			h.Set(header[0], header[1])
		}
		return engineEvent{status: status, header: h}
	}
	for name, c := range map[string]struct {
		news  []engineEvent
		again int
		text  string
		code  string
	}{
		"not at all":            {[]engineEvent{headersNews(), bytesNews(said), {end: true}}, 0, `"content":"hi"`, ""},
		"without an answer":     {[]engineEvent{{err: errBroken}, headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, ""},
		"after headers":         {[]engineEvent{headersNews(), {err: errBroken}, headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, ""},
		"ended without a token": {[]engineEvent{headersNews(), {end: true}, headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, ""},
		"twice":                 {[]engineEvent{headersNews(), {err: errBroken}, headersNews(), {err: errBroken}}, 1, "", "engine_disconnected"},
		"in the answer":         {[]engineEvent{headersNews(), bytesNews(event("", tokens("<|channel|>final<|message|>h")...)), {err: errBroken}}, 0, "", "engine_disconnected"},
		"after a refusal":       {[]engineEvent{refusal(429), {end: true}}, 0, "", "*"},
		"refused with a 500":    {[]engineEvent{refusal(500), {end: true}, headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, ""},
		"refused twice":         {[]engineEvent{refusal(500), {end: true}, refusal(500), {end: true}}, 1, "", "*"},
		"refused with a 504":    {[]engineEvent{refusal(504), {end: true}}, 0, "", "*"},
		"refused as Envoy does": {[]engineEvent{refusal(503, attemptsHeader, "1"), {end: true}, headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, ""},
		"refused by all":        {[]engineEvent{refusal(503, attemptsHeader, "3"), {end: true}}, 0, "", "*"},
		"told an error":         {[]engineEvent{headersNews(), bytesNews(told), headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, ""},
		"told an error twice":   {[]engineEvent{headersNews(), bytesNews(told), headersNews(), bytesNews(told)}, 1, "", "*"},
		"told in the answer":    {[]engineEvent{headersNews(), bytesNews(event("", tokens("<|channel|>final<|message|>h")...)), bytesNews(told)}, 0, "", "*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, a, again := newTestRun(t, "")
			for _, e := range c.news {
				r.step(r.now)
				r.news(e)
			}
			if *again != c.again {
				t.Errorf("made again %d times, want %d", *again, c.again)
			}
			switch {
			case c.code == "" && (a.err != nil || !a.ended || !strings.Contains(a.text.String(), c.text)):
				t.Errorf("error %v, ended %v: %s", a.err, a.ended, &a.text)
			case c.code != "" && (a.err == nil || c.code != "*" && a.err.Code != c.code || a.text.Len() > 0):
				t.Errorf("error %v, want code %s: %s", a.err, c.code, &a.text)
			}
			if !r.over {
				t.Error("the run is not over")
			}
		})
	}
}

// A call that has failed at a replica goes to another one, by the third detour at the
// latest: then that replica may be the only one. What it answers before is not looked
// at.
func TestCallTakesDetours(t *testing.T) {
	t.Parallel()
	said := event("stop", tokens("<|channel|>final<|message|>hi<|return|>")...)
	from := func(replica string) engineEvent {
		return engineEvent{status: 200, header: http.Header{http.CanonicalHeaderKey(UpstreamHeader): {replica}}}
	}
	refused := from("a")
	refused.status = 500
	ends := []engineEvent{bytesNews(said), {end: true}}
	for name, c := range map[string]struct {
		news    []engineEvent
		detours []detour
		fails   bool
	}{
		"none is needed":      {slices.Concat([]engineEvent{from("a")}, ends), []detour{{}}, false},
		"another one answers": {slices.Concat([]engineEvent{from("a"), {err: errBroken}, from("b")}, ends), []detour{{}, {1, "a"}}, false},
		"the third finds one": {slices.Concat([]engineEvent{from("a"), {err: errBroken}, from("a"), refused, from("b")}, ends), []detour{{}, {1, "a"}, {2, "a"}, {3, "a"}}, false},
		"there is no other":   {slices.Concat([]engineEvent{from("a"), {err: errBroken}, from("a"), from("a"), from("a")}, ends), []detour{{}, {1, "a"}, {2, "a"}, {3, "a"}}, false},
		"no other, broken":    {[]engineEvent{from("a"), {err: errBroken}, from("a"), from("a"), from("a"), {err: errBroken}}, []detour{{}, {1, "a"}, {2, "a"}, {3, "a"}}, true},
		"another one breaks":  {[]engineEvent{from("a"), {err: errBroken}, from("b"), {err: errBroken}}, []detour{{}, {1, "a"}}, true},
		"a detour breaks":     {[]engineEvent{from("a"), {err: errBroken}, {err: errBroken}}, []detour{{}, {1, "a"}}, true},
		"it is not known":     {slices.Concat([]engineEvent{{err: errBroken}, from("a")}, ends), []detour{{}, {1, ""}}, false},
		"nothing is told":     {slices.Concat([]engineEvent{headersNews(), {err: errBroken}, headersNews()}, ends), []detour{{}, {1, ""}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, a, _ := newTestRun(t, "")
			room := &toolRoom{}
			r.caller, r.repeated = room, false
			r.send(r.request, detour{})
			for _, e := range c.news {
				r.step(r.now)
				r.news(e)
			}
			if diff := cmp.Diff(c.detours, room.detours, cmp.AllowUnexported(detour{})); diff != "" {
				t.Errorf("detours (-want +got):\n%s", diff)
			}
			if !r.over || (a.err != nil) != c.fails || !c.fails && !strings.Contains(a.text.String(), `"content":"hi"`) {
				t.Errorf("over %t, error %v: %s", r.over, a.err, &a.text)
			}
			ids := map[string]bool{}
			for _, call := range room.calls {
				ids[call.ID] = true
			}
			if len(ids) != len(room.calls) {
				t.Errorf("%d calls have %d ids", len(room.calls), len(ids))
			}
		})
	}
}

// Once a stream has begun, a broken call is an error in it and an end in good
// order.
func TestBrokenStreamEndsInOrder(t *testing.T) {
	t.Parallel()
	r, a, again := newTestRun(t, `,"stream":true`)
	for _, e := range []engineEvent{headersNews(), bytesNews(event("", tokens("<|channel|>final<|message|>hello")...)), {err: errBroken}} {
		r.step(r.now)
		r.news(e)
	}
	text := a.text.String()
	if *again != 0 || a.err != nil || !a.ended || !strings.Contains(text, "engine_disconnected") || !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Contains(text, errBroken.Error()) {
		t.Errorf("made again %d times, error %v, ended %v:\n%s", *again, a.err, a.ended, text)
	}
}

// A stream whose headers went because the engine was slow still survives a
// broken call, as long as the engine has said nothing.
func TestBrokenCallAfterTheHold(t *testing.T) {
	t.Parallel()
	r, a, again := newTestRun(t, `,"stream":true`)
	r.news(headersNews())
	r.step(r.now.Add(time.Minute))
	r.expired(timerHold)
	if len(a.header) == 0 {
		t.Fatal("the headers are still held back")
	}
	for _, e := range []engineEvent{{err: errBroken}, headersNews(), bytesNews(event("stop", tokens("<|channel|>final<|message|>hi<|return|>")...)), {end: true}} {
		r.step(r.now)
		r.news(e)
	}
	if *again != 1 || !a.ended || !strings.Contains(a.text.String(), `"content":"hi"`) || strings.Contains(a.text.String(), "error") {
		t.Errorf("made again %d times, ended %v: %s", *again, a.ended, &a.text)
	}
}

// A gRPC call tells how it ended in its trailers, or in its headers where it
// has nothing else.
func TestTrailersTellTheEnd(t *testing.T) {
	t.Parallel()
	status := func(code string) http.Header { return http.Header{"Grpc-Status": {code}} }
	for name, c := range map[string]struct {
		news   []engineEvent
		again  int
		status int
	}{
		"refused at once":             {[]engineEvent{{status: 200, header: status("3")}}, 0, 400},
		"unavailable at once":         {[]engineEvent{{status: 200, header: status("14")}}, 0, 503},
		"failed before a token":       {[]engineEvent{headersNews(), {end: true, trailer: status("13")}, headersNews(), {end: true, trailer: status("13")}}, 1, 502},
		"out of time before a token":  {[]engineEvent{headersNews(), {end: true, trailer: status("4")}}, 0, 504},
		"failed at once":              {[]engineEvent{{status: 200, header: status("13")}, {status: 200, header: status("3")}}, 1, 400},
		"unavailable before a token":  {[]engineEvent{headersNews(), {end: true, trailer: status("14")}, headersNews(), {end: true, trailer: status("8")}}, 1, 429},
		"ended well without a choice": {[]engineEvent{headersNews(), {end: true, trailer: status("0")}, headersNews(), {end: true, trailer: status("0")}}, 1, 502},
		"without trailers":            {[]engineEvent{headersNews(), {end: true}, headersNews(), {end: true}}, 1, 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, a, again := newTestRun(t, "")
			r.target.dialect, _ = engine.ByKind("vllm-grpc")
			for _, e := range c.news {
				r.step(r.now)
				r.news(e)
			}
			if *again != c.again || a.err == nil || a.err.Status != c.status || !r.over {
				t.Errorf("made again %d times, error %v, over %t; want %d, %d", *again, a.err, r.over, c.again, c.status)
			}
		})
	}
}

// toolRoom writes down what a run has tools do, and the model calls it makes.
type toolRoom struct {
	jobs    []tools.Job
	calls   []*engine.Request
	detours []detour // of the calls
}

func (r *toolRoom) call(req *engine.Request, d detour) *apierror.Error {
	r.calls, r.detours = append(r.calls, req), append(r.detours, d)
	return nil
}
func (r *toolRoom) work(list []tools.Job) { r.jobs = append(r.jobs, list...) }

// A server that is slow to list its tools holds the headers back only for a
// while; then the client is told of it. What the model says of a tool leads to
// work, and to another call, which is made once more if it breaks.
func TestRunTakesSteps(t *testing.T) {
	t.Parallel()
	s := newScript(t, func(c *Config) {
		c.Loopback = "127.0.0.1:1"
		c.Tools.Servers = []ToolServer{{Label: "docs", URL: "http://127.0.0.1:1"}}
	})
	x := s.x
	m, _ := x.s.cfg.Model("gpt-oss")
	x.target = target{true, m, x.s.dialects[m.Engine]}
	call, err := x.s.apis.responses.decode(t.Context(), []byte(`{"model":"gpt-oss","input":"hi","stream":true,"tools":[{"type":"mcp","server_label":"docs"}]}`), x.s.scope(x))
	if err != nil {
		t.Fatal(err)
	}
	a, room := &audience{}, &toolRoom{}
	r := newRun(x.s, a, call, x.target, &x.rec, &x.timers, "abc", s.now)
	r.start(room, http.Header{})
	if len(room.jobs) != 1 || len(room.calls) != 0 || a.header != nil {
		t.Fatalf("%d jobs, %d calls, headers %v", len(room.jobs), len(room.calls), a.header)
	}
	r.step(r.now.Add(time.Minute))
	r.target.dialect, _ = engine.ByKind("vllm-grpc") // one that looks at the request for what it ignores
	r.expired(timerHold)
	r.target.dialect = x.target.dialect
	if a.header == nil || !strings.Contains(a.text.String(), "response.mcp_list_tools.in_progress") {
		t.Fatalf("nothing is told of the work: %s", &a.text)
	}
	r.did(jobDone{0, tools.Result{Tools: []tools.Tool{{Name: "search"}}}})
	said := func(text string) {
		for _, e := range []engineEvent{headersNews(), bytesNews(event("stop", tokens(text)...)), {end: true}} {
			r.step(r.now)
			r.news(e)
		}
	}
	said(` to=docs.search<|channel|>commentary json<|message|>{}<|call|>`)
	if len(room.jobs) != 2 || len(room.calls) != 1 || !strings.Contains(a.text.String(), "response.mcp_call_arguments.done") {
		t.Fatalf("%d jobs, %d calls:\n%s", len(room.jobs), len(room.calls), &a.text)
	}
	if !x.timers[timerFirst].IsZero() || !x.timers[timerIdle].IsZero() || !x.timers[timerGrace].IsZero() {
		t.Error("a clock runs for the engine while a tool works")
	}
	r.did(jobDone{0, tools.Result{Text: "found"}})
	r.step(r.now)
	r.news(engineEvent{err: errBroken})
	if len(room.calls) != 3 || room.calls[2].ID == room.calls[1].ID || room.calls[1].ID == room.calls[0].ID {
		t.Fatalf("%d calls", len(room.calls))
	}
	said(` to=functions.nothing<|channel|>commentary json<|message|>{}<|call|>`)
	if len(room.calls) != 4 || !x.timers[timerIdle].IsZero() || !x.timers[timerGrace].IsZero() || x.timers[timerFirst].IsZero() {
		t.Errorf("%d calls; the clocks of the call before run on: %v", len(room.calls), x.timers)
	}
	said("<|channel|>final<|message|>done<|return|>")
	if !r.over || !a.ended || !strings.HasSuffix(a.text.String(), "data: [DONE]\n\n") || strings.Contains(a.text.String(), "response.failed") {
		t.Errorf("over %t:\n%s", r.over, &a.text)
	}
}
