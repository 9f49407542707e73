//go:build attack

package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// garbage is what an engine answers: a status, headers and a body.
type garbage struct {
	name    string
	status  int
	headers []string
	body    func(w io.Writer)
}

func says(text string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, text) }
}

// event is an event of a completions stream with token ids.
func event(ids string) string {
	return `data: {"id":"c","object":"text_completion","choices":[{"index":0,"text":"","token_ids":` + ids + `,"finish_reason":null}]}` + "\n\n"
}

func engineGarbage() []garbage {
	stream := []string{"Content-Type", "text/event-stream"}

	flood := func(piece string, megabytes int) func(io.Writer) {
		chunk := strings.Repeat(piece, (1<<20)/len(piece)+1)
		return func(w io.Writer) {
			for range megabytes {
				if _, err := io.WriteString(w, chunk); err != nil {
					return // the filter has had enough
				}
			}
		}
	}

	return []garbage{
		{"nothing", 200, stream, says("")},
		{"only [DONE]", 200, stream, says("data: [DONE]\n\n")},
		{"HTML", 200, []string{"Content-Type", "text/html"}, says("<html><body>502</body></html>")},
		{"HTML with 502", 502, []string{"Content-Type", "text/html"}, says("<html>bad gateway</html>")},
		{"a line of 400 MB", 200, stream, func(w io.Writer) { says("data: ")(w); flood("x", 400)(w) }},
		{"400 MB of empty lines", 200, stream, flood("\n", 400)},
		{"100 MB of comments", 200, stream, flood(": x\n\n", 100)},
		{"8 MB of other fields", 200, stream, flood("event: ping\nid: 1\nretry: 1\n\n", 8)},
		{"200 MB of error text", 500, []string{"Content-Type", "application/json"}, func(w io.Writer) { says(`{"error":"`)(w); flood("e", 200)(w) }},
		{"JSON that is deep", 200, stream, func(w io.Writer) { says("data: ")(w); flood("[", 20)(w); says("\n\n")(w) }},
		{"a negative id", 200, stream, says(event("[-1]"))},
		{"a huge id", 200, stream, says(event("[999999999999999999999]"))},
		{"an id beyond the vocabulary", 200, stream, says(event("[4000000]"))},
		{"ids that are strings", 200, stream, says(event(`["x",null,{}]`))},
		{"ids that are fractions", 200, stream, says(event("[1.5,1e3]"))},
		{"100,000 ids in an event", 200, stream, says(event("[" + strings.TrimSuffix(strings.Repeat("220,", 100_000), ",") + "]"))},
		{"control tokens without order", 200, stream, says(event("[200006,200008,200007,200005,200012,200003,200006,200006]") + "data: [DONE]\n\n")},
		{"200,000 messages", 200, stream, says(strings.Repeat(event("[200005,17196,200008,64,200007,200006,173781]"), 20_000) + "data: [DONE]\n\n")},
		{"an index of 1e9", 200, stream, says(strings.ReplaceAll(event("[64]"), `"index":0`, `"index":1000000000`))},
		{"an index of -1", 200, stream, says(strings.ReplaceAll(event("[64]"), `"index":0`, `"index":-1`))},
		{"a flood of choices", 200, stream, func(w io.Writer) {
			for i := range 100_000 {
				if _, err := io.WriteString(w, strings.ReplaceAll(event("[64]"), `"index":0`, fmt.Sprintf(`"index":%d`, i))); err != nil {
					return
				}
			}
		}},
		{"half a UTF-8 character", 200, stream, says(event("[9552]") + event("[200002]") + "data: [DONE]\n\n")},
		{"finish reasons without end", 200, stream, says(strings.Repeat(strings.ReplaceAll(event("[64]"), "null", `"stop"`), 1000))},
		{"an odd finish reason", 200, stream, says(strings.ReplaceAll(event("[64]"), "null", `{"a":1}`))},
		{"usage that is garbage", 200, stream, says(event("[64]") + `data: {"usage":{"prompt_tokens":-5,"completion_tokens":1e99},"choices":[]}` + "\n\n")},
		{"invalid UTF-8", 200, stream, says("data: {\"choices\":[{\"index\":0,\"token_ids\":[64],\"text\":\"\xff\xfe\"}]}\n\n")},
		{"status 200 with gzip that is none", 200, append([]string{"Content-Encoding", "gzip"}, stream...), says(event("[64]"))},
		{"status 204", 204, nil, says("")},
		{"status 302", 302, []string{"Location", "http://127.0.0.1:1/"}, says("")},
		{"status 401", 401, []string{"Www-Authenticate", "Basic realm=x", "Content-Type", "application/json"}, says(`{"error":"who"}`)},
		{"status 599", 599, nil, says("x")},
		{"headers of 50 KB", 200, append([]string{"X-A", strings.Repeat("a", 50_000)}, stream...), says("data: [DONE]\n\n")},
		{"headers of the filter", 200, append([]string{"X-Harmony-Engine", "evil", "X-Request-Id", "evil", "Set-Cookie", "evil=1"}, stream...), says("data: [DONE]\n\n")},
		{"a wrong length", 200, append([]string{"Content-Length", "10000"}, stream...), says("data: {}\n\n")},
	}
}

// withoutEvents are answers with status 200 in which no event comes. They are errors,
// also of a stream, which has not begun.
var withoutEvents = map[string]bool{"nothing": true, "only [DONE]": true, "HTML": true, "a line of 400 MB": true, "400 MB of empty lines": true, "100 MB of comments": true, "8 MB of other fields": true}

// engineArea has an engine that answers with garbage, streamed and not. The other
// client has another engine.
func engineArea() area {
	var now atomic.Pointer[garbage]
	all := make([]attack, 0, 2*len(engineGarbage()))

	for _, g := range engineGarbage() {
		for _, more := range []string{"", `,"stream":true`} {
			name := g.name
			if more != "" {
				name += ", streamed"
			}

			all = append(all, attack{name: name, want: "an end within the bounds", run: func(a *attempt) {
				now.Store(&g)
				r := a.post(chatPath, chatBody(simple, more))
				a.see("%s", r.brief())

				switch {
				case withoutEvents[g.name] && (r.status != http.StatusBadGateway || !strings.Contains(r.text, `"error"`)):
					a.Errorf("no event has come, and the reply is %s: %.200s", r.brief(), r.text)
				case strings.Contains(r.text, "evil") || r.header.Get("Set-Cookie") != "":
					a.Errorf("the reply has headers or text of the engine: %v %.200s", r.header, r.text)
				case r.status == 0:
					a.Errorf("the reply has no end: %s", r.text)
				case r.status == http.StatusOK && more != "" && !strings.HasSuffix(strings.TrimSpace(r.text), "data: [DONE]") && !strings.Contains(r.text, `"error"`):
					a.Errorf("the stream has no end: …%s", r.text[max(0, len(r.text)-200):])
				}
			}})
		}
	}

	return area{name: "engine", attacks: all, config: func(t *testing.T, c *stackConfig) {
		bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g := now.Load()
			if g == nil || r.Method != http.MethodPost {
				http.NotFound(w, r)
				return
			}

			_, _ = io.Copy(io.Discard, r.Body)
			for i := 0; i < len(g.headers); i += 2 {
				w.Header().Set(g.headers[i], g.headers[i+1])
			}
			w.WriteHeader(g.status)
			g.body(w)
		}))

		t.Cleanup(func() {
			bad.CloseClientConnections()
			bad.Close()
		})

		c.engines = []string{"sglang=SIM", "vllm=" + bad.URL}
		c.set("models", []any{map[string]any{"match": "=gpt-oss-20b", "engine": "vllm"}})
	}}
}

// clientArea has clients that leave, or do not read.
func clientArea() area {
	leave := func(name string, n int, request string, wait time.Duration) attack {
		return attack{name: name, want: "idle again", run: func(a *attempt) {
			for range n {
				conn := a.dial()
				_, _ = io.WriteString(conn, request)
				time.Sleep(wait)
				_ = conn.Close()
			}
			a.see("%d have left", n)
			a.awaitMetric("harmony_streams_inflight")
		}}
	}

	request := func(body string) string {
		return head(chatPath, fmt.Sprint("content-length: ", len(body))) + body
	}

	body := chatBody(`"NOTHINK\nWORDS 100000 5"`, `,"stream":true`)
	unread := func(name, body string, clients int) attack {
		return attack{name: name, want: "bounded memory of Envoy", run: func(a *attempt) {
			before := a.envoyMemory()
			conns := make([]net.Conn, clients)
			for i := range conns {
				conns[i] = a.dial()
				defer conns[i].Close()
				_, _ = io.WriteString(conns[i], request(body))
			}

			grown := a.envoySettles() - before
			a.see("Envoy has grown by %.1f MB a client", float64(grown)/float64(clients)/(1<<20))
			a.unreadStreams(conns)
			// Without bound it is the whole reply: more than 10 MB each.
			if bound := int64(clients) * 4 << 20; grown > bound {
				a.Errorf("Envoy has grown by %d MB for %d clients that do not read", grown>>20, clients)
			}
		}}
	}

	return area{name: "clients", attacks: append(unreadStored(), []attack{
		leave("300 clients leave in the headers", 300, head(chatPath, "content-length: 1000")[:90], 0),
		leave("300 clients leave in the body", 300, head(chatPath, "content-length: 100000")+"{", 2*time.Millisecond),
		leave("300 clients leave in a stream", 300, request(body), 10*time.Millisecond),
		leave("100 clients leave before the first token", 100, request(chatBody(`"SAY late\nSIM first=1h"`, "")), 10*time.Millisecond),
		resetAttack(), stalledResetAttack(), closeAttack(),
		unread("20 clients do not read 20,000 words", chatBody(`"NOTHINK\nWORDS 20000"`, `,"stream":true`), 20),
		unread("5 clients do not read log probabilities", chatBody(`"NOTHINK\nWORDS 4000"`, `,"stream":true,"logprobs":true,"top_logprobs":20`), 5),
	}...)}
}

// unreadStreams checks that the replies of connections that were not read have begun
// and have not ended: a reply that was refused, or that is over, holds no memory either.
func (a *attempt) unreadStreams(conns []net.Conn) {
	a.Helper()
	if n := int(a.program.Metric(a.T, "harmony_streams_inflight")); n < len(conns) {
		a.Errorf("%d of %d streams have not ended", n, len(conns))
	}
	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(stack.Patience))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			a.Errorf("client %d: %v", i, err)
			continue
		}
		first := make([]byte, 4<<10)
		_, err = io.ReadFull(resp.Body, first)
		if resp.StatusCode != http.StatusOK || err != nil || !strings.HasPrefix(string(first), "data: ") || !strings.Contains(string(first), `"content":"`) {
			a.Errorf("client %d: %s, %v, %.300q", i, resp.Status, err, first)
		}
		_ = resp.Body.Close()
	}
}

// awaitMetric waits until a gauge of the filter is 0 but for the bystander.
func (a *attempt) awaitMetric(name string) {
	a.Helper()
	value := 0.0
	for deadline := time.Now().Add(stack.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if value = a.program.Metric(a.T, name); value <= 1 {
			return
		}
	}
	a.Errorf("%s is %v", name, value)
}

// envoyMemory returns the bytes that Envoy's allocator has given out.
func (a *attempt) envoyMemory() int64 {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), http.MethodGet, a.Admin+"/memory", http.NoBody)
	if err != nil {
		a.Fatal(err)
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return gjson.GetBytes(text, "allocated").Int()
}

// envoySettles waits until Envoy's memory has not grown for five seconds, and returns
// the largest value.
func (a *attempt) envoySettles() (most int64) {
	a.Helper()
	last := time.Now()
	for deadline := time.Now().Add(stack.Patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		now := a.envoyMemory()
		if now > most+most/50 {
			last = time.Now()
		}
		most = max(most, now)
		if time.Since(last) > 5*time.Second {
			break
		}
	}
	if most == 0 {
		a.Fatal("Envoy does not report its memory")
	}
	return most
}

// budgetArea has uploads that hold the budget of bodies.
func budgetArea() area {
	const budget = 128 << 20
	return area{name: "budget", attacks: []attack{
		{name: "uploads that stall and fill the budget", want: "small requests get in", run: func(a *attempt) {
			// The last ones fill what the large ones leave.
			held := 0
			for _, upload := range []struct{ count, size int }{{5, 33_000_000}, {5, 1_000_000}, {10, 200_000}, {20, 20_000}, {40, 1000}, {40, 150}, {40, 30}} {
				part := strings.Repeat(" ", upload.size-10)
				for range upload.count {
					conn := a.dial()
					defer conn.Close()
					go func() {
						_, _ = fmt.Fprintf(conn, "%s%s", head(chatPath, fmt.Sprint("content-length: ", upload.size)), part)
					}()
				}
				held += upload.count
				time.Sleep(time.Second)
			}
			time.Sleep(5 * time.Second) // the bystander sends requests, which have to be answered
			a.see("%d uploads held", held)
		}},
		{name: "200 connections with 1 MB each that stall", want: "small requests get in", run: func(a *attempt) {
			part := strings.Repeat(" ", 900_000)
			for range 200 {
				conn := a.dial()
				defer conn.Close()
				go func() {
					_, _ = fmt.Fprintf(conn, "%s%s", head(chatPath, "content-length: 1000000"), part)
				}()
			}
			time.Sleep(8 * time.Second)
			a.see("200 uploads held")
		}},
	}, config: func(_ *testing.T, c *stackConfig) {
		c.set("limits.max_inflight_bytes", budget)
		c.set("limits.body_timeout", "20s")
	}}
}
