package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// replica is an "envoy-harmony serve" at an address that stays, for tests that stop it.
type replica struct {
	address string
	flags   []string
	log     *logFile
	cmd     *exec.Cmd
	ended   chan struct{}
}

// begin starts the process, and waits until it serves.
func (r *replica) begin(t *testing.T) {
	t.Helper()
	binary, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(binary, append([]string{"serve", "--listen", r.address, "--admin", "127.0.0.1:0"}, r.flags...)...)
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan bool, 1)
	cmd, ended := r.cmd, make(chan struct{})
	r.ended = ended
	go func() {
		defer close(ended)
		out := r.log.named("filter " + r.address)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(out, lines.Text())
			var line struct{ Msg string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				serving <- true
			}
		}
		_ = cmd.Wait()
	}()
	receive(t, serving, "the filter's start")
}

// end ends the process by a signal, and waits for its end.
func (r *replica) end(t testing.TB, by syscall.Signal) {
	t.Helper()
	_ = r.cmd.Process.Signal(by) // it may have ended
	receive(t, r.ended, "the filter's end")
}

// restartable starts filters, an engine and the Envoy that envoy-config prints for
// them.
func restartable(t *testing.T, filters int, flags ...string) (*dataplane, []*replica) {
	t.Helper()
	log := logOf(t)
	sim := startSim(t, log)
	loopback := "unix://" + filepath.Join(socketDir(t), "loopback")
	config := []string{"--engine", "vllm=" + sim, "--set", "loopback=" + loopback}
	all := make([]*replica, filters)
	for i := range all {
		all[i] = &replica{address: "127.0.0.1:" + freePort(t), flags: append(flags, config...), log: log}
		all[i].begin(t)
		t.Cleanup(func() { all[i].end(t, syscall.SIGKILL) })
	}
	p := &program{config: config, address: all[0].address, log: log}
	bootstrap := string(p.bootstrap(t, "--access-log"))
	endpoint := func(r *replica) string {
		_, port, _ := strings.Cut(r.address, ":")
		return "        - endpoint: {address: {socket_address: {address: \"127.0.0.1\", port_value: " + port + "}}}\n"
	}
	var endpoints strings.Builder
	for _, r := range all {
		endpoints.WriteString(endpoint(r))
	}
	if !strings.Contains(bootstrap, endpoint(all[0])) {
		t.Fatalf("the bootstrap has no %s", endpoint(all[0]))
	}
	d := p.envoy(t, []byte(strings.Replace(bootstrap, endpoint(all[0]), endpoints.String(), 1)))
	d.sim = sim
	return d, all
}

// awaitHealth waits until Envoy finds a filter healthy, or not.
func (d *dataplane) awaitHealth(t *testing.T, r *replica, healthy bool) {
	t.Helper()
	line := fmt.Sprintf("envoy_harmony::%s::health_flags::healthy\n", r.address)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		resp, err := d.client.Get(d.admin + "/clusters")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), line) == healthy {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the health of %s is not %v:\n%s", r.address, healthy, text)
		}
	}
}

// load sends requests for streams, some at a time, until it is stopped.
type load struct {
	done   atomic.Int64
	failed chan string
	stop   context.CancelFunc
	all    sync.WaitGroup
}

func (d *dataplane) startLoad(t *testing.T) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{failed: make(chan string, 1000), stop: cancel}
	for range 8 {
		l.all.Go(func() {
			for ctx.Err() == nil {
				if err := d.streamWords(t.Context(), "WORDS 20 20"); err != nil {
					select {
					case l.failed <- err.Error():
					default: // enough
					}
				}
				l.done.Add(1)
			}
		})
	}
	return l
}

// streamWords asks for a stream, and reads it to its end.
func (d *dataplane) streamWords(ctx context.Context, what string) error {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, vllmModel, "NOTHINK\n"+what)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %w, after %q", resp.Status, err, text)
	}
	if resp.StatusCode != http.StatusOK || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || strings.Contains(string(text), `"error"`) {
		return fmt.Errorf("%s: %q", resp.Status, text)
	}
	return nil
}

// more waits until the load has made some more requests.
func (l *load) more(t *testing.T) {
	t.Helper()
	from := l.done.Load()
	for deadline := time.Now().Add(patience); l.done.Load() < from+16; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no requests end")
		}
	}
}

// end stops the load, and returns how many requests were made and the errors of those
// that failed.
func (l *load) end() (done int64, failed []string) {
	l.stop()
	l.all.Wait()
	close(l.failed)
	for err := range l.failed {
		failed = append(failed, err)
	}
	return l.done.Load(), failed
}

// Filters that are restarted one after the other, behind the Envoy of envoy-config,
// lose no request.
func TestRollingRestart(t *testing.T) {
	d, filters := restartable(t, 2)
	if done, failed := d.rollingRestart(t, filters); len(failed) > 0 {
		t.Errorf("%d of %d requests failed, the first with: %s", len(failed), done, failed[0])
	}
}

// rollingRestart restarts filters one after the other under load, and returns how many
// requests were made and the errors of those that failed.
func (d *dataplane) rollingRestart(t *testing.T, filters []*replica) (done int64, failed []string) {
	t.Helper()
	l := d.startLoad(t)
	l.more(t)
	for _, r := range filters {
		r.end(t, syscall.SIGTERM)
		l.more(t)
		r.begin(t)
		d.awaitHealth(t, r, true)
		l.more(t)
	}
	return l.end()
}

// A filter that hangs does not hold its requests for ever, and gets no new ones.
func TestFilterHangs(t *testing.T) {
	d, filters := restartable(t, 1)
	begun, ended := make(chan bool, 1), make(chan error, 1)
	go func() {
		resp, err := d.client.Post(d.url+"/v1/chat/completions", "application/json", strings.NewReader(
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
	receive(t, begun, "the stream's begin")
	hung := filters[0].cmd.Process
	hang(t, hung)
	t.Cleanup(func() { _ = hung.Signal(syscall.SIGCONT) })
	ask := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/v1/chat/completions", strings.NewReader(`{"model":"gpt-oss-120b"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := d.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if e := readError(t, string(text)); resp.StatusCode != http.StatusServiceUnavailable || e.Type != "server_error" || err != nil {
			t.Errorf("%s: %s: %s, %v", when, resp.Status, text, err)
		}
	}
	ask("at once")
	if err := receive(t, ended, "the stream's end"); err == nil {
		t.Error("the stream of the filter that hangs ended as if it was complete")
	}
	d.awaitHealth(t, filters[0], false)
	ask("later")
	if err := hung.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.awaitHealth(t, filters[0], true)
	if err := d.streamWords(t.Context(), "SAY hello"); err != nil {
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
	d, filters := restartable(t, 2)
	hung := filters[0].cmd.Process
	hang(t, hung)
	t.Cleanup(func() { _ = hung.Signal(syscall.SIGCONT) })
	d.awaitHealth(t, filters[0], false)
	for range 20 {
		if err := d.streamWords(t.Context(), "SAY hello"); err != nil {
			t.Fatal(err)
		}
	}
}
