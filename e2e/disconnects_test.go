package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// disconnects is how many clients leave.
const disconnects = 200

// Clients that leave at any moment of a request leave nothing behind: goroutines,
// descriptors, streams and requests at the engine are as before, and the next
// request works.
func TestManyDisconnects(t *testing.T) {
	log := logOf(t)
	sim := startSim(t, log)
	p := serveProgram(t, log, "--engine", "vllm="+sim, "--set", "loopback=unix://"+filepath.Join(socketDir(t), "loopback"), "--set", "log.level=info")
	d := p.envoy(t, p.bootstrap(t))
	d.sim = sim
	burst := func(n int) {
		var clients sync.WaitGroup
		for worker := range 20 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(15, uint64(worker)))
				for range n / 20 {
					if err := d.disconnect(random); err != nil {
						t.Errorf("a client cannot connect: %v", err)
						return
					}
				}
			})
		}
		clients.Wait()
		d.awaitIdle(t, p)
	}
	burst(disconnects / 5) // connections and caches are there
	d.works(t, vllmModel)
	d.awaitIdle(t, p)
	goroutines, descriptors := p.metric(t, "go_goroutines"), p.metric(t, "process_open_fds")
	burst(disconnects)
	d.works(t, vllmModel)
	// Idle connections to Envoy and their goroutines may be a few more or fewer.
	const few = 20
	eventually(t, "goroutines and descriptors as before", func() bool {
		return p.metric(t, "go_goroutines") <= goroutines+few && p.metric(t, "process_open_fds") <= descriptors+few
	})
	if strings.Contains(log.String(), "panic") {
		t.Error("there was a panic")
	}
}

// awaitIdle waits until nothing is in flight anywhere.
func (d *dataplane) awaitIdle(t *testing.T, p *program) {
	t.Helper()
	eventually(t, "the end of the filter's streams", func() bool { return p.metric(t, "harmony_streams_inflight") == 0 })
	eventually(t, "the end of Envoy's requests", func() bool {
		resp, err := d.client.Get(d.admin + "/stats?filter=^http.openai.downstream_rq_active$")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.HasSuffix(strings.TrimSpace(string(text)), ": 0")
	})
	d.awaitCancelled(t)
}

// disconnect sends a request, or a part of it, reads a part of the reply, and closes
// the connection, in good order or with a reset.
func (d *dataplane) disconnect(random *rand.Rand) error {
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if random.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // of a TCP address
	}
	a := faultAPIs[random.IntN(len(faultAPIs))]
	body := a.body(vllmModel, "NOTHINK\nWORDS 100000 5", random.IntN(4) > 0)
	text := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Tenant: attacker\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", a.path, len(body), body)
	if random.IntN(3) == 0 {
		_, _ = io.WriteString(conn, text[:random.IntN(len(text))]) // Envoy may have closed it
		return nil
	}
	_, _ = io.WriteString(conn, text)
	if strings.Contains(body, `"stream":true`) {
		lines := bufio.NewReader(conn)
		for range random.IntN(14) { // some of them are headers
			_, _ = lines.ReadString('\n')
		}
	}
	return nil
}
