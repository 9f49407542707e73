//go:build attack

package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// series returns the number of samples of the filter's metrics.
func (a *attempt) series() int {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), http.MethodGet, a.program.Admin+"/metrics", http.NoBody)
	if err != nil {
		a.Fatal(err)
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	n := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); line != "" && line[0] != '#' {
			n++
		}
	}
	if n == 0 {
		a.Fatal("there are no metrics")
	}
	return n
}

// cardinalityArea has many names, which must not become many series.
func cardinalityArea() area {
	many := func(name string, n int, send func(a *attempt, i int) answerOf) attack {
		return attack{name: fmt.Sprintf("%d %s", n, name), want: "no new series", run: func(a *attempt) {
			for i := range 5 { // series that exist once
				send(a, -i-1)
			}

			before := a.series()
			last := answerOf{}
			for i := range n {
				last = send(a, i)
			}

			after := a.series()
			a.see("%d, series %d → %d", last.status, before, after)
			if after > before+60 { // statuses and outcomes that came for the first time
				a.Errorf("%d series have become %d", before, after)
			}
		}}
	}

	return area{name: "cardinality", attacks: []attack{
		many("model names", 2000, func(a *attempt, i int) answerOf {
			return a.post(chatPath, strings.Replace(chatBody(simple, ""), "gpt-oss-20b", fmt.Sprintf("gpt-oss-n%d", i), 1))
		}),
		many("models of others", 1000, func(a *attempt, i int) answerOf {
			return a.post(chatPath, strings.Replace(chatBody(simple, ""), "gpt-oss-20b", fmt.Sprintf("other-%d", i), 1))
		}),
		many("ids in paths", 1000, func(a *attempt, i int) answerOf {
			return a.send(http.MethodGet, fmt.Sprintf("/v1/responses/resp_%d", i), http.NoBody)
		}),
		many("paths", 1000, func(a *attempt, i int) answerOf {
			return a.send(http.MethodGet, fmt.Sprintf("/v1/x%d/y%d", i, i), http.NoBody)
		}),
		many("tenants", 1500, func(a *attempt, i int) answerOf {
			return a.as(fmt.Sprint("tenant-", i), http.MethodPost, chatPath, chatBody(simple, ""))
		}),
		many("tools that the model makes up", 150, func(a *attempt, i int) answerOf {
			return a.post(responsesPath, responsesBody(jsonText(fmt.Sprintf("NOTHINK\nCALL made.up%d {}\nSAY done", i)), ""))
		}),
		many("labels of servers", 150, func(a *attempt, i int) answerOf {
			return a.post(responsesPath, responsesBody(simple, fmt.Sprintf(`,"tools":[{"type":"mcp","server_label":"l%d"}]`, i)))
		}),
		many("methods", 20, func(a *attempt, i int) answerOf {
			return a.send(fmt.Sprintf("M%d", i+10), chatPath, http.NoBody)
		}),
	}}
}

// storeArea has stores that do not answer.
func storeArea() area {
	var stop func()
	return area{name: "store", attacks: []attack{
		{name: "a store that hangs, 20 chat requests", want: "200, and a breaker", run: func(a *attempt) {
			begun := time.Now()
			for range 20 {
				if r := a.post(chatPath, chatBody(simple, "")); r.status != http.StatusOK {
					a.Errorf("%s", r.brief())
				}
			}
			a.see("20 requests in %s", time.Since(begun).Round(100*time.Millisecond))

			// Without a breaker each waits a second.
			if time.Since(begun) > 15*time.Second {
				a.Errorf("20 requests took %s", time.Since(begun))
			}
		}},
		{name: "a store that hangs, store is false", want: "200", run: func(a *attempt) {
			a.check(a.post(responsesPath, responsesBody(simple, `,"store":false`)))
		}},
		{name: "a store that hangs, a stored response", want: "200 503", run: func(a *attempt) { a.check(a.post(responsesPath, responsesBody(simple, ""))) }},
		{name: "a store that hangs, GET of a response", want: "404 503", run: func(a *attempt) {
			a.check(a.send(http.MethodGet, "/v1/responses/resp_1", http.NoBody))
		}},
	}, config: func(t *testing.T, c *stackConfig) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		stop = func() { _ = l.Close() }
		t.Cleanup(stop)

		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, conn) }() // reads and never answers
			}
		}()

		c.set("store_url", "redis://:marker-store-password@"+l.Addr().String()+"/0")
	}}
}

// faultArea ends and stops processes.
func faultArea() area {
	words := chatBody(`"NOTHINK\nWORDS 400 10"`, `,"stream":true`)
	signal := func(a *attempt, s syscall.Signal) {
		a.Helper()
		if err := a.program.Process.Signal(s); err != nil {
			a.Fatal(err)
		}
	}

	// ended waits until the filter has ended.
	ended := func(a *attempt, within time.Duration) {
		a.Helper()
		for begun := time.Now(); a.memory("VmRSS") != 0; time.Sleep(20 * time.Millisecond) {
			if time.Since(begun) > within {
				a.Errorf("the filter is alive %s after the signal", within)
				_ = a.program.Process.Kill()
				return
			}
		}
	}

	stream := func(a *attempt, words string) (first chan struct{}, rest chan string) {
		first, rest = make(chan struct{}), make(chan string, 1)
		go func() {
			req, err := http.NewRequestWithContext(a.Context(), http.MethodPost, a.URL+chatPath, strings.NewReader(words))
			if err != nil {
				rest <- err.Error()
				return
			}
			req.Header = http.Header{"Content-Type": {"application/json"}, "X-Tenant": {"attacker"}}
			resp, err := a.Client.Do(req)
			if err != nil {
				rest <- err.Error()
				return
			}
			defer resp.Body.Close()

			r := bufio.NewReader(resp.Body)
			_, _ = r.ReadString('\n')
			close(first)
			text, err := io.ReadAll(r)
			rest <- fmt.Sprintf("%s%v", text, err)
		}()
		return first, rest
	}

	drain := func(name, body string) attack {
		return attack{name: name, want: "the process ends", alone: true, fresh: true, run: func(a *attempt) {
			if err := a.innocent(a.Client); err != nil {
				a.Fatal(err)
			}
			go func() { a.sendQuietly(body) }()
			time.Sleep(500 * time.Millisecond)

			begun := time.Now()
			signal(a, syscall.SIGTERM)
			ended(a, 15*time.Second)
			a.see("ended after %s", time.Since(begun).Round(100*time.Millisecond))
		}}
	}

	return area{name: "faults", config: func(_ *testing.T, c *stackConfig) { c.set("drain_timeout", "3s") }, attacks: []attack{
		{name: "the filter is killed in a stream", want: "the stream does not look whole", alone: true, fresh: true, run: func(a *attempt) {
			first, rest := stream(a, words)
			stack.Receive(a.T, first, "the first token")
			signal(a, syscall.SIGKILL)

			text := stack.Receive(a.T, rest, "the stream's end")
			a.see("…%.40q", text[max(0, len(text)-40):])
			if strings.Contains(text, "[DONE]") || strings.Contains(text, `"finish_reason":"stop"`) {
				a.Errorf("the stream looks whole")
			}

			ended(a, stack.Patience)
			if r := a.post(chatPath, chatBody(simple, "")); r.status != http.StatusServiceUnavailable && r.status != http.StatusInternalServerError {
				a.Errorf("without a filter: %s", r.brief())
			}
		}},
		{name: "the filter drains in a stream", want: "an error event", alone: true, fresh: true, run: func(a *attempt) {
			first, rest := stream(a, chatBody(`"NOTHINK\nWORDS 100000 10"`, `,"stream":true`))
			stack.Receive(a.T, first, "the first token")
			signal(a, syscall.SIGTERM)

			text := stack.Receive(a.T, rest, "the stream's end")
			a.see("…%.60q", text[max(0, len(text)-60):])
			if !strings.Contains(text, `"error"`) || !strings.HasSuffix(text, "<nil>") {
				a.Errorf("the stream ends without an error event: …%s", text[max(0, len(text)-300):])
			}

			ended(a, stack.Patience)
		}},
		{name: "the filter drains in a short stream", want: "[DONE]", alone: true, fresh: true, run: func(a *attempt) {
			first, rest := stream(a, chatBody(`"NOTHINK\nWORDS 50 10"`, `,"stream":true`))
			stack.Receive(a.T, first, "the first token")
			signal(a, syscall.SIGTERM)
			text := stack.Receive(a.T, rest, "the stream's end")
			a.see("…%.60q", text[max(0, len(text)-60):])
			if strings.Contains(text, `"error"`) || !strings.Contains(text, "[DONE]") {
				a.Errorf("the stream is cut: …%s", text[max(0, len(text)-300):])
			}
			ended(a, stack.Patience)
		}},
		drain("SIGTERM while an exponential schema is read", chatBody(simple, toolWith(doubling(12, 8, keyword("anyOf")), false))),
		drain("SIGTERM while 30 MB are tokenized", chatBody(`"`+strings.Repeat("abcdefghij", 3<<20)+`"`, "")),
		{name: "the filter hangs, a new request", want: "5xx", alone: true, fresh: true, run: func(a *attempt) {
			if err := a.innocent(a.Client); err != nil {
				a.Fatal(err)
			}
			signal(a, syscall.SIGSTOP)
			defer signal(a, syscall.SIGCONT)
			a.check(a.post(chatPath, chatBody(simple, "")))
		}},
		{name: "the filter hangs and continues in a stream", want: "[DONE]", alone: true, fresh: true, run: func(a *attempt) {
			first, rest := stream(a, words)
			stack.Receive(a.T, first, "the first token")
			signal(a, syscall.SIGSTOP)
			time.Sleep(2 * time.Second)
			signal(a, syscall.SIGCONT)

			text := stack.Receive(a.T, rest, "the stream's end")
			a.see("…%.30q", text[max(0, len(text)-30):])
			if !strings.Contains(text, "[DONE]") {
				a.Errorf("the stream has no end: …%s", text[max(0, len(text)-300):])
			}
		}},
		{name: "the engine stops within a stream", want: "an error event", run: func(a *attempt) {
			r := a.post(chatPath, chatBody(`"NOTHINK\nWORDS 50\nSIM fault=cut@9"`, `,"stream":true`))
			a.see("%s", r.brief())
			if !strings.Contains(r.text, `"error"`) {
				a.Errorf("the stream ends without an error: %s", r.text)
			}
		}},
		{name: "the engine cuts its lines anywhere", want: "the whole answer", run: func(a *attempt) {
			for _, cut := range []string{"1", "random:3", "random:50"} {
				r := a.post(chatPath, chatBody(jsonText("NOTHINK\nSAY naïve 🙂 漢字\nSIM cut="+cut), ""))
				a.see("%q", gjson.Get(r.text, "choices.0.message.content").Str)
				if a.seen != `"naïve 🙂 漢字"` {
					a.Errorf("cut=%s: %s", cut, r.text)
				}
			}
		}},
		{name: "the filter's tables have no leak of descriptors", want: "as before", run: func(a *attempt) {
			count := func() int {
				files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.program.Process.Pid))
				return len(files)
			}

			before := count()
			for range 200 {
				a.sendQuietly(words)
			}

			a.awaitMetric("harmony_streams_inflight")
			after := count()
			a.see("%d → %d", before, after)
			if after > before+20 {
				a.Errorf("%d descriptors have become %d", before, after)
			}
		}},
	}}
}

// sendQuietly sends a chat request and leaves after a moment.
func (a *attempt) sendQuietly(body string) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	if len(body) > 1<<20 {
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), 20*time.Second)
	}
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+chatPath, strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "X-Tenant": {"attacker"}}
	if resp, err := a.Client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}
