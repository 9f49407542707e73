package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Replica is an "envoy-harmony serve" at an address that stays, for tests that stop it.
type Replica struct {
	address string
	flags   []string
	log     *LogFile

	Cmd   *exec.Cmd
	ended chan struct{}
}

// begin starts the process, and waits until it serves.
func (r *Replica) begin(t *testing.T) {
	t.Helper()
	binary, err := BuildProgram()
	if err != nil {
		t.Fatal(err)
	}

	// Without the test's context: tests end and start it themselves, by the signal that they choose.
	r.Cmd = exec.Command(binary, append([]string{"serve", "--listen", r.address, "--admin", "127.0.0.1:0"},
		r.flags...)...)
	stderr, err := r.Cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// The goroutine has variables of its own, because the next start sets those of the replica.
	serving := make(chan bool, 1)
	cmd, ended := r.Cmd, make(chan struct{})
	r.ended = ended

	go func() {
		defer close(ended)
		out := r.log.Named("filter " + r.address)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(out, lines.Text())
			var line struct{ Msg string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				serving <- true
			}
		}
		_ = cmd.Wait()
	}()
	Receive(t, serving, "the filter's start")
}

// End ends the process by a signal, and waits for its end.
func (r *Replica) End(t testing.TB, by syscall.Signal) {
	t.Helper()
	_ = r.Cmd.Process.Signal(by) // it may have ended
	Receive(t, r.ended, "the filter's end")
}

// Restartable starts filters, an engine and the Envoy that envoy-config prints for
// them.
func Restartable(t *testing.T, filters int, flags ...string) (*Dataplane, []*Replica) {
	t.Helper()
	log := LogOf(t)
	sim := StartSim(t, log)
	// All filters call the one Envoy, so they have one loopback.
	loopback := "unix://" + filepath.Join(SocketDir(t), "loopback")
	config := []string{"--engine", "vllm=" + sim, "--set", "loopback=" + loopback}

	all := make([]*Replica, filters)
	for i := range all {
		// Envoy has the addresses in its bootstrap: a filter that is started again must have its own.
		all[i] = &Replica{address: "127.0.0.1:" + FreePort(t), flags: append(flags, config...), log: log}
		all[i].begin(t)
		t.Cleanup(func() { all[i].End(t, syscall.SIGKILL) })
	}

	p := &Program{Config: config, Address: all[0].address, Logs: log}
	bootstrap := string(p.Bootstrap(t, "--access-log"))

	endpoint := func(r *Replica) string {
		_, port, _ := strings.Cut(r.address, ":")
		return "        - endpoint: {address: {socket_address: {address: \"127.0.0.1\", port_value: " + port + "}}}\n"
	}

	var endpoints strings.Builder
	for _, r := range all {
		endpoints.WriteString(endpoint(r))
	}

	// The generated bootstrap has one filter, so the others are added to its text.
	if !strings.Contains(bootstrap, endpoint(all[0])) {
		t.Fatalf("the bootstrap has no %s", endpoint(all[0]))
	}

	d := p.Envoy(t, []byte(strings.Replace(bootstrap, endpoint(all[0]), endpoints.String(), 1)))
	d.Sim = sim
	return d, all
}

// AwaitHealth waits until Envoy finds a filter healthy, or not.
func (d *Dataplane) AwaitHealth(t *testing.T, r *Replica, healthy bool) {
	t.Helper()
	// A line of Envoy's /clusters: cluster, endpoint, what it is about, value.
	line := fmt.Sprintf("envoy_harmony::%s::health_flags::healthy\n", r.address)
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		text := AdminPage(t, d.Admin+"/clusters")
		if strings.Contains(text, line) == healthy {
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

func (d *Dataplane) startLoad(t *testing.T) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{failed: make(chan string, 1000), stop: cancel}
	// Several at a time, so that a filter that is ended has streams to finish.
	for range 8 {
		l.all.Go(func() {
			for ctx.Err() == nil {
				// With the context of the test: the stop of the load must not break a stream that runs.
				if err := d.StreamWords(t.Context(), "WORDS 20 20"); err != nil {
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

// StreamWords asks for a stream, and reads it to its end.
func (d *Dataplane) StreamWords(ctx context.Context, what string) error {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, VLLMModel,
		"NOTHINK\n"+what)

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")

	resp, err := d.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %w, after %q", resp.Status, err, text)
	}

	// A stream can also end in good order with an error event before its [DONE].
	if resp.StatusCode != http.StatusOK || !strings.HasSuffix(string(text),
		"data: [DONE]\n\n") || strings.Contains(string(text), `"error"`) {
		return fmt.Errorf("%s: %q", resp.Status, text)
	}

	return nil
}

// more waits until the load has made some more requests.
func (l *load) more(t *testing.T) {
	t.Helper()
	from := l.done.Load()
	// Twice as many as run at a time, so that at least half of them have begun after the call.
	for deadline := time.Now().Add(Patience); l.done.Load() < from+16; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no requests end")
		}
	}
}

// End stops the load, and returns how many requests were made and the errors of those
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

// RollingRestart restarts filters one after the other under load, and returns how many
// requests were made and the errors of those that failed.
func (d *Dataplane) RollingRestart(t *testing.T, filters []*Replica) (done int64, failed []string) {
	t.Helper()
	l := d.startLoad(t)
	l.more(t)
	for _, r := range filters {
		r.End(t, syscall.SIGTERM)
		l.more(t)
		r.begin(t)
		d.AwaitHealth(t, r, true)
		l.more(t)
	}
	return l.end()
}
