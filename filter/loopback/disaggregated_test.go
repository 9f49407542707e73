package loopback

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
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// disaggregatedConfig has one engine of a kind, with two prefill endpoints.
func disaggregatedConfig(kind string) *config.Config {
	c := config.Defaults()
	c.Engines = []config.Engine{{Name: "main", Kind: kind, URLs: []string{"http://d:1"}, Prefill: []config.Prefill{{URL: "http://p0"}, {URL: "http://[::1]:30000"}}}}
	return c
}

func TestPrefillEndpoints(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, disaggregatedConfig("sglang"), "unix:///run/l")
	want := []prefillEndpoint{{"p0:80", "p0", config.DefaultBootstrapPort}, {"[::1]:30000", "::1", config.DefaultBootstrapPort}}
	if diff := cmp.Diff(want, c.prefills["main"].endpoints, cmp.AllowUnexported(prefillEndpoint{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !c.Disaggregated("main") || c.Disaggregated("other") {
		t.Error("the wrong engine is disaggregated")
	}
}

// Keys spread over the endpoints. If an endpoint goes, only its keys move.
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

// scriptedAnswer is the answer to one of the two requests.
type scriptedAnswer struct {
	status int
	body   string
	breaks bool // the connection breaks after the body
	hangs  bool // nothing more comes
}

func (s scriptedAnswer) write(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("retry-after", "7")
	w.WriteHeader(s.status)
	_, _ = io.WriteString(w, s.body)
	_ = http.NewResponseController(w).Flush()
	switch {
	case s.breaks:
		panic(http.ErrAbortHandler)
	case s.hangs:
		<-r.Context().Done()
	}
}

// What an event has of the answer stays as it is until the next event is received, while
// more of the answer arrives.
func TestDisaggregatedBodies(t *testing.T) {
	t.Parallel()
	const pieces = 20
	sent := make(chan struct{})
	c := newTestGateway(t, disaggregatedConfig("sglang"), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(header.Engine) != "main" { // the prefill request, which is not answered
			<-r.Context().Done()
			return
		}
		for i := range pieces {
			_, _ = io.WriteString(w, strings.Repeat(string(rune('a'+i)), 100))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond) // pieces that are read one by one, else they are one
		}
		close(sent)
	})
	dialect, _ := engine.ByKind("sglang")
	calls := c.Dial(t.Context(), http.Header{}, run.Target{Engine: "main", Dialect: dialect})
	defer calls.Cancel()
	if err := calls.Call(&engine.Request{Prompt: []harmony.Token{1}, N: 1, MaxTokens: 1}, run.Retry{}); err != nil {
		t.Fatal(err)
	}
	var body string
	for e := range calls.Events() {
		switch {
		case e.Err != nil:
			t.Fatal(e.Err)
		case e.Kind == run.EventEnded:
			var want strings.Builder
			for i := range pieces {
				want.WriteString(strings.Repeat(string(rune('a'+i)), 100))
			}
			if body != want.String() {
				t.Errorf("the body is %q", body)
			}
			return
		case e.Kind == run.EventBytes && body == "":
			<-sent
			time.Sleep(50 * time.Millisecond) // for the rest to arrive
		}
		body += string(e.Body)
	}
}

// The events of a disaggregated call, by the answers to its two requests.
func TestDisaggregatedCall(t *testing.T) {
	t.Parallel()
	const (
		token    = `data: {"output_ids":[1],"meta_info":{"finish_reason":{"type":"length","length":0},"completion_tokens":1}}` + "\n\ndata: [DONE]\n\n"
		rejected = `{"error":{"message":"temperature must be non-negative, got -1.0.","code":400}}`
		transfer = `{"kv_transfer_params":{"remote_port":5},"usage":{"prompt_tokens_details":{"cached_tokens":3}}}`
	)
	good, hangs := scriptedAnswer{status: 200, body: "text"}, scriptedAnswer{status: 200, hangs: true}
	for _, c := range []struct {
		kind, name      string
		prefill, decode scriptedAnswer
		want            string // status and body; of an error its status, "broken" without one
	}{
		{"sglang", "both", scriptedAnswer{status: 200, body: token}, good, "200 text"},
		{"sglang", "prefill is rejected", scriptedAnswer{status: 400, body: rejected}, hangs, "400"},
		{"sglang", "prefill is unavailable", scriptedAnswer{status: 503, body: "no healthy upstream"}, hangs, "503"},
		{"sglang", "prefill has to wait", scriptedAnswer{status: 429}, hangs, "429"},
		{"sglang", "prefill breaks", scriptedAnswer{status: 200, breaks: true}, hangs, "broken"},
		{"sglang", "prefill breaks in an error", scriptedAnswer{status: 503, body: "no", breaks: true}, hangs, "broken"},
		{"sglang", "prefill fails", scriptedAnswer{status: 200, body: `data: {"error":{"message":"x","code":500}}` + "\n\n"}, hangs, "502"},
		{"sglang", "prefill is garbage", scriptedAnswer{status: 200, body: "data: {\n\n"}, hangs, "502"},
		{"sglang", "prefill does not end", scriptedAnswer{status: 200, body: strings.Repeat(": x\n", maxPrefillAnswer/4+1), hangs: true}, hangs, "502"},
		{"sglang", "decode is rejected", hangs, scriptedAnswer{status: 400, body: rejected}, "400"},
		{"sglang", "decode is unavailable", hangs, scriptedAnswer{status: 503}, "503"},
		{"sglang", "decode breaks", hangs, scriptedAnswer{status: 200, body: "te", breaks: true}, "broken"},
		{"vllm", "both", scriptedAnswer{status: 200, body: transfer}, good, "200 text"},
		{"vllm", "prefill is rejected", scriptedAnswer{status: 400, body: rejected}, good, "400"},
		{"vllm", "prefill is unavailable", scriptedAnswer{status: 503}, good, "503"},
		{"vllm", "prefill breaks", scriptedAnswer{status: 200, body: transfer[:9], breaks: true}, good, "broken"},
		{"vllm", "prefill is empty", scriptedAnswer{status: 200, body: "{}"}, good, "502"},
		{"vllm", "prefill does not end", scriptedAnswer{status: 200, body: strings.Repeat(" ", maxPrefillAnswer+1), hangs: true}, good, "502"},
		{"vllm", "decode is rejected", scriptedAnswer{status: 200, body: transfer}, scriptedAnswer{status: 400, body: rejected}, "400"},
		{"vllm", "decode breaks", scriptedAnswer{status: 200, body: transfer}, scriptedAnswer{status: 200, breaks: true}, "broken"},
	} {
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			bodies, gone := make(chan string, 2), make(chan struct{}, 2)
			var both sync.WaitGroup // no request to SGLang is answered before the other one has come
			if c.kind == "sglang" {
				both.Add(2)
			}
			client := newTestGateway(t, disaggregatedConfig(c.kind), func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				endpoint, prompt := r.Header.Get(header.Prefill), r.Header.Get(header.PromptTokens)
				bodies <- r.Header.Get(header.Engine) + " " + string(body)
				defer func() { gone <- struct{}{} }()
				if c.kind == "sglang" {
					both.Done()
					both.Wait()
				}
				if r.Header.Get(header.Engine) == "main" {
					if endpoint != "" || prompt != "" {
						t.Errorf("the decode request is for endpoint %s, and has a prompt of %s tokens", endpoint, prompt)
					}
					c.decode.write(w, r)
					return
				}
				if (endpoint != "") != (c.kind == "sglang") || prompt != "2" {
					t.Errorf("the prefill request is for endpoint %q, and has a prompt of %s tokens", endpoint, prompt)
				}
				c.prefill.write(w, r)
			})
			dialect, _ := engine.ByKind(c.kind)
			calls := client.Dial(t.Context(), http.Header{"X-Harmony-Prefix": {"key"}}, run.Target{Engine: "main", Dialect: dialect})
			if err := calls.Call(&engine.Request{ID: engine.CallID{Request: "1"}, Model: "m", Prompt: []uint32{1, 2}, N: 1, MaxTokens: 9}, run.Retry{}); err != nil {
				t.Fatal(err)
			}
			status, text, prompt, failure := answerOf(t, calls.Events())
			calls.Cancel()
			text = fmt.Sprint(status, " ", text)
			var rejection *apierror.Error
			switch {
			case errors.As(failure, &rejection):
				text = strconv.Itoa(rejection.Status)
				if rejection.Status == 429 && rejection.RetryAfter != 7*time.Second {
					t.Errorf("retry after %s", rejection.RetryAfter)
				}
			case failure != nil:
				text = "broken"
			}
			if text != c.want {
				t.Errorf("%q (%v), want %q", text, failure, c.want)
			}
			if c.want == "200 text" && (prompt == nil) != (c.kind == "sglang") || prompt != nil && prompt.CachedTokens != 3 {
				t.Errorf("usage %+v", prompt)
			}
			requests := map[string]string{}
			for made := 1; len(requests) < made; { // every request has ended
				engine, body, _ := strings.Cut(<-bodies, " ")
				if requests[engine] = body; c.kind == "sglang" || strings.Contains(c.name, "decode") || c.name == "both" {
					made = 2
				}
				<-gone
			}
			if c.kind == "vllm" && requests["main"] != "" && gjson.Get(requests["main"], "kv_transfer_params").Raw != `{"remote_port":5}` {
				t.Errorf("decode: %s", requests["main"])
			}
			if c.kind == "sglang" && (requests["main"] != requests["main-prefill"] || gjson.Get(requests["main"], "bootstrap_room").Int() != 1<<31-1) {
				t.Errorf("the requests differ: %v", requests)
			}
			if len(bodies) > 0 {
				t.Errorf("there is one more request: %s", <-bodies)
			}
		})
	}
}

// The body of the decode request, which is as long as the prompt, is released once
// it is sent: the answer may take long.
func TestDecodeBodyIsReleased(t *testing.T) {
	t.Parallel()
	client := newTestGateway(t, disaggregatedConfig("sglang"), func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		scriptedAnswer{status: 200, hangs: true}.write(w, r)
	})
	dialect, _ := engine.ByKind("sglang")
	calls := client.Dial(t.Context(), http.Header{}, run.Target{Engine: "main", Dialect: dialect}).(*Calls)
	d, rejected := newDisaggregated(calls, client.prefills["main"], &engine.Request{ID: engine.CallID{Request: "1"}, Model: "m", Prompt: make([]uint32, 100_000), N: 1, MaxTokens: 9}, run.Retry{})
	if rejected != nil {
		t.Fatal(rejected)
	}
	body := weak.Make(&d.decodeWire.Body[0])
	d.make(calls.begin())
	defer calls.Cancel()
	if e := <-calls.Events(); e.Status != http.StatusOK { // to the decode request, which goes on
		t.Fatalf("status %d, %v", e.Status, e.Err)
	}
	for range 100 {
		if runtime.GC(); body.Value() == nil {
			break
		}
	}
	if body.Value() != nil {
		t.Error("the body is kept while the answer goes on")
	}
	runtime.KeepAlive(d)
}
