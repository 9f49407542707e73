//go:build soak

package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Clients at one time, the size of all bodies and of one, and that of each cache.
const (
	soakClients = 16
	soakBodies  = 4 << 20
	soakCaches  = 2 << 20
)

// soak is a stack of real processes under load: Envoy, the filter, the simulated engine
// and MCP servers.
type soak struct {
	t    *testing.T
	ctx  context.Context
	d    *stack.Dataplane
	p    *stack.Program
	slow *http.Client // for slow readers
	sent atomic.Int64

	mu       sync.Mutex
	account  soakAccount
	done     map[string]int // requests by outcome, all APIs
	problems []string
	faults   int
	until    time.Time // the end of the load
}

// TestSoak loads the stack for SOAKTIME. Then nothing may have grown, no stream may lack
// its end, and the filter must have counted what the clients saw. "make soak" runs it;
// docs/reliability.md describes it.
func TestSoak(t *testing.T) {
	length := 30 * time.Minute
	if value := os.Getenv("SOAKTIME"); value != "" {
		var err error
		if length, err = time.ParseDuration(value); err != nil {
			t.Fatalf("SOAKTIME: %v: set a duration, such as 30m", err)
		}
	}
	s := newSoak(t)
	room := s.room(0)
	idle := min(75*time.Second, length/6)
	s.load(length / 6)
	before := s.settle("after the warm-up", idle)
	s.load(length - length/6)
	after := s.settle("at the end", idle)
	s.verdict(before, after, room)
}

func newSoak(t *testing.T) *soak {
	s := &soak{t: t, ctx: t.Context(), slow: newSlowClient(), done: map[string]int{}}
	s.account = soakAccount{replies: map[soakReply]int{}, left: map[string]int{}, begun: map[string]int{}}

	log := stack.LogOf(t)
	store := os.Getenv("SOAKSTORE")
	if store == "" {
		store = "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	}

	docs, fragile := stack.NewToolServer(t), stack.NewToolServer(t)
	sim := stack.StartSim(t, log)

	text, err := json.Marshal(map[string]any{
		"loopback": "unix://" + filepath.Join(stack.SocketDir(t), "loopback"), "store_url": store,
		"log":     map[string]any{"level": "warning"},
		"engines": []any{map[string]any{"kind": "sglang", "urls": []string{sim}}, map[string]any{"kind": "vllm", "urls": []string{sim}}},
		"models":  []any{map[string]any{"match": "=" + stack.VLLMModel, "engine": "vllm"}},
		"limits":  map[string]any{"idle_timeout": "10s", "max_body_bytes": soakBodies, "max_inflight_bytes": 4 * soakBodies, "cache_bytes": soakCaches, "diagnosis_bytes": soakCaches, "kept_reasoning_bytes": soakCaches},
		// Caches are full after the warm-up: what grows later is not theirs.
		"responses": map[string]any{"chain_cache_bytes": soakCaches},
		"tools": map[string]any{"idle_timeout": "10s", "servers": []any{
			map[string]any{"label": "docs", "url": docs.URL}, map[string]any{"label": "fragile", "url": fragile.URL},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "harmony.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}

	s.p = stack.ServeProgram(t, log, "--config", file)
	s.d = s.p.Envoy(t, s.p.Bootstrap(t))
	s.d.Sim = sim
	s.d.Client.Transport = &http.Transport{MaxIdleConnsPerHost: soakClients}
	t.Cleanup(s.d.Client.CloseIdleConnections)

	s.tidy(docs, fragile)
	return s
}

// tidy deletes the records of the MCP servers each second, which otherwise grow.
func (s *soak) tidy(servers ...*stack.ToolServer) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for every := time.NewTicker(time.Second); ; {
			select {
			case <-every.C:
				for _, server := range servers {
					server.Reset()
				}
			case <-s.ctx.Done():
				every.Stop()
				return
			}
		}
	}()
	s.t.Cleanup(func() { <-ended })
}

// load lets clients work for some time, and prints a line of figures each minute.
func (s *soak) load(length time.Duration) {
	s.until = time.Now().Add(length)
	var clients sync.WaitGroup
	for n := range soakClients {
		clients.Go(func() { soakWorker{s, rand.New(rand.NewPCG(uint64(s.sent.Load()), uint64(n)))}.work() })
	}
	ended := make(chan struct{})
	go func() {
		clients.Wait()
		close(ended)
	}()
	for every := time.NewTicker(min(time.Minute, length/3)); ; {
		select {
		case <-every.C:
			s.print("under load", s.measure())
		case <-ended:
			every.Stop()
			return
		}
	}
}

func (s *soak) loaded() bool { return time.Now().Before(s.until) && s.ctx.Err() == nil }

// settle waits until nothing runs, then for the connections that are kept for a while,
// and returns the figures.
func (s *soak) settle(when string, idle time.Duration) (f soakFigures) {
	s.d.Client.CloseIdleConnections()
	for deadline := time.Now().Add(soakLimit); ; time.Sleep(100 * time.Millisecond) {
		f = s.measure()
		if f.inflight+f.requests+f.engine == 0 || time.Now().After(deadline) {
			break
		}
	}
	select {
	case <-time.After(idle):
	case <-s.ctx.Done():
	}
	f = s.measure()
	s.print("idle "+when, f)
	return f
}

// count changes the account.
func (s *soak) count(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// ended counts a request that its client has read to the end.
func (s *soak) ended(api, outcome string) {
	s.count(func() {
		s.done[outcome]++
		if api != "" {
			s.account.replies[soakReply{api, outcome}]++
		}
	})
}

// problem records a reply that is wrong. Only the first ones are kept. They are printed at once:
// nobody should wait half an hour for what is known in the first minute.
func (s *soak) problem(text string) {
	s.count(func() {
		s.faults++
		if len(s.problems) < 20 {
			s.problems = append(s.problems, text)
			fmt.Println(text)
		}
	})
}

func (s *soak) print(when string, f soakFigures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := 0
	for _, n := range s.account.left {
		left += n
	}
	fmt.Printf("%s %-22s %d ok, %d rejected, %d failed, %d canceled, %d left, %d wrong; filter %.0f MiB, %.0f goroutines, %.0f descriptors, %.0f streams; Envoy %.1f MiB\n",
		time.Now().UTC().Format("15:04:05"), when, s.done[outcomeOK], s.done[outcomeRejected], s.done[outcomeFailed], s.done[outcomeCanceled], left, s.faults,
		f.rss/mebibyte, f.goroutines, f.descriptors, f.inflight, f.envoy/mebibyte)
}

// get reads a page of an admin interface.
func (s *soak) get(url string) string {
	r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatalf("the stack is down: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

var (
	soakSample = regexp.MustCompile(`(?m)^(process_resident_memory_bytes|go_goroutines|process_open_fds|harmony_streams_inflight) (\S+)$`)
	soakActive = regexp.MustCompile(`(?m)^(?:http\.([^:]+)\.downstream_rq_active|cluster\.[^:]+\.upstream_rq_active): (\d+)$`)
	soakEnded  = regexp.MustCompile(`(?m)^harmony_requests_total\{api="(\w+)",model="[^"]*",outcome="(\w+)"\} (\d+)$`)
)

// measure reads the figures of the stack.
func (s *soak) measure() (f soakFigures) {
	value := map[string]float64{}
	for _, m := range soakSample.FindAllStringSubmatch(s.get(s.p.Admin+"/metrics"), -1) {
		value[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	f.rss, f.goroutines, f.descriptors, f.inflight = value["process_resident_memory_bytes"], value["go_goroutines"], value["process_open_fds"], value["harmony_streams_inflight"]
	f.envoy = gjson.Get(s.get(s.d.Admin+"/memory"), "allocated").Float()
	for _, m := range soakActive.FindAllStringSubmatch(s.get(s.d.Admin+"/stats?filter=_rq_active"), -1) {
		if n, _ := strconv.ParseFloat(m[2], 64); m[1] != "admin" {
			f.requests += n
		}
	}
	f.engine = float64(len(gjson.Get(s.get(s.d.Sim+"/sim/requests"), `#(state=="`+stack.StateRunning+`")#.number`).Array()))
	return f
}

// room returns the size of the largest body that the filter takes, to four kilobytes: what
// the budget of bodies has left. With a size it only tries that one.
func (s *soak) room(size int) int {
	accepted := func(n int) bool {
		body := `{"model":"gpt-oss-20b","messages":"` + strings.Repeat("x", n) + `"}`
		status, text, err := s.send(s.ctx, soakRequest{method: http.MethodPost, path: "/v1/chat/completions", body: body}, fmt.Sprint("room-", n))
		if err != nil {
			s.t.Fatal(err)
		}
		switch status {
		case http.StatusBadRequest:
			s.ended("chat", outcomeRejected)
			return true
		case http.StatusRequestEntityTooLarge:
			s.ended("chat", outcomeRejected)
		case http.StatusServiceUnavailable:
			s.ended("chat", outcomeFailed)
		default:
			s.t.Fatalf("a body of %d bytes: status %d: %s", n, status, text)
		}
		return false
	}

	if size > 0 {
		return map[bool]int{true: size}[accepted(size)]
	}

	low, high := 0, soakBodies
	for high-low > 4096 {
		if mid := (low + high) / 2; accepted(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// counted returns the filter's counters of requests.
func (s *soak) counted() map[soakReply]int {
	sums := map[soakReply]int{}
	for _, m := range soakEnded.FindAllStringSubmatch(s.get(s.p.Admin+"/metrics"), -1) {
		n, _ := strconv.Atoi(m[3])
		if m[1] != "models" {
			sums[soakReply{m[1], m[2]}] += n
		}
	}
	return sums
}

// verdict fails the test for everything that has grown, is not counted, or had no end.
func (s *soak) verdict(before, after soakFigures, room int) {
	for _, fault := range grown(before, after) {
		s.t.Errorf("grown: %s", fault)
	}

	if got := s.room(room); got != room {
		s.t.Errorf("the budget of bodies is not free: a body of %d bytes was taken at the start, and is not taken now", room)
	}

	faults := s.account.differences(s.counted())
	for deadline := time.Now().Add(stack.Patience); len(faults) > 0 && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		faults = s.account.differences(s.counted()) // counted shortly after the client has the reply
	}
	for _, fault := range faults {
		s.t.Errorf("not counted alike: %s", fault)
	}

	if s.faults > 0 {
		s.t.Errorf("%d replies are wrong or have no end, the first ones:\n%s", s.faults, strings.Join(s.problems, "\n"))
	}
	for _, outcome := range []string{outcomeOK, outcomeRejected, outcomeFailed} {
		if s.done[outcome] == 0 {
			s.t.Errorf("no request was %s", outcome)
		}
	}

	if log := s.d.Logs.String(); strings.Contains(log, "panic") {
		s.t.Error("the log has a panic")
	}
	fmt.Printf("clients count  %v, left %v\nfilter counts  %v\n", s.account.replies, s.account.left, s.counted())
}
