package models

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeGateway stands for the loopback listener: it has an answer to GET /v1/models
// for each engine, and for "", the upstream for other models. An answer that is a
// number is a status; one of HTML has status 200; any other that is no JSON has
// status 503, and one that is missing has 404. A gRPC engine reports the first
// model of its list.
type fakeGateway struct {
	answers  map[string]string
	mu       sync.Mutex
	asked    map[string]int
	upstream *http.Request // the last request without an engine
	waits    chan struct{} // engines do not answer until it is closed; nil: they do
}

func (g *fakeGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get(header.Engine)
	if name != "" && g.waits != nil {
		<-g.waits
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked == nil {
		g.asked = map[string]int{}
	}
	if g.asked[name]++; name == "" {
		g.upstream = r
	}
	switch answer := g.answers[name]; {
	case answer == "":
		w.WriteHeader(http.StatusNotFound)
	case answer[0] == '<':
		_, _ = w.Write([]byte(answer))
	case answer[0] == '4':
		status, _ := strconv.Atoi(answer)
		w.WriteHeader(status)
	case answer[0] != '{':
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Method == http.MethodPost:
		w.Header().Set("grpc-status", "0")
		_, _ = w.Write(grpcModel(gjson.Get(answer, "data.0")))
	default:
		_, _ = w.Write([]byte(answer))
	}
}

// grpcModel is a GetModelInfoResponse of vLLM in its frame.
func grpcModel(m gjson.Result) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "/models/x")
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), m.Get("max_model_len").Uint())
	b = protowire.AppendString(protowire.AppendTag(b, 6, protowire.BytesType), m.Get("id").Str)
	return append([]byte{0, 0, 0, 0, byte(len(b))}, b...)
}

// testDirectory is a directory with a clock and a log of the test's.
type testDirectory struct {
	*Directory
	t      *testing.T
	now    time.Time
	logged strings.Builder
}

// newTestDirectory is a directory with two HTTP engines, a and b, which has the
// large model, and a gRPC engine, c. A nil gateway: there is no listener.
func newTestDirectory(t *testing.T, g *fakeGateway, change func(*config.Config)) *testDirectory {
	t.Helper()
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{{Name: "a", Kind: "vllm"}, {Name: "b", Kind: "sglang"}, {Name: "c", Kind: "vllm-grpc"}}
	cfg.Models = []config.Model{{Match: "120b", Engine: "b"}}
	if g != nil {
		server := httptest.NewUnstartedServer(g)
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		t.Cleanup(server.Close)
		cfg.Loopback = strings.TrimPrefix(server.URL, "http://")
	}
	if change != nil {
		change(cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	d := &testDirectory{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	o := Options{Config: cfg, Dialects: map[string]engine.Dialect{}, Log: logrus.New(), Now: func() time.Time { return d.now }}
	for _, e := range cfg.Engines {
		o.Dialects[e.Name], _ = engine.ByKind(e.Kind)
	}
	o.Log.SetOutput(io.Discard)
	if g != nil {
		client, err := loopback.New(cfg, o.Dialects, func() uint64 { return 1 })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		o.Client = client
	}
	d.Directory = New(o)
	t.Cleanup(d.Close)
	return d
}

// get is what the endpoints make of GET of a path.
func (d *testDirectory) get(target string, fields ...string) api.Outcome {
	d.t.Helper()
	path, query, _ := strings.Cut(target, "?")
	r := &api.HTTPRequest{Path: path, Header: http.Header{}}
	r.Query, _ = url.ParseQuery(query)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		r.Header.Set(name, value)
	}
	e, ids := api.MatchWith(d.Endpoints(), http.MethodGet, path, func(name string) bool { return r.Header.Get(name) != "" })
	if e == nil {
		d.t.Fatalf("no endpoint %s", path)
	}
	r.IDs = ids
	return e.Handle(d.t.Context(), r)
}

// list is the ids of an answer.
func (d *testDirectory) list(o api.Outcome) string {
	d.t.Helper()
	if o.Err != nil || o.Elsewhere != nil {
		return ""
	}
	var names []string
	gjson.GetBytes(o.Answer, "data.#.id").ForEach(func(_, id gjson.Result) bool {
		names = append(names, id.Str)
		return true
	})
	return strings.Join(names, " ")
}

func TestList(t *testing.T) {
	t.Parallel()
	const a = `{"object":"list","data":[{"id":"gpt-oss-20b","max_model_len":10,"permission":[{"x":1}]},{"id":"lora"}],"models":[{"n":1}]}`
	const b = `{"object":"list","data":[{"id":"gpt-oss-120b","owned_by":"b"},{"id":"gpt-oss-20b","owned_by":"b"},{"id":"other"}]}`
	const upstream = `{"object":"list","data":[{"id":"gpt-4"},{"id":"gpt-oss-120b","owned_by":"upstream"}]}`
	for _, tt := range []struct {
		name    string
		answers map[string]string
		config  func(*config.Config)
		want    string // ids
		path    string
		value   string
	}{
		{"one engine", map[string]string{"": a, "a": a}, func(c *config.Config) { c.Engines, c.Models = c.Engines[:1], nil }, "gpt-oss-20b lora", "@this", a},
		{"two engines", map[string]string{"": a, "a": a, "b": b}, nil, "gpt-oss-20b lora gpt-oss-120b", "data.0.max_model_len", "10"},
		{"a gRPC engine", map[string]string{"a": a, "c": `{"data":[{"id":"gpt-oss-tiny","max_model_len":300}]}`}, func(c *config.Config) {
			c.Models = append(c.Models, config.Model{Match: "tiny", Engine: "c"})
		}, "gpt-oss-20b gpt-oss-tiny", "data.1", `{"id":"gpt-oss-tiny","object":"model","created":1754352000,"owned_by":"vllm-grpc","max_model_len":300}`},
		{"an upstream", map[string]string{"": upstream, "a": a, "b": b}, nil, "gpt-4 gpt-oss-120b gpt-oss-20b", "data.1.owned_by", "b"},
		{"an engine is down", map[string]string{"": upstream, "a": "down", "b": b}, nil, "gpt-4 gpt-oss-120b", "object", "list"},
		{"an engine that lists nothing", map[string]string{"a": `{"data":{}}`, "b": b}, nil, "gpt-oss-120b", "object", "list"},
		{"the upstream is down", map[string]string{"": "down", "a": a}, nil, "gpt-oss-20b", "object", "list"},
		{"the upstream is asked too often", map[string]string{"": "429", "a": a}, nil, "gpt-oss-20b", "object", "list"},
		{"ids that are none", map[string]string{"": `{"data":[1,null,{"id":3},{"id":"x"}]}`}, nil, "x", "object", "list"},
		{"configured", map[string]string{"a": a}, func(c *config.Config) {
			c.HarmonyModels, c.AllowOverride = []string{"gpt-oss", "=mine", "=gpt-oss-20b"}, true
			c.Models = append(c.Models, config.Model{Match: "=gpt-oss-grpc", Engine: "c", ContextLength: 99}, config.Model{Match: "=foreign", Engine: "c"},
				config.Model{Match: "big", Engine: "c", UpstreamModel: "org/gpt-oss-big"}, config.Model{Match: "small", Engine: "c", UpstreamModel: "gpt-oss-elsewhere"})
		}, "gpt-oss-20b mine gpt-oss-grpc org/gpt-oss-big", "data.2", `{"id":"gpt-oss-grpc","object":"model","created":1754352000,"owned_by":"envoy-harmony","max_model_len":99}`},
		{"aliases", map[string]string{"": `{"data":[{"id":"gpt-5","owned_by":"upstream"}]}`, "a": a}, func(c *config.Config) {
			c.Aliases = []config.Alias{{Name: "gpt-5", Model: "gpt-oss-20b"}, {Name: "claude-*", Model: "gpt-oss-120b"}}
		}, "gpt-5 gpt-oss-20b", "data.0", `{"id":"gpt-5","object":"model","created":1754352000,"owned_by":"envoy-harmony","max_model_len":10}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newTestDirectory(t, &fakeGateway{answers: tt.answers}, tt.config)
			o := d.get("/v1/models")
			if got := d.list(o); got != tt.want {
				t.Errorf("models %q, want %q: %+v", got, tt.want, o)
			}
			if got := gjson.GetBytes(o.Answer, tt.path); got.String() != tt.value || !gjson.ValidBytes(o.Answer) {
				t.Errorf("%s is %s, want %s", tt.path, got.Raw, tt.value)
			}
		})
	}
}

func TestListOfNoEngine(t *testing.T) {
	t.Parallel()
	d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"": "down", "a": "down", "b": "down"}}, nil)
	if err := d.get("/v1/models").Err; err == nil || err.Status != 503 || err.Code != "models_unknown" || err.RetryAfter != time.Second {
		t.Errorf("error %v", err)
	}
}

// What is not in the list may be a model of the upstream.
// What is known without asking is what engines have reported, and what the configuration names.
func TestKnown(t *testing.T) {
	t.Parallel()
	d := newTestDirectory(t, &fakeGateway{answers: map[string]string{
		"a": `{"data":[{"id":"gpt-oss-20b"},{"id":"lora"}]}`,
	}}, func(c *config.Config) {
		c.HarmonyModels = append(c.HarmonyModels, "=local")
		c.Aliases = []config.Alias{{Name: "gpt-5", Model: "gpt-oss-20b"}, {Name: "claude-*", Model: "gpt-oss-20b"}}
	})
	if got := strings.Join(d.Known(), " "); got != "local gpt-5" {
		t.Errorf("before an engine was asked: %s", got)
	}
	_ = d.Refresh(t.Context())
	if got := strings.Join(d.Known(), " "); got != "gpt-oss-20b local gpt-5" {
		t.Errorf("known are %s", got)
	}
}

func TestOneModel(t *testing.T) {
	t.Parallel()
	d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"a": `{"data":[{"id":"openai/gpt-oss-20b","x":1}]}`}}, nil)
	for _, path := range []string{"/v1/models/openai/gpt-oss-20b", "/v1/models/openai%2Fgpt-oss-20b"} {
		if o := d.get(path); string(o.Answer) != `{"id":"openai/gpt-oss-20b","x":1}` {
			t.Errorf("%s: %+v", path, o)
		}
	}
	if err := d.get("/v1/models/%zz").Err; err == nil || err.Status != http.StatusBadRequest {
		t.Errorf("error %v of a path that is not percent-encoded", err)
	}
	if o := d.get("/v1/models/gpt-oss-120b"); o.Elsewhere == nil {
		t.Errorf("a model that is in no list: %+v", o)
	}
}

// A name that an alias's pattern matches is a model, though it is not in the list.
func TestOneAlias(t *testing.T) {
	t.Parallel()
	d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"a": `{"data":[{"id":"gpt-oss-20b","max_model_len":10}]}`}}, func(c *config.Config) {
		c.Aliases = []config.Alias{{Name: "gpt-5", Model: "gpt-oss-20b"}, {Name: "claude-*", Model: "gpt-oss-20b"}}
	})
	for _, id := range []string{"gpt-5", "claude-sonnet-4-5"} {
		o := d.get("/v1/models/" + id)
		if want := `{"id":"` + id + `","object":"model","created":1754352000,"owned_by":"envoy-harmony","max_model_len":10}`; string(o.Answer) != want {
			t.Errorf("%s, want %s", o.Answer, want)
		}
	}
	if o := d.get("/v1/models/gpt-5-mini"); o.Elsewhere == nil {
		t.Errorf("a name that is no alias: %+v", o)
	}
}

// Engines that answer are asked at most every ten seconds, without a client's headers. The
// upstream decides by itself what a client may see: it is asked each time, with the
// client's headers and query.
func TestSourcesAreAsked(t *testing.T) {
	t.Parallel()
	g := &fakeGateway{answers: map[string]string{"": `{"data":[{"id":"x"}]}`, "a": `{"data":[{"id":"gpt-oss-20b"}]}`, "b": "down"}}
	d := newTestDirectory(t, g, nil)
	get := func(want string) {
		t.Helper()
		if got := d.list(d.get("/v1/models?limit=5", "authorization=Bearer k", "host=api.example",
			"if-none-match=x", "if-modified-since=x", "if-match=x", "if-unmodified-since=x", "if-range=x", "range=bytes=0-1")); got != want {
			t.Errorf("models %q, want %q", got, want)
		}
	}
	get("x gpt-oss-20b")
	get("x gpt-oss-20b")
	if r := g.upstream; r.URL.RequestURI() != "/v1/models?limit=5" || r.Header.Get("authorization") != "Bearer k" || r.Host != "api.example" {
		t.Errorf("the upstream is asked %s %s %v", r.Host, r.URL, r.Header)
	}
	for name := range g.upstream.Header {
		if name == "Range" || strings.HasPrefix(name, "If-") {
			t.Errorf("the upstream is asked with %s", name)
		}
	}
	if g.asked["a"] != 1 || g.asked["b"] != 2 || g.asked[""] != 2 || g.asked["c"] != 2 {
		t.Errorf("asked %v times", g.asked)
	}
	// An engine that answers is in the list at once, and one that was there stays for a while.
	g.answers["a"], g.answers["b"] = "down", `{"data":[{"id":"gpt-oss-120b"}]}`
	get("x gpt-oss-20b gpt-oss-120b")
	d.now = d.now.Add(fresh)
	get("x gpt-oss-120b")
}

// Without a loopback listener no source can be asked: the paths are not the
// filter's.
func TestNoListener(t *testing.T) {
	t.Parallel()
	if endpoints := newTestDirectory(t, nil, nil).Endpoints(); len(endpoints) > 0 {
		t.Errorf("%d endpoints", len(endpoints))
	}
}

// If the upstream rejects the client, or its answer is no list, the client gets
// that answer.
func TestUpstreamAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no key": "401", "no right": "403", "no JSON": "<html>", "no list": `{"models":[]}`, "too long": `{"data":[` + strings.Repeat(" ", maxListBytes) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"": answer, "a": `{"data":[{"id":"gpt-oss-20b"}]}`}}, nil)
			for _, path := range []string{"/v1/models", "/v1/models/gpt-oss-20b"} {
				if o := d.get(path, "if-none-match=x"); o.Elsewhere == nil {
					t.Errorf("%s: %+v", path, o)
				}
			}
		})
	}
}

// A source that fails is logged when it begins to and when it has ended, however
// often it is asked.
func TestFailuresAreLoggedOnce(t *testing.T) {
	t.Parallel()
	const list = `{"data":[{"id":"gpt-oss-20b"}]}`
	g := &fakeGateway{answers: map[string]string{"": "down", "a": list, "b": "down", "c": list}}
	d := newTestDirectory(t, g, nil)
	d.o.Log.SetOutput(&d.logged)
	get := func(when string, words ...string) {
		t.Helper()
		for range 3 {
			d.now = d.now.Add(fresh)
			d.get("/v1/models")
		}
		if text := d.logged.String(); strings.Count(text, "\n") != len(words) {
			t.Errorf("%s: %s", when, text)
		} else {
			for _, word := range words {
				if !strings.Contains(text, word) {
					t.Errorf("%s: no %q in %s", when, word, text)
				}
			}
		}
		d.logged.Reset()
	}
	get("both begin to fail", "The upstream does not return its models", "engine=b")
	g.answers[""] = "401" // it is there
	get("one is back", "The upstream returns its models again")
	g.answers[""], g.answers["b"] = "", list
	get("so is the other one", "The engine returns its models again")
}

// A client that leaves does not wait for an engine, and the next one does not ask
// the engine a second time.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	g := &fakeGateway{answers: map[string]string{"a": `{"data":[{"id":"gpt-oss-20b"}]}`}, waits: make(chan struct{})}
	d := newTestDirectory(t, g, nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 2 {
		if m := d.engineModels(gone, "a"); m.err == nil {
			t.Error("a client that has left gets the models")
		}
	}
	close(g.waits)
	if m := d.engineModels(t.Context(), "a"); m.err != nil || m.data.Get("0.id").Str != "gpt-oss-20b" || g.asked["a"] != 1 {
		t.Errorf("%v, %v after %d requests", m.data, m.err, g.asked["a"])
	}
}
