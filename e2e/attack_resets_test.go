//go:build attack

package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Clients that reset 10,000 requests. Envoy closes a connection of which most of 500
// streams were reset, so that each connection resets fewer.
const (
	resetConnections = 50
	resetsEach       = 200
)

// resetAttack resets requests at any moment: in the body, before the reply and in it.
// Nothing is left behind.
func resetAttack() attack {
	return attack{name: fmt.Sprintf("%d requests are reset over HTTP/2", resetConnections*resetsEach), want: "nothing is left behind", heavy: true, run: func(a *attempt) {
		a.reset(resetConnections / 10) // connections and caches are there
		a.awaitMetric("harmony_streams_inflight")
		goroutines, descriptors, resets := a.program.metric(a.T, "go_goroutines"), a.program.metric(a.T, "process_open_fds"), a.envoyCounts("http.openai.downstream_rq_rx_reset")
		a.reset(resetConnections)
		a.awaitMetric("harmony_streams_inflight")
		a.awaitCancelled(a.T)
		seen := a.envoyCounts("http.openai.downstream_rq_rx_reset") - resets
		a.see("%d resets", seen)
		a.Logf("%d health checks of the filter failed, %d connections to it broke", a.envoyCounts("cluster.envoy_harmony.health_check.failure"), a.envoyCounts("cluster.envoy_harmony.upstream_cx_destroy"))
		if seen < resetConnections*resetsEach*9/10 {
			a.Errorf("Envoy has counted %d resets of %d requests", seen, resetConnections*resetsEach)
		}
		const few = 20 // idle connections to Envoy and their goroutines
		eventually(a.T, "goroutines and descriptors as before", func() bool {
			return a.program.metric(a.T, "go_goroutines") <= goroutines+few && a.program.metric(a.T, "process_open_fds") <= descriptors+few
		})
	}}
}

// reset resets requests on connections, ten at once.
func (a *attempt) reset(connections int) {
	a.Helper()
	var all sync.WaitGroup
	slots := make(chan struct{}, 10)
	for i := range connections {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := a.resetMany(rand.New(rand.NewPCG(15, uint64(i))), resetsEach); err != nil {
				a.Errorf("a connection did not last for %d resets: %v", resetsEach, err)
			}
		})
	}
	all.Wait()
}

// resetMany begins requests on one connection, some of them with a part of the body,
// and resets each. An error is one of the connection.
func (a *attempt) resetMany(random *rand.Rand, n int) error {
	conn := a.dial()
	defer conn.Close()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
	if _, err := conn.Write(frame([]byte(preface), frameSettings, 0, 0, nil)); err != nil {
		return err
	}
	for i := range n {
		stream := uint32(2*i + 1)
		api := faultAPIs[random.IntN(len(faultAPIs))]
		body, flags := []byte(api.body(vllmModel, "NOTHINK\nWORDS 100000 5", random.IntN(4) > 0)), byte(endStream)
		if random.IntN(4) == 0 {
			body, flags = body[:random.IntN(len(body))], 0
		}
		b := frame(nil, frameHeaders, endHeaders, stream, fields(":method", http.MethodPost, ":scheme", "http", ":authority", "localhost", ":path", api.path, "x-tenant", "attacker", "content-type", "application/json"))
		if _, err := conn.Write(frame(b, frameData, flags, stream, body)); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond) // so that each is reset at another moment
		if _, err := conn.Write(frame(nil, frameReset, 0, stream, []byte{0, 0, 0, 8})); err != nil {
			return fmt.Errorf("reset %d: %w", i, err)
		}
	}
	return nil
}

// envoyCounts returns a counter of Envoy.
func (a *attempt) envoyCounts(name string) (n int) {
	a.Helper()
	resp, err := a.client.Get(a.admin + "/stats?filter=^" + name + "$") //nolint:noctx // Envoy's own port
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.Fatal(err)
	}
	_, value, _ := strings.Cut(string(text), ": ")
	if _, err := fmt.Sscan(value, &n); err != nil {
		a.Fatalf("%s: %q: %v", name, text, err)
	}
	return n
}
