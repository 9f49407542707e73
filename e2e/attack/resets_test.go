//go:build attack

package attack

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
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
		goroutines, descriptors, resets := a.program.Metric(a.T, "go_goroutines"), a.program.Metric(a.T, "process_open_fds"), a.Stat(a.T, "http.openai.downstream_rq_rx_reset")
		a.reset(resetConnections)
		a.awaitMetric("harmony_streams_inflight")
		a.AwaitCancelled(a.T)
		seen := a.Stat(a.T, "http.openai.downstream_rq_rx_reset") - resets
		a.see("%d resets", seen)
		a.Logf("%d health checks of the filter failed, %d connections to it broke", a.Stat(a.T, "cluster.envoy_harmony.health_check.failure"), a.Stat(a.T, "cluster.envoy_harmony.upstream_cx_destroy"))
		if seen < resetConnections*resetsEach*9/10 {
			a.Errorf("Envoy has counted %d resets of %d requests", seen, resetConnections*resetsEach)
		}
		const few = 20 // idle connections to Envoy and their goroutines
		stack.Eventually(a.T, "goroutines and descriptors as before", func() bool {
			return a.program.Metric(a.T, "go_goroutines") <= goroutines+few && a.program.Metric(a.T, "process_open_fds") <= descriptors+few
		})
	}}
}

// stalledResetAttack resets requests while the filter does not read for a moment, as a
// filter without CPU time does not. The streams of other clients share its connection.
func stalledResetAttack() attack {
	return attack{name: "4000 requests are reset while the filter stalls", want: "[DONE] of another stream", alone: true, fresh: true, run: func(a *attempt) {
		if err := a.innocent(a.Client); err != nil {
			a.Fatal(err)
		}

		begun, ended := make(chan bool, 1), make(chan error, 1)
		go func() { ended <- a.longStream(begun) }()
		stack.Receive(a.T, begun, "the first token")
		broken := a.Stat(a.T, "cluster.envoy_harmony.upstream_cx_destroy")

		signal := func(s syscall.Signal) {
			if err := a.program.Process.Signal(s); err != nil {
				a.Fatal(err)
			}
		}

		signal(syscall.SIGSTOP)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if err := a.resetMany(rand.New(rand.NewPCG(16, uint64(i))), resetsEach, 0); err != nil {
					a.Errorf("a connection did not last for %d resets: %v", resetsEach, err)
				}
			})
		}

		all.Wait()
		time.Sleep(time.Second) // until Envoy has taken all of them
		signal(syscall.SIGCONT)

		err := stack.Receive(a.T, ended, "the end of the other stream")
		broken = a.Stat(a.T, "cluster.envoy_harmony.upstream_cx_destroy") - broken
		a.see("%v, %d connections to the filter broke", err, broken)
		if err != nil || broken > 0 {
			a.Errorf("%s, %d floods of control frames, %d of frames", a.seen, a.Stat(a.T, "cluster.envoy_harmony.http2.outbound_control_flood"), a.Stat(a.T, "cluster.envoy_harmony.http2.outbound_flood"))
		}
	}}
}

// longStream reads a stream of some seconds to its end.
func (a *attempt) longStream(begun chan<- bool) error {
	req, err := http.NewRequestWithContext(a.Context(), http.MethodPost, a.URL+chatPath, strings.NewReader(chatBody(`"NOTHINK\nWORDS 400 20"`, `,"stream":true`)))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "X-Tenant": {"bystander"}}
	resp, err := a.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	first := make([]byte, 100)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		return err
	}
	begun <- true
	text, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(text), "[DONE]") {
		err = fmt.Errorf("no end: %.300s", text[max(0, len(text)-300):])
	}
	return err
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
			if err := a.resetMany(rand.New(rand.NewPCG(15, uint64(i))), resetsEach, 8*time.Millisecond); err != nil {
				a.Errorf("a connection did not last for %d resets: %v", resetsEach, err)
			}
		})
	}
	all.Wait()
}

// resetMany begins requests on one connection, some of them with a part of the body,
// and resets each after at most a while. An error is one of the connection.
func (a *attempt) resetMany(random *rand.Rand, n int, while time.Duration) error {
	conn := a.dial()
	defer conn.Close()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed

	if _, err := conn.Write(frame([]byte(preface), frameSettings, 0, 0, nil)); err != nil {
		return err
	}

	for i := range n {
		stream := uint32(2*i + 1)
		api := stack.FaultAPIs[random.IntN(len(stack.FaultAPIs))]
		body, flags := []byte(api.Body(stack.VLLMModel, "NOTHINK\nWORDS 100000 5", random.IntN(4) > 0)), byte(endStream)
		if random.IntN(4) == 0 {
			body, flags = body[:random.IntN(len(body))], 0
		}

		b := frame(nil, frameHeaders, endHeaders, stream, fields(":method", http.MethodPost, ":scheme", "http", ":authority", "localhost", ":path", api.Path, "x-tenant", "attacker", "content-type", "application/json"))
		if _, err := conn.Write(frame(b, frameData, flags, stream, body)); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}

		time.Sleep(time.Duration(random.Int64N(int64(while) + 1))) // so that each is reset at another moment
		if _, err := conn.Write(frame(nil, frameReset, 0, stream, []byte{0, 0, 0, 8})); err != nil {
			return fmt.Errorf("reset %d: %w", i, err)
		}
	}
	return nil
}
