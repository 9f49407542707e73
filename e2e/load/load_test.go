package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// programs builds the programs of a stack and returns their folder.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/envoy-harmony", "../../cmd/engine-sim").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestPlainEnvoy checks that the Envoy without the filter passes a stream through. The
// simulated engine is what smg is in a comparison.
func TestPlainEnvoy(t *testing.T) {
	s, err := newStack()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	o := StackOptions{Binaries: programs(t), Workers: 1}
	if err := s.startEngine(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s.URL = s.SimURL
	if err := s.startPlainEnvoy(t.Context(), o); err != nil || s.URL == s.SimURL {
		t.Fatalf("%v: %s before %s", err, s.URL, s.SimURL)
	}

	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	_, through := s.Targets()
	if err := awaitTarget(ctx, through); err != nil {
		t.Fatal(err)
	}
	if smg := s.smg(); smg.Name != smgAfterEnvoy || smg.Procs[2] != s.envoy {
		t.Errorf("Envoy does not count: %+v", smg)
	}
}

// TestLoad runs all scenarios with tiny numbers: every stream and token is counted, and
// nothing fails.
func TestLoad(t *testing.T) {
	bin := programs(t)
	o := Options{
		Streams: 3, Rate: 20, Held: 2, BurstStreams: 2, BurstWords: 7, Rounds: 1, MaxPrompt: 1000, KneeFrom: 2, KneeTo: 2, RequestRate: 20,
		Lead: 100 * time.Millisecond, Window: 500 * time.Millisecond, KneeWindow: 500 * time.Millisecond,
		CapacityFrom: 20, CapacityTo: 20, CapacityWindow: 500 * time.Millisecond,
	}
	l := &Loader{Options: o, Client: NewClient(), Log: t.Logf}
	defer l.Client.Close()
	stack := StackOptions{Binaries: bin, Workers: 1, Engine: "vllm"}
	l.Fresh = startTargets(stack)
	if err := l.Run(t.Context(), defaultNames()); err != nil {
		t.Fatal(err)
	}
	if n := l.Report.Failed(); n != 0 {
		t.Errorf("%d streams failed: %+v", n, l.Report.Rows)
	}
	// Paced tokens are counted as they arrive in the window, which depends on the clock.
	wanted := map[string]int{"2 open streams": 2, "burst, 2 x 7": 28, "20 requests/s": 10, "prompt of 1k": 24, "turn of 1k": 5}
	for scenario, want := range wanted {
		for _, target := range []string{"filter", "Envoy alone"} {
			i := slices.IndexFunc(l.Report.Rows, func(r Row) bool { return r.Scenario == scenario && r.Target == target })
			if i < 0 || l.Report.Rows[i].Units != want {
				t.Errorf("%s, %s: want %d units: %+v", scenario, target, want, l.Report.Rows)
			}
		}
	}
	var table, added strings.Builder
	if err := l.Report.Table(&table); err != nil || strings.Count(table.String(), "\n") != len(l.Report.Rows)+3 {
		t.Errorf("%v:\n%s", err, &table)
	}
	// The head, and a line for each scenario but the one of memory. On a machine that keeps no bound
	// of latency the knee and the capacity have none.
	most := len(l.Report.Rows) / 2
	err := l.Report.Added(&added)
	if lines := strings.Count(added.String(), "\n"); err != nil || lines > most || lines < most-2 {
		t.Errorf("%v:\n%s", err, &added)
	}
}

// TestWantedScenarios checks which scenarios a list names, and that an unknown name is an
// error with the names that there are.
func TestWantedScenarios(t *testing.T) {
	for list, want := range map[string][]string{
		"": defaultNames(), "events": {"events"}, "paced": {"paced"}, "paced,knee": {"paced", "knee"}, "vllm": {"vllm"},
		quickScenarios: {"hold", "paced", "one", "burst", "requests", "prompts", "turn"},
	} {
		if got, err := wantedScenarios(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", list, got, err, want)
		}
	}
	const known = "hold,paced,one,burst,requests,prompts,turn,capacity,knee,vllm,events"
	for _, list := range []string{"paced|knee", "paced,", "pace", "paced, knee", "paced,x"} {
		if got, err := wantedScenarios(list); err == nil || !strings.Contains(err.Error(), known) {
			t.Errorf("%q: %q, %v, want an error with %s", list, got, err, known)
		}
	}
}

// TestReader checks that tokens are counted however the bytes are cut, and what is an
// error.
func TestReader(t *testing.T) {
	const stream = "data: {\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}\n\n: comment\n\n" +
		"data: {\"delta\":{\"content\":\" one\"}}\n\ndata: {\"delta\":{\"content\":\" two three\"}}\n\ndata: {\"usage\":{}}\n\ndata: [DONE]\n\n"
	for cut := 1; cut <= len(stream); cut++ {
		tokens := 0
		r := reader{key: []byte(`"content":"`), arrived: func(_ time.Time, n int) { tokens += n }}
		for piece := range slices.Chunk([]byte(stream), cut) {
			if err := r.read(time.Now(), piece); err != nil {
				t.Fatal(err)
			}
		}
		if tokens != 3 || !r.done {
			t.Errorf("pieces of %d bytes: %d tokens, done %v", cut, tokens, r.done)
		}
	}
	r := reader{key: []byte(`"content":"`)}
	if r.read(time.Now(), []byte("data: {\"error\":{\"message\":\"x\"}}\n")) == nil {
		t.Error("an error event is not an error")
	}
}

// TestPacedCollect checks what counts: words due in the window, late ones that did not
// come, and streams that failed.
func TestPacedCollect(t *testing.T) {
	begin := time.Now().Add(-time.Minute)
	due := func(word int) time.Time { return begin.Add(time.Duration(word) * time.Second) }
	stream := func(err error, arrivals ...int) *pacedStream {
		s := &pacedStream{due: due, from: due(1), to: due(4), words: 5, err: err}
		for _, second := range arrivals {
			s.arrived(due(second).Add(10*time.Millisecond), 1)
		}
		return s
	}
	var sample Sample
	Paced{}.collect(&sample, []*pacedStream{
		stream(nil, 0, 1, 2, 3, 4),
		stream(fmt.Errorf("read: %w", errLate), 0, 1),
		stream(nil, 0, 1), // without an error all words must have come
		stream(errors.New("cut"), 0),
	})
	if sample.Failed != 2 || sample.Units != 5 || len(sample.Latency) != 7 {
		t.Errorf("%d failed, %d words in the window, latencies %v", sample.Failed, sample.Units, sample.Latency)
	}
	if p50, p99 := Quantile(sample.Latency, 0.5), Quantile(sample.Latency, 0.99); p50 != 10*time.Millisecond || p99 < 50*time.Second {
		t.Errorf("quantiles %v and %v", p50, p99)
	}
}

// TestProse checks that a text has the tokens that it should have.
func TestProse(t *testing.T) {
	if n := harmony.CountTokens(prose(rand.New(rand.NewPCG(1, 2)), 1000)); n != 1000 {
		t.Errorf("%d tokens", n)
	}
}

// TestSayWords checks that the script for a real engine has as many words as tokens, and
// that the client counts them.
func TestSayWords(t *testing.T) {
	const n = 50
	_, said, _ := strings.Cut(sayWords(n), "SAY First")
	if tokens := harmony.CountTokens(said); tokens != n || strings.Count(said, " ") != n {
		t.Errorf("%d tokens: %q", tokens, said)
	}
}

// TestHighest checks that the search finds what a server with a known capacity can do, to
// a sixteenth, without asking for more than twice that.
func TestHighest(t *testing.T) {
	for _, test := range []struct{ from, to, can, least float64 }{
		{200, 51200, 1000, 950},
		{200, 51200, 200, 200},
		{200, 51200, 1600, 1600},
		{200, 51200, 90, 87},   // below the first step
		{200, 800, 5000, 800},  // the steps end before
		{200, 51200, 0, 0},     // nothing is ever in time
		{200, 100, 5000, 0},    // no step
		{200, 51200, 40, 37.5}, // the last half
	} {
		tries, most := 0, 0.0
		got, err := highest(test.from, test.to, 4, func(rate float64) (bool, error) {
			tries++
			most = max(most, rate)
			return rate <= test.can, nil
		})
		if err != nil || got > test.can || got < test.least {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
		if tries > 13 || most > max(2*test.can, test.from) {
			t.Errorf("%+v: %d tries, up to %v", test, tries, most)
		}
	}
	// An error ends the search, at whichever step.
	broken := errors.New("no server")
	for at := range 5 {
		tries := 0
		if _, err := highest(200, 51200, 4, func(rate float64) (bool, error) {
			if tries++; tries > at {
				return false, broken
			}
			return rate <= 400, nil
		}); !errors.Is(err, broken) {
			t.Errorf("after %d tries: %v", at, err)
		}
	}
}

// TestCapacityStep checks that late replies are a rate that is too much, and that a process
// that has ended is an error, not a rate.
func TestCapacityStep(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(capacityLatency + 20*time.Millisecond)
		fmt.Fprint(w, "data: {\"content\":\" word\"}\n\ndata: [DONE]\n\n")
	}))
	defer slow.Close()
	l := &Loader{Options: Options{CapacityWindow: 50 * time.Millisecond}, Client: NewClient(), Log: t.Logf}
	defer l.Client.Close()

	target := &Target{URL: slow.URL, Body: chatBody, Key: contentKey, Procs: []Process{{"server", os.Getpid()}}}
	if s, late, err := l.capacityStep(t.Context(), target, 40); err != nil || !late || s.Failed > 0 || len(s.Latency) != 2 {
		t.Errorf("%+v, late %v, %v", s, late, err)
	}
	target.Procs[0].PID = math.MaxInt16 << 7 // more than there can be
	if _, _, err := l.capacityStep(t.Context(), target, 40); err == nil {
		t.Error("without the process: no error")
	}
}

// TestOpenRequests checks that requests beyond those that may be under way fail, and no others.
func TestOpenRequests(t *testing.T) {
	release := make(chan struct{})
	var came atomic.Int32
	held := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if came.Add(1) == 2 {
			close(release)
		}
		<-release
		time.Sleep(200 * time.Millisecond)
		fmt.Fprint(w, "data: {\"content\":\" word\"}\n\ndata: [DONE]\n\n")
	}))
	defer held.Close()
	c := NewClient()
	defer c.Close()

	target := &Target{URL: held.URL, Body: chatBody, Key: contentKey, Procs: []Process{{"server", os.Getpid()}}}
	load := Requests{Rate: 1000, Count: 5, Open: 2, Text: func(int) []string { return []string{"a"} }}
	s, err := load.Run(t.Context(), c, target)
	if err != nil || s.Failed != 3 || len(s.Latency) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestEventsTable checks the table of scenario events: a line for each number of tokens, a
// column for each target, and nothing of other scenarios.
func TestEventsTable(t *testing.T) {
	row := func(target string, tokens int, filter, p99 float64) Row {
		return Row{
			Target: target, TokensAnEvent: tokens, P50: 10, P99: p99,
			CPU: map[string]float64{"filter": filter, "Envoy": 10, engineName: 100, clientName: 1000},
		}
	}
	var none, table strings.Builder
	r := Report{Rows: []Row{row("filter", 0, 1, 1)}}
	if err := r.Events(&none); err != nil || none.Len() > 0 {
		t.Errorf("%v: %q", err, &none)
	}

	r.Rows = append(r.Rows, row("HTTP", 1, 20, 5), row("alone", 1, 0, 2), row("HTTP", 4, 5.5, 65), row("alone", 4, -7, 62))
	const want = `| tokens an event | HTTP | alone |
|---|---|---|
| 1 | 30.0; 10, 5 | 10.0; 10, 2 |
| 4 | 15.5; 10, 65 | 3.0; 10, 62 |
`
	if err := r.Events(&table); err != nil {
		t.Fatal(err)
	}
	if _, got, _ := strings.Cut(table.String(), "\n"); got != want {
		t.Errorf("got\n%s", got)
	}
}

// TestDirectives checks what the engine is asked for.
func TestDirectives(t *testing.T) {
	begin := time.UnixMicro(1_790_000_000_000_000)
	for tokens, want := range map[int]string{
		0: "rate=50 start=1790000000000000",
		1: "rate=50 start=1790000000000000",
		8: "rate=50 start=1790000000000000 tokens-per-event=8",
	} {
		if got := strings.Join((Paced{Rate: 50, TokensAnEvent: tokens}).directives(begin), " "); got != want {
			t.Errorf("%d: %q", tokens, got)
		}
	}
}

// TestPlain checks that of a generated bootstrap the clients' listener is left, with its
// settings and one route, which has no filter.
func TestPlain(t *testing.T) {
	const generated = `
admin: {address: a}
static_resources:
  listeners:
  - name: openai
    traffic_direction: INBOUND
    filter_chains:
    - filters:
      - typed_config:
          use_remote_address: true
          http_filters:
          - {name: envoy.filters.http.ext_proc, disabled: true}
          - {name: envoy.filters.http.router}
          route_config:
            virtual_hosts:
            - domains: ["*"]
              routes:
              - {match: {prefix: /, headers: [{name: x-harmony-engine}]}, route: {cluster: pacing}}
              - match: {path: /v1/chat/completions}
                route: &upstream {cluster: engine_vllm, timeout: 0s}
                typed_per_filter_config: {envoy.filters.http.ext_proc: {overrides: {}}}
              - {match: {path: /v1/completions}, route: *upstream}
  - {name: loopback, traffic_direction: OUTBOUND}
  - {name: pacing}
  clusters:
  - {name: pacing}
  - {name: envoy_harmony}
  - {name: engine_vllm, window: 1073741824}
overload_manager: {max: 50000}
`
	const want = `{"admin":{"address":"a"},"overload_manager":{"max":50000},"static_resources":{` +
		`"clusters":[{"name":"engine_vllm","window":1073741824}],"listeners":[{"filter_chains":[{"filters":[{"typed_config":{` +
		`"http_filters":[{"name":"envoy.filters.http.router"}],"route_config":{"virtual_hosts":[{"domains":["*"],` +
		`"routes":[{"match":{"prefix":"/"},"route":{"cluster":"engine_vllm","timeout":"0s"}}]}]},"use_remote_address":true}}]}],` +
		`"name":"openai","traffic_direction":"INBOUND"}]}}`
	if got, err := plain([]byte(generated)); err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}

	// What it does not know is an error, not a panic or another Envoy.
	for _, cut := range []string{"INBOUND", "/v1/chat/completions", "name: engine_vllm", "envoy.filters.http.router", "route_config"} {
		if got, err := plain([]byte(strings.Replace(generated, cut, "other", 1))); err == nil {
			t.Errorf("without %s: %s", cut, got)
		}
	}
	if _, err := plain([]byte(": - :")); err == nil {
		t.Error("not YAML")
	}
}
