package filter

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// These tests play Envoy for a whole service: its ext_proc streams, and the loopback
// listener with an engine behind it.

// fakeEngine answers model calls with the engine's name, as vLLM does. A call whose
// prompt has the word wait is answered when release is closed.
type fakeEngine struct {
	server  *http.Server
	release chan struct{}
	waiting chan string // names of engines whose call waits
	lists   atomic.Int64
}

// listenLoopback starts the engine on a socket and returns its address.
func listenLoopback(t *testing.T) (e *fakeEngine, address string) {
	t.Helper()
	e = &fakeEngine{release: make(chan struct{}), waiting: make(chan string, 10)}
	e.server, address = serveLoopback(t, e)
	return e, address
}

// serveLoopback serves an engine on a socket and returns its address.
func serveLoopback(t *testing.T, engine http.Handler) (server *http.Server, address string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "l")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server = &http.Server{Handler: engine, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
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
	return server, "unix://" + socket
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		e.lists.Add(1)
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"gpt-oss-20b","max_model_len":5000}]}`)
		return
	}
	var call struct {
		Model  string
		Prompt []harmony.Token
	}
	_ = json.NewDecoder(r.Body).Decode(&call)
	name := r.Header.Get("x-harmony-engine")
	var prompt []byte
	for i := range call.Prompt {
		prompt, _ = harmony.AppendDecode(prompt, call.Prompt[i:i+1])
	}
	effort := ""
	for _, word := range []string{"low", "medium", "high"} {
		if strings.Contains(string(prompt), "Reasoning: "+word) {
			effort = word
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	if strings.Contains(string(prompt), "wait") {
		e.waiting <- name
		select {
		case <-e.release:
		case <-r.Context().Done():
			return
		}
	}
	text := harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>"+strings.Join([]string{name, call.Model, effort}, " ")+"<|return|>")
	ids, _ := json.Marshal(text)
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":%s,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", ids)
}

// stream is an ext_proc stream of one request.
type stream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // as gRPC has it
	in   []*extprocv3.ProcessingRequest
	next int
	end  context.CancelFunc // after the reply's end

	mu     sync.Mutex
	status int
	body   bytes.Buffer
	passed bool // the request passed through
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
		if p := r.StreamedImmediateResponse.GetBodyResponse(); p != nil {
			s.body.Write(p.GetBody())
			if p.GetEndOfStream() {
				s.end()
			}
		}
	}
	return nil
}

// ask sends a request to the service, and returns what the client gets.
func ask(t *testing.T, s *Server, path, body string, headers map[string]string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const duplex = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	fields := map[string]string{":method": http.MethodPost, ":path": path, "content-type": "application/json"}
	maps.Copy(fields, headers)
	list := &corev3.HeaderMap{}
	for name, value := range fields {
		list.Headers = append(list.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	x := &stream{ctx: ctx, end: cancel, in: []*extprocv3.ProcessingRequest{
		{
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: duplex, ResponseBodyMode: duplex},
			Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: list}},
		},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}}},
	}}
	if err := s.Process(x); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	return x
}

// reply is the text of the reply to a chat request.
func reply(t *testing.T, s *Server, text string) string {
	t.Helper()
	x := ask(t, s, "/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"`+text+`"}]}`, nil)
	var object struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(x.body.Bytes(), &object); err != nil || len(object.Choices) != 1 {
		t.Errorf("status %d, passed through: %t, %s", x.status, x.passed, &x.body)
		return ""
	}
	return object.Choices[0].Message.Content
}

// newReloading makes a service with a loopback listener. configure makes the
// configuration of another generation.
func newReloading(t *testing.T) (s *Server, e *fakeEngine, configure func(change func(c *config.Config)) *config.Config) {
	t.Helper()
	e, address := listenLoopback(t)
	configure = func(change func(c *config.Config)) *config.Config {
		c := config.Defaults()
		c.Engines = []config.Engine{{Name: "main", Kind: "vllm"}}
		c.Loopback = address
		change(c)
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	s = startTestServer(t, func(c *config.Config) { *c = *configure(func(*config.Config) {}) })
	return s, e, configure
}

// A request that has begun ends with the configuration that it began with; the next
// one has the new one. So it is whatever the request waits for.
func TestApply(t *testing.T) {
	t.Parallel()
	s, e, configure := newReloading(t)
	running := make(chan string)
	go func() { running <- reply(t, s, "wait") }()
	if name := <-e.waiting; name != "main" {
		t.Errorf("the call is at %s", name)
	}
	next := configure(func(c *config.Config) {
		c.Engines = []config.Engine{{Name: "other", Kind: "vllm"}}
		c.ModelDefaults.Effort, c.ModelDefaults.UpstreamModel = "high", "served"
		c.Limits.CacheBytes, c.Responses.ChainCacheBytes = 0, 0
	})
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	if got := reply(t, s, "Hi"); got != "other served high" {
		t.Errorf("the next request: %q", got)
	}
	close(e.release)
	if got := <-running; got != "main gpt-oss-20b medium" {
		t.Errorf("the running request: %q", got)
	}
	if s.Config() != next {
		t.Error("the new configuration is not the current one")
	}
}

// The prompts that are compared outlive a configuration, unless their memory gets another
// size.
func TestPromptsOutliveAConfiguration(t *testing.T) {
	t.Parallel()
	s, _, configure := newReloading(t)
	first := s.current.Load().prompts
	for _, c := range []struct {
		name       string
		change     func(c *config.Config)
		none, kept bool
	}{
		{"another effort", func(c *config.Config) { c.ModelDefaults.Effort = "high" }, false, true},
		{"another size", func(c *config.Config) { c.Limits.DiagnosisBytes /= 2 }, false, false},
		{"none", func(c *config.Config) { c.Limits.DiagnosisBytes = 0 }, true, false},
		{"again", func(*config.Config) {}, false, false},
	} {
		before := s.current.Load().prompts
		if err := s.Apply(configure(c.change)); err != nil {
			t.Fatal(err)
		}
		g := s.current.Load()
		if (g.prompts == nil) != c.none || c.kept != (g.prompts == before) {
			t.Errorf("%s: %p after %p", c.name, g.prompts, before)
		}
	}
	if first == nil {
		t.Error("nothing is compared by default")
	}
}

// What cannot be applied changes nothing.
func TestApplyRefused(t *testing.T) {
	t.Parallel()
	s, _, configure := newReloading(t)
	before := s.Config()
	for want, change := range map[string]func(c *config.Config){
		"listen: cannot be changed while the process runs: restart it": func(c *config.Config) { c.Listen = "127.0.0.1:1"; c.ModelDefaults.Effort = "high" },
		"store_url: cannot be changed":                                 func(c *config.Config) { c.StoreURL = "sqlite:/x" },
		"loopback: cannot be changed":                                  func(c *config.Config) { c.Loopback = "" },
	} {
		if err := s.Apply(configure(change)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	bad := configure(func(*config.Config) {})
	bad.Engines = []config.Engine{{Name: "main", Kind: "nope"}} // as if it had not been validated
	if err := s.Apply(bad); err == nil {
		t.Error("an unknown kind of engine is applied")
	}
	if got := reply(t, s, "Hi"); got != "main gpt-oss-20b medium" || s.Config() != before {
		t.Errorf("the configuration has changed: %q", got)
	}
}

// Where Envoy's configuration was made from the service's, engines and the header of
// tenants, by which Envoy limits rates, cannot change.
func TestApplyWithOwnEnvoy(t *testing.T) {
	t.Parallel()
	cfg := func() *config.Config {
		c := config.Defaults()
		c.Engines = []config.Engine{{Name: "main", Kind: "vllm"}}
		return c
	}
	s, err := New(cfg(), Options{OwnEnvoy: true})
	if err != nil {
		t.Fatal(err)
	}
	next := cfg()
	next.Engines[0].URLs = []string{"http://a:1"}
	if err := s.Apply(next); err == nil || !strings.Contains(err.Error(), "engines: cannot be changed") {
		t.Errorf("error %v", err)
	}
	next = cfg()
	next.TenantHeader = "x-tenant"
	if err := s.Apply(next); err == nil || !strings.Contains(err.Error(), "tenant_header: cannot be changed") {
		t.Errorf("error %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Apply(cfg()); err == nil {
		t.Error("a configuration is applied to a closed service")
	}
}

// respond makes a response, and returns the object.
func respond(t *testing.T, s *Server, fields string) map[string]any {
	t.Helper()
	x := ask(t, s, "/v1/responses", `{"model":"gpt-oss-20b","input":"Hi"`+fields+`}`, nil)
	object := map[string]any{}
	if err := json.Unmarshal(x.body.Bytes(), &object); err != nil || object["status"] != "completed" {
		t.Errorf("status %d, %s", x.status, &x.body)
	}
	return object
}

// What is stored, what is known of engines and who may be made outlive a generation.
func TestApplyKeeps(t *testing.T) {
	t.Parallel()
	s, e, configure := newReloading(t)
	if err := s.ReadModels(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := respond(t, s, "")["id"].(string)
	cfg := s.Config()
	m, _ := cfg.Model("gpt-oss-20b")
	before := s.current.Load()
	for i := range 3 {
		if err := s.Apply(configure(func(c *config.Config) { c.Date = fmt.Sprintf("2026-01-0%d", i+1) })); err != nil {
			t.Fatal(err)
		}
		g := s.current.Load()
		if n := g.models.ContextLength(&m); n != 5000 {
			t.Errorf("the context length is %d", n)
		}
		if g.renderer != before.renderer || g.chains != before.chains {
			t.Error("the caches have begun anew")
		}
		id = respond(t, s, `,"previous_response_id":"`+id+`"`)["id"].(string)
	}
	if n := e.lists.Load(); n != 1 {
		t.Errorf("the engine was asked %d times", n)
	}
	if err := s.Apply(configure(func(c *config.Config) { c.Images = "reject"; c.Limits.CacheBytes = 1 << 20 })); err != nil {
		t.Fatal(err)
	}
	if g := s.current.Load(); g.renderer == before.renderer || g.chains == before.chains {
		t.Error("a cache of another size, or what depends on images, has been kept")
	}
	if err := s.Apply(configure(func(c *config.Config) { c.Engines[0].Kind = "sglang" })); err != nil {
		t.Fatal(err)
	}
	if n := s.current.Load().models.ContextLength(&m); n != 0 {
		t.Errorf("the context length of an engine of another kind is %d", n)
	}
}

// A background response that has been begun is made to its end, by the
// configuration that it began with, and counts in the next one.
func TestApplyDuringBackgroundResponse(t *testing.T) {
	t.Parallel()
	s, e, configure := newReloading(t)
	x := ask(t, s, "/v1/responses", `{"model":"gpt-oss-20b","input":"wait","background":true}`, nil)
	var queued struct{ ID string }
	if err := json.Unmarshal(x.body.Bytes(), &queued); err != nil || queued.ID == "" {
		t.Fatalf("status %d, %s", x.status, &x.body)
	}
	<-e.waiting
	if err := s.Apply(configure(func(c *config.Config) { c.ModelDefaults.Effort = "high"; c.Limits.MaxBackground = 1 })); err != nil {
		t.Fatal(err)
	}
	if x := ask(t, s, "/v1/responses", `{"model":"gpt-oss-20b","input":"Hi","background":true}`, nil); x.status != http.StatusServiceUnavailable {
		t.Errorf("beyond the new limit: status %d, %s", x.status, &x.body)
	}
	close(e.release)
	for {
		x := ask(t, s, "/v1/responses/"+queued.ID, "", map[string]string{":method": http.MethodGet})
		if !strings.Contains(x.body.String(), `"status":"completed"`) {
			if !strings.Contains(x.body.String(), `"status":"in_progress"`) && !strings.Contains(x.body.String(), `"status":"queued"`) {
				t.Fatalf("the response: %s", &x.body)
			}
			time.Sleep(time.Millisecond)
			continue
		}
		if !strings.Contains(x.body.String(), "main gpt-oss-20b medium") {
			t.Errorf("the response: %s", &x.body)
		}
		return
	}
}

// Keys are rotated without a restart: what the keys before have sealed is opened as
// long as they are configured.
func TestApplyRotatesSealKeys(t *testing.T) {
	t.Parallel()
	s, _, configure := newReloading(t)
	key := func(n byte) string {
		return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, config.SealKeyBytes))
	}
	use := func(keys ...string) {
		t.Helper()
		if err := s.Apply(configure(func(c *config.Config) { c.Responses.SealKeys = keys })); err != nil {
			t.Fatal(err)
		}
	}
	// A compaction is sealed, and nothing of it is stored.
	compact := func() string {
		t.Helper()
		x := ask(t, s, "/v1/responses/compact", `{"model":"gpt-oss-20b","input":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]}`, nil)
		var object struct{ Output json.RawMessage }
		if err := json.Unmarshal(x.body.Bytes(), &object); err != nil || object.Output == nil {
			t.Fatalf("status %d, %s", x.status, &x.body)
		}
		return string(object.Output)
	}
	opens := func(output string) bool {
		x := ask(t, s, "/v1/responses", `{"model":"gpt-oss-20b","input":`+output+`}`, nil)
		return strings.Contains(x.body.String(), `"status":"completed"`)
	}
	ofProcess := compact()
	use(key(1))
	first := compact()
	use(key(2), key(1))
	second := compact()
	for name, output := range map[string]string{"the process": ofProcess, "the first key": first, "the second key": second} {
		if !opens(output) {
			t.Errorf("what %s has sealed is not opened", name)
		}
	}
	use(key(2))
	if opens(first) || !opens(second) || !opens(ofProcess) {
		t.Errorf("the first key is used no more: its own %t, the second's %t, the process's %t", opens(first), opens(second), opens(ofProcess))
	}
}

// Followed streams of every generation break off when the process drains.
func TestDrainAcrossGenerations(t *testing.T) {
	t.Parallel()
	s, e, configure := newReloading(t)
	streams := make(chan string)
	for i := range 2 {
		go func() {
			streams <- ask(t, s, "/v1/responses", `{"model":"gpt-oss-20b","input":"wait","background":true,"stream":true}`, nil).body.String()
		}()
		<-e.waiting
		if err := s.Apply(configure(func(c *config.Config) { c.Limits.MaxTools = 10 + i })); err != nil {
			t.Fatal(err)
		}
	}
	s.Drain()
	for range 2 {
		if got := <-streams; !strings.Contains(got, `"code":"shutdown"`) {
			t.Errorf("the stream: %s", got)
		}
	}
	close(e.release)
}

// Requests begin and end while configurations replace each other. Each is answered by
// one of them as a whole. The race detector looks on.
func TestApplyUnderLoad(t *testing.T) {
	t.Parallel()
	s, _, configure := newReloading(t)
	efforts := map[string]string{"main": "low", "other": "high"}
	apply := func(name string) {
		if err := s.Apply(configure(func(c *config.Config) {
			c.Engines = []config.Engine{{Name: name, Kind: "vllm"}}
			c.ModelDefaults.Effort = efforts[name]
			c.ModelDefaults.UpstreamModel = "at-" + name
			if name == "other" {
				c.Limits.CacheBytes, c.Tools.MaxSessions, c.Limits.MaxInflightBytes = 1<<20, 5, 1<<27
			}
		})); err != nil {
			t.Error(err)
		}
	}
	apply("main")
	ctx, stop := context.WithCancel(t.Context())
	var following, asking sync.WaitGroup
	following.Go(func() { s.FollowModels(ctx) })
	following.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			apply([]string{"main", "other"}[i%2])
		}
	})
	for worker := range 4 {
		asking.Go(func() {
			for i := range 50 {
				got := reply(t, s, fmt.Sprint("Hi ", worker, i))
				if got != "main at-main low" && got != "other at-other high" {
					t.Errorf("the reply is of no configuration: %q", got)
				}
			}
		})
	}
	asking.Wait()
	stop()
	following.Wait()
}
