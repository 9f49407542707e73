package operations

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

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// A filter that is killed loses its streams, which never look complete, and nothing
// else: the clients of whole replies and the next ones get an error of their API,
// and Envoy finds the filter that is started in its place.
func TestFilterIsKilled(t *testing.T) {
	log := stack.LogOf(t)
	sim := stack.StartSim(t, log)
	config := []string{"--engine", "vllm=" + sim, "--set", "loopback=unix://" + filepath.Join(stack.SocketDir(t), "loopback")}
	p := stack.ServeProgram(t, log, config...)
	d := p.Envoy(t, p.Bootstrap(t))
	d.Sim = sim

	streams := make([]*stack.FaultStream, 0, len(stack.FaultAPIs))
	var clients sync.WaitGroup
	for _, a := range stack.FaultAPIs {
		streams = append(streams, d.Stream(t, a, stack.VLLMModel, hangsAt))
		clients.Go(func() { unavailable(t, d, a, hangsAt, "whole-"+a.Name) })
		d.AwaitEngine(t, "whole-"+a.Name, stack.StateRunning)
	}

	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Ended

	for _, s := range streams {
		if text, _, err := s.End(); !errors.Is(err, stack.ErrNoEnd) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the stream ends with %v:\n%s", s.API.Name, err, text)
		}
	}

	clients.Wait()
	for _, a := range stack.FaultAPIs {
		unavailable(t, d, a, "SAY x", "down")
	}
	d.AwaitCancelled(t)

	stack.ServeProgramAt(t, p.Address, log, config...)
	stack.Eventually(t, "an answer of the next filter", func() bool { return d.Status(t, stack.FaultAPIs[0], stack.VLLMModel) == http.StatusOK })
	d.Works(t, stack.VLLMModel)
}

// unavailable sends a request for a whole reply that Envoy has to answer, because
// there is no filter.
func unavailable(t *testing.T, d *stack.Dataplane, a stack.FaultAPI, content, id string) {
	t.Helper()
	resp, err := d.Client.Do(d.Request(t, a.Path, a.Body(stack.VLLMModel, content, false), id))
	if err != nil {
		t.Errorf("%s: %v", a.Name, err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode < http.StatusInternalServerError || !strings.Contains(string(text), `"error":{`) {
		t.Errorf("%s: status %d, %v, %s", a.Name, resp.StatusCode, err, text)
	}
}

// An engine that is killed or stopped mid-stream ends its streams with an error
// event and its whole replies with a status. The next request works as soon as the
// engine does.
func TestEngineIsKilledOrStops(t *testing.T) {
	log := stack.LogOf(t)
	address := "127.0.0.1:" + stack.FreePort(t)
	_, sim := stack.StartSimAs(t, log, "--listen", address)
	p := stack.ServeProgram(t, log, "--engine", "vllm=http://"+address, "--set", "loopback=unix://"+filepath.Join(stack.SocketDir(t), "loopback"),
		"--set", "limits.idle_timeout=1s", "--set", "limits.first_token_timeout=1s")
	d := p.Envoy(t, p.Bootstrap(t))

	const slow = "NOTHINK\nWORDS 3000 20"
	fail := func(how, words string, statuses []int, fault func()) {
		t.Helper()
		var clients sync.WaitGroup
		begun := make([]chan struct{}, 0, len(stack.FaultAPIs))

		for _, a := range stack.FaultAPIs {
			s := d.Stream(t, a, stack.VLLMModel, slow)
			clients.Go(func() {
				text, message, err := s.End()
				if err != nil || !strings.Contains(message, words) || !strings.Contains(message, "server error") || !strings.Contains(message, "connection") {
					t.Errorf("%s, %s: %v, error %q, in\n%.2000s", how, a.Name, err, message, text)
				}
			})

			sent := make(chan struct{})
			begun = append(begun, sent)
			clients.Go(func() {
				req := d.Request(t, a.Path, a.Body(stack.VLLMModel, slow, false), how+"-"+a.Name)
				close(sent)
				resp, err := d.Client.Do(req)
				if err != nil {
					t.Errorf("%s, %s: %v", how, a.Name, err)
					return
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil || !slices.Contains(statuses, resp.StatusCode) || !strings.Contains(string(text), `"error":{`) {
					t.Errorf("%s, %s: status %d, %v, %s", how, a.Name, resp.StatusCode, err, text)
				}
			})
		}

		for _, c := range begun {
			<-c
		}
		d.Sim = "http://" + address
		for _, a := range stack.FaultAPIs {
			d.AwaitEngine(t, how+"-"+a.Name, stack.StateRunning)
		}

		d.Client.CloseIdleConnections()
		fault()
		clients.Wait()
	}

	fail("stop", "The engine was silent", []int{504}, func() { stack.Signal(t, sim.Pid, syscall.SIGSTOP) })
	if got := d.Status(t, stack.FaultAPIs[0], stack.VLLMModel); got != http.StatusGatewayTimeout {
		t.Errorf("a request while the engine is stopped: status %d", got)
	}
	stack.Signal(t, sim.Pid, syscall.SIGCONT)
	d.Works(t, stack.VLLMModel)

	// A whole reply may have had no token yet: then its call is repeated, in vain.
	fail("kill", "The engine was cut off", []int{502, 503, 529}, func() { stack.Signal(t, sim.Pid, syscall.SIGKILL) })
	if got := d.Status(t, stack.FaultAPIs[0], stack.VLLMModel); got != http.StatusServiceUnavailable {
		t.Errorf("a request while there is no engine: status %d", got)
	}

	stack.StartSimAs(t, log, "--listen", address)
	stack.Eventually(t, "an answer of the next engine", func() bool { return d.Status(t, stack.FaultAPIs[0], stack.VLLMModel) == http.StatusOK })
	d.Works(t, stack.VLLMModel)

	if got := log.Outcomes(); got["failed"] < 4*len(stack.FaultAPIs) || got["canceled"] > 0 {
		t.Errorf("logged outcomes: %v", got)
	}
}
