package engines

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// partRequest is a prefill or decode request that an engine got.
type partRequest struct {
	stack.EngineRequest
	Role      string `json:"role"`
	Cached    int    `json:"cached_tokens"`
	engineURL string // URL of the engine
}

// param returns a member of the request.
func (l partRequest) param(name string) string { return gjson.GetBytes(l.Params, name).String() }

// requests returns the requests with an x-request-id by role.
func requests(t testing.TB, p stack.Parts, id string) map[string][]partRequest {
	t.Helper()
	found := map[string][]partRequest{}
	for _, list := range p {
		for _, one := range list {
			resp, err := http.Get(one.URL + "/sim/requests")
			if err != nil {
				continue // the engine has been killed
			}

			var all []partRequest
			if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close() // already read

			for _, l := range all {
				if strings.Contains(l.RequestID+"-", id+"-") {
					l.engineURL = one.URL
					found[l.Role] = append(found[l.Role], l)
				}
			}
		}
	}

	http.DefaultClient.CloseIdleConnections()
	return found
}

// await waits until there are at least so many prefill and decode requests, and all
// are in a state.
func await(t testing.TB, p stack.Parts, id, state string, prefills, decodes int) map[string][]partRequest {
	t.Helper()
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(10 * time.Millisecond) {
		requests := requests(t, p, id)
		other := func(l partRequest) bool { return l.State != state }
		if len(requests[stack.RolePrefill]) == prefills && len(requests[stack.RoleDecode]) == decodes && !slices.ContainsFunc(requests[stack.RolePrefill], other) && !slices.ContainsFunc(requests[stack.RoleDecode], other) {
			return requests
		}
		if time.Now().After(deadline) {
			t.Fatalf("want %d prefill and %d decode requests that are %s: %+v", prefills, decodes, state, requests)
		}
	}
}

// TestPrefillDecode repeats the tests of one engine with a prefill and a decode
// engine of each kind.
func TestPrefillDecode(t *testing.T) {
	log := &stack.LogFile{}
	p := stack.NewParts(t, log)
	d := stack.Start(t, stack.Options{SimURL: p[stack.RoleDecode][0].URL, Config: p.Serve(t), Bootstrap: withoutEjection})
	for _, kind := range engine.Disaggregating() {
		t.Run(kind, func(t *testing.T) {
			t.Run("reply", func(t *testing.T) { engineReplies(t, d, kind) })
			t.Run("call", func(t *testing.T) { engineCalls(t, d, kind) })
			t.Run("requests", func(t *testing.T) { checkRequests(t, p, d, kind) })
			t.Run("choice", func(t *testing.T) { checkAffinity(t, p, d, kind) })
			t.Run("error", func(t *testing.T) { checkFailures(t, p, d, kind) })
			t.Run("background", func(t *testing.T) { background(t, p, d, kind) })
			t.Run("leave", func(t *testing.T) { checkDisconnects(t, p, d, kind) })
		})
	}
}

// withoutEjection turns off ejection of failing endpoints.
func withoutEjection(bootstrap string) string {
	return regexp.MustCompile(`( consecutive_\w+): \d+`).ReplaceAllString(bootstrap, "$1: 1000000")
}

// idOf returns a request id of a test. It must not have the length of a UUID,
// because Envoy changes such ids.
func idOf(t testing.TB, more ...any) string {
	id := strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()) + fmt.Sprint(more...)
	if len(id) == len("00000000-0000-0000-0000-000000000000") {
		id = "x" + id
	}
	return id
}

// checkRequests checks the prefill and decode requests of a request, and its number
// of cached tokens. That is the prefill engine's number, even if the decode engine
// counts the transferred tokens.
func checkRequests(t *testing.T, p stack.Parts, d *stack.Dataplane, kind string) {
	t.Helper()
	bootstrapRoom, _ := engine.Disaggregates(kind)
	for round := range 2 {
		id := idOf(t, "-", round)
		_, text := d.Chat(t, stack.ModelOf(kind), "SAY "+strings.Repeat(kind+" ", 40), "", "x-request-id", id, "x-harmony-prefill", "127.0.0.1:1")
		requests := await(t, p, id, stack.StateFinished, 1, 1)
		prefill, decode := requests[stack.RolePrefill][0], requests[stack.RoleDecode][0]
		if cached := gjson.Get(text, "usage.prompt_tokens_details.cached_tokens").Int(); int(cached) != prefill.Cached || round > 0 && cached == 0 || cached >= gjson.Get(text, "usage.prompt_tokens").Int() {
			t.Errorf("round %d: cached %d, the prefill engine has %d: %s", round, cached, prefill.Cached, text)
		}

		for name := range prefill.Header {
			if name == "x-harmony-prefill" || name == "x-harmony-engine" {
				t.Errorf("the engine gets %s", name)
			}
		}

		switch {
		case bootstrapRoom:
			u, err := url.Parse(prefill.engineURL)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []partRequest{prefill, decode} {
				if net.JoinHostPort(l.param("bootstrap_host"), l.param("bootstrap_port")) != u.Host || l.param("bootstrap_room") != prefill.param("bootstrap_room") {
					t.Errorf("%s: %s", l.Role, l.Params)
				}
			}
		case prefill.param("max_tokens") != "1" && prefill.param("sampling_params.max_tokens") != "1":
			t.Errorf("prefill: %s", prefill.Params)
		case kind != "vllm-grpc" && (prefill.param("kv_transfer_params.do_remote_decode") != "true" || decode.param("kv_transfer_params.do_remote_prefill") != "true"):
			t.Errorf("prefill: %s, decode: %s", prefill.Params, decode.Params)
		}
	}
}

// checkAffinity checks that each of several growing conversations stays at its
// prefill endpoint, and that both endpoints are used.
func checkAffinity(t *testing.T, p stack.Parts, d *stack.Dataplane, kind string) {
	t.Helper()
	used := map[string]int{}
	for n := 0; n < 12 || len(used) < 2 && n < 100; n++ {
		first := fmt.Sprintf("SAY the answer of conversation %d", n)
		at := make([]string, 0, 2)
		for turn, messages := range []string{
			fmt.Sprintf(`{"role":"user","content":%q}`, first),
			fmt.Sprintf(`{"role":"user","content":%q},{"role":"assistant","content":"the answer"},{"role":"user","content":"SAY more"}`, first),
		} {
			id := idOf(t, "-", n, "-", turn)
			body := fmt.Sprintf(`{"model":%q,"messages":[%s]}`, stack.ModelOf(kind), messages)
			d.Answer(t, "/v1/chat/completions", body, "x-request-id", id)
			at = append(at, await(t, p, id, stack.StateFinished, 1, 1)[stack.RolePrefill][0].engineURL)
		}

		if at[0] != at[1] {
			t.Errorf("conversation %d went from %s to %s", n, at[0], at[1])
		}
		used[at[0]]++
	}

	if len(used) != 2 {
		t.Errorf("the conversations went to %v", used)
	}
}

// checkFailures checks that a failure of either request reaches the client with its
// status, and that a request is retried if another engine may succeed.
func checkFailures(t *testing.T, p stack.Parts, d *stack.Dataplane, kind string) {
	t.Helper()
	for i, tt := range []struct {
		directive string
		status    int
		again     bool
	}{
		{"/prefill status=400", 400, false},
		{"/prefill status=429", 429, false},
		{"/prefill status=503", 503, true},
		{"/prefill status=500", 502, true},
		{"/decode status=400", 400, false},
		{"/decode status=503", 503, true},
		{"/decode fault=error@0", 502, true},
	} {
		for _, more := range []string{"", `,"stream":true`} {
			id := idOf(t, "-", i, "-", len(more))
			resp, text := d.Chat(t, stack.ModelOf(kind), "SAY x\nSIM meet=1s\nSIM"+tt.directive, more, "x-request-id", id)
			if stack.ReadError(t, text); resp.StatusCode != tt.status {
				t.Errorf("%s%s: %s: %s", tt.directive, more, resp.Status, text)
			}

			ids := map[string]bool{}
			for _, list := range requests(t, p, id) {
				for _, l := range list {
					ids[l.RequestID] = true
				}
			}

			least, most := 1, 1
			if tt.again { // more requests are needed to reach another decode engine
				least, most = 2, 4
			}
			if len(ids) < least || len(ids) > most {
				t.Errorf("%s%s: %d pairs of requests, want %d to %d: %v", tt.directive, more, len(ids), least, most, ids)
			}
		}
	}

	resp, text := d.Chat(t, stack.ModelOf(kind), "NOTHINK\nWORDS 60\nSIM delay=15ms\nSIM/decode fault=cut@15", `,"stream":true`)
	if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"w`) || !strings.Contains(text, `data: {"error"`) || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("the decode engine disconnects in the stream: %s: %s", resp.Status, text)
	}
}

func background(t *testing.T, p stack.Parts, d *stack.Dataplane, kind string) {
	t.Helper()
	id := idOf(t)
	c := d.CheckedOpenAI(t)
	r := stack.AwaitBackground(t, c, stack.BeginBackground(t, c, stack.ModelOf(kind), "THINK Hm.\nSAY hello from "+kind, option.WithHeader("x-request-id", id)).ID)
	if r.Status != "completed" || r.OutputText() != "hello from "+kind {
		t.Errorf("response %s", r.RawJSON())
	}
	await(t, p, id, stack.StateFinished, 1, 1)
}

// checkDisconnects checks that a client that disconnects cancels the requests,
// during prefill and during decoding.
func checkDisconnects(t *testing.T, p stack.Parts, d *stack.Dataplane, kind string) {
	t.Helper()
	bootstrapRoom, _ := engine.Disaggregates(kind)
	for name, content := range map[string]string{"early": "SAY x\nSIM/prefill first=1h", "late": "NOTHINK\nWORDS 100000 5"} {
		id := idOf(t, "-", name)
		ctx, leave := context.WithCancel(t.Context())
		body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, stack.ModelOf(kind), content)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Request-Id", id)

		ended, first := make(chan struct{}), make(chan string, 1)
		go func() {
			defer close(ended)
			defer close(first)
			resp, err := d.Client.Do(req)
			if err != nil {
				return // the client has disconnected
			}
			defer resp.Body.Close()
			line, _ := bufio.NewReader(resp.Body).ReadString('\n') // the client may disconnect before
			first <- line
			<-ctx.Done()
		}()

		if name == "late" {
			if line := stack.Receive(t, first, "the first line"); !strings.HasPrefix(line, "data: ") {
				t.Errorf("the stream starts with %q", line)
			}
			leave()
			<-ended
			if requests := requests(t, p, id); len(requests[stack.RolePrefill]) != 1 {
				t.Errorf("requests: %+v", requests)
			}
			awaitDecode(t, p, id, stack.StateCancelled)
			continue
		}

		decodes := map[bool]int{false: 0, true: 1}[bootstrapRoom]
		await(t, p, id, stack.StateRunning, 1, decodes)

		leave()
		<-ended
		await(t, p, id, stack.StateCancelled, 1, decodes)
	}
}

func awaitDecode(t *testing.T, p stack.Parts, id, state string) {
	t.Helper()
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(10 * time.Millisecond) {
		requests := requests(t, p, id)[stack.RoleDecode]
		if len(requests) == 1 && requests[0].State == state {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("decode: %+v", requests)
		}
	}
}

// TestKilledParts: conversations continue with the remaining engines. Streams of a
// killed engine go on at another one.
func TestKilledParts(t *testing.T) {
	log := &stack.LogFile{}
	p := stack.NewParts(t, log)
	d := stack.Start(t, stack.Options{SimURL: p[stack.RoleDecode][0].URL, Config: p.Serve(t)})
	kill := func(one stack.Part) {
		if err := one.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := one.Process.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	goOn := func(what string) {
		t.Helper()
		for _, kind := range engine.Disaggregating() {
			for n := range 6 {
				if resp, text := d.Chat(t, stack.ModelOf(kind), fmt.Sprintf("SAY hello %d", n), ""); resp.StatusCode != http.StatusOK {
					t.Errorf("%s, %s: %s: %s", what, kind, resp.Status, text)
				}
			}
		}
	}
	kill(p[stack.RolePrefill][0])
	goOn("a killed prefill engine")

	streams := map[string]chan string{}
	for _, kind := range engine.Disaggregating() {
		body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 100000 5"}]}`, stack.ModelOf(kind))
		id := "killed-" + kind
		resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), "x-request-id", id)
		head := make([]byte, 200)
		if _, err := io.ReadFull(resp.Body, head); err != nil {
			t.Fatal(err)
		}
		streams[kind] = make(chan string, 1)
		go func() {
			rest, err := io.ReadAll(resp.Body)
			streams[kind] <- fmt.Sprint(string(head)+string(rest), err)
		}()
	}
	cut := 0
	for _, one := range p[stack.RoleDecode] {
		busy := 0
		for _, kind := range engine.Disaggregating() {
			for _, l := range requests(t, p, "killed-"+kind)[stack.RoleDecode] {
				if l.engineURL == one.URL {
					busy++
				}
			}
		}
		if busy == 0 || cut > 0 {
			continue
		}
		cut = busy
		kill(one)
		for _, kind := range engine.Disaggregating() {
			stack.Eventually(t, "the stream at the other engine, of "+kind, func() bool { return len(requests(t, p, "killed-"+kind)[stack.RoleDecode]) > 0 })
		}
	}
	if cut == 0 {
		t.Fatal("no decode engine was killed during a stream")
	}
	goOn("a killed decode engine")
	for kind, stream := range streams {
		select {
		case text := <-stream:
			t.Errorf("%s: the stream ends with %q", kind, text[max(len(text)-300, 0):])
		default:
		}
	}
}

// disconnectingEngine is an engine that answers 200 and disconnects, as long as
// breaks is positive. It calls ready before it disconnects.
func disconnectingEngine(t *testing.T, breaks, broken *atomic.Int32, ready func(), next http.Handler) string {
	server := httptest.NewServer(stack.FullDuplex(func(w http.ResponseWriter, r *http.Request) {
		if breaks.Add(-1) < 0 {
			next.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		ready()
		broken.Add(1)
		panic(http.ErrAbortHandler)
	}))
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	return server.URL
}

// TestDisaggregatedRetry: if one of the two requests breaks before the first token,
// the other is cancelled and both are retried. SGLang then gets another prefill
// endpoint and a new room.
func TestDisaggregatedRetry(t *testing.T) {
	log := &stack.LogFile{}
	p := stack.NewParts(t, log)
	for _, kind := range []string{"sglang", "vllm"} {
		for _, role := range []string{stack.RolePrefill, stack.RoleDecode} {
			t.Run(kind+"/"+role, func(t *testing.T) {
				var breaks, broken atomic.Int32
				var current atomic.Value
				// SGLang's two requests are made at the same time: the other one has
				// arrived before this one breaks, so that its room is known.
				ready := func() {
					for deadline := time.Now().Add(stack.Patience); kind == "sglang" && len(requests(t, p, current.Load().(string))) == 0 && time.Now().Before(deadline); {
						time.Sleep(5 * time.Millisecond)
					}
				}

				d := stack.Start(t, stack.Options{SimURL: p[stack.RoleDecode][0].URL, Config: func(c *config.Config) {
					e := config.Engine{Kind: kind, URLs: []string{p[stack.RoleDecode][0].URL}, Prefill: []config.Prefill{stack.PrefillAt(t, kind, p[stack.RolePrefill][0].URL)}}
					switch {
					case role == stack.RoleDecode:
						e.URLs[0] = disconnectingEngine(t, &breaks, &broken, ready, stack.Forward(t, p[stack.RoleDecode][0].URL))
					case kind == "sglang": // one of the two endpoints disconnects
						e.Prefill = append(e.Prefill, stack.PrefillAt(t, kind, disconnectingEngine(t, &breaks, &broken, ready, http.NotFoundHandler())))
					default:
						e.Prefill[0].URL = disconnectingEngine(t, &breaks, &broken, ready, stack.Forward(t, p[stack.RolePrefill][0].URL))
					}
					c.Engines, c.Models = []config.Engine{e}, nil
				}})

				again := 0
				for n := 0; n < 8 || again == 0 && n < 100; n++ {
					before := broken.Load()
					breaks.Store(1)
					id := idOf(t, "-", n)
					current.Store(id)

					resp, text := d.Chat(t, stack.SGLangModel, fmt.Sprintf("SAY hello %d\nSIM/prefill delay=20ms", n), "", "x-request-id", id)
					if resp.StatusCode != http.StatusOK || gjson.Get(text, "choices.0.message.content").Str != fmt.Sprint("hello ", n) {
						t.Errorf("%s: %s", resp.Status, text)
					}

					if broken.Load() == before {
						continue
					}
					again++
					want := 2
					if kind == "vllm" && role == stack.RoleDecode { // the prompt has been computed twice
						want = 3
					}

					rooms, states := map[string]bool{}, map[string]int{}
					for deadline := time.Now().Add(stack.Patience); states[stack.StateFinished] != want || states[stack.StateRunning] > 0; time.Sleep(10 * time.Millisecond) {
						if time.Now().After(deadline) {
							t.Fatalf("the requests are %v, want %d that have finished", states, want)
						}
						clear(states)
						for _, list := range requests(t, p, id) {
							for _, l := range list {
								rooms[l.RequestID+l.param("bootstrap_room")] = true
								states[l.State]++
							}
						}
					}

					if kind == "sglang" && len(rooms) != 2 {
						t.Errorf("rooms: %v", rooms)
					}
				}

				if again == 0 {
					t.Error("no request has failed")
				}
			})
		}
	}
}

// TestWrongBootstrap: if two engines cannot connect, the client gets an error, not
// a wrong or endless reply.
func TestWrongBootstrap(t *testing.T) {
	log := &stack.LogFile{}
	p := stack.NewParts(t, log)
	for _, kind := range []string{"sglang", "sglang-grpc"} {
		d := stack.Start(t, stack.Options{SimURL: p[stack.RoleDecode][0].URL, Config: func(c *config.Config) {
			e := config.Engine{Kind: kind, URLs: []string{p[stack.RoleDecode][0].URL}}
			e.Prefill = []config.Prefill{{URL: p[stack.RolePrefill][0].URL}} // wrong: the bootstrap server is not at port 8998
			c.Engines, c.Models = []config.Engine{e}, nil
		}})
		resp, text := d.Chat(t, stack.SGLangModel, "SAY x\nSIM meet=1s", "")
		if stack.ReadError(t, text); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s: %s", kind, resp.Status, text)
		}
	}
}

var loopbackPath = regexp.MustCompile(`pipe: \{path: "([^"]*/loopback)"`)

// TestPinnedPrefill: the loopback listener sends a call to the endpoint that it
// names, or fails.
func TestPinnedPrefill(t *testing.T) {
	log := &stack.LogFile{}
	p := stack.NewParts(t, log)

	var socket string
	stack.Start(t, stack.Options{SimURL: p[stack.RoleDecode][0].URL, Config: p.Serve(t), Bootstrap: func(text string) string {
		if m := loopbackPath.FindStringSubmatch(text); m != nil {
			socket = m[1]
		}
		return text
	}})

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)

	for name, want := range map[string]int{
		strings.TrimPrefix(p[stack.RolePrefill][0].URL, "http://"): http.StatusOK,
		strings.TrimPrefix(p[stack.RolePrefill][1].URL, "http://"): http.StatusOK,
		strings.TrimPrefix(p[stack.RoleDecode][0].URL, "http://"):  http.StatusServiceUnavailable,
		"127.0.0.1:1": http.StatusServiceUnavailable,
		"":            http.StatusServiceUnavailable,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://loopback/sim/requests", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-harmony-engine", "sglang-prefill")
		if name != "" {
			req.Header.Set("x-harmony-prefill", name)
		}

		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the status is checked

		if resp.StatusCode != want {
			t.Errorf("%q: %s, want %d", name, resp.Status, want)
		}
	}
}
