package replies

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// simReplica is a simulated engine that can be ended and started anew at its address.
type simReplica struct {
	address string
	process *os.Process
}

func startReplicas(t *testing.T, log *stack.LogFile, n int) (replicas []*simReplica, urls string) {
	t.Helper()
	list := make([]string, n)
	for i := range list {
		r := &simReplica{address: "127.0.0.1:" + stack.FreePort(t)}
		r.start(t, log)
		replicas = append(replicas, r)
		list[i] = "http://" + r.address
	}
	return replicas, strings.Join(list, ",")
}

func (r *simReplica) start(t *testing.T, log *stack.LogFile) {
	t.Helper()
	_, r.process = stack.StartSimAs(t, log, "--listen", r.address)
}

// end ends the replica's process, and waits until its port is free.
func (r *simReplica) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	stack.Signal(t, r.process.Pid, s)
	stack.Eventually(t, "the end of the engine", func() bool {
		resp, err := http.Get("http://" + r.address + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
}

// saidText is the answer's text in a stream of any API.
func saidText(stream string) string {
	var text strings.Builder
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		switch gjson.Get(data, "type").Str {
		case "response.output_text.delta":
			text.WriteString(gjson.Get(data, "delta").Str)
		case "content_block_delta":
			text.WriteString(gjson.Get(data, "delta.text").Str)
		case "":
			text.WriteString(gjson.Get(data, "choices.0.delta.content").Str)
		}
	}
	return text.String()
}

// surviving is a load of streams while engines come and go.
type surviving struct {
	d       *stack.Dataplane
	streams atomic.Int32 // begun
	again   atomic.Int32 // requests that had a 503 in place of a stream, and were sent again
	broken  atomic.Int32
	stopped atomic.Bool // no stream is begun any more
}

// begin receives up to n streams with some clients at a time, and returns how to wait for
// the last one. Each stream must have all of its text and a good end.
func (s *surviving) begin(t *testing.T, n, clients int) (ended chan struct{}) {
	t.Helper()
	const words = 60
	want := make([]string, words)
	for i := range want {
		want[i] = fmt.Sprintf("w%d", i+1)
	}
	ended = make(chan struct{})

	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := s.streams.Add(1); i <= int32(n) && !s.stopped.Load(); i = s.streams.Add(1) {
				a := stack.FaultAPIs[int(i)%len(stack.FaultAPIs)]
				text, err := s.stream(a, fmt.Sprintf("Client %d, stream %d.\nTHINK I count.\nWORDS %d 5", client, i, words))
				if err != nil || saidText(text) != strings.Join(want, " ") {
					s.broken.Add(1)
					t.Errorf("%s, stream %d: %v: %q in\n%.3000s", a.Name, i, err, saidText(text), text)
				}
			}
		})
	}

	go func() {
		all.Wait()
		close(ended)
	}()
	return ended
}

// stream receives a whole stream. A 503 in place of one means that the client has to send
// the request again.
func (s *surviving) stream(a stack.FaultAPI, content string) (string, error) {
	for {
		resp, err := s.d.Client.Post(s.d.URL+a.Path, "application/json", strings.NewReader(a.Body(stack.VLLMModel, content, true)))
		if err != nil {
			return "", err
		}
		if resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == 529 {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			s.again.Add(1)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		defer resp.Body.Close()
		text, message, err := a.Read(resp.Body)
		if err == nil && (message != "" || resp.StatusCode != http.StatusOK) {
			err = fmt.Errorf("status %d, error %q", resp.StatusCode, message)
		}
		return text, err
	}
}

// serveReplicas serves some engines through Envoy.
func serveReplicas(t *testing.T, log *stack.LogFile, urls string) (*stack.Dataplane, *stack.Program) {
	t.Helper()
	p := stack.ServeProgram(t, log, "--engine", "vllm="+urls, "--set", "loopback=unix://"+filepath.Join(stack.SocketDir(t), "loopback"))
	return p.Envoy(t, p.Bootstrap(t)), p
}

// Engines are killed at random while a thousand streams are received: none of these
// breaks, and some were continued.
func TestStreamsSurvive(t *testing.T) {
	log := stack.LogOf(t)
	replicas, urls := startReplicas(t, log, 3)
	d, p := serveReplicas(t, log, urls)
	s := &surviving{d: d}
	random := rand.New(rand.NewPCG(1, 2))

	for ended := s.begin(t, 1000, 40); ; {
		select {
		case <-ended:
		case <-time.After(700 * time.Millisecond):
			r := replicas[random.IntN(len(replicas))]
			r.end(t, syscall.SIGKILL)
			r.start(t, log)
			continue
		}
		break
	}

	continued := p.Metric(t, `harmony_continuations_total{reason="engine_disconnected"}`)
	t.Logf("1000 streams: %d broken, %v continued, %d requests sent again", s.broken.Load(), continued, s.again.Load())
	if continued < 10 {
		t.Errorf("%v calls were continued", continued)
	}
}

// All engines are restarted under load, each when the one before is in service again: no
// client notices.
func TestEnginesAreRestarted(t *testing.T) {
	log := stack.LogOf(t)
	replicas, urls := startReplicas(t, log, 2)
	d, p := serveReplicas(t, log, urls)
	s := &surviving{d: d}
	ended := s.begin(t, 100_000, 30)
	for _, r := range replicas {
		time.Sleep(time.Second)
		r.end(t, syscall.SIGTERM)
		time.Sleep(300 * time.Millisecond)
		r.start(t, log)
		stack.Eventually(t, "all engines in service", func() bool {
			return !strings.Contains(stack.AdminPage(t, d.Admin+"/clusters"), "health_flags::/failed")
		})
	}
	s.stopped.Store(true)
	<-ended
	t.Logf("%d streams: %v continued", s.streams.Load(), p.Metric(t, `harmony_continuations_total{reason="engine_disconnected"}`))
	if n := s.again.Load(); n > 0 {
		t.Errorf("%d requests had to be sent again", n)
	}
}
