package gateways

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// filtersAllPaths edits a bootstrap: the filter gets requests of all paths, as it
// does where routes cannot disable it.
func filtersAllPaths(bootstrap string) string {
	const filter = "          - name: envoy.filters.http.ext_proc\n"
	return strings.Replace(bootstrap, filter+"            disabled: true\n", filter, 1)
}

// messagesOf returns how many messages of a kind the filter got.
func messagesOf(t *testing.T, metrics prometheus.Gatherer, kind string) uint64 {
	t.Helper()
	all, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "harmony_message_seconds" && m.GetLabel()[0].GetValue() == kind {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	t.Fatalf("no messages of kind %s are counted", kind)
	return 0
}

// With mode_override the filter gets no bodies of other paths and no replies for
// other models; what it handles works as ever. E2E_MODE_OVERRIDE=1 runs all tests
// in this mode.
func TestModeOverride(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("direct=%t", direct), func(t *testing.T) {
			metrics := prometheus.NewRegistry()
			d := stack.Start(t, stack.Options{ModeOverride: true, Direct: direct, Metrics: metrics, Bootstrap: filtersAllPaths})
			d.Upstream.Handle(stack.Echo)

			for range 20 {
				checkEcho(t, d, "/v1/files", "application/octet-stream", noise(130_000))
			}
			if n := messagesOf(t, metrics, "request_headers"); n != 20 {
				t.Errorf("the filter got the headers of %d requests, want 20", n)
			}
			if n := messagesOf(t, metrics, "request_body"); n != 0 {
				t.Errorf("the filter got %d pieces of other paths' bodies", n)
			}

			for range 20 {
				checkEcho(t, d, "/v1/chat/completions", "application/json", otherModelChat(130_000))
			}
			for _, kind := range []string{"response_headers", "response_body"} {
				if n := messagesOf(t, metrics, kind); n != 0 {
					t.Errorf("the filter got %d messages %s of other models' replies", n, kind)
				}
			}

			for i := range 10 {
				for _, size := range []int{1, 30_000} {
					said := fmt.Sprintf("turn %d", i)
					resp, text := d.Chat(t, stack.VLLMModel, strings.Repeat("word ", size)+"\nSAY "+said, "")
					if resp.StatusCode != http.StatusOK || !strings.Contains(text, fmt.Sprintf(`"content":%q`, said)) {
						t.Errorf("%s: %.500s", resp.Status, text)
					}
				}
			}

			checkSlowBody(t, d)
		})
	}
}

// checkEcho checks that a body passes to an upstream that echoes it, and back.
func checkEcho(t *testing.T, d *stack.Dataplane, path, contentType string, body []byte) {
	t.Helper()
	resp := d.Do(t, http.MethodPost, path, contentType, bytes.NewReader(body))
	back, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(back, body) {
		t.Errorf("%s: %s, %d of %d bytes came back, equal: %t, %v", path, resp.Status, len(back), len(body), bytes.Equal(back, body), err)
	}
}

// checkSlowBody checks that no timeout of Envoy ends a request whose body arrives
// slowly: its message_timeout is 200 ms.
func checkSlowBody(t *testing.T, d *stack.Dataplane) {
	t.Helper()
	read, write := io.Pipe()
	go func() {
		for _, part := range []string{`{"model":"gpt-oss-120b",`, `"messages":[{"role":"user",`, `"content":"SAY It works."}]}`} {
			time.Sleep(300 * time.Millisecond)
			_, _ = io.WriteString(write, part)
		}
		_ = write.Close()
	}()
	resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", read)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"content":"It works."`) {
		t.Errorf("%s: %s: %v", resp.Status, text, err)
	}
}

// BenchmarkOthers compares how requests that are not for the filter pass it: CPU
// time of Envoy and filter for a request, with all bodies relayed in full-duplex
// mode, with mode_override, and with the filter disabled for the route.
func BenchmarkOthers(b *testing.B) {
	stack.NeedEnvoy(b, 40)
	upstream := &stack.Upstream{Handler: stack.Echo}
	address := stack.ServeUpstream(b, upstream)

	ways := []*measuredWay{
		{name: "relayed", edit: filtersAllPaths},
		{name: "override", flags: []string{"--mode-override"}, edit: filtersAllPaths},
		{name: "disabled", edit: func(s string) string { return s }},
	}
	for _, w := range ways {
		w.start(b, address)
	}

	stream := []byte(fmt.Sprintf(`{"model":%q,"stream":true,"messages":[]}`, stack.OtherModel))
	for _, c := range []struct {
		name, path string
		body       []byte
		handler    http.HandlerFunc
		ways       []*measuredWay
	}{
		{"other path 1 kB", "/v1/files", noise(1000), stack.Echo, ways},
		{"other path 1 MB", "/v1/files", noise(1 << 20), stack.Echo, ways},
		{"other model 1 MB", "/v1/chat/completions", otherModelChat(1 << 20), stack.Echo, ways[:2]},
		{"other model 500 events", "/v1/chat/completions", stream, streamEvents(500), ways[:2]},
	} {
		b.Run(c.name, func(b *testing.B) {
			upstream.Handle(c.handler)
			const requests = 50
			for b.Loop() {
				for range 4 { // alternately, because the machine's speed changes
					for _, w := range c.ways {
						w.run(b, requests, c.path, c.body)
					}
				}
			}

			for _, w := range c.ways {
				b.ReportMetric(w.cpu.Seconds()/float64(4*requests*b.N)*1e6, w.name+"-µs")
				b.ReportMetric(c.ways[0].cpu.Seconds()/w.cpu.Seconds(), "relayed/"+w.name)
			}
			for _, w := range ways {
				w.cpu = 0
			}
		})
	}
}

// streamEvents answers with n events, each flushed.
func streamEvents(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		out := stack.Flusher{W: w, C: http.NewResponseController(w)}
		for i := range n {
			fmt.Fprintf(out, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w%d \"}}]}\n\n", i)
		}
	}
}

// measuredWay is an Envoy and a filter whose CPU time is measured.
type measuredWay struct {
	name  string
	flags []string // of envoy-config
	edit  func(bootstrap string) string

	d         *stack.Dataplane
	processes []stack.OSProcess
	cpu       time.Duration
}

func (w *measuredWay) start(b *testing.B, upstream string) {
	b.Helper()
	w.processes = stack.Started(b, func() {
		p := stack.ServeProgram(b, stack.LogOf(b), "--engine", "vllm=http://127.0.0.1:1", "--set", "loopback=unix://"+filepath.Join(stack.SocketDir(b), "loopback"), "--set", "log.level=info")
		w.d = p.Envoy(b, []byte(w.edit(string(p.Bootstrap(b, append(w.flags, "--upstream", upstream)...)))))
	})
	if len(w.processes) != 2 {
		b.Fatalf("%d processes were started", len(w.processes))
	}
}

// run sends requests one after the other.
func (w *measuredWay) run(b *testing.B, n int, path string, body []byte) {
	b.Helper()
	before := stack.CPUOf(b, w.processes...)
	for range n {
		resp, err := w.d.Client.Post(w.d.URL+path, "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%s: %v", resp.Status, err)
		}
		_ = resp.Body.Close()
	}
	w.cpu += stack.CPUOf(b, w.processes...) - before
}
