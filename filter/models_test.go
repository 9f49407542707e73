package filter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
)

// listing is a stand-in for the loopback listener: what is answered to GET
// /v1/models, by the engine asked, "" for whoever takes other models. An answer
// that is a number is a status, one of HTML is a 200, another that is no JSON a 503; nobody is there for
// one that is missing. A gRPC engine tells the first model of its list.
type listing struct {
	t       *testing.T
	answers map[string]string
	mu      sync.Mutex
	asked   map[string]int
	other   *http.Request // the last request without an engine
	waits   chan struct{} // until it is closed, engines do not answer; nil: they do
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get(EngineHeader)
	if name != "" && l.waits != nil {
		<-l.waits
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked[name]++; name == "" {
		l.other = r
	}
	switch answer := l.answers[name]; {
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

// ids is a list of models by their ids.
func ids(body string) string {
	var names []string
	gjson.Get(body, "data.#.id").ForEach(func(_, id gjson.Result) bool {
		names = append(names, id.Str)
		return true
	})
	return strings.Join(names, " ")
}

// askModels sends GET /v1/models of a new exchange.
func (s *script) askModels(path string, fields ...string) (status int, body string) {
	s.t.Helper()
	s.x = newExchange(s.t.Context(), s.x.s, s.now)
	s.x.s.now = func() time.Time { return s.now }
	s.request(true, append([]string{":method=GET", ":path=" + path}, fields...)...)
	if len(s.x.out) != 1 {
		s.t.Fatalf("%d messages", len(s.x.out))
	}
	m := s.x.out[0].GetImmediateResponse()
	return int(m.GetStatus().GetCode()), string(m.GetBody())
}

func TestModels(t *testing.T) {
	const a = `{"object":"list","data":[{"id":"gpt-oss-20b","max_model_len":10,"permission":[{"x":1}]},{"id":"lora"}],"models":[{"n":1}]}`
	const b = `{"object":"list","data":[{"id":"gpt-oss-120b","owned_by":"b"},{"id":"gpt-oss-20b","owned_by":"b"},{"id":"other"}]}`
	const upstream = `{"object":"list","data":[{"id":"gpt-4"},{"id":"gpt-oss-120b","owned_by":"upstream"}]}`
	for _, tt := range []struct {
		name    string
		answers map[string]string
		config  func(*Config)
		status  int
		want    string // ids
		path    string
		value   string
	}{
		{"one engine", map[string]string{"": a, "a": a}, func(c *Config) { c.Engines, c.Models = c.Engines[:1], nil }, 200, "gpt-oss-20b lora", "@this", a},
		{"two engines", map[string]string{"": a, "a": a, "b": b}, nil, 200, "gpt-oss-20b lora gpt-oss-120b", "data.0.max_model_len", "10"},
		{"a gRPC engine", map[string]string{"a": a, "c": `{"data":[{"id":"gpt-oss-tiny","max_model_len":300}]}`}, func(c *Config) {
			c.Models = append(c.Models, Model{Match: "tiny", Engine: "c"})
		}, 200, "gpt-oss-20b gpt-oss-tiny", "data.1", `{"id":"gpt-oss-tiny","object":"model","created":1754352000,"owned_by":"vllm-grpc","max_model_len":300}`},
		{"an upstream", map[string]string{"": upstream, "a": a, "b": b}, nil, 200, "gpt-4 gpt-oss-120b gpt-oss-20b", "data.1.owned_by", "b"},
		{"an engine is down", map[string]string{"": upstream, "a": "down", "b": b}, nil, 200, "gpt-4 gpt-oss-120b", "object", "list"},
		{"an engine that lists nothing", map[string]string{"a": `{"data":{}}`, "b": b}, nil, 200, "gpt-oss-120b", "object", "list"},
		{"the upstream is down", map[string]string{"": "down", "a": a}, nil, 200, "gpt-oss-20b", "object", "list"},
		{"the upstream is asked too often", map[string]string{"": "429", "a": a}, nil, 200, "gpt-oss-20b", "object", "list"},
		{"nobody tells", map[string]string{"": "down", "a": "down", "b": "down"}, nil, 503, "", "error.code", "models_unknown"},
		{"ids that are none", map[string]string{"": `{"data":[1,null,{"id":3},{"id":"x"}]}`}, nil, 200, "x", "object", "list"},
		{"configured", map[string]string{"a": a}, func(c *Config) {
			c.HarmonyModels, c.AllowOverride = []string{"gpt-oss", "=mine", "=gpt-oss-20b"}, true
			c.Models = append(c.Models, Model{Match: "=gpt-oss-grpc", Engine: "c", ContextLength: 99}, Model{Match: "=foreign", Engine: "c"},
				Model{Match: "big", Engine: "c", UpstreamModel: "org/gpt-oss-big"}, Model{Match: "small", Engine: "c", UpstreamModel: "gpt-oss-elsewhere"})
		}, 200, "gpt-oss-20b mine gpt-oss-grpc org/gpt-oss-big", "data.2", `{"id":"gpt-oss-grpc","object":"model","created":1754352000,"owned_by":"envoy-harmony","max_model_len":99}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &listing{t: t, answers: tt.answers, asked: map[string]int{}}
			s := l.script(tt.config)
			status, body := s.askModels("/v1/models")
			if status != tt.status || ids(body) != tt.want {
				t.Errorf("status %d, models %q, want %q: %s", status, ids(body), tt.want, body)
			}
			if got := gjson.Get(body, tt.path); got.String() != tt.value || !gjson.Valid(body) {
				t.Errorf("%s is %s, want %s", tt.path, got.Raw, tt.value)
			}
		})
	}
}

// script is an exchange with two HTTP engines, a and b, which has the large
// model, and a gRPC engine, c.
func (l *listing) script(change func(*Config)) *script {
	l.t.Helper()
	server := httptest.NewServer(l)
	l.t.Cleanup(server.Close)
	s := newScript(l.t, func(c *Config) {
		c.Loopback = strings.TrimPrefix(server.URL, "http://")
		c.Engines = []Engine{{Name: "a", Kind: "vllm"}, {Name: "b", Kind: "sglang"}, {Name: "c", Kind: "vllm-grpc"}}
		c.Models = []Model{{Match: "120b", Engine: "b"}}
		c.TenantHeader = "x-tenant" // the list is the same for all
		if change != nil {
			change(c)
		}
	})
	l.t.Cleanup(s.x.s.loopback.close)
	return s
}

// One model of the list; what is not on it may be the upstream's.
func TestModel(t *testing.T) {
	l := &listing{t: t, asked: map[string]int{}, answers: map[string]string{"a": `{"data":[{"id":"openai/gpt-oss-20b","x":1}]}`}}
	s := l.script(nil)
	for _, path := range []string{"/v1/models/openai/gpt-oss-20b", "/v1/models/openai%2Fgpt-oss-20b"} {
		if status, body := s.askModels(path); status != http.StatusOK || body != `{"id":"openai/gpt-oss-20b","x":1}` {
			t.Errorf("%s: status %d: %s", path, status, body)
		}
	}
	if status, _ := s.askModels("/v1/models/%zz"); status != http.StatusBadRequest {
		t.Errorf("status %d of a path that is not percent-encoded", status)
	}
	s.sent()
	if s.askModels("/v1/models/gpt-oss-120b"); s.x.phase != phaseRelay {
		t.Errorf("a model that nobody lists is not passed on: %q", s.sent())
	}
}

// Engines are asked now and then, without what clients send. The upstream
// decides by itself what a client may see: it is asked each time, as the client
// has asked.
func TestModelsAreAskedFor(t *testing.T) {
	const list = `{"data":[{"id":"gpt-oss-20b"}]}`
	l := &listing{t: t, asked: map[string]int{}, answers: map[string]string{"": `{"data":[{"id":"x"}]}`, "a": list, "b": "down"}}
	s := l.script(nil)
	ask := func(want string) {
		t.Helper()
		if _, body := s.askModels("/v1/models?limit=5", "authorization=Bearer k", ":authority=api.example", EngineHeader+"=b", "x-harmony-prefix=forged", destinationHeader+"=forged",
			"if-none-match=x", "if-modified-since=x", "if-match=x", "if-unmodified-since=x", "if-range=x", "range=bytes=0-1"); ids(body) != want {
			t.Errorf("models %q, want %q", ids(body), want)
		}
	}
	ask("x gpt-oss-20b")
	ask("x gpt-oss-20b")
	if r := l.other; r.URL.RequestURI() != "/v1/models?limit=5" || r.Header.Get("authorization") != "Bearer k" || r.Host != "api.example" || r.Header.Get("x-harmony-prefix") != "" {
		t.Errorf("the upstream is asked %s %s %v", r.Host, r.URL, r.Header)
	}
	for name := range l.other.Header {
		if name == "Range" || strings.HasPrefix(name, "If-") || strings.EqualFold(name, destinationHeader) {
			t.Errorf("the upstream is asked with %s", name)
		}
	}
	if l.asked["a"] != 1 || l.asked["b"] != 1 || l.asked[""] != 2 || l.asked["c"] != 1 {
		t.Errorf("asked %v times", l.asked)
	}
	l.answers["a"], l.answers["b"] = "down", `{"data":[{"id":"gpt-oss-120b"}]}`
	s.now = s.now.Add(modelsFresh)
	ask("x gpt-oss-120b")
}

// Without a loopback listener nobody can be asked: the request passes.
func TestModelsWithoutLoopback(t *testing.T) {
	s := newScript(t, nil)
	s.request(true, ":method=GET", ":path=/v1/models")
	s.expect("request headers")
}

// Where the upstream does not let the client in, or has another idea of what stands
// there, its own answer is the client's.
func TestModelsAreTheUpstreams(t *testing.T) {
	for name, answer := range map[string]string{
		"no key": "401", "no right": "403", "no JSON": "<html>", "no list": `{"models":[]}`, "too long": `{"data":[` + strings.Repeat(" ", maxModelsBody) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			l := &listing{t: t, asked: map[string]int{}, answers: map[string]string{"": answer, "a": `{"data":[{"id":"gpt-oss-20b"}]}`}}
			s := l.script(nil)
			for _, path := range []string{"/v1/models", "/v1/models/gpt-oss-20b"} {
				if s.askModels(path, "if-none-match=x"); s.x.phase != phaseRelay {
					t.Errorf("%s is not passed on", path)
				}
				s.expect("request headers")
			}
		})
	}
}

// What fails is logged when it begins and when it is over, however often it is asked.
func TestModelsAreLoggedOnce(t *testing.T) {
	const list = `{"data":[{"id":"gpt-oss-20b"}]}`
	l := &listing{t: t, asked: map[string]int{}, answers: map[string]string{"": "down", "a": list, "b": "down", "c": list}}
	s := l.script(nil)
	var logged strings.Builder
	s.x.s.log.SetOutput(&logged)
	ask := func(want string, words ...string) {
		t.Helper()
		for range 3 {
			s.now = s.now.Add(modelsFresh)
			s.askModels("/v1/models")
		}
		if text := logged.String(); strings.Count(text, "\n") != len(words) {
			t.Errorf("%s: %s", want, text)
		} else {
			for _, word := range words {
				if !strings.Contains(text, word) {
					t.Errorf("%s: no %q in %s", want, word, text)
				}
			}
		}
		logged.Reset()
	}
	ask("both begin to fail", "the upstream does not tell its models", "engine=b")
	l.answers[""] = "401" // it is there
	ask("one is back", "the upstream tells its models again")
	l.answers[""], l.answers["b"] = "", list
	ask("so is the other one", "the engine tells its models again")
}

// Who leaves does not wait for an engine, and who comes then has it asked no second
// time.
func TestModelsNobodyWaitsFor(t *testing.T) {
	l := &listing{t: t, asked: map[string]int{}, answers: map[string]string{"a": `{"data":[{"id":"gpt-oss-20b"}]}`}, waits: make(chan struct{})}
	s := l.script(nil).x.s
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 2 {
		if told := s.engineModels(gone, "a"); told.err == nil {
			t.Error("who has left is told the models")
		}
	}
	close(l.waits)
	if told := s.engineModels(t.Context(), "a"); told.err != nil || told.data.Get("0.id").Str != "gpt-oss-20b" || l.asked["a"] != 1 {
		t.Errorf("%v, %v after %d requests", told.data, told.err, l.asked["a"])
	}
}
