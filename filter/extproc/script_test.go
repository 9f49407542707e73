package extproc

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"
	"google.golang.org/grpc"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/background"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/models"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry/telemetrytest"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The tests of this package are scripts: a test plays Envoy, sends the messages of
// one exchange after the other to [Server.Process], and compares what it gets.
//
//	script(t, nil, func(s *scripted) {
//		s.post()                       // request headers
//		s.body(ask(""), true)          // the request's body and its end
//		s.expectLike("request headers", "request body")
//		s.wait(5 * time.Minute)        // the clock moves on
//		s.expectLike("immediate 504")
//	})
//
// A script runs in a synctest bubble: its clock is fake, and after each message the
// script waits until everything in the bubble waits, so that endpoints, jobs and
// timers have done what they can. No test sleeps or polls.

// testServer is a server with everything it works with.
type testServer struct {
	*Server
	wire     *wiring
	store    store.Store
	loopback *fakeLoopback
	registry *prometheus.Registry
	log      *logBuffer // JSON lines
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// wiring is what a test may change of a server.
type wiring struct {
	cfg       *config.Config
	store     store.Store    // of the server; nil: a store in memory
	endpoints []api.Endpoint // before those of the APIs
	tools     *tools.Client
	spans     *telemetrytest.Recorder // nil: without OpenTelemetry
	paced     bool                    // Envoy has the pacing route
	ownEnvoy  bool                    // Envoy has the upstreams of the configuration, and no others
	stream    grpcmetadata.MD         // of Envoy's stream; nil: none, as of a socket
	loopback  fakeLoopback
	direct    bool // there is no loopback listener: Envoy sends the client's own request on
}

// newServer wires a server as package filter does. A nil change: the defaults, with a vLLM engine
// that is called through the loopback listener.
func newServer(t testing.TB, change func(*wiring)) *testServer {
	t.Helper()
	w := &wiring{cfg: config.Defaults()}
	w.loopback.made.L = &w.loopback.mu
	w.cfg.Engines = []config.Engine{{Name: "main", Kind: "vllm", URLs: []string{"http://127.0.0.1:1"}}}
	w.cfg.Date = "2026-01-02"
	w.cfg.ReplyHeaders = []string{header.Ignored}
	if change != nil {
		change(w)
	}
	if !w.direct {
		w.cfg.Loopback = "unix:///loopback"
	}
	if err := w.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s := &testServer{wire: w, store: w.store, loopback: &w.loopback, registry: prometheus.NewRegistry(), log: &logBuffer{}}
	if s.store == nil {
		s.store = newStore()
	}
	metrics, err := telemetry.NewMetrics(s.registry)
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(s.log)
	log.SetFormatter(telemetry.JSONLines{})
	log.SetLevel(logrus.DebugLevel)
	tel := telemetry.New(log, metrics, w.cfg.Log.Content)
	if w.spans != nil {
		if tel.OTel, err = telemetry.NewOTel(telemetry.OTelOptions{Tracers: w.spans.Tracers, Meters: w.spans.Meters, Labels: metrics}); err != nil {
			t.Fatal(err)
		}
	}
	if w.cfg.Record.On() {
		tel = tel.With(w.cfg.Log.Content, record.New(record.Options{
			Percent: w.cfg.Record.Percent, Content: w.cfg.Record.Content, RecordBytes: w.cfg.Record.MaxRecordBytes, LiveBytes: w.cfg.Record.MemoryBytes,
			Sinks: []record.Sink{record.NewRing(w.cfg.Record.MemoryBytes)}, Draw: func(int) int { return 0 }, Now: time.Now,
		}))
	}
	s.Server = New(w.options(t, s.store, tel))
	return s
}

// direct has Envoy send the client's own request on to the engine: there is no loopback listener.
func direct(w *wiring) { w.direct = true }

// newStore is a store in memory.
func newStore() store.Store {
	return store.NewMemory(store.Options{ResponseTTL: time.Hour, ResponseBytes: 1 << 20, TextTTL: time.Hour, TextBytes: 1 << 20, Now: time.Now})
}

func (w *wiring) options(t testing.TB, s store.Store, tel *telemetry.Telemetry) Options {
	t.Helper()
	cfg, workers := w.cfg, &run.Workers{Log: tel.Log}
	l := cfg.Limits
	var ids atomic.Int64
	o := Options{
		OwnEnvoy: w.ownEnvoy,
		Config:   cfg, Dialects: map[string]engine.Dialect{}, Recording: func(*record.Record) {},
		NewID: func(prefix string) string { return prefix + "id" + strconv.FormatInt(ids.Add(1), 10) },
		Env: &run.Env{
			Telemetry: tel, Now: time.Now, Locks: &run.Locks{Workers: workers}, Workers: workers, Explain: cfg.ReplyHeaders,
			Limits: run.Limits{FirstToken: l.FirstTokenTimeout.Duration, Idle: l.IdleTimeout.Duration, Total: l.TotalTimeout.Duration, HeaderHold: l.HeaderHold.Duration, KeepAlive: l.KeepAlive.Duration},
			Keys:   run.Keys{Prefix: cfg.Routing.PrefixHeader, Session: cfg.Routing.SessionHeader, Selection: cfg.Routing.SelectionHeader},
		},
	}
	for _, e := range cfg.Engines {
		o.Dialects[e.Name], _ = engine.ByKind(e.Kind)
	}
	if !w.direct {
		o.Client = &w.loopback
	}
	limits := turn.DefaultLimits()
	limits.LastUserTextBytes = cfg.Routing.SelectionTextBytes
	o.Turns = &turn.Env{Renderer: harmony.NewRenderer(), Now: time.Now, NewID: o.NewID, Memory: s, Limits: limits}
	if cfg.Limits.DiagnosisBytes > 0 {
		o.Turns.Prompts = diagnosis.NewPrompts(cfg.Limits.DiagnosisBytes)
	}
	o.Models = models.New(models.Options{Config: cfg, Dialects: o.Dialects, Log: tel.Log, Now: time.Now})
	o.Budgets = budget.New(s, cfg.Budgets())
	o.Background = background.New(background.Options{Store: s, Client: o.Client, Env: o.Env, Owner: "me", Max: cfg.Limits.MaxBackground, TenantHeader: cfg.TenantHeader})
	a := w.responses(t, s)
	o.Stored = a.Stored
	o.Endpoints = slices.Concat(w.endpoints, chat.Endpoints(), a.Endpoints(), (&messages.API{Sealer: a.Compactor}).Endpoints(), o.Models.Endpoints())
	return o
}

// responses is the Responses API.
func (w *wiring) responses(t testing.TB, s store.Store) *responses.API {
	t.Helper()
	a := &responses.API{Approvals: s, ToolTimeout: w.cfg.Responses.ToolTimeout.Duration, Tools: w.tools}
	if w.cfg.Responses.StoreBytes > 0 {
		a.Store = s
	}
	var err error
	if a.Compactor, err = seal.NewSealer([][]byte{make([]byte, config.SealKeyBytes)}, rand.Reader); err != nil {
		t.Fatal(err)
	}
	return a
}

// script runs a test of a server in a bubble. The server is closed at its end.
func script(t *testing.T, change func(*wiring), test func(s *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{t: t, testServer: newServer(t, change)}
		s.begin()
		defer func() { // also after t.Fatal
			s.leave()
			s.close()
		}()
		test(s)
	})
}

// close waits for everything that the server has begun.
func (s *testServer) close() {
	s.Drain()
	s.o.Background.Close(context.Background())
	s.o.Env.Workers.Wait(context.Background())
	s.o.Models.Close()
}

// scripted is a server with the exchange that the script drives.
type scripted struct {
	*testServer
	*fakeEnvoy
	call *engineCall // the model call that the script has taken last; nil: none
	t    *testing.T
}

// fakeEnvoy is Envoy's side of one exchange.
type fakeEnvoy struct {
	grpc.ServerStream
	ctx   context.Context
	leave func() // Envoy resets the stream, as for a client that leaves
	in    chan *extprocv3.ProcessingRequest
	ended chan struct{} // closed when Process has returned
	err   error         // that it has returned

	broken error // with which Envoy's side has ended

	mu        sync.Mutex
	log       []string                     // what Envoy got, a line each
	messages  int                          // that Envoy got
	immediate *extprocv3.ImmediateResponse // the last one
	metadata  map[string]any               // dynamic metadata that Envoy got, of the filter's namespace
	usage     *aidatav3.TokenUsage         // typed dynamic metadata
	described []int                        // which messages had metadata
}

// begin opens another stream. The one before goes on.
func (s *scripted) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	if s.wire.paced {
		s.wire.stream = grpcmetadata.Pairs(header.Pacing, "on")
	}
	if s.wire.stream != nil {
		ctx = grpcmetadata.NewIncomingContext(ctx, s.wire.stream)
	}
	e := &fakeEnvoy{ctx: ctx, in: make(chan *extprocv3.ProcessingRequest), ended: make(chan struct{})}
	e.leave = func() {
		cancel()
		<-e.ended
	}
	s.fakeEnvoy = e
	go func() {
		defer close(e.ended)
		e.err = s.Process(e)
		cancel() // as gRPC does
	}()
}

// next ends the exchange and begins another one.
func (s *scripted) next() {
	s.leave()
	synctest.Wait()
	s.begin()
}

func (e *fakeEnvoy) Context() context.Context { return e.ctx }

func (e *fakeEnvoy) Recv() (*extprocv3.ProcessingRequest, error) {
	select {
	case m, open := <-e.in:
		if !open {
			return nil, e.end()
		}
		return m, nil
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
}

func (e *fakeEnvoy) end() error {
	if e.broken != nil {
		return e.broken
	}
	return io.EOF
}

func (e *fakeEnvoy) Send(sent *extprocv3.ProcessingResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := &extprocv3.ProcessingResponse{} // as Envoy reads it
	if wire, err := proto.Marshal(sent); err != nil {
		return err
	} else if err := proto.Unmarshal(wire, m); err != nil {
		return err
	}
	e.log = append(e.log, line(m))
	if i := m.GetImmediateResponse(); i != nil {
		e.immediate = i
	}
	e.messages++
	return e.takeMetadata(m)
}

// takeMetadata merges dynamic metadata as Envoy does.
func (e *fakeEnvoy) takeMetadata(m *extprocv3.ProcessingResponse) error {
	d := m.GetDynamicMetadata()
	if d == nil {
		return nil
	}
	e.described = append(e.described, e.messages)
	if e.metadata == nil {
		e.metadata = map[string]any{}
	}
	fields, _ := d.AsMap()[header.MetadataNamespace].(map[string]any)
	maps.Copy(e.metadata, fields)
	if typed := m.GetTypedDynamicMetadata()[header.TokenUsageNamespace]; typed != nil {
		e.usage = &aidatav3.TokenUsage{}
		return typed.UnmarshalTo(e.usage)
	}
	return nil
}

// message sends a message, and waits until nothing more comes of it.
func (s *scripted) message(m *extprocv3.ProcessingRequest) {
	s.t.Helper()
	select {
	case s.in <- m:
	case <-s.ended:
		s.t.Fatalf("the stream has ended: %v", s.err)
	}
	synctest.Wait()
}

// wait moves the clock on.
func (s *scripted) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// halfClose ends Envoy's side of the stream with an error; nil: in good order.
func (s *scripted) halfClose(err error) {
	s.broken = err
	close(s.in)
	synctest.Wait()
}

var errGoesOn = errors.New("the stream goes on")

// result is the error with which the stream has ended, or errGoesOn.
func (s *scripted) result() error {
	s.t.Helper()
	select {
	case <-s.ended:
		return s.err
	default:
		return errGoesOn
	}
}

func headerMap(fields []string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	return m
}

const duplex = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED

// The messages that Envoy sends. Fields are name=value.

func requestHeaders(request, response extprocfilterv3.ProcessingMode_BodySendMode, end bool, fields ...string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: request, ResponseBodyMode: response},
		Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(fields), EndOfStream: end}},
	}
}

func requestBody(p string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(p), EndOfStream: end}}}
}

func responseBody(p string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(p), EndOfStream: end}}}
}

func (s *scripted) request(end bool, fields ...string) {
	s.t.Helper()
	s.message(requestHeaders(duplex, duplex, end, fields...))
}

// post sends the headers of a chat request.
func (s *scripted) post(fields ...string) {
	s.t.Helper()
	s.request(false, append([]string{":method=POST", ":path=/v1/chat/completions", "content-type=application/json", "x-request-id=abc"}, fields...)...)
}

func (s *scripted) body(p string, end bool) {
	s.t.Helper()
	s.message(requestBody(p, end))
}

func (s *scripted) trailers() {
	s.t.Helper()
	s.message(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}})
}

// envoyAnswer sends the headers of the upstream's reply, or of Envoy's own one.
func (s *scripted) envoyAnswer(end bool, fields ...string) {
	s.t.Helper()
	s.message(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(fields), EndOfStream: end}}})
}

func (s *scripted) envoyAnswerBody(p string, end bool) {
	s.t.Helper()
	s.message(responseBody(p, end))
}

func (s *scripted) envoyAnswerTrailers() {
	s.t.Helper()
	s.message(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}})
}

// line is a message of the filter as a test compares it.
func line(m *extprocv3.ProcessingResponse) string {
	switch r := m.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return "request headers" + changes(r.RequestHeaders.GetResponse()) + modes(m.GetModeOverride())
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return "response headers" + changes(r.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		return "request body " + piece(r.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		return "response body " + piece(r.ResponseBody.GetResponse().GetBodyMutation().GetStreamedResponse())
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return "request trailers"
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return "response trailers -" + strings.Join(r.ResponseTrailers.GetHeaderMutation().GetRemoveHeaders(), " -")
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		i := r.ImmediateResponse
		var out strings.Builder
		fmt.Fprintf(&out, "immediate %d", i.GetStatus().GetCode())
		for _, h := range i.GetHeaders().GetSetHeaders() {
			if h.GetHeader().GetKey() == "retry-after" {
				fmt.Fprintf(&out, " retry-after=%s", h.GetHeader().GetRawValue())
			}
		}
		return out.String() + " " + gjson.GetBytes(i.GetBody(), "error.message").String()
	case *extprocv3.ProcessingResponse_StreamedImmediateResponse:
		if h := r.StreamedImmediateResponse.GetHeadersResponse(); h != nil {
			var out strings.Builder
			out.WriteString("local headers")
			for _, h := range h.GetHeaders().GetHeaders() {
				fmt.Fprintf(&out, " %s=%s", h.GetKey(), h.GetRawValue())
			}
			return out.String()
		}
		return "local body " + piece(r.StreamedImmediateResponse.GetBodyResponse())
	}
	if mode := m.GetModeOverride(); mode != nil {
		return "mode" + modes(mode)
	}
	return "?"
}

// modes is a mode override; "" if there is none.
func modes(m *extprocfilterv3.ProcessingMode) string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf(" {request %s %s %s, response %s %s %s}", m.GetRequestHeaderMode(), m.GetRequestBodyMode(), m.GetRequestTrailerMode(), m.GetResponseHeaderMode(), m.GetResponseBodyMode(), m.GetResponseTrailerMode())
}

func changes(c *extprocv3.CommonResponse) string {
	var out strings.Builder
	for _, h := range c.GetHeaderMutation().GetSetHeaders() {
		fmt.Fprintf(&out, " %s=%s", h.GetHeader().GetKey(), h.GetHeader().GetRawValue())
	}
	for _, name := range c.GetHeaderMutation().GetRemoveHeaders() {
		out.WriteString(" -" + name)
	}
	if c.GetClearRouteCache() {
		out.WriteString(" reroute")
	}
	return out.String()
}

func piece(p *extprocv3.StreamedBodyResponse) string {
	out := string(p.GetBody())
	if len(out) > 40000 {
		out = fmt.Sprintf("(%d bytes)", len(out))
	}
	if p.GetEndOfStream() {
		out += " END"
	}
	return out
}

// sent takes the lines so far.
func (e *fakeEnvoy) sent() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.log
	e.log = nil
	return out
}

func (s *scripted) expect(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.sent()); diff != "" {
		s.t.Fatalf("sent to Envoy (-want +got):\n%s", diff)
	}
}

// expectLike compares the beginnings of the lines.
func (s *scripted) expectLike(want ...string) []string {
	s.t.Helper()
	got := s.sent()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		s.t.Fatalf("sent to Envoy:\n%s\nwant lines that begin:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return got
}

// answered takes the status and body of an immediate response.
func (s *scripted) answered() (status int, body string) {
	s.t.Helper()
	if got := s.sent(); len(got) != 1 || s.immediate == nil {
		s.t.Fatalf("sent %q, not an answer", got)
	}
	return int(s.immediate.GetStatus().GetCode()), string(s.immediate.GetBody())
}

// settle waits until nothing more comes of what was done.
func (s *scripted) settle() { synctest.Wait() }

// toEngine takes the request that goes to the engine, and returns its body.
func (s *scripted) toEngine() gjson.Result {
	s.t.Helper()
	if !s.wire.direct {
		s.expect()
		return s.called().body
	}
	got := s.expectLike("request headers :path=/v1/completions", "request body {")
	return gjson.Parse(strings.TrimSuffix(strings.TrimPrefix(got[1], "request body "), " END"))
}

// lines are the lines of the server's log.
func (s *testServer) lines(t *testing.T) []gjson.Result {
	t.Helper()
	var lines []gjson.Result
	for l := range strings.Lines(s.log.String()) {
		if !gjson.Valid(l) {
			t.Fatalf("no line: %s", l)
		}
		lines = append(lines, gjson.Parse(l))
	}
	return lines
}

// inUse is how many bytes of the budget are taken.
func (s *testServer) inUse() int64 {
	h := s.memory.held
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// occupy takes n bytes of the budget for another request, whose body is complete.
func (s *testServer) occupy(t *testing.T, n int64) *memoryShare {
	t.Helper()
	other := s.memory.open("", nil)
	if err := other.complete(); err != nil {
		t.Fatal(err)
	}
	if err := other.take(n); err != nil {
		t.Fatal("no room for another request")
	}
	return other
}

// counted is the value of a counter with these labels, name=value in the order of
// their names.
func (s *testServer) counted(t *testing.T, name, labels string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			all := make([]string, 0, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				all = append(all, l.GetName()+"="+l.GetValue())
			}
			if strings.Join(all, " ") == labels {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// An engine's output: tokens of Harmony text, and their events.
var (
	tokens = apitest.Tokens
	event  = apitest.VLLMEvent
)

const (
	usageEvent = `data: {"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":9,"total_tokens":79,"prompt_tokens_details":{"cached_tokens":64}}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
	sse        = "content-type=text/event-stream"
	question   = `{"model":"openai/gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]%s}`
	// streamHeaders are the headers of a stream in place of the engine's.
	streamHeaders = "response headers content-type=text/event-stream; charset=utf-8 cache-control=no-cache x-request-id=abc -content-length -grpc-encoding -grpc-accept-encoding"
)

// ask is a chat request.
func ask(fields string) string { return fmt.Sprintf(question, fields) }

// posted sends a chat request, which goes to the engine.
func (s *scripted) posted(fields string) {
	s.t.Helper()
	s.post()
	s.body(ask(fields), true)
	s.toEngine()
}

func gzipped(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// stepDriver drives an exchange step by step, without a stream and without a loop: a test hands
// the exchange its events, and finds its messages in to.out.
type stepDriver struct {
	grpcDriver
	ctx context.Context //nolint:containedctx // of the exchange, of the same life
}

func (d *stepDriver) Context() context.Context { return d.ctx }

func newStepDriver(ctx context.Context, s *Server) *stepDriver {
	return &stepDriver{grpcDriver{env: s.o.Env}, ctx}
}

// newStepped is an exchange that a test drives step by step.
func newStepped(ctx context.Context, s *Server) *exchange {
	return newExchange(newStepDriver(ctx, s), s)
}
