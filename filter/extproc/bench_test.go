package extproc

import (
	"context"
	"io"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry/telemetrytest"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// directly has Envoy make the model call: what is measured is what the exchange does by itself.
func directly(change func(*wiring)) func(*wiring) {
	return func(w *wiring) {
		w.direct = true
		if change != nil {
			change(w)
		}
	}
}

// feed hands messages to an exchange, without a stream. What the exchange sends is
// in x.to.out.
func feed(tb testing.TB, x *exchange, messages ...*extprocv3.ProcessingRequest) {
	tb.Helper()
	for _, m := range messages {
		e := incoming(envoyMessage{m})
		for {
			x.Begin(x.now)
			if _, err := x.Handle(e); err != nil {
				tb.Fatal(err)
			}
			if x.phase != phaseHandle {
				break
			}
			e = <-x.in // the endpoint's outcome
		}
	}
}

func chatRequest(body string) []*extprocv3.ProcessingRequest {
	return []*extprocv3.ProcessingRequest{requestHeaders(duplex, duplex, false, ":method=POST", ":path=/v1/chat/completions"), requestBody(body, true)}
}

// countingOwner is an exchange whose loop ends after some events. What it sends goes
// nowhere.
type countingOwner struct {
	*exchange
	left int
}

func (o *countingOwner) Handle(e incoming) (telemetry.MessageKind, error) {
	o.left--
	return o.exchange.Handle(e)
}
func (o *countingOwner) Done() bool   { return o.left == 0 }
func (o *countingOwner) Flush() error { return nil }

// tokenStream is a stream that the engine answers with one token an event. stream
// handles n of them in the exchange's loop.
func tokenStream(tb testing.TB, change func(*wiring)) (stream func(n int)) {
	tb.Helper()
	s := newServer(tb, directly(change))
	x := newStepped(tb.Context(), s.Server)
	feed(tb, x, chatRequest(ask(`,"stream":true`))...)
	feed(tb, x, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap([]string{":status=200", sse})}}})
	feed(tb, x, responseBody(event("", tokens("<|channel|>final<|message|>")...), false))
	token := envoyMessage{responseBody(event("", tokens(" word")[0]), false)}
	in := make(chan incoming, 1000)
	return func(n int) {
		go func() {
			for range n {
				in <- token
			}
		}()
		if err := run.Serve(tb.Context(), x.runner, in, &countingOwner{x, n}); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkToken is what the filter itself adds to a streamed token: one engine event
// in, one chat chunk out, with the exchange's loop and without gRPC.
func BenchmarkToken(b *testing.B) { benchmarkToken(b, nil) }

// BenchmarkTokenTraced is the same with OpenTelemetry.
func BenchmarkTokenTraced(b *testing.B) { benchmarkToken(b, traced) }

func benchmarkToken(b *testing.B, change func(*wiring)) {
	b.Helper()
	stream := tokenStream(b, change)
	b.ReportAllocs()
	b.ResetTimer()
	stream(b.N)
}

// traced switches OpenTelemetry on. Nothing is sent.
func traced(w *wiring) {
	w.spans = &telemetrytest.Recorder{Tracers: sdktrace.NewTracerProvider(), Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))}
}

// recorded has exchanges recorded in memory, with their contents.
func recorded(w *wiring) {
	w.cfg.Record.Percent, w.cfg.Record.Content, w.cfg.Record.MaxRecordBytes = 100, true, 64<<20
}

// BenchmarkTokenRecorded is BenchmarkToken of an exchange that is recorded.
func BenchmarkTokenRecorded(b *testing.B) { benchmarkToken(b, recorded) }

// A token allocates nothing, apart from what the loop itself takes.
func TestTokenDoesNotAllocate(t *testing.T) {
	for name, change := range map[string]func(*wiring){"without": nil, "with": traced} {
		stream := tokenStream(t, change)
		if n := testing.AllocsPerRun(10, func() { stream(1000) }); n > 20 {
			t.Errorf("%s OpenTelemetry: %v allocations for 1000 tokens", name, n)
		}
	}
}

// BenchmarkRequest is what the filter adds to a request: a conversation of 40
// messages that were rendered before.
func BenchmarkRequest(b *testing.B) { benchmarkRequest(b, nil) }

// BenchmarkRequestTraced is the same with OpenTelemetry.
func BenchmarkRequestTraced(b *testing.B) { benchmarkRequest(b, traced) }

func benchmarkRequest(b *testing.B, change func(*wiring)) {
	b.Helper()
	history := strings.Repeat(`{"role":"user","content":"Tell me more about the rivers of Europe, please."},{"role":"assistant","content":"The Danube flows through ten countries, more than any other river in the world."},`, 20)
	body := `{"model":"gpt-oss-20b","stream":true,"messages":[` + history + `{"role":"user","content":"Which is the longest?"}]}`
	s := newServer(b, directly(change))
	s.o.Env.Telemetry.Log.SetLevel(0) // nothing is logged
	var wire string
	b.ReportAllocs()
	for b.Loop() {
		x := newStepped(context.Background(), s.Server)
		feed(b, x, chatRequest(body)...)
		if x.phase != phaseRun {
			b.Fatal("the request was not sent on")
		}
		wire = string(x.to.out[1].GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
		x.close(x.now)
	}
	b.ReportMetric(float64(gjson.Get(wire, "prompt.#").Int()), "tokens")
}

// shortRequest is a short chat request with its reply of three tokens, as Envoy sends
// them.
func shortRequest() []*extprocv3.ProcessingRequest {
	messages := chatRequest(`{"model":"gpt-oss-20b","stream":true,"messages":[{"role":"user","content":"Which is the longest river?"}]}`)
	return append(messages,
		&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap([]string{":status=200", sse})}}},
		responseBody(event("", tokens("<|channel|>final<|message|>The Nile")...), false),
		responseBody(event("stop", harmony.TokenReturn)+usageEvent+doneEvent, true))
}

// exchangeOf returns a function that does a whole exchange of these messages, with its
// log line.
func exchangeOf(tb testing.TB, change func(*wiring), messages ...*extprocv3.ProcessingRequest) func() {
	tb.Helper()
	s := newServer(tb, directly(change))
	s.o.Env.Telemetry.Log.SetLevel(logrus.InfoLevel)
	s.o.Env.Telemetry.Log.SetOutput(io.Discard)
	driver := newStepDriver(context.Background(), s.Server)
	return func() {
		x := newExchange(driver, s.Server)
		feed(tb, x, messages...)
		if x.phase != phaseEnded {
			tb.Fatal("the reply has no end")
		}
		x.close(x.now)
	}
}

// BenchmarkShortRequest is what the filter itself does for a short request, from its
// headers to the log line.
func BenchmarkShortRequest(b *testing.B) { benchmarkShortRequest(b, nil) }

// BenchmarkShortRequestRecorded is the same with a record.
func BenchmarkShortRequestRecorded(b *testing.B) { benchmarkShortRequest(b, recorded) }

func benchmarkShortRequest(b *testing.B, change func(*wiring)) {
	b.Helper()
	exchange := exchangeOf(b, change, shortRequest()...)
	b.ReportAllocs()
	for b.Loop() {
		exchange()
	}
}

// A short request allocates this much at most, with its reply and its log line. What it
// takes is divided among many: each new allocation has to be worth it.
func TestShortRequestAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates itself")
	}
	const most = 150
	if n := testing.AllocsPerRun(200, exchangeOf(t, nil, shortRequest()...)); n > most {
		t.Errorf("%v allocations, more than %d", n, most)
	}
}
