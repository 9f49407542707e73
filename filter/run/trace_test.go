package run

import (
	"net/http"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry/telemetrytest"
)

// recordingUpstream keeps the traceparent of the calls that it is asked for.
type recordingUpstream struct {
	header http.Header
	traces []string
}

func (u *recordingUpstream) Call(*engine.Request, Retry) *apierror.Error {
	u.traces = append(u.traces, u.header.Get("traceparent"))
	return nil
}
func (u *recordingUpstream) Events() <-chan Event { return nil }
func (u *recordingUpstream) Cancel()              {}

// A model call and its retries carry the traceparent of the call's span.
func TestCallsCarryTheTrace(t *testing.T) {
	t.Parallel()
	env, recorder := newTestEnv(t), telemetrytest.New()
	var err error
	if env.Telemetry.OTel, err = telemetry.NewOTel(telemetry.OTelOptions{Tracers: recorder.Tracers, Labels: env.Telemetry.Metrics}); err != nil {
		t.Fatal(err)
	}
	dialect, _ := engine.ByKind("vllm")
	upstream := &recordingUpstream{header: http.Header{"Traceparent": {telemetrytest.Parent}}}
	r := NewRunner(t.Context(), env, testStart)
	env.Telemetry.Begin(&r.Record, telemetry.Start{
		Parent: telemetry.ParentOf(func(name string) string { return upstream.header.Get(name) }), Engine: "main", Model: "gpt-oss",
	})
	run := r.Begin(Options{
		Request: chatRequest(t, "", false), Mode: api.Loop, Target: Target{Engine: "main", Model: "gpt-oss", Dialect: dialect},
		Header: upstream.header, Downstream: &recordingDownstream{},
	}, upstream, testStart)
	run.Start()
	run.EngineEvent(Broken(errBroken)) // it is made once more
	run.EngineEvent(Broken(errBroken))
	env.Telemetry.Close(&r.Record, &telemetry.Outcome{Engine: "main", Now: testStart})
	r.Stop()
	spans := recorder.Spans()
	if len(spans) != 2 || len(upstream.traces) != 2 {
		t.Fatalf("%d calls, spans\n%s", len(upstream.traces), recorder.Tree())
	}
	for _, parent := range upstream.traces {
		if want := "00-" + telemetrytest.TraceID + "-" + spans[1].SpanContext().SpanID().String() + "-01"; parent != want {
			t.Errorf("traceparent %q, want %q", parent, want)
		}
	}
}
