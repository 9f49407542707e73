package gateways

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Filters that are restarted one after the other, behind the Envoy of envoy-config,
// lose no request.
func TestRollingRestart(t *testing.T) {
	d, filters := stack.Restartable(t, 2)
	if done, failed := d.RollingRestart(t, filters); len(failed) > 0 {
		t.Errorf("%d of %d requests failed, the first with: %s", len(failed), done, failed[0])
	}
}

// A filter that hangs does not hold its requests for ever, and gets no new ones.
func TestFilterHangs(t *testing.T) {
	d, filters := stack.Restartable(t, 1)
	begun, ended := make(chan bool, 1), make(chan error, 1)

	go func() {
		resp, err := d.Client.Post(d.URL+"/v1/chat/completions", "application/json", strings.NewReader(
			`{"model":"gpt-oss-120b","stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 100000 20"}]}`))
		if err != nil {
			ended <- err
			return
		}
		defer resp.Body.Close()

		lines := bufio.NewReader(resp.Body)
		_, err = lines.ReadString('\n')
		begun <- true
		if err == nil {
			_, err = io.Copy(io.Discard, lines)
		}
		ended <- err
	}()

	stack.Receive(t, begun, "the stream's begin")
	hung := filters[0].Cmd.Process
	hang(t, hung)
	t.Cleanup(func() { _ = hung.Signal(syscall.SIGCONT) })

	ask := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), stack.Patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(`{"model":"gpt-oss-120b"}`))
		if err != nil {
			t.Fatal(err)
		}

		req.Header.Set("Content-Type", "application/json")
		resp, err := d.Client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if e := stack.ReadError(t, string(text)); resp.StatusCode != http.StatusServiceUnavailable || e.Type != "server_error" || err != nil {
			t.Errorf("%s: %s: %s, %v", when, resp.Status, text, err)
		}
	}

	ask("at once")
	if err := stack.Receive(t, ended, "the stream's end"); err == nil {
		t.Error("the stream of the filter that hangs ended as if it was complete")
	}

	d.AwaitHealth(t, filters[0], false)
	ask("later")
	if err := hung.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	d.AwaitHealth(t, filters[0], true)
	if err := d.StreamWords(t.Context(), "SAY hello"); err != nil {
		t.Error(err)
	}
}

// hang stops a process, and waits until each of its threads has stopped, where /proc shows
// that.
func hang(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for runs := true; runs; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil || t.Context().Err() != nil {
			t.Fatal(err, t.Context().Err())
		}
		runs = slices.ContainsFunc(threads, func(name string) bool {
			text, err := os.ReadFile(name)
			_, state, _ := strings.Cut(string(text), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		})
	}
}

// While one of two filters hangs, requests go to the other.
func TestOneOfTwoFiltersHangs(t *testing.T) {
	d, filters := stack.Restartable(t, 2)
	hung := filters[0].Cmd.Process
	hang(t, hung)
	t.Cleanup(func() { _ = hung.Signal(syscall.SIGCONT) })
	d.AwaitHealth(t, filters[0], false)
	for range 20 {
		if err := d.StreamWords(t.Context(), "SAY hello"); err != nil {
			t.Fatal(err)
		}
	}
}
