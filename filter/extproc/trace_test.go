package extproc

import (
	"context"
	"strings"
	"testing"

	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/envoy-harmony/envoy-harmony/filter/telemetry/telemetrytest"
)

// scriptSpans runs a test of a server whose spans are recorded, and returns them as
// text.
func scriptSpans(t *testing.T, change func(*wiring), test func(s *scripted)) (*telemetrytest.Recorder, string) {
	t.Helper()
	recorder := telemetrytest.New()
	script(t, func(w *wiring) {
		w.spans = recorder
		if change != nil {
			change(w)
		}
	}, test)
	if open := recorder.Open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
	return recorder, recorder.Tree()
}

// The names of the spans of a tree, with their indentation.
func names(tree string) string {
	var b strings.Builder
	for line := range strings.Lines(tree) {
		before, _, _ := strings.Cut(line, " gen_ai.")
		before, _, _ = strings.Cut(before, " error.type")
		before, _, _ = strings.Cut(before, " harmony.")
		b.WriteString(strings.TrimSuffix(before, "\n") + "\n")
	}
	return b.String()
}

// Each request that the filter answers has a span, however it ends.
func TestSpans(t *testing.T) {
	t.Parallel()
	const model = "chat openai/gpt-oss-20b"
	for name, c := range map[string]struct {
		change func(*wiring)
		test   func(s *scripted)
		want   string
	}{
		"answered": {nil, func(s *scripted) { s.complete() }, "server " + model + "\n  client " + model + "\n"},
		"the engine fails twice": {nil, func(s *scripted) {
			s.posted("")
			s.loses()
			s.called()
			s.loses()
		}, "server " + model + " Error(engine_disconnected)\n  client " + model + " Error(engine_disconnected)\n"},
		"the client leaves": {nil, func(s *scripted) { s.posted("") }, "server " + model + "\n  client " + model + "\n"},
		"rejected": {nil, func(s *scripted) {
			s.post()
			s.body(ask(`,"n":1000`), true)
		}, "server " + model + "\n"},
		"too late": {nil, func(s *scripted) {
			s.post()
			s.wait(s.o.Config.Limits.BodyTimeout.Duration)
		}, "server POST /v1/chat/completions\n"},
		"no model":                {nil, func(s *scripted) { s.get("GET", "/v1/responses/resp_x"+strings.Repeat("0", 32)) }, "server GET /v1/responses/{id}\n"},
		"another path":            {nil, func(s *scripted) { s.get("GET", "/v1/files") }, ""},
		"another model":           {nil, func(s *scripted) { s.post(); s.body(`{"model":"other"}`, true) }, ""},
		"a panic of the endpoint": {endpointOf(nil), func(s *scripted) { s.postTest() }, "server chat gpt-oss Error(panic)\n"},
		"nothing but the headers": {nil, func(s *scripted) { s.post() }, "server POST /v1/chat/completions\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tree := scriptSpans(t, c.change, c.test)
			if got := names(tree); got != c.want {
				t.Errorf("spans\n%swant\n%s\n%s", got, c.want, tree)
			}
		})
	}
}

// A call that is retried has one span.
func TestSpanOfARetry(t *testing.T) {
	t.Parallel()
	_, tree := scriptSpans(t, nil, func(s *scripted) {
		s.posted("")
		s.loses()
		s.called()
		s.loses()
	})
	if want := "harmony.retries=1 [retry error.type=engine_disconnected]"; strings.Count(tree, want) != 1 || strings.Count(tree, "client chat") != 1 {
		t.Errorf("no %s in\n%s", want, tree)
	}
}

// Also on the direct way the request to the engine has the model call's traceparent, and the client's
// tracestate, or none.
func TestTraceOfTheEnginesRequest(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{"vendor=1": "tracestate=vendor=1", "": "-tracestate"} {
		var sent string
		recorder, _ := scriptSpans(t, direct, func(s *scripted) {
			s.post("traceparent="+telemetrytest.Parent, "tracestate="+state)
			s.body(ask(""), true)
			sent = s.sent()[0]
		})
		call := recorder.Spans()[1].SpanContext()
		if parent := "traceparent=00-" + telemetrytest.TraceID + "-" + call.SpanID().String() + "-01"; !strings.Contains(sent, parent) || !strings.Contains(sent, want) {
			t.Errorf("no %s or no %s in %s", parent, want, sent)
		}
	}
}

// The span of Envoy's stream to the filter comes before the one that the client
// names.
func TestParentOfARequest(t *testing.T) {
	t.Parallel()
	const ofEnvoy = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	fields := headerMap([]string{"traceparent=" + telemetrytest.Parent})
	stream := grpcmetadata.NewIncomingContext(context.Background(), grpcmetadata.Pairs("traceparent", ofEnvoy))
	for want, ctx := range map[string]context.Context{telemetrytest.TraceID: t.Context(), "0af7651916cd43dd8448eb211c80319c": stream} {
		recorder := telemetrytest.New()
		s := newServer(t, func(w *wiring) { w.spans = recorder })
		x := newStepped(ctx, s.Server)
		x.request.parent, x.request.endpoint = parentOf(ctx, fields), &s.o.Endpoints[0]
		s.beginSpan(x)
		x.close(s.o.Env.Now())
		if got := recorder.Spans()[0].SpanContext().TraceID().String(); got != want {
			t.Errorf("trace %s, want %s", got, want)
		}
	}
}
