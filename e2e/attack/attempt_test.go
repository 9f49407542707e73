//go:build attack

package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// attempt is an attack that runs.
type attempt struct {
	*testing.T
	*target
	attack attack
	seen   string
	cpu    time.Duration
	growth int64
}

// see sets what the table shows.
func (a *attempt) see(format string, args ...any) { a.seen = fmt.Sprintf(format, args...) }

// measure runs an attack, while another client sends simple requests. Afterwards the
// stack works and is idle, and the filter's memory has not grown beyond the bound.
func (a *attempt) measure(attack func()) {
	a.Helper()
	resident, cpu := a.memory("VmRSS"), a.target.cpu()
	a.resetPeak()

	stop := a.bystand()
	func() {
		defer stop()
		attack()
	}()

	a.cpu, a.growth = a.target.cpu()-cpu, a.memory("VmHWM")-resident
	a.cpu, a.growth = max(a.cpu, 0), max(a.growth, 0) // negative if the process has ended
	if a.attack.alone {
		return // it has checked what is left
	}

	if dead := a.dead(); dead != "" {
		a.see("%s has ended", dead)
		a.Fatal(a.seen)
	}

	bound := max(a.attack.grow, 0)
	if bound == 0 {
		bound = defaultGrowth
	}
	if a.growth > bound {
		a.Errorf("the filter's memory has grown by %d MB, more than %d MB", a.growth>>20, bound>>20)
	}

	a.awaitIdle()
	a.cpu = a.target.cpu() - cpu
}

// awaitIdle waits until the filter does no work.
func (a *attempt) awaitIdle() {
	a.Helper()
	const window = 40 * time.Millisecond
	for deadline := time.Now().Add(stack.Patience); ; {
		before := a.target.cpu()
		time.Sleep(window)
		if a.target.cpu()-before < window/3 {
			return
		}
		if time.Now().After(deadline) {
			a.Errorf("the filter is still busy %s after the attack", stack.Patience)
			return
		}
	}
}

// bystand sends requests of another tenant until stop is called. Each must be answered.
func (a *attempt) bystand() (stop func()) {
	if a.attack.alone {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	var count, bad atomic.Int64
	var first atomic.Value
	var slowest atomic.Int64

	transport := &http.Transport{}
	client := &http.Client{Transport: transport}

	ask := func() {
		begun := time.Now()
		count.Add(1)
		if err := a.innocent(client); err != nil {
			bad.Add(1)
			first.CompareAndSwap(nil, err.Error())
		}
		slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
	}

	go func() {
		defer close(done)
		for {
			ask()
			select {
			case <-ended:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()

	return func() {
		close(ended)
		<-done
		ask() // and one afterwards
		transport.CloseIdleConnections()

		if bad.Load() > 0 {
			a.Errorf("%d of %d requests of another client failed (the slowest took %s): %v", bad.Load(), count.Load(), time.Duration(slowest.Load()), first.Load())
		}
	}
}

// innocent sends a simple request of another tenant.
func (a *attempt) innocent(client *http.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), stack.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+"/v1/chat/completions", strings.NewReader(`{"model":"gpt-oss-120b","messages":[{"role":"user","content":"NOTHINK\nSAY fine"}]}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tenant", "bystander")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"fine"`)) {
		err = fmt.Errorf("%s: %.200s", resp.Status, text)
	}
	return err
}

// answerOf is the reply to an attack. Status 0: there is none, and text is the error.
type answerOf struct {
	status int
	text   string
	header http.Header
}

func (r answerOf) id() string { return r.header.Get("X-Request-Id") }

// send sends a request of tenant "attacker". Headers replace the usual ones; a header
// with the value "" is not sent.
func (a *attempt) send(method, path string, body io.Reader, headers ...string) answerOf {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), 2*stack.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.URL, body)
	if err != nil {
		a.Fatal(err)
	}

	req.URL.Opaque = "//" + req.URL.Host + path // as it is written
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tenant", "attacker")

	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}

	resp, err := a.Client.Do(req)
	if err != nil {
		return answerOf{text: err.Error(), header: http.Header{}}
	}
	defer resp.Body.Close()

	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return answerOf{text: err.Error(), header: resp.Header}
	}
	return answerOf{resp.StatusCode, string(text), resp.Header}
}

func (a *attempt) post(path, body string, headers ...string) answerOf {
	a.Helper()
	return a.send(http.MethodPost, path, strings.NewReader(body), headers...)
}

// check compares the status of a reply with the attack's expectation and sets what the
// table shows.
func (a *attempt) check(r answerOf) {
	a.Helper()
	a.see("%s", r.brief())
	if !statusIs(r.status, a.attack.want) {
		a.Errorf("status %s, want %s", r.brief(), a.attack.want)
	}
	if r.status >= 500 && strings.Contains(r.text, "panic") {
		a.Errorf("the reply tells of a panic: %.200s", r.text)
	}
}

// brief returns the status and the code of the error.
func (r answerOf) brief() string {
	if r.status == 0 {
		return "closed: " + r.text
	}
	if at := strings.Index(r.text, `"message":"`); r.status >= 400 && at >= 0 {
		return fmt.Sprintf("%d %.60s", r.status, r.text[at+len(`"message":"`):])
	}
	return strconv.Itoa(r.status)
}

// statusIs reports whether a status is in a list such as "200 4xx closed".
func statusIs(status int, list string) bool {
	for _, want := range strings.Fields(strings.ReplaceAll(list, ",", " ")) {
		switch {
		case want == "closed" && status == 0, want == strconv.Itoa(status):
			return true
		case strings.HasSuffix(want, "xx") && status > 0 && want[0] == strconv.Itoa(status)[0]:
			return true
		}
	}
	return false
}

// closedText is what [attempt.raw] returns for a connection that is closed without a
// byte.
const closedText = "closed"

// raw writes bytes to a new connection, and returns the first response.
func (a *attempt) raw(parts ...string) string {
	a.Helper()
	conn := a.dial()
	defer conn.Close()

	go func() {
		for _, part := range parts {
			if _, err := io.WriteString(conn, part); err != nil {
				return // the other side has closed it
			}
		}
	}()

	_ = conn.SetReadDeadline(time.Now().Add(2 * stack.Patience))
	var got strings.Builder
	method, _, _ := strings.Cut(parts[0], " ")
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &got)), &http.Request{Method: method})
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body) // got has what there is
		_ = resp.Body.Close()
	}

	if got.Len() == 0 {
		return closedText
	}
	return got.String()
}

func (a *attempt) dial() net.Conn {
	a.Helper()
	conn, err := (&net.Dialer{Timeout: stack.Patience}).DialContext(a.Context(), "tcp", strings.TrimPrefix(a.URL, "http://"))
	if err != nil {
		a.Fatal(err)
	}
	return conn
}

// rawStatus returns the status of what [attempt.raw] has read; 0 if there is none.
func rawStatus(text string) (status int) {
	_, rest, _ := strings.Cut(text, " ")
	_, _ = fmt.Sscanf(rest, "%d", &status)
	return status
}

// checkRaw is [attempt.check] for what [attempt.raw] has read.
func (a *attempt) checkRaw(text string) {
	a.Helper()
	status := rawStatus(text)
	a.see("%d", status)
	if status == 0 {
		a.see("closed without an answer")
	}
	if !statusIs(status, a.attack.want) {
		a.Errorf("%s, want %s: %.300q", a.seen, a.attack.want, text)
	}
}

// controls returns the control tokens of the prompt of a request, in their order.
func (a *attempt) controls(id string) (ids []harmony.Token, prompt string) {
	a.Helper()
	requests := a.EngineRequests(a.T, id)
	if len(requests) == 0 {
		a.Fatalf("the engine has no request %q", id)
	}
	last := requests[len(requests)-1]
	for _, id := range last.PromptIDs {
		if id >= firstControl {
			ids = append(ids, id)
		}
	}
	return ids, last.Prompt
}

// firstControl is the first id of o200k_harmony that is no text.
const firstControl = 199998
