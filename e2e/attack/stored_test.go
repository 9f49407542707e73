//go:build attack

package attack

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// unreadStored has clients that do not read what is stored.
func unreadStored() []attack {
	const words = 40_000 // a stored stream of about 13 MB
	get := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nhost: localhost\r\nx-tenant: attacker\r\n\r\n"
	}
	follow := responsesBody(fmt.Sprintf(`"NOTHINK\nWORDS %d"`, words), `,"background":true,"stream":true`)
	return []attack{
		notReading("10 clients follow a stored stream and do not read", 10, `"response.created"`, func(a *attempt) string {
			return get(responsesPath + "/" + a.background(words) + "?stream=true")
		}),
		notReading("10 clients follow their background responses and do not read", 10, `"response.created"`, func(*attempt) string {
			return head(responsesPath, fmt.Sprint("content-length: ", len(follow))) + follow
		}),
		notReading("10 clients do not read an object of 16 MB", 10, `xxxx`, func(a *attempt) string {
			r := a.post("/v1/conversations", `{"items":[{"role":"user","content":"`+strings.Repeat("x", 16<<20)+`"}]}`)
			if r.status != http.StatusOK {
				a.Fatalf("the conversation: %s", r.brief())
			}
			return get("/v1/conversations/" + gjson.Get(r.text, "id").Str + "/items")
		}),
	}
}

// notReading sends a request from clients that do not read the reply. It has begun,
// and Envoy keeps a bounded part of it.
func notReading(name string, clients int, begins string, prepare func(*attempt) string) attack {
	const bound = 5 << 20 // not paced, more than 20 MB are seen
	return attack{name: name, want: "bounded memory of Envoy", run: func(a *attempt) {
		request := prepare(a)
		before := a.envoyMemory()
		conns := make([]net.Conn, clients)
		for i := range conns {
			conns[i] = a.dial()
			defer conns[i].Close()
			_, _ = io.WriteString(conns[i], request)
		}
		grown := a.envoySettles() - before
		a.see("Envoy has grown by %.1f MB a client", float64(grown)/float64(clients)/(1<<20))
		if grown > int64(clients)*bound {
			a.Errorf("Envoy has grown by %d MB for %d clients that do not read", grown>>20, clients)
		}
		if n := int(a.program.Metric(a.T, "harmony_streams_inflight")); n < clients {
			a.Errorf("%d of %d replies have not ended", n, clients)
		}
		for i, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(stack.Patience))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				a.Errorf("client %d: %v", i, err)
				continue
			}
			first := make([]byte, 4<<10)
			if _, err = io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(first), begins) {
				a.Errorf("client %d: %s, %v, %.300q", i, resp.Status, err, first)
			}
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		a.awaitMetric("harmony_streams_inflight")
	}}
}

// background makes a background response with a stored stream, waits for its end, and
// returns its id.
func (a *attempt) background(words int) string {
	a.Helper()
	r := a.post(responsesPath, responsesBody(fmt.Sprintf(`"NOTHINK\nWORDS %d"`, words), `,"background":true`))
	id := gjson.Get(r.text, "id").Str
	if r.status != http.StatusOK || id == "" {
		a.Fatalf("the background response: %s", r.brief())
	}
	stack.Eventually(a.T, "the end of the background response", func() bool {
		status := gjson.Get(a.send(http.MethodGet, responsesPath+"/"+id, http.NoBody).text, "status").Str
		return status == "completed" || status == "incomplete" // by the length of the context
	})
	return id
}

// closes is how many clients close their connections.
const closes = 10_000

// closeAttack has HTTP/1.1 clients that close their connections at any moment of the
// request and the reply, in good order or with a reset. Nothing is left behind.
func closeAttack() attack {
	return attack{name: fmt.Sprintf("%d clients close or reset HTTP/1.1 connections", closes), want: "nothing is left behind", heavy: true, run: func(a *attempt) {
		a.closeMany(closes / 10) // connections and caches are there
		a.awaitLeft()
		goroutines, descriptors := a.program.Metric(a.T, "go_goroutines"), a.program.Metric(a.T, "process_open_fds")
		connections := a.Stat(a.T, "http.openai.downstream_cx_total")
		a.closeMany(closes)
		a.awaitLeft()
		seen := a.Stat(a.T, "http.openai.downstream_cx_total") - connections
		a.see("%d connections, %v goroutines, before %v", seen, a.program.Metric(a.T, "go_goroutines"), goroutines)
		if seen < closes*9/10 { // Envoy does not see one that is reset before it is accepted
			a.Errorf("Envoy has counted %d connections of %d", seen, closes)
		}
		const few = 20 // idle connections to Envoy and their goroutines
		stack.Eventually(a.T, "goroutines and descriptors as before", func() bool {
			return a.program.Metric(a.T, "go_goroutines") <= goroutines+few && a.program.Metric(a.T, "process_open_fds") <= descriptors+few
		})
	}}
}

// awaitLeft waits until nothing of clients that have left is in flight.
func (a *attempt) awaitLeft() {
	a.Helper()
	a.awaitMetric("harmony_streams_inflight")
	a.AwaitCancelled(a.T)
}

func (a *attempt) closeMany(n int) {
	a.Helper()
	const workers = 20
	var clients sync.WaitGroup
	for worker := range workers {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(16, uint64(worker)))
			for range n / workers {
				if err := a.Disconnect(random); err != nil {
					a.Errorf("a client cannot connect: %v", err)
					return
				}
			}
		})
	}
	clients.Wait()
}
