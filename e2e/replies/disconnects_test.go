package replies

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// disconnects is how many clients leave.
const disconnects = 200

// Clients that leave at any moment of a request leave nothing behind: goroutines,
// descriptors, streams and requests at the engine are as before, and the next
// request works.
func TestManyDisconnects(t *testing.T) {
	log := stack.LogOf(t)
	sim := stack.StartSim(t, log)
	p := stack.ServeProgram(t, log, "--engine", "vllm="+sim, "--set", "loopback=unix://"+filepath.Join(stack.SocketDir(t), "loopback"), "--set", "log.level=info")
	d := p.Envoy(t, p.Bootstrap(t))
	d.Sim = sim

	burst := func(n int) {
		var clients sync.WaitGroup
		for worker := range 20 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(15, uint64(worker)))
				for range n / 20 {
					if err := d.Disconnect(random); err != nil {
						t.Errorf("a client cannot connect: %v", err)
						return
					}
				}
			})
		}
		clients.Wait()
		awaitIdle(t, d, p)
	}

	burst(disconnects / 5) // connections and caches are there
	d.Works(t, stack.VLLMModel)
	awaitIdle(t, d, p)

	goroutines, descriptors := p.Metric(t, "go_goroutines"), p.Metric(t, "process_open_fds")
	burst(disconnects)
	d.Works(t, stack.VLLMModel)

	// Idle connections to Envoy and their goroutines may be a few more or fewer.
	const few = 20
	stack.Eventually(t, "goroutines and descriptors as before", func() bool {
		return p.Metric(t, "go_goroutines") <= goroutines+few && p.Metric(t, "process_open_fds") <= descriptors+few
	})

	if strings.Contains(log.String(), "panic") {
		t.Error("there was a panic")
	}
}

// awaitIdle waits until nothing is in flight anywhere.
func awaitIdle(t *testing.T, d *stack.Dataplane, p *stack.Program) {
	t.Helper()
	stack.Eventually(t, "the end of the filter's streams", func() bool { return p.Metric(t, "harmony_streams_inflight") == 0 })
	stack.Eventually(t, "the end of Envoy's requests", func() bool {
		return d.Stat(t, "http.openai.downstream_rq_active") == 0
	})
	d.AwaitCancelled(t)
}
