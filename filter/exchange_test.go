package filter

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// script drives one exchange without Envoy, gRPC or a clock.
type script struct {
	t   *testing.T
	x   *exchange
	now time.Time
	log []string // what went to Envoy, a line each
}

func newScript(t *testing.T, change func(*Config)) *script {
	t.Helper()
	cfg := Defaults()
	cfg.Engines = []Engine{{Name: "main", Kind: "vllm", URLs: []string{"http://127.0.0.1:1"}}}
	cfg.Date = "2026-01-02"
	if change != nil {
		change(cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n := 0
	s, err := New(cfg, Options{Log: log, Now: func() time.Time { return now }, NewID: func(prefix string) string { n++; return prefix + "id" + strconv.Itoa(n) }})
	if err != nil {
		t.Fatal(err)
	}
	return &script{t: t, x: newExchange(context.Background(), s, now), now: now}
}

func headerMap(fields []string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	return m
}

func (s *script) receive(m *extprocv3.ProcessingRequest) {
	s.t.Helper()
	if err := s.x.receive(m, s.now); err != nil {
		s.t.Fatal(err)
	}
	s.note()
}

func (s *script) mode(request, response extprocfilterv3.ProcessingMode_BodySendMode, end bool, fields ...string) {
	s.t.Helper()
	s.receive(&extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: request, ResponseBodyMode: response},
		Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(fields), EndOfStream: end}},
	})
}

func (s *script) request(end bool, fields ...string) {
	s.t.Helper()
	const duplex = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	s.mode(duplex, duplex, end, fields...)
}

func (s *script) post(fields ...string) {
	s.t.Helper()
	s.request(false, append([]string{":method=POST", ":path=/v1/chat/completions", "content-type=application/json", "x-request-id=abc"}, fields...)...)
}

func (s *script) body(p string, end bool) {
	s.t.Helper()
	s.receive(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(p), EndOfStream: end}}})
}

func (s *script) trailers() {
	s.t.Helper()
	s.receive(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}})
}

func (s *script) answer(end bool, fields ...string) {
	s.t.Helper()
	s.receive(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(fields), EndOfStream: end}}})
}

func (s *script) answerBody(p string, end bool) {
	s.t.Helper()
	s.receive(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(p), EndOfStream: end}}})
}

func (s *script) answerTrailers() {
	s.t.Helper()
	s.receive(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}})
}

func (s *script) wait(d time.Duration) {
	s.t.Helper()
	s.now = s.now.Add(d)
	for next := s.x.timers.next(); !next.IsZero() && !next.After(s.now); next = s.x.timers.next() {
		s.x.tick(next)
		s.note()
	}
}

// note writes down what the last step sends, as it would go over the wire.
func (s *script) note() {
	for _, m := range s.x.out {
		s.log = append(s.log, line(m))
	}
}

func line(m *extprocv3.ProcessingResponse) string {
	switch r := m.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return "request headers" + changes(r.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return "response headers" + changes(r.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		return "request body " + piece(r.RequestBody)
	case *extprocv3.ProcessingResponse_ResponseBody:
		return "response body " + piece(r.ResponseBody)
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
	}
	return "?"
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

func piece(b *extprocv3.BodyResponse) string {
	s := b.GetResponse().GetBodyMutation().GetStreamedResponse()
	out := string(s.GetBody())
	if len(out) > 40000 {
		out = fmt.Sprintf("(%d bytes)", len(out))
	}
	if s.GetEndOfStream() {
		out += " END"
	}
	return out
}

// sent takes what has been noted so far.
func (s *script) sent() []string {
	out := s.log
	s.log = nil
	return out
}

func (s *script) expect(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.sent()); diff != "" {
		s.t.Fatalf("sent to Envoy (-want +got):\n%s", diff)
	}
}

// expectLike compares the beginnings of the lines.
func (s *script) expectLike(want ...string) []string {
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

// tokens is Harmony text with <|marks|> as ids.
func tokens(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }

// event is one server-sent event of a vLLM engine.
func event(finish string, ids ...harmony.Token) string {
	f := "null"
	if finish != "" {
		f = strconv.Quote(finish)
	}
	list := strings.ReplaceAll(fmt.Sprint(ids), " ", ",")
	return `data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"","token_ids":` + list + `,"finish_reason":` + f + `,"stop_reason":null}]}` + "\n\n"
}

const (
	usageEvent = `data: {"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":9,"total_tokens":79,"prompt_tokens_details":{"cached_tokens":64}}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
	sse        = "content-type=text/event-stream"
	question   = `{"model":"openai/gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]%s}`
)

func ask(fields string) string { return fmt.Sprintf(question, fields) }

func TestForeignRequestIsRelayed(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
	}{
		{"path", []string{":method=POST", ":path=/v1/embeddings", "content-type=application/json"}},
		{"method", []string{":method=PUT", ":path=/v1/chat/completions", "content-type=application/json"}},
		{"content type", []string{":method=POST", ":path=/v1/chat/completions", "content-type=multipart/form-data"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, nil)
			s.request(false, c.fields...)
			s.expect("request headers")
			s.body("one", false)
			s.body("two", true)
			s.expect("request body one", "request body two END")
			s.answer(false, ":status=500")
			s.answerBody("three", false)
			s.answerBody("", true)
			s.expect("response headers", "response body three", "response body  END")
		})
	}
}

func TestGetIsRelayed(t *testing.T) {
	s := newScript(t, nil)
	s.request(true, ":method=GET", ":path=/v1/models")
	s.answer(true, ":status=204")
	s.expect("request headers", "response headers")
}

func TestRelayCutsLargePieces(t *testing.T) {
	s := newScript(t, nil)
	s.request(false, ":method=POST", ":path=/upload")
	s.sent()
	s.body(strings.Repeat("x", 2*maxPiece+1), true)
	s.expect("request body (62000 bytes)", "request body (62000 bytes)", "request body x END")
}

func TestRelayPassesTrailers(t *testing.T) {
	s := newScript(t, nil)
	s.request(false, ":method=POST", ":path=/grpc.Service/Call")
	s.body("a", false)
	s.trailers()
	s.answer(false, ":status=200")
	s.answerTrailers()
	s.expect("request headers", "request body a", "request trailers", "response headers", "response trailers -")
}

func TestForeignModelIsRelayedAsSoonAsItIsKnown(t *testing.T) {
	s := newScript(t, nil)
	s.post()
	s.body(`{"messages":[`, false)
	s.expect()
	s.body(`],"model":"llama",`, false)
	s.expect("request headers", `request body {"messages":[],"model":"llama",`)
	s.body(`"stream":true}`, true)
	s.expect(`request body "stream":true} END`)
	s.answer(false, ":status=200", sse)
	s.answerBody("data: x", false)
	s.expect("response headers", "response body data: x")
}

func TestLargeForeignBodyIsRelayedAsItComes(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Limits.MaxBodyBytes = 100 })
	s.post("content-length=10000")
	s.body(`{"model":"llama","x":"aaa`, false)
	s.expect("request headers", `request body {"model":"llama","x":"aaa`)
	for range 50 {
		s.body(strings.Repeat("a", 100), false)
	}
	if n := len(s.sent()); n != 50 {
		t.Errorf("%d pieces relayed, want 50", n)
	}
}

func TestEnvoysOwnAnswerBeforeTheRequestIsRelayed(t *testing.T) {
	s := newScript(t, nil)
	s.answer(false, ":status=429", "content-type=text/plain")
	s.answerBody("local rate limit", true)
	s.expect("response headers", "response body local rate limit END")
}

func TestGzip(t *testing.T) {
	s := newScript(t, nil)
	s.post("content-encoding=gzip")
	s.body(gzipped(ask("")), true)
	s.expectLike("request headers :path=/v1/completions", "request body")

	foreign := newScript(t, nil)
	foreign.post("content-encoding=gzip")
	body := gzipped(`{"model":"llama"}`)
	foreign.body(body, true)
	foreign.expect("request headers", "request body "+body+" END")
}

func gzipped(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func TestForgedEngineHeaderIsTakenOut(t *testing.T) {
	s := newScript(t, nil)
	s.request(false, ":method=POST", ":path=/v1/completions", EngineHeader+"=main")
	s.expect("request headers -x-harmony-engine reroute")
}

// No client chooses the replica that takes its request, or another model's.
func TestForgedDestinationIsTakenOut(t *testing.T) {
	s := newScript(t, nil)
	s.request(false, ":method=POST", ":path=/v1/completions", destinationHeader+"=10.0.0.1:80")
	s.expect("request headers -" + destinationHeader)
	s = newScript(t, nil)
	s.post(destinationHeader + "=10.0.0.1:80")
	s.body(ask(""), true)
	if lead := s.sent()[0]; !strings.Contains(lead, " -"+destinationHeader) {
		t.Error(lead)
	}
}

func TestOverrideHeader(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		s := newScript(t, func(c *Config) { c.AllowOverride = true })
		s.post("x-envoy-harmony=off")
		s.expect("request headers -x-envoy-harmony")
	})
	t.Run("on", func(t *testing.T) {
		s := newScript(t, func(c *Config) { c.AllowOverride = true })
		s.post("x-envoy-harmony=on")
		s.body(`{"model":"llama","messages":[{"role":"user","content":"Hi"}]}`, true)
		s.expectLike("request headers :path=/v1/completions", "request body")
	})
	t.Run("not allowed", func(t *testing.T) {
		s := newScript(t, nil)
		s.post("x-envoy-harmony=off")
		s.expect()
	})
}

func TestRequestGoesToTheEngine(t *testing.T) {
	s := newScript(t, nil)
	s.post("accept-encoding=gzip")
	body := ask(`,"stream":true,"max_tokens":10`)
	s.body(body[:20], false)
	s.body(body[20:], false)
	s.expect()
	s.body("", true)
	sent := s.expectLike("request headers :path=/v1/completions content-type=application/json content-length=", "request body ")
	for _, want := range []string{" x-harmony-engine=main", " -accept-encoding", " reroute"} {
		if !strings.Contains(sent[0], want) {
			t.Errorf("%q is not in %q", want, sent[0])
		}
	}
	if !strings.HasSuffix(sent[1], " END") {
		t.Errorf("the request does not end: %q", sent[1])
	}
}

func TestRequestWithTrailers(t *testing.T) {
	s := newScript(t, nil)
	s.post()
	s.body(ask(""), false)
	s.trailers()
	sent := s.expectLike("request headers :path=", "request body ", "request trailers")
	if strings.HasSuffix(sent[1], " END") {
		t.Errorf("the body ends before the trailers: %q", sent[1])
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		drive  func(*script)
		want   string
	}{
		{"buffered mode", nil, func(s *script) {
			s.mode(extprocfilterv3.ProcessingMode_BUFFERED, extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED, false, ":method=POST", ":path=/v1/chat/completions")
		}, "immediate 500 Envoy's ext_proc filter has processing_mode.request_body_mode BUFFERED: set it to FULL_DUPLEX_STREAMED"},
		{"websocket", nil, func(s *script) { s.request(false, ":method=GET", ":path=/v1/responses", "upgrade=websocket") }, "immediate 426 "},
		{"body too large", func(c *Config) { c.Limits.MaxBodyBytes = 30 }, func(s *script) { s.post(); s.body(ask(""), true) }, "immediate 413 the request body is larger than 30 bytes"},
		{"decoded body too large", func(c *Config) { c.Limits.MaxBodyBytes = 3000 }, func(s *script) {
			s.post("content-encoding=gzip")
			s.body(gzipped(strings.Repeat(" ", 3001)), true)
		}, "immediate 413 the decoded request body is larger than 3000 bytes"},
		{"no room for the decoded body", func(c *Config) { c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes = 3000, 3000 }, func(s *script) {
			s.post("content-encoding=gzip")
			s.body(gzipped(strings.Repeat(" ", 3000)), true)
		}, "immediate 503 retry-after=1 too many requests"},
		{"not gzip", nil, func(s *script) { s.post("content-encoding=gzip"); s.body("{}", true) }, "immediate 400 the request body is not valid gzip"},
		{"no room", func(c *Config) { c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes = 30, 31 }, func(s *script) {
			if !s.x.s.budget.take(20) {
				panic("no budget")
			}
			s.post()
			s.body("12345678901234567", false)
		}, "immediate 503 retry-after=1 too many requests"},
		{"empty", nil, func(s *script) { s.request(true, ":method=POST", ":path=/v1/chat/completions") }, "immediate 400 "},
		{"no JSON", nil, func(s *script) { s.post(); s.body("{nonsense", true) }, "immediate 400 "},
		{"no JSON for our model", nil, func(s *script) { s.post(); s.body(`{"model":"gpt-oss",`, true) }, "immediate 400 "},
		{"no model", nil, func(s *script) { s.post(); s.body(`{"messages":[{"role":"user","content":"Hi"}]}`, true) }, "immediate 400 "},
		{"model is a number", nil, func(s *script) { s.post(); s.body(`{"model":5,"messages":[{"role":"user","content":"Hi"}]}`, true) }, "immediate 400 "},
		{"model twice", nil, func(s *script) { s.post(); s.body(`{"model":"gpt-oss","model":"llama","messages":[]}`, true) }, `immediate 400 "model" stands twice`},
		{"tenant", func(c *Config) { c.TenantHeader = "x-tenant" }, func(s *script) { s.post(); s.body(ask(""), true) }, "immediate 401 the request does not say whose it is: header x-tenant is missing"},
		{"encoding", nil, func(s *script) { s.post("content-encoding=br"); s.body("x", true) }, "immediate 415 "},
		{"slow body", nil, func(s *script) { s.post(); s.body("{", false); s.wait(time.Minute) }, "immediate 408 the request body did not arrive within 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, c.change)
			c.drive(s)
			s.expectLike(c.want)
			s.body("more", true) // in flight already: not answered
			s.expect()
			s.x.close(s.now)
			if used := s.x.s.budget.used.Load(); c.name != "no room" && used != 0 {
				t.Errorf("%d bytes of the budget are lost", used)
			}
		})
	}
}

// begun is an exchange whose request is with the engine.
func begun(t *testing.T, fields string, change func(*Config)) *script {
	t.Helper()
	s := newScript(t, change)
	s.post()
	s.body(ask(fields), true)
	s.expectLike("request headers", "request body")
	return s
}

const streamHeaders = "response headers content-type=text/event-stream; charset=utf-8 cache-control=no-cache x-request-id=abc -content-length -grpc-encoding -grpc-accept-encoding"

func TestStream(t *testing.T) {
	s := begun(t, `,"stream":true`, nil)
	s.answer(false, ":status=200", sse)
	s.expect()
	s.answerBody(event("", tokens("<|channel|>analysis<|message|>Hm")...), false)
	s.expectLike(streamHeaders, `response body data: {`)
	e := event("", tokens("<|end|><|start|>assistant<|channel|>final<|message|>Hello")...)
	s.answerBody(e[:30], false)
	s.expect()
	s.answerBody(e[30:], false)
	got := s.expectLike("response body data: {")
	if !strings.Contains(got[0], `"content":"Hello"`) {
		t.Errorf("no content in %s", got[0])
	}
	s.answerBody(event("stop", harmony.TokenReturn)+usageEvent+doneEvent, true)
	got = s.expectLike("response body data: {")
	if !strings.HasSuffix(got[0], "data: [DONE]\n\n END") || !strings.Contains(got[0], `"finish_reason":"stop"`) {
		t.Errorf("not the end of a stream: %s", got[0])
	}
	s.answerBody("late", true)
	s.expect()
}

func TestWholeReply(t *testing.T) {
	s := begun(t, "", nil)
	s.answer(false, ":status=200", sse)
	s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
	s.expect()
	s.answerBody(event("stop", harmony.TokenReturn)+usageEvent+doneEvent, false)
	s.expect()
	s.answerBody("", true)
	got := s.sent()
	if len(got) != 2 || got[0] != "response headers content-type=application/json x-request-id=abc -content-length -grpc-encoding -grpc-accept-encoding" || !strings.HasSuffix(got[1], " END") {
		t.Fatalf("sent %q", got)
	}
	s.x.close(s.now)
}

func TestReplyWithTrailers(t *testing.T) {
	s := begun(t, "", nil)
	s.answer(false, ":status=200", sse)
	s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...)+usageEvent+doneEvent, false)
	s.answerTrailers()
	got := s.expectLike("response headers", "response body", "response trailers -grpc-status")
	if strings.HasSuffix(got[1], " END") {
		t.Errorf("the body ends before the trailers")
	}
}

func TestStopStringEndsTheEngine(t *testing.T) {
	s := begun(t, `,"stream":true,"stop":["!"]`, nil)
	s.answer(false, ":status=200", sse)
	s.answerBody(event("", tokens("<|channel|>final<|message|>Hi! there")...), false)
	got := s.expectLike(streamHeaders, "response body data:")
	if !strings.HasSuffix(got[1], "data: [DONE]\n\n END") || strings.Contains(got[1], "there") {
		t.Errorf("not ended at the stop string: %s", got[1])
	}
}

func TestEngineErrors(t *testing.T) {
	t.Run("status", func(t *testing.T) {
		s := begun(t, "", nil)
		s.answer(false, ":status=429", "retry-after=7", "content-type=application/json")
		s.answerBody(`{"error":{"message":"slow`, false)
		s.expect()
		s.answerBody(` down","code":429}}`, true)
		s.expectLike("immediate 429 retry-after=7 ")
	})
	t.Run("local reply without a body", func(t *testing.T) {
		s := begun(t, "", nil)
		s.answer(true, ":status=503")
		s.expectLike("immediate 503")
	})
	t.Run("endless error body", func(t *testing.T) {
		s := begun(t, "", nil)
		s.answer(false, ":status=500")
		for range 10 {
			s.answerBody(strings.Repeat("x", 20_000), false)
		}
		if n := len(s.x.run.errorBody); n > maxErrorBody {
			t.Errorf("%d bytes of an error kept", n)
		}
		s.answerBody("", true)
		s.expectLike("immediate 50")
	})
	t.Run("compressed", func(t *testing.T) {
		s := begun(t, "", nil)
		s.answer(false, ":status=200", "content-encoding=gzip")
		s.expectLike("immediate 502 the engine's reply is compressed (gzip)")
	})
	t.Run("first event, headers held", func(t *testing.T) {
		s := begun(t, `,"stream":true`, nil)
		s.answer(false, ":status=200", sse)
		s.answerBody(`data: {"error":{"message":"queue is full","type":"x","code":503}}`+"\n\n"+doneEvent, true)
		s.expectLike("immediate 503")
	})
	t.Run("mid-stream", func(t *testing.T) {
		s := begun(t, `,"stream":true`, nil)
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.sent()
		s.answerBody(`data: {"error":{"message":"EngineCore encountered an issue","type":"x","code":500}}`+"\n\n", false)
		got := s.expectLike(`response body data: {"error":`)
		if !strings.HasSuffix(got[0], "data: [DONE]\n\n END") {
			t.Errorf("no clean end: %s", got[0])
		}
	})
	t.Run("cut", func(t *testing.T) {
		s := begun(t, "", nil)
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), true)
		s.expectLike("immediate 502")
	})
	t.Run("local reply while the body is collected", func(t *testing.T) {
		s := newScript(t, nil)
		s.post()
		s.body(`{"model":`, false)
		s.answer(false, ":status=408", "content-type=text/plain")
		s.answerBody("request timeout", true)
		s.expectLike("immediate 408 the gateway ended the request: Request Timeout")
	})
}

func TestDeadlines(t *testing.T) {
	t.Run("first token", func(t *testing.T) {
		s := begun(t, "", nil)
		s.wait(5 * time.Minute)
		s.expectLike("immediate 504 the engine did not begin to answer within 5m0s")
	})
	t.Run("silence", func(t *testing.T) {
		s := begun(t, "", nil)
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.wait(2 * time.Minute)
		s.expectLike("immediate 504 the engine was silent for 2m0s")
	})
	t.Run("total, streaming", func(t *testing.T) {
		s := begun(t, `,"stream":true`, func(c *Config) { c.Limits.TotalTimeout.Duration = time.Minute; c.Limits.KeepAlive.Duration = 0 })
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.sent()
		s.wait(time.Minute)
		s.expectLike(`response body data: {"error":`)
	})
	t.Run("headers are held for a while, then comments keep the stream alive", func(t *testing.T) {
		s := begun(t, `,"stream":true`, nil)
		s.answer(false, ":status=200", sse)
		s.wait(time.Second)
		s.expect()
		s.wait(time.Second)
		s.expect(streamHeaders)
		s.wait(30 * time.Second)
		s.expect("response body : keep-alive\n\n", "response body : keep-alive\n\n")
	})
	t.Run("closing usage", func(t *testing.T) {
		s := begun(t, `,"stream":true`, nil)
		s.answer(false, ":status=200", sse)
		s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...), false)
		s.sent()
		s.wait(closingGrace)
		got := s.expectLike("response body data:")
		if !strings.HasSuffix(got[0], "data: [DONE]\n\n END") {
			t.Errorf("no end: %s", got[0])
		}
	})
}

func TestFirstMessageMustBeHeaders(t *testing.T) {
	s := newScript(t, nil)
	err := s.x.receive(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{}}}, s.now)
	if err == nil || !strings.Contains(err.Error(), "request_header_mode") {
		t.Fatalf("error %v", err)
	}
}

func TestResponseHeadersMustComeBeforeTheBody(t *testing.T) {
	s := begun(t, "", nil)
	err := s.x.receive(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{}}}, s.now)
	if err == nil || !strings.Contains(err.Error(), "response_header_mode") {
		t.Fatalf("error %v", err)
	}
}

// TestAnyCutting: however the engine's bytes are cut, the client's are the same.
func TestAnyCutting(t *testing.T) {
	reply := event("", tokens("<|channel|>analysis<|message|>Hm ☃<|end|><|start|>assistant")...) +
		event("", tokens("<|channel|>final<|message|>Hello ")...) + ": comment\n\n" +
		event("stop", tokens("world 🙂<|return|>")...) + usageEvent + doneEvent
	whole := func(cut ...int) string {
		s := begun(t, "", nil)
		s.answer(false, ":status=200", sse)
		from := 0
		for _, at := range cut {
			s.answerBody(reply[from:at], false)
			from = at
		}
		s.answerBody(reply[from:], true)
		return strings.Join(s.sent(), "\n")
	}
	want := whole()
	for i := range reply {
		if got := whole(i); got != want {
			t.Fatalf("cut at %d: %s", i, cmp.Diff(want, got))
		}
	}
}
