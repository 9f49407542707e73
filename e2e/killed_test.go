package e2e

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A filter that is killed loses its streams, which never look complete, and nothing
// else: the clients of whole replies and the next ones get an error of their API,
// and Envoy finds the filter that is started in its place.
func TestFilterIsKilled(t *testing.T) {
	log := logOf(t)
	sim := startSim(t, log)
	config := []string{"--engine", "vllm=" + sim, "--set", "loopback=unix://" + filepath.Join(socketDir(t), "loopback")}
	p := serveProgram(t, log, config...)
	d := p.envoy(t, p.bootstrap(t))
	d.sim = sim
	streams := make([]*faultStream, 0, len(faultAPIs))
	var clients sync.WaitGroup
	for _, a := range faultAPIs {
		streams = append(streams, d.stream(t, a, vllmModel, hangsAt))
		clients.Go(func() { d.unavailable(t, a, hangsAt, "whole-"+a.name) })
		d.awaitEngine(t, "whole-"+a.name, stateRunning)
	}
	if err := p.process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	for _, s := range streams {
		if text, _, err := s.end(); !errors.Is(err, errNoEnd) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the stream ends with %v:\n%s", s.api.name, err, text)
		}
	}
	clients.Wait()
	for _, a := range faultAPIs {
		d.unavailable(t, a, "SAY x", "down")
	}
	d.awaitCancelled(t)
	serveProgramAt(t, p.address, log, config...)
	eventually(t, "an answer of the next filter", func() bool { return d.status(t, faultAPIs[0], vllmModel) == http.StatusOK })
	d.works(t, vllmModel)
}

// unavailable sends a request for a whole reply that Envoy has to answer, because
// there is no filter.
func (d *dataplane) unavailable(t *testing.T, a faultAPI, content, id string) {
	t.Helper()
	resp, err := d.client.Do(d.request(t, a.path, a.body(vllmModel, content, false), id))
	if err != nil {
		t.Errorf("%s: %v", a.name, err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode < http.StatusInternalServerError || !strings.Contains(string(text), `"error":{`) {
		t.Errorf("%s: status %d, %v, %s", a.name, resp.StatusCode, err, text)
	}
}

// status sends a short request, and returns the status of the answer.
func (d *dataplane) status(t *testing.T, a faultAPI, model string) int {
	t.Helper()
	resp, err := d.client.Do(d.request(t, a.path, a.body(model, "SAY x", false), ""))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// awaitCancelled waits until the engine has nothing to do.
func (d *dataplane) awaitCancelled(t *testing.T) {
	t.Helper()
	eventually(t, "the end of the engine's requests", func() bool {
		for _, r := range d.allEngineRequests(t) {
			if r.State == stateRunning {
				return false
			}
		}
		return true
	})
}

// An engine that is killed or stopped mid-stream ends its streams with an error
// event and its whole replies with a status. The next request works as soon as the
// engine does.
func TestEngineIsKilledOrStops(t *testing.T) {
	log := logOf(t)
	address := "127.0.0.1:" + freePort(t)
	_, sim := startSimAs(t, log, "--listen", address)
	p := serveProgram(t, log, "--engine", "vllm=http://"+address, "--set", "loopback=unix://"+filepath.Join(socketDir(t), "loopback"),
		"--set", "limits.idle_timeout=1s", "--set", "limits.first_token_timeout=1s")
	d := p.envoy(t, p.bootstrap(t))
	const slow = "NOTHINK\nWORDS 3000 20"
	fail := func(how, words string, statuses []int, fault func()) {
		t.Helper()
		var clients sync.WaitGroup
		begun := make([]chan struct{}, 0, len(faultAPIs))
		for _, a := range faultAPIs {
			s := d.stream(t, a, vllmModel, slow)
			clients.Go(func() {
				text, message, err := s.end()
				if err != nil || !strings.Contains(message, words) || !strings.Contains(message, "server error") || !strings.Contains(message, "connection") {
					t.Errorf("%s, %s: %v, error %q, in\n%.2000s", how, a.name, err, message, text)
				}
			})
			sent := make(chan struct{})
			begun = append(begun, sent)
			clients.Go(func() {
				req := d.request(t, a.path, a.body(vllmModel, slow, false), how+"-"+a.name)
				close(sent)
				resp, err := d.client.Do(req)
				if err != nil {
					t.Errorf("%s, %s: %v", how, a.name, err)
					return
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil || !slices.Contains(statuses, resp.StatusCode) || !strings.Contains(string(text), `"error":{`) {
					t.Errorf("%s, %s: status %d, %v, %s", how, a.name, resp.StatusCode, err, text)
				}
			})
		}
		for _, c := range begun {
			<-c
		}
		d.sim = "http://" + address
		for _, a := range faultAPIs {
			d.awaitEngine(t, how+"-"+a.name, stateRunning)
		}
		d.client.CloseIdleConnections()
		fault()
		clients.Wait()
	}
	fail("stop", "The engine was silent", []int{504}, func() { signal(t, sim.Pid, syscall.SIGSTOP) })
	if got := d.status(t, faultAPIs[0], vllmModel); got != http.StatusGatewayTimeout {
		t.Errorf("a request while the engine is stopped: status %d", got)
	}
	signal(t, sim.Pid, syscall.SIGCONT)
	d.works(t, vllmModel)
	// A whole reply may have had no token yet: then its call is repeated, in vain.
	fail("kill", "The engine was cut off", []int{502, 503, 529}, func() { signal(t, sim.Pid, syscall.SIGKILL) })
	if got := d.status(t, faultAPIs[0], vllmModel); got != http.StatusServiceUnavailable {
		t.Errorf("a request while there is no engine: status %d", got)
	}
	startSimAs(t, log, "--listen", address)
	eventually(t, "an answer of the next engine", func() bool { return d.status(t, faultAPIs[0], vllmModel) == http.StatusOK })
	d.works(t, vllmModel)
	if got := log.outcomes(); got["failed"] < 4*len(faultAPIs) || got["canceled"] > 0 {
		t.Errorf("logged outcomes: %v", got)
	}
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}
