//go:build attack

package attack

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// manyArea has many things at once, each of which is small.
func manyArea() area {
	return area{name: "many", config: func(_ *testing.T, c *stackConfig) {
		c.set("responses.store_bytes", 1<<20)
		c.set("limits.kept_reasoning_bytes", 1<<20)
	}, attacks: []attack{
		{name: "2000 responses in a store of 1 MB", want: "200", grow: 64 << 20, run: func(a *attempt) {
			a.check(a.times(2000, func(int) answerOf { return a.post(responsesPath, responsesBody(simple, "")) }))
		}},
		{name: "2000 conversations in a store of 1 MB", want: "200", grow: 64 << 20, run: func(a *attempt) {
			a.check(a.times(2000, func(int) answerOf {
				return a.post("/v1/conversations", `{"items":[{"type":"message","role":"user","content":"x"}]}`)
			}))
		}},
		{name: "2000 kept reasonings in a store of 1 MB", want: "200", grow: 64 << 20, run: func(a *attempt) {
			body := chatBody(jsonText("THINK "+strings.Repeat("why ", 100)+"\nCALL f {}"), toolWith(`{"type":"object"}`, false))
			a.check(a.times(2000, func(int) answerOf { return a.post(chatPath, body) }))
		}},
		{name: "50 chains of 20 responses in a store of 1 MB", want: "200 404", grow: 64 << 20, run: func(a *attempt) {
			a.check(a.times(50, func(int) (last answerOf) {
				previous := ""
				for range 20 {
					last = a.post(responsesPath, responsesBody(simple, previous))
					if last.status != http.StatusOK {
						return last // the other chains have evicted it
					}
					previous = `,"previous_response_id":` + gjson.Get(last.text, "id").Raw
				}
				return last
			}))
		}},
		{name: "1000 idle streams", want: "at most 256 KiB a stream", heavy: true, fresh: true, grow: 256 << 20, run: func(a *attempt) { a.idleStreams(1000) }},
	}}
}

// times makes an attack many times, ten at once, and returns the first answer that is
// not as expected, or else the last.
func (a *attempt) times(n int, one func(i int) answerOf) (result answerOf) {
	a.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	bad := false
	slots := make(chan struct{}, 10)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r := one(i)
			mu.Lock()
			defer mu.Unlock()
			if !bad {
				result, bad = r, !statusIs(r.status, a.attack.want)
			}
		})
	}
	all.Wait()
	return result
}

// idleStreams begins streams that hardly get a token, and leaves.
func (a *attempt) idleStreams(n int) {
	a.Helper()
	filter, envoy, goroutines := a.memory("VmRSS"), a.envoyMemory(), a.program.Metric(a.T, "go_goroutines")
	body := chatBody(`"NOTHINK\nWORDS 1000 60000"`, `,"stream":true`)

	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = a.dial()
		defer conns[i].Close()
		_, _ = fmt.Fprint(conns[i], head(chatPath, fmt.Sprint("content-length: ", len(body))), body)
	}

	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(stack.Patience))
		if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); !strings.Contains(line, " 200 ") {
			a.Fatalf("stream %d: %q, %v", i, line, err)
		}
	}

	each := func(bytes int64) int64 { return max(bytes, 0) / int64(n) >> 10 }
	ofFilter, ofEnvoy := each(a.memory("VmRSS")-filter), each(a.envoyMemory()-envoy)
	a.see("filter %d KiB, Envoy %d KiB a stream", ofFilter, ofEnvoy)
	const bound = 256 // wide: 100 each are seen
	if ofFilter > bound || ofEnvoy > bound {
		a.Errorf("%s, the bound is %d KiB", a.seen, bound)
	}

	for _, conn := range conns {
		_ = conn.Close()
	}
	a.awaitMetric("harmony_streams_inflight")
	stack.Eventually(a.T, "goroutines as before", func() bool { return a.program.Metric(a.T, "go_goroutines") <= goroutines+20 })
}

// replicaKilled kills one of two filters. The other one serves.
func replicaKilled(a *attempt) {
	d, filters := stack.Restartable(a.T, 2)
	d.AwaitHealth(a.T, filters[0], true)
	d.AwaitHealth(a.T, filters[1], true)
	filters[0].End(a.T, syscall.SIGKILL)
	d.AwaitHealth(a.T, filters[0], false)
	failed := 0
	for range 20 {
		if err := d.StreamWords(a.Context(), "SAY hello"); err != nil {
			failed++
			a.Errorf("with one filter: %v", err)
		}
	}
	a.see("%d of 20 requests failed", failed)
}
