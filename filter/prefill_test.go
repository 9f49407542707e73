package filter

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// disaggregatedConfig has one engine of a kind, with two prefill endpoints.
func disaggregatedConfig(kind string) *Config {
	c := Defaults()
	c.Loopback = "unix:///run/l"
	c.Engines = []Engine{{Name: "main", Kind: kind, URLs: []string{"http://d:1"}, Prefill: []Prefill{{URL: "http://p0"}, {URL: "http://[::1]:30000"}}}}
	return c
}

func TestPrefillConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"good":               {func(*Config) {}, ""},
		"kind":               {func(c *Config) { c.Engines[0].Kind = "llamacpp" }, "engines[0].prefill: llamacpp takes no prefill endpoints; those that do are sglang, sglang-grpc, vllm, vllm-generate, vllm-grpc"},
		"URL":                {func(c *Config) { c.Engines[0].Prefill[1].URL = "p1:30000" }, "engines[0].prefill[1].url:"},
		"port":               {func(c *Config) { c.Engines[0].Prefill[1].BootstrapPort = 70000 }, "engines[0].prefill[1].bootstrap_port: 70000 is no port"},
		"port of vLLM":       {func(c *Config) { c.Engines[0].Kind, c.Engines[0].Prefill[1].BootstrapPort = "vllm", 8998 }, "is for SGLang only"},
		"an engine's name":   {func(c *Config) { c.Engines = append(c.Engines, Engine{Name: "main-prefill", Kind: "vllm"}) }, "engines: main-prefill is what the prefill endpoints of main are called"},
		"no way to reach it": {func(c *Config) { c.Loopback = "" }, "engine main has prefill endpoints: the filter reaches them through Envoy's loopback listener; say in loopback where that is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := disaggregatedConfig("sglang")
			c.change(cfg)
			err := cfg.Validate()
			if err == nil {
				var s *Server
				if s, err = New(cfg, Options{}); err == nil {
					t.Cleanup(func() { _ = s.Close(t.Context()) })
				}
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestPrefillEndpoints(t *testing.T) {
	t.Parallel()
	dialect, _ := engine.ByKind("sglang")
	prefills, err := newPrefills(disaggregatedConfig("sglang"), map[string]engine.Dialect{"main": dialect}, randomBits)
	if err != nil {
		t.Fatal(err)
	}
	want := []prefillEndpoint{{"p0:80", "p0", DefaultBootstrapPort}, {"[::1]:30000", "::1", DefaultBootstrapPort}}
	if diff := cmp.Diff(want, prefills["main"].endpoints, cmp.AllowUnexported(prefillEndpoint{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Keys spread over the endpoints, and only those of an endpoint that goes move.
func TestChoosePrefill(t *testing.T) {
	t.Parallel()
	const keys, n = 4000, 5
	all := &prefill{random: func() uint64 { return 1 }}
	for i := range n {
		all.endpoints = append(all.endpoints, prefillEndpoint{address: fmt.Sprintf("prefill-%d:30000", i)})
	}
	fewer := &prefill{endpoints: all.endpoints[1:]}
	used := map[string]int{}
	for i := range keys {
		key := fmt.Sprintf("key %d", i)
		first, second := all.choose(key, false), all.choose(key, true)
		used[first.address]++
		if first == second || first != all.choose(key, false) {
			t.Fatalf("%s: first %s, second %s", key, first.address, second.address)
		}
		want := first
		if first == &all.endpoints[0] {
			want = second
		}
		if got := fewer.choose(key, false); got != want {
			t.Fatalf("%s went from %s to %s", key, first.address, got.address)
		}
	}
	for address, count := range used {
		if count < keys/n*8/10 || count > keys/n*12/10 {
			t.Errorf("%s has %d of %d keys", address, count, keys)
		}
	}
	if all.choose("", false) == nil || (&prefill{endpoints: all.endpoints[:1]}).choose("key", true) != &all.endpoints[0] {
		t.Error("there is always one")
	}
}

// legScript is what a leg answers.
type legScript struct {
	status int
	body   string
	cut    bool // the connection breaks behind the body
	hang   bool // nothing more comes
}

func (s legScript) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("retry-after", "7")
	w.WriteHeader(s.status)
	_, _ = io.WriteString(w, s.body)
	_ = http.NewResponseController(w).Flush()
	switch {
	case s.cut:
		panic(http.ErrAbortHandler)
	case s.hang:
		<-r.Context().Done()
	}
}

// heard is what is told of a call until its end.
func heard(t *testing.T, c *loopbackCall) (text string, prompt *engine.Usage, err error) {
	t.Helper()
	for {
		select {
		case e := <-c.events:
			if e.header != nil {
				text += fmt.Sprint(e.status, " ")
				prompt = e.prompt
			}
			text += string(e.body)
			if e.end || e.err != nil {
				return text, prompt, e.err
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no end after %q", text)
		}
	}
}

// TestLegs is what is told of two legs, by what each of them answers.
func TestLegs(t *testing.T) {
	t.Parallel()
	const (
		one     = `data: {"output_ids":[1],"meta_info":{"finish_reason":{"type":"length","length":0},"completion_tokens":1}}` + "\n\ndata: [DONE]\n\n"
		refused = `{"error":{"message":"temperature must be non-negative, got -1.0.","code":400}}`
		told    = `{"kv_transfer_params":{"remote_port":5},"usage":{"prompt_tokens_details":{"cached_tokens":3}}}`
	)
	said, hangs := legScript{status: 200, body: "said"}, legScript{status: 200, hang: true}
	for _, c := range []struct {
		kind, name      string
		prefill, decode legScript
		want            string // what is told, but of an error its status, "broken" without one
	}{
		{"sglang", "both", legScript{status: 200, body: one}, said, "200 said"},
		{"sglang", "prefill is refused", legScript{status: 400, body: refused}, hangs, "400"},
		{"sglang", "prefill is not there", legScript{status: 503, body: "no healthy upstream"}, hangs, "503"},
		{"sglang", "prefill is told to wait", legScript{status: 429}, hangs, "429"},
		{"sglang", "prefill breaks", legScript{status: 200, cut: true}, hangs, "broken"},
		{"sglang", "prefill breaks in an error", legScript{status: 503, body: "no", cut: true}, hangs, "broken"},
		{"sglang", "prefill fails", legScript{status: 200, body: `data: {"error":{"message":"x","code":500}}` + "\n\n"}, hangs, "502"},
		{"sglang", "prefill is garbage", legScript{status: 200, body: "data: {\n\n"}, hangs, "502"},
		{"sglang", "prefill does not end", legScript{status: 200, body: strings.Repeat(": x\n", maxPrefillAnswer/4+1), hang: true}, hangs, "502"},
		{"sglang", "decode is refused", hangs, legScript{status: 400, body: refused}, "400"},
		{"sglang", "decode is not there", hangs, legScript{status: 503}, "503"},
		{"sglang", "decode breaks", hangs, legScript{status: 200, body: "sai", cut: true}, "broken"},
		{"vllm", "both", legScript{status: 200, body: told}, said, "200 said"},
		{"vllm", "prefill is refused", legScript{status: 400, body: refused}, said, "400"},
		{"vllm", "prefill is not there", legScript{status: 503}, said, "503"},
		{"vllm", "prefill breaks", legScript{status: 200, body: told[:9], cut: true}, said, "broken"},
		{"vllm", "prefill tells nothing", legScript{status: 200, body: "{}"}, said, "502"},
		{"vllm", "prefill does not end", legScript{status: 200, body: strings.Repeat(" ", maxPrefillAnswer+1), hang: true}, said, "502"},
		{"vllm", "decode is refused", legScript{status: 200, body: told}, legScript{status: 400, body: refused}, "400"},
		{"vllm", "decode breaks", legScript{status: 200, body: told}, legScript{status: 200, cut: true}, "broken"},
	} {
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			bodies, gone := make(chan string, 2), make(chan struct{}, 2)
			var both sync.WaitGroup // no leg of SGLang's is answered before the other one is there
			if c.kind == "sglang" {
				both.Add(2)
			}
			l := gateway(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				pin := r.Header.Get(PrefillHeader)
				bodies <- r.Header.Get(EngineHeader) + " " + string(body)
				defer func() { gone <- struct{}{} }()
				if c.kind == "sglang" {
					both.Done()
					both.Wait()
				}
				if r.Header.Get(EngineHeader) == "main" {
					if pin != "" {
						t.Errorf("the decode leg is pinned to %s", pin)
					}
					c.decode.answer(w, r)
					return
				}
				if (pin != "") != (c.kind == "sglang") {
					t.Errorf("the prefill leg is pinned to %q", pin)
				}
				c.prefill.answer(w, r)
			})
			dialect, _ := engine.ByKind(c.kind)
			prefills, err := newPrefills(disaggregatedConfig(c.kind), map[string]engine.Dialect{"main": dialect}, func() uint64 { return 1<<64 - 1 })
			if err != nil {
				t.Fatal(err)
			}
			l.prefills = prefills
			call := l.dial(t.Context(), http.Header{"X-Harmony-Prefix": {"key"}}, target{model: Model{Engine: "main"}, dialect: dialect})
			if err := call.call(&engine.Request{ID: "1", Model: "m", Prompt: []uint32{1, 2}, N: 1, MaxTokens: 9}, detour{}); err != nil {
				t.Fatal(err)
			}
			text, prompt, failure := heard(t, &call)
			call.hangUp()
			var refusal *apierror.Error
			switch {
			case errors.As(failure, &refusal):
				text = strconv.Itoa(refusal.Status)
				if refusal.Status == 429 && refusal.RetryAfter != 7*time.Second {
					t.Errorf("retry after %s", refusal.RetryAfter)
				}
			case failure != nil:
				text = "broken"
			}
			if text != c.want {
				t.Errorf("told %q (%v), want %q", text, failure, c.want)
			}
			if c.want == "200 said" && (prompt == nil) != (c.kind == "sglang") || prompt != nil && prompt.CachedTokens != 3 {
				t.Errorf("usage %+v", prompt)
			}
			legs := map[string]string{}
			for made := 1; len(legs) < made; { // what was begun has ended
				engine, body, _ := strings.Cut(<-bodies, " ")
				if legs[engine] = body; c.kind == "sglang" || strings.Contains(c.name, "decode") || c.name == "both" {
					made = 2
				}
				<-gone
			}
			if c.kind == "vllm" && legs["main"] != "" && gjson.Get(legs["main"], "kv_transfer_params").Raw != `{"remote_port":5}` {
				t.Errorf("decode: %s", legs["main"])
			}
			if c.kind == "sglang" && (legs["main"] != legs["main-prefill"] || gjson.Get(legs["main"], "bootstrap_room").Int() != 1<<31-1) {
				t.Errorf("the legs differ: %v", legs)
			}
			if len(bodies) > 0 {
				t.Errorf("there is one more leg: %s", <-bodies)
			}
		})
	}
}

// TestFailedLegs: what a failed leg means for the reply. Before the first token
// both legs are made once more where another pair may do better.
func TestFailedLegs(t *testing.T) {
	t.Parallel()
	said := event("stop", tokens("<|channel|>final<|message|>hi<|return|>")...)
	begins := bytesNews(event("", tokens("<|channel|>final<|message|>h")...))
	fails := func(status int) engineEvent { return engineEvent{err: apierror.New(status, "", "", "a leg failed")} }
	inBand := bytesNews(`data: {"error":{"message":"KVTransferError","code":500}}` + "\n\n")
	for name, c := range map[string]struct {
		news   []engineEvent
		again  int
		text   string
		status int // of the error
	}{
		"none":                          {[]engineEvent{{waiting: true}, headersNews(), bytesNews(said), {end: true}}, 0, `"content":"hi"`, 0},
		"not there":                     {[]engineEvent{{waiting: true}, fails(503), {waiting: true}, headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, 0},
		"failed":                        {[]engineEvent{fails(502), headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, 0},
		"not there again":               {[]engineEvent{fails(503), fails(503)}, 1, "", 503},
		"after the decode leg's begin":  {[]engineEvent{headersNews(), fails(503), headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, 0},
		"the request's fault":           {[]engineEvent{fails(400)}, 0, "", 400},
		"too many requests":             {[]engineEvent{fails(429)}, 0, "", 429},
		"after the first token":         {[]engineEvent{headersNews(), begins, fails(503)}, 0, "", 503},
		"the decode leg in band":        {[]engineEvent{headersNews(), inBand, headersNews(), bytesNews(said), {end: true}}, 1, `"content":"hi"`, 0},
		"in band after the first token": {[]engineEvent{headersNews(), begins, inBand}, 0, "", 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, a, again := newTestRun(t, "")
			r.s.loopback = &loopback{prefills: map[string]*prefill{"main": {}}}
			for _, e := range c.news {
				r.step(r.now)
				r.news(e)
			}
			status := 0
			if a.err != nil {
				status = a.err.Status
			}
			if *again != c.again || status != c.status || !strings.Contains(a.text.String(), c.text) || (c.again > 0) != (r.detour.number == 1) {
				t.Errorf("made again %d times, status %d, text %q", *again, status, a.text.String())
			}
		})
	}
}

// Of the prompt counts what the prefill engine says, where it does: the decode engine
// takes what it was handed over for cached.
func TestPromptUsage(t *testing.T) {
	t.Parallel()
	usage := `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}` + "\n\ndata: [DONE]\n\n"
	for want, prompt := range map[int]*engine.Usage{8: nil, 3: {CachedTokens: 3}, 0: {CachedTokens: engine.Unknown}} {
		r, a, _ := newTestRun(t, "")
		begins := headersNews()
		begins.prompt = prompt
		for _, e := range []engineEvent{begins, bytesNews(event("stop", tokens("<|channel|>final<|message|>hi<|return|>")...)), bytesNews(usage), {end: true}} {
			r.step(r.now)
			r.news(e)
		}
		if got := gjson.Get(a.text.String(), "usage.prompt_tokens_details.cached_tokens").Int(); int(got) != want {
			t.Errorf("cached %d, want %d: %s", got, want, a.text.String())
		}
	}
}

// A stream's headers do not wait for a long prompt.
func TestWaitingForThePrompt(t *testing.T) {
	t.Parallel()
	r, a, _ := newTestRun(t, `,"stream":true`)
	r.news(engineEvent{waiting: true})
	if r.begun || r.timers[timerHold].IsZero() {
		t.Error("the headers are not held")
	}
	r.expired(timerHold)
	if !r.begun || a.header == nil {
		t.Error("the headers are held for ever")
	}
}

// The decode leg's body, which is as long as the prompt, is let go once it is sent:
// the answer may take long.
func TestDecodeLegIsLetGo(t *testing.T) {
	t.Parallel()
	l := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		legScript{status: 200, hang: true}.answer(w, r)
	})
	dialect, _ := engine.ByKind("sglang")
	prefills, err := newPrefills(disaggregatedConfig("sglang"), map[string]engine.Dialect{"main": dialect}, func() uint64 { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	l.prefills = prefills
	c := l.dial(t.Context(), http.Header{}, target{model: Model{Engine: "main"}, dialect: dialect})
	g, refused := newLegs(&c, prefills["main"], &engine.Request{ID: "1", Model: "m", Prompt: make([]uint32, 100_000), N: 1, MaxTokens: 9}, detour{})
	if refused != nil {
		t.Fatal(refused)
	}
	body := weak.Make(&g.decodeWire.Body[0])
	g.make(c.redial())
	defer c.hangUp()
	if e := <-c.events; e.status != http.StatusOK { // of the decode leg, which goes on
		t.Fatalf("status %d, %v", e.status, e.err)
	}
	for range 100 {
		if runtime.GC(); body.Value() == nil {
			break
		}
	}
	if body.Value() != nil {
		t.Error("the body is kept while the answer goes on")
	}
	runtime.KeepAlive(g)
}
