package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"
	"google.golang.org/grpc"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// patience bounds waiting for what must happen.
const patience = 2 * time.Minute

// door is the filter behind the same doors as in a data plane: its ext_proc streams, which the test
// plays Envoy for, and its WebSocket connections. Behind its loopback listener is an engine that
// answers what a row says.
type door struct {
	server  *filter.Server
	engine  *engine
	tools   string // address of an MCP server, in place of localHost
	sockets *httptest.Server
	open    map[int]*websocket.Conn // by the row that opened it
}

// recordedModels are the names of models that the clients have asked for, beside the usual ones.
func recordedModels(c *config.Config) {
	c.Aliases = []config.Alias{{Name: "claude-*", Model: "gpt-oss-20b"}}
	c.HarmonyModels = append(c.HarmonyModels, "=gpt-5-codex")
	c.Models = []config.Model{
		{Match: "=gpt-5-codex", UpstreamModel: "gpt-oss-20b"},
		{Match: "=gpt-oss-short", ContextLength: 2000},
	}
}

func openDoor(t *testing.T) *door {
	t.Helper()
	e := &engine{}
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{{Name: "main", Kind: "vllm"}}
	cfg.Loopback = e.listen(t)
	cfg.Responses.SealKeys = []string{stack.SealKey}
	cfg.ReplyHeaders = []string{header.Ignored}
	cfg.WebSocket.Listen = "unix:///unused"
	recordedModels(cfg)

	// The clients' scripts name this server, which the operator has too.
	tools := stack.NewToolServer(t)
	cfg.Tools.Servers = []config.ToolServer{{Label: "docs", URL: tools.URL}}
	address, _, _ := strings.Cut(strings.TrimPrefix(tools.URL, "http://"), "/")
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}

	log := logrus.New()
	log.SetOutput(io.Discard)
	server, err := filter.New(cfg, filter.Options{Log: log, Now: func() time.Time {
		// Prompts have the day, and nothing expires while the rows are read.
		return time.Date(2026, time.November, 28, 12, 0, 0, 0, time.UTC)
	}})
	if err != nil {
		t.Fatal(err)
	}

	d := &door{
		server: server, engine: e, tools: address,
		sockets: httptest.NewServer(server.Sockets()), open: map[int]*websocket.Conn{},
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, c := range d.open {
			_ = c.CloseNow()
		}
		server.CloseSockets(ctx)
		d.sockets.Close()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}

// engine answers each model call with the output, and keeps the calls.
type engine struct {
	mu     sync.Mutex
	output string
	calls  []modelCall
}

// modelCall is what the filter has asked the engine for.
type modelCall struct {
	prompt string
	tokens int
	// settings are all other members of the request.
	settings string
}

// done is what the model says where a row has no output.
const done = "<|channel|>final<|message|>Done.<|return|>"

// answers makes the engine answer the next call with an output, and those after it that it is done.
func (e *engine) answers(output string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls = nil; output == "" {
		output = done
	}
	e.output = output
}

// called returns the calls since then.
func (e *engine) called() []modelCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

func (e *engine) listen(t *testing.T) (address string) {
	t.Helper()
	socket := filepath.Join(stack.SocketDir(t), "loopback")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: e, ReadHeaderTimeout: patience, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "unix://" + socket
}

// ServeHTTP implements [http.Handler], as vLLM.
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"gpt-oss-20b","max_model_len":131072},`+
			`{"id":"gpt-oss-120b","max_model_len":131072},{"id":"openai/gpt-oss-20b","max_model_len":131072}]}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var call struct{ Prompt []harmony.Token }
	_ = json.Unmarshal(body, &call)
	prompt, _ := harmony.AppendDecode(nil, call.Prompt)
	settings := eachMember(json.RawMessage(body), func(name string, value gjson.Result) string {
		switch name {
		case "prompt", "request_id", "cache_salt":
			return `"…"`
		}
		return value.Raw
	})

	e.mu.Lock()
	e.calls = append(e.calls, modelCall{string(prompt), len(call.Prompt), string(settings)})
	output := e.output
	e.output = done
	e.mu.Unlock()

	ids, _ := json.Marshal(harmony.AppendEncodeSpecial(nil, output))
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":%s,\"finish_reason\":\"stop\"}]}\n\n", ids)
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":5,\"total_tokens\":9}}\n\n", len(call.Prompt))
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// answered is what a client gets.
type answered struct {
	status int
	// passed says that the request goes on to the upstream.
	passed  bool
	ignored string
	body    string
}

// ask sends a request to the filter as Envoy does.
func (d *door) ask(t *testing.T, method, path string, fields map[string]string, body string) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list := &corev3.HeaderMap{}
	add := func(name, value string) {
		list.Headers = append(list.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	add(":method", method)
	add(":path", path)
	add(":authority", "example.com")
	for name, value := range fields {
		add(name, value)
	}

	const duplex = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	hasBody := body != "" || method == http.MethodPost
	x := &stream{ctx: ctx, end: cancel, in: []*extprocv3.ProcessingRequest{{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: duplex, ResponseBodyMode: duplex},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: &extprocv3.HttpHeaders{Headers: list, EndOfStream: !hasBody},
		},
	}}}
	if hasBody {
		x.in = append(x.in, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true},
		}})
	}
	if err := d.server.Process(x); err != nil {
		t.Errorf("%s %s: the stream ends with %v", method, path, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return answered{x.status, x.passed, x.ignored, x.body.String()}
}

// settle waits for a response that is made in the background: its model call belongs to its row.
func (d *door) settle(t *testing.T, a answered) {
	t.Helper()
	response := gjson.Parse(a.body)
	if a.status > http.StatusOK || !response.Get("background").Bool() {
		return
	}
	for status := response.Get("status").Str; status == "queued" || status == "in_progress"; {
		time.Sleep(time.Millisecond)
		now := d.ask(t, http.MethodGet, "/v1/responses/"+response.Get("id").Str, nil, "")
		status = gjson.Get(now.body, "status").Str
	}
}

// stream is an ext_proc stream of one request.
type stream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // as gRPC has it
	end  context.CancelFunc
	in   []*extprocv3.ProcessingRequest
	next int

	mu      sync.Mutex
	status  int
	passed  bool
	ignored string
	body    bytes.Buffer
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Recv() (*extprocv3.ProcessingRequest, error) {
	if s.next < len(s.in) {
		s.next++
		return s.in[s.next-1], nil
	}
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

func (s *stream) Send(m *extprocv3.ProcessingResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r := m.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		s.passed = true
		s.end()
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		s.status = int(r.ImmediateResponse.GetStatus().GetCode())
		s.body.Write(r.ImmediateResponse.GetBody())
		s.end()
	case *extprocv3.ProcessingResponse_StreamedImmediateResponse:
		for _, h := range r.StreamedImmediateResponse.GetHeadersResponse().GetHeaders().GetHeaders() {
			switch h.GetKey() {
			case ":status":
				_, _ = fmt.Sscan(string(h.GetRawValue()), &s.status)
			case header.Ignored:
				s.ignored = string(h.GetRawValue())
			}
		}
		if p := r.StreamedImmediateResponse.GetBodyResponse(); p != nil {
			s.body.Write(p.GetBody())
			if p.GetEndOfStream() {
				s.end()
			}
		}
	}
	return nil
}

// connect opens a connection over WebSocket, for the messages of later rows.
func (d *door) connect(t *testing.T, r *row) answered {
	t.Helper()
	fields := http.Header{}
	for name, value := range r.Header {
		fields.Set(name, value)
	}
	c, resp, err := websocket.Dial(t.Context(), d.sockets.URL+r.Path, &websocket.DialOptions{HTTPHeader: fields})
	if err != nil {
		if resp == nil {
			t.Fatalf("row %d: %v", r.Number, err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return answered{status: resp.StatusCode, body: string(body)}
	}
	c.SetReadLimit(-1)
	d.open[r.Number] = c
	return answered{status: http.StatusSwitchingProtocols}
}

// terminal are the events that end a response.
var terminal = set(`response.completed response.incomplete response.failed error`)

// tell sends a message, and returns the events up to the end of the response.
func (d *door) tell(t *testing.T, r *row, message string) answered {
	t.Helper()
	c := d.open[r.Socket]
	if c == nil {
		t.Fatalf("row %d: the connection of row %d is not open", r.Number, r.Socket)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		t.Fatalf("row %d: %v", r.Number, err)
	}

	var events strings.Builder
	for {
		_, event, err := c.Read(ctx)
		if err != nil {
			t.Fatalf("row %d: after %s: %v", r.Number, &events, err)
		}
		events.Write(event)
		events.WriteByte('\n')
		if terminal[gjson.GetBytes(event, "type").Str] {
			return answered{status: http.StatusOK, body: events.String()}
		}
	}
}
