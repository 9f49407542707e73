package telemetry

import (
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry/telemetrytest"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// newTestOTel is telemetry whose spans and metrics are recorded.
func newTestOTel(t *testing.T, content bool) (*Telemetry, *telemetrytest.Recorder, *prometheus.Registry) {
	t.Helper()
	telemetry, _, registry := newTestTelemetry(t, false)
	recorder := telemetrytest.New()
	var err error
	telemetry.OTel, err = NewOTel(OTelOptions{Tracers: recorder.Tracers, Meters: recorder.Meters, Content: content, Labels: telemetry.Metrics})
	if err != nil {
		t.Fatal(err)
	}
	return telemetry, recorder, registry
}

// field is a function that returns the fields of a map.
func field(fields map[string]string) func(string) string {
	return func(name string) string { return fields[name] }
}

func started() Start {
	return Start{
		Parent: ParentOf(field(map[string]string{"traceparent": telemetrytest.Parent})), API: "responses", RequestID: "abc", Method: "POST", Route: "/v1/responses",
		Model: "gpt-oss", Engine: "main", Provider: "vllm",
	}
}

func after(d time.Duration) time.Time { return testStart.Add(d) }

// modelCall is a call that the engine answers with two chunks.
func modelCall(telemetry *Telemetry, r *Record, begin time.Duration) {
	temperature := 0.5
	telemetry.ModelCall(r, &engine.Request{Model: "gpt-oss", Prompt: make([]harmony.Token, 100), N: 1, MaxTokens: 500, Temperature: &temperature}, after(begin))
	r.Replica("10.0.0.7:8000")
	r.Chunk(&engine.Chunk{Tokens: make([]harmony.Token, 2)}, after(begin+time.Second))
	r.Chunk(&engine.Chunk{Tokens: make([]harmony.Token, 4), Finish: engine.FinishStop, Usage: &engine.Usage{CachedTokens: 64}}, after(begin+3*time.Second))
	r.CallEnded(nil, after(begin+3*time.Second))
}

// callLine is the line of modelCall's span.
const callLine = "client chat gpt-oss gen_ai.operation.name=chat gen_ai.provider.name=vllm gen_ai.request.max_tokens=500 gen_ai.request.model=gpt-oss gen_ai.request.stream=true gen_ai.request.temperature=0.5" +
	" gen_ai.response.finish_reasons=[\"stop\"] gen_ai.response.time_to_first_chunk=1 gen_ai.usage.cache_read.input_tokens=64 gen_ai.usage.input_tokens=100 gen_ai.usage.output_tokens=6 harmony.engine=main server.address=10.0.0.7 server.port=8000\n"

// requestLine is the line of a request's span; more are the attributes of its end
// behind the ones of the model.
func requestLine(more string) string {
	all := strings.Fields("gen_ai.operation.name=chat gen_ai.provider.name=vllm gen_ai.request.model=gpt-oss harmony.api=responses harmony.engine=main harmony.request_id=abc http.request.method=POST http.route=/v1/responses " + more)
	slices.Sort(all)
	return strings.Join(all, " ") + "\n"
}

// A request with two model calls, a tool between them, and the store: one trace,
// that of the client.
func TestSpansOfARequest(t *testing.T) {
	t.Parallel()
	telemetry, recorder, registry := newTestOTel(t, false)
	r := &Record{Started: testStart, Response: "resp_1"}
	telemetry.Begin(r, started())
	telemetry.Begin(r, Start{}) // no effect
	ctx := r.Context(t.Context())
	s := ObserveStore(brokenStore{}, telemetry.Metrics.StoreFailed, "sqlite", telemetry.OTel)
	_, _ = s.Get(ctx, "", "none")
	_, _ = s.Get(t.Context(), "", "none") // not for the request: no span
	modelCall(telemetry, r, time.Second)
	job := tools.Job{Server: &tools.Server{Label: "docs", Trusted: true}, Tool: "search", Arguments: "secret"}
	within, end := telemetry.OTel.Tools().Begin(ctx, job)
	fields := map[string]string{}
	telemetry.OTel.Tools().Inject(within, func(name, value string) { fields[name] = value })
	end(2*time.Second, tools.Result{Answered: true, Text: "secret"})
	modelCall(telemetry, r, 6*time.Second)
	if err := s.PutTexts(ctx, "", nil); err == nil {
		t.Error("no error")
	}
	o := answered()
	o.API, o.Now = "responses", after(10*time.Second)
	telemetry.Close(r, o)

	want := "server chat gpt-oss " + requestLine(`gen_ai.response.finish_reasons=["stop"] gen_ai.response.id=resp_1 gen_ai.response.model=gpt-oss gen_ai.response.time_to_first_chunk=2`+
		" gen_ai.usage.cache_read.input_tokens=64 gen_ai.usage.input_tokens=200 gen_ai.usage.output_tokens=10 gen_ai.usage.reasoning.output_tokens=1"+
		" harmony.model_calls=2 harmony.outcome=ok harmony.repairs=2 harmony.tool_calls=3 http.response.status_code=200") +
		"  client get_response db.operation.name=get_response db.system.name=sqlite\n" +
		"  " + callLine +
		"  client execute_tool search gen_ai.operation.name=execute_tool gen_ai.tool.name=search harmony.tool_server=docs mcp.method.name=tools/call\n" +
		"  " + callLine +
		"  client put_texts Error(store_unavailable) db.operation.name=put_texts db.system.name=sqlite error.type=store_unavailable\n"
	if diff := cmp.Diff(want, recorder.Tree()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for _, span := range recorder.Spans() {
		if id := span.SpanContext().TraceID().String(); id != telemetrytest.TraceID {
			t.Errorf("%s is in the trace %s", span.Name(), id)
		}
	}
	if !strings.HasPrefix(fields["traceparent"], "00-"+telemetrytest.TraceID+"-"+recorder.Spans()[3].SpanContext().SpanID().String()) {
		t.Errorf("the tool's server gets %v", fields)
	}
	model := " gen_ai.operation.name=chat gen_ai.provider.name=vllm gen_ai.request.model=gpt-oss"
	wantMetrics := map[string]string{
		"gen_ai.server.request.duration" + model + " harmony.engine=main":                                                                              "1: 10",
		"gen_ai.server.time_to_first_token" + model + " harmony.engine=main":                                                                           "1: 2",
		"gen_ai.server.time_per_output_token" + model + " harmony.engine=main":                                                                         "2: 1",
		"gen_ai.client.operation.duration" + model + " harmony.engine=main":                                                                            "2: 6",
		"gen_ai.client.token.usage" + model + " gen_ai.token.type=input harmony.engine=main":                                                           "2: 200",
		"gen_ai.client.token.usage" + model + " gen_ai.token.type=output harmony.engine=main":                                                          "2: 12",
		"mcp.client.operation.duration gen_ai.operation.name=execute_tool gen_ai.tool.name=search harmony.tool_server=docs mcp.method.name=tools/call": "1: 2",
	}
	if diff := cmp.Diff(wantMetrics, recorder.Metrics(t)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if ids := recorder.Exemplars(t, "gen_ai.server.request.duration"); !slices.Contains(ids, telemetrytest.TraceID) {
		t.Errorf("exemplars %v", ids)
	}
	for _, name := range []string{"harmony_request_duration_seconds", "harmony_time_to_first_token_seconds"} {
		if id := exemplarOf(t, registry, name); id != telemetrytest.TraceID {
			t.Errorf("exemplar of %s: %q", name, id)
		}
	}
}

// exemplarOf is the trace of an example of a Prometheus histogram.
func exemplarOf(t *testing.T, r *prometheus.Registry, name string) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				for _, l := range b.GetExemplar().GetLabel() {
					if f.GetName() == name && l.GetName() == "trace_id" {
						return l.GetValue()
					}
				}
			}
		}
	}
	return ""
}

// How requests end that are not answered.
func TestSpansOfFailures(t *testing.T) {
	t.Parallel()
	unreachable := apierror.New(502, "engine_disconnected", "", "Send it again.")
	asked := func(telemetry *Telemetry, r *Record) {
		telemetry.ModelCall(r, &engine.Request{Model: "gpt-oss", Prompt: make([]harmony.Token, 7), N: 2, MaxTokens: 5}, after(time.Second))
	}
	const call = "client chat gpt-oss"
	const asking = " gen_ai.operation.name=chat gen_ai.provider.name=vllm gen_ai.request.choice.count=2 gen_ai.request.max_tokens=5 gen_ai.request.model=gpt-oss gen_ai.request.stream=true gen_ai.usage.input_tokens=7 gen_ai.usage.output_tokens=0 harmony.engine=main"
	for name, c := range map[string]struct {
		happens func(telemetry *Telemetry, r *Record)
		want    string
	}{
		"the engine fails": {func(telemetry *Telemetry, r *Record) {
			asked(telemetry, r)
			r.CallEnded(unreachable, after(2*time.Second))
			r.Failed(unreachable)
		}, "server chat gpt-oss Error(engine_disconnected) " + requestLine("error.type=engine_disconnected gen_ai.usage.input_tokens=7 harmony.model_calls=1 harmony.outcome=failed http.response.status_code=502") +
			"  " + call + " Error(engine_disconnected) error.type=engine_disconnected" + asking + "\n"},
		"the engine fails once": {func(telemetry *Telemetry, r *Record) {
			asked(telemetry, r)
			telemetry.Retried(r, "engine_disconnected", after(2*time.Second))
			r.CallEnded(nil, after(3*time.Second))
			r.Failed(apierror.New(504, "", "", "Late."))
		}, "server chat gpt-oss Error(504) " + requestLine("error.type=504 gen_ai.usage.input_tokens=7 harmony.model_calls=1 harmony.outcome=failed http.response.status_code=504") +
			"  " + call + asking + " harmony.retries=1 [retry error.type=engine_disconnected]\n"},
		"the request is wrong": {
			func(_ *Telemetry, r *Record) { r.Failed(apierror.Invalid("x", "No.")) },
			"server chat gpt-oss " + requestLine("error.type=400 harmony.outcome=rejected http.response.status_code=400"),
		},
		"the client leaves": {
			asked, "server chat gpt-oss " + requestLine("error.type=canceled gen_ai.usage.input_tokens=7 harmony.model_calls=1 harmony.outcome=canceled") +
				"  " + call + " error.type=canceled" + asking + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			telemetry, recorder, _ := newTestOTel(t, false)
			r := &Record{Started: testStart}
			telemetry.Begin(r, started())
			c.happens(telemetry, r)
			telemetry.Close(r, &Outcome{API: "responses", Model: "gpt-oss", Engine: "main", Now: after(4 * time.Second)})
			if diff := cmp.Diff(c.want, recorder.Tree()); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
			if open := recorder.Open(); len(open) > 0 {
				t.Errorf("open: %v", open)
			}
		})
	}
}

// A response in the background belongs to the request that has queued it. Only one
// of the two is measured.
func TestSpansInTheBackground(t *testing.T) {
	t.Parallel()
	telemetry, recorder, _ := newTestOTel(t, false)
	queued, made := &Record{Started: testStart}, &Record{Started: testStart}
	telemetry.Begin(queued, started())
	s := started()
	s.Parent, s.Kind, s.Method, s.Route = queued.Parent(), Background, "", ""
	telemetry.Close(queued, &Outcome{Kind: Queued, API: "responses", Complete: true, Now: testStart})
	telemetry.Begin(made, s)
	telemetry.Close(made, &Outcome{Kind: Background, API: "responses", Model: "gpt-oss", Engine: "main", Complete: true, Now: after(time.Second)})
	want := "server chat gpt-oss " + requestLine("harmony.outcome=ok http.response.status_code=200") +
		"  internal chat gpt-oss gen_ai.operation.name=chat gen_ai.provider.name=vllm gen_ai.request.model=gpt-oss harmony.api=responses harmony.background=true harmony.engine=main harmony.outcome=ok harmony.request_id=abc\n"
	if diff := cmp.Diff(want, recorder.Tree()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if points := recorder.Metrics(t); len(points) != 1 {
		t.Errorf("metrics %v", points)
	}
}

// Tools that fail, and a listing. Names that a model invents are in no name of a
// span and in no metric.
func TestSpansOfTools(t *testing.T) {
	t.Parallel()
	telemetry, recorder, _ := newTestOTel(t, false)
	docs, mine := &tools.Server{Label: "docs", Trusted: true}, &tools.Server{Label: "mine"}
	for _, c := range []struct {
		job    tools.Job
		result tools.Result
	}{
		{tools.Job{Server: docs}, tools.Result{}},
		{tools.Job{Server: docs, Tool: "search"}, tools.Result{Answered: true, Error: "Forbidden."}},
		{tools.Job{Server: docs, Tool: "invented"}, tools.Result{Error: "No such tool."}},
		{tools.Job{Server: mine, Tool: "any"}, tools.Result{Answered: true}},
		{tools.Job{Tool: "any"}, tools.Result{Error: "No server."}},
	} {
		_, end := telemetry.OTel.Tools().Begin(t.Context(), c.job)
		end(time.Second, c.result)
	}
	want := `client tools/list harmony.tool_server=docs mcp.method.name=tools/list
client execute_tool search Error(tool_error) error.type=tool_error gen_ai.operation.name=execute_tool gen_ai.tool.name=search harmony.tool_server=docs mcp.method.name=tools/call
client execute_tool other Error(failed) error.type=failed gen_ai.operation.name=execute_tool gen_ai.tool.name=invented harmony.tool_server=docs mcp.method.name=tools/call
client execute_tool call gen_ai.operation.name=execute_tool gen_ai.tool.name=any harmony.tool_server=mine mcp.method.name=tools/call
client execute_tool call Error(failed) error.type=failed gen_ai.operation.name=execute_tool gen_ai.tool.name=any mcp.method.name=tools/call
`
	if diff := cmp.Diff(want, recorder.Tree()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for point := range recorder.Metrics(t) {
		if strings.Contains(point, "invented") || strings.Contains(point, "any") || strings.Contains(point, "mine") {
			t.Errorf("%s has the name of a model or client", point)
		}
	}
}

// The first valid traceparent counts. One that is not sampled makes no spans, but
// goes along.
func TestParent(t *testing.T) {
	t.Parallel()
	const notSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for name, c := range map[string]struct {
		fields []map[string]string
		trace  string // "": a new one
		spans  int
	}{
		"none":        {nil, "", 2},
		"invalid":     {[]map[string]string{{"traceparent": "00-x"}}, "", 2},
		"the second":  {[]map[string]string{{}, {"traceparent": telemetrytest.Parent, "tracestate": "a=1"}}, telemetrytest.TraceID, 2},
		"the first":   {[]map[string]string{{"traceparent": telemetrytest.Parent}, {"traceparent": notSampled}}, telemetrytest.TraceID, 2},
		"not sampled": {[]map[string]string{{"traceparent": notSampled}}, "0af7651916cd43dd8448eb211c80319c", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			telemetry, recorder, registry := newTestOTel(t, false)
			var fields []func(string) string
			for _, f := range c.fields {
				fields = append(fields, field(f))
			}
			s := started()
			s.Parent = ParentOf(fields...)
			r := &Record{Started: testStart}
			telemetry.Begin(r, s)
			telemetry.ModelCall(r, &engine.Request{Model: "gpt-oss", N: 1}, testStart)
			head := http.Header{"Traceparent": {"of the client"}, "Tracestate": {"of the client"}}
			r.Propagate(head)
			telemetry.Close(r, &Outcome{Engine: "main", Now: testStart})
			id := r.request.span.SpanContext().TraceID().String()
			if c.trace != "" && id != c.trace || len(recorder.Spans()) != c.spans {
				t.Errorf("%d spans, trace %s", len(recorder.Spans()), id)
			}
			if got := head.Get("traceparent"); len(got) != 55 || got[3:35] != id || strings.HasSuffix(got, "-01") != (c.spans > 0) {
				t.Errorf("traceparent %q", got)
			}
			if got := head.Get("tracestate"); got != map[bool]string{true: "a=1"}[name == "the second"] {
				t.Errorf("tracestate %q", got)
			}
			if exemplar := exemplarOf(t, registry, "harmony_request_duration_seconds"); (exemplar != "") != (c.spans > 0) {
				t.Errorf("exemplar %q", exemplar)
			}
		})
	}
}

// Without OpenTelemetry nothing happens, and nothing is allocated.
func TestNoOTel(t *testing.T) {
	if o, err := NewOTel(OTelOptions{}); o != nil || err != nil {
		t.Fatalf("%v, %v", o, err)
	}
	telemetry, _, _ := newTestTelemetry(t, false)
	r := &Record{Started: testStart}
	head := http.Header{"Traceparent": {telemetrytest.Parent}}
	call, chunk, start := &engine.Request{}, &engine.Chunk{}, started()
	n := testing.AllocsPerRun(100, func() {
		telemetry.Begin(r, start)
		telemetry.ModelCall(r, call, testStart)
		r.Propagate(head)
		r.Replica("x")
		r.Chunk(chunk, testStart)
		r.CallEnded(nil, testStart)
	})
	if n > 0 || r.Context(t.Context()) != t.Context() || r.Parent().ctx != nil || head.Get("traceparent") != telemetrytest.Parent || len(r.TraceFields()) > 0 {
		t.Errorf("%v allocations, headers %v", n, head)
	}
}

// Metrics need no spans, and spans no metrics. Without spans the client's
// traceparent goes along as it came.
func TestOneSignalOnly(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string]struct{ spans, metrics bool }{"spans": {spans: true}, "metrics": {metrics: true}} {
		telemetry, _, _ := newTestTelemetry(t, false)
		recorder, o := telemetrytest.New(), OTelOptions{Labels: telemetry.Metrics}
		if signals.spans {
			o.Tracers = recorder.Tracers
		}
		if signals.metrics {
			o.Meters = recorder.Meters
		}
		telemetry.OTel, _ = NewOTel(o)
		r := &Record{Started: testStart}
		telemetry.Begin(r, started())
		modelCall(telemetry, r, 0)
		telemetry.ModelCall(r, &engine.Request{N: 1}, testStart)
		head := http.Header{}
		r.Propagate(head)
		telemetry.Close(r, answered())
		if len(recorder.Spans()) > 0 != signals.spans || len(recorder.Metrics(t)) > 0 != signals.metrics {
			t.Errorf("%s: %d spans, metrics %v", name, len(recorder.Spans()), recorder.Metrics(t))
		}
		if got := head.Get("traceparent"); (got == telemetrytest.Parent) != signals.metrics {
			t.Errorf("%s: traceparent %q", name, got)
		}
	}
}

// Content is in spans only if it is allowed.
func TestContentOfSpans(t *testing.T) {
	t.Parallel()
	prompt := harmony.AppendEncodeSpecial(nil, "<|start|>system<|message|>You are.<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>42<|end|><|start|>assistant")
	output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>")
	for _, allowed := range []bool{true, false} {
		telemetry, recorder, _ := newTestOTel(t, allowed)
		r := &Record{Started: testStart}
		telemetry.Begin(r, started())
		telemetry.ModelCall(r, &engine.Request{Prompt: prompt, N: 1}, testStart)
		for _, id := range output {
			r.Chunk(&engine.Chunk{Tokens: []harmony.Token{id}}, testStart)
		}
		telemetry.Close(r, answered())
		_, end := telemetry.OTel.Tools().Begin(t.Context(), tools.Job{Tool: "f", Arguments: "{}"})
		end(0, tools.Result{Text: "42"})
		got := map[string]string{}
		for _, span := range recorder.Spans() {
			for _, a := range span.Attributes() {
				if k := string(a.Key); strings.HasSuffix(k, ".messages") || strings.HasPrefix(k, "gen_ai.tool.call.") {
					got[k] = a.Value.AsString()
				}
			}
		}
		want := map[string]string{}
		if allowed {
			want = map[string]string{
				"gen_ai.input.messages":      `[{"role":"system","parts":[{"type":"text","content":"You are."}]},{"role":"user","parts":[{"type":"text","content":"Hi"}]},{"role":"assistant","parts":[{"type":"tool_call","name":"functions.f","arguments":"{}"}]},{"role":"tool","name":"functions.f","parts":[{"type":"tool_call_response","response":"42"}]}]`,
				"gen_ai.output.messages":     `[{"role":"assistant","parts":[{"type":"reasoning","content":"Hm."}]},{"role":"assistant","parts":[{"type":"text","content":"Hello"}]}]`,
				"gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "42",
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("content allowed: %t (-want +got):\n%s", allowed, diff)
		}
	}
}

// Content is bounded: the latest messages of a prompt are kept, the first of the
// output.
func TestContentIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", maxContent/10)
	text := func(n int) string { return strings.Repeat("<|start|>user<|message|>"+long+"<|end|>", n) }
	if got := inputMessages(harmony.AppendEncodeSpecial(nil, text(3)+"<|start|>user<|message|>last<|end|>")); !strings.Contains(got, `"last"`) || len(got) > 2*maxContent {
		t.Errorf("%d bytes of a prompt, the end is %s", len(got), got[len(got)-100:])
	}
	if got := outputMessages(map[int][]harmony.Token{0: harmony.AppendEncodeSpecial(nil, "<|message|>first<|end|>"+text(3))}); !strings.Contains(got, `"first"`) || len(got) > 2*maxContent {
		t.Errorf("%d bytes of output, the beginning is %s", len(got), got[:100])
	}
	if got := inputMessages(nil); got != "[]" {
		t.Errorf("no prompt: %s", got)
	}
}

// Texts of clients, models and tools that are not UTF-8, or are cut between the bytes
// of a character, become texts that are: exporters drop a batch with one that is not.
func TestTextsOfSpansAreUTF8(t *testing.T) {
	t.Parallel()
	telemetry, recorder, _ := newTestOTel(t, true)
	r, start := &Record{Started: testStart}, started()
	start.RequestID, start.Model = "id\xff", "gpt-oss\xfe"
	telemetry.Begin(r, start)
	telemetry.ModelCall(r, &engine.Request{Model: "gpt-oss\xfe", N: 1}, testStart)
	long := "x" + strings.Repeat("\u00fc", maxContent)
	docs := &tools.Server{Label: "docs", Trusted: true}
	_, end := telemetry.OTel.Tools().Begin(t.Context(), tools.Job{Server: docs, Tool: "f\xff", Arguments: long})
	end(0, tools.Result{Text: long, Answered: true})
	telemetry.Close(r, &Outcome{API: "chat", Model: "gpt-oss\xfe", Engine: "main", Now: testStart})
	if n := len(recorder.Spans()); n != 3 {
		t.Errorf("%d spans", n)
	}
	if tree := recorder.Tree(); !utf8.ValidString(tree) || !strings.Contains(tree, "harmony.request_id=id\ufffd") {
		t.Errorf("spans:\n%q", tree)
	}
	for point := range recorder.Metrics(t) {
		if !utf8.ValidString(point) {
			t.Errorf("metric %q", point)
		}
	}
}

// Accesses to the store that end in an error.
func TestSpansOfTheStore(t *testing.T) {
	t.Parallel()
	telemetry, recorder, _ := newTestOTel(t, false)
	r := &Record{Started: testStart}
	telemetry.Begin(r, started())
	s := ObserveStore(brokenStore{}, func(string) {}, "redis", telemetry.OTel)
	gone, cancel := context.WithCancel(r.Context(t.Context()))
	cancel()
	for id, ctx := range map[string]context.Context{"late": r.Context(t.Context()), "gone": gone} {
		if _, err := s.Get(ctx, "", id); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	types := make([]string, 0, 2)
	for _, span := range recorder.Spans() {
		types = append(types, span.Status().Description)
	}
	if slices.Sort(types); !slices.Equal(types, []string{"canceled", "timeout"}) {
		t.Errorf("errors %v", types)
	}
}

// docs/telemetry.md has every attribute and metric, and no others.
func TestTelemetryIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:gen_ai|mcp|harmony|db|error|http|server)\\.[a-z_.]+)`").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = true
	}
	telemetry, recorder, _ := newTestOTel(t, true)
	everything(t, telemetry)
	used := map[string]bool{}
	for _, span := range recorder.Spans() {
		for _, a := range span.Attributes() {
			used[string(a.Key)] = true
		}
	}
	for point := range recorder.Metrics(t) {
		name, attributes, _ := strings.Cut(point, " ")
		used[name] = true
		for _, a := range strings.Fields(attributes) {
			key, _, _ := strings.Cut(a, "=")
			used[key] = true
		}
	}
	if diff := cmp.Diff(documented, used); diff != "" {
		t.Errorf("in docs/telemetry.md only (-), in the code only (+):\n%s", diff)
	}
}

// everything makes spans and metrics with every attribute that there is.
func everything(t *testing.T, telemetry *Telemetry) {
	t.Helper()
	for _, kind := range []Kind{Foreground, Background} {
		r := &Record{Started: testStart, Response: "resp_1"}
		s := started()
		s.Kind = kind
		telemetry.Begin(r, s)
		topP, seed := 0.9, int64(1)
		telemetry.ModelCall(r, &engine.Request{N: 2, TopP: &topP, Seed: &seed}, testStart)
		telemetry.Retried(r, "x", testStart)
		modelCall(telemetry, r, 0)
		telemetry.ModelCall(r, &engine.Request{N: 1}, testStart)
		_ = ObserveStore(brokenStore{}, telemetry.Metrics.StoreFailed, "sqlite", telemetry.OTel).PutTexts(r.Context(t.Context()), "", nil)
		o := answered()
		o.Kind, o.Complete = kind, kind == Foreground
		telemetry.Close(r, o)
	}
	for _, tool := range []string{"", "search"} {
		_, end := telemetry.OTel.Tools().Begin(t.Context(), tools.Job{Server: &tools.Server{Label: "docs", Trusted: true}, Tool: tool})
		end(time.Second, tools.Result{Answered: true, Error: "x"})
	}
}
