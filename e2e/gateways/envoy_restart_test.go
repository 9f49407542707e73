package gateways

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// pod is an Envoy with a filter of its own, as in the chart's mode sidecar.
type pod struct {
	program *stack.Program
	envoy   *envoy.Process
	url     string
}

// startPod starts a pod whose filter tells its Envoy when it drains.
func startPod(t *testing.T, log *stack.LogFile, sim string) *pod {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}

	admin := "127.0.0.1:" + stack.FreePort(t)
	config := []string{"--engine", "vllm=" + sim, "--set", "loopback=unix://" + filepath.Join(stack.SocketDir(t), "loopback")}
	one := &pod{program: stack.ServeProgram(t, log, append(slices.Clone(config), "--set", "drain_delay=2s", "--drain-envoy", "http://"+admin)...)}
	one.program.Config = config

	ctx, cancel := context.WithTimeout(t.Context(), stack.Patience)
	defer cancel()

	sink := log.Named("envoy")
	one.envoy, err = envoy.Launch(ctx, envoy.LaunchOptions{
		Binary: binary, Bootstrap: one.program.Bootstrap(t, "--envoy-admin", admin), Concurrency: 1,
		Log: func(line string) { fmt.Fprintln(sink, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.envoy.Stop(context.Background()) })

	address, err := one.envoy.ListenAddress(ctx)
	if err != nil {
		t.Fatal(err)
	}

	one.url = "http://" + address
	return one
}

// ready reports whether the pod's Envoy says that it takes requests.
func (p *pod) ready(client *http.Client) bool {
	resp, err := client.Get("http://" + p.envoy.AdminAddress() + "/ready")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// restart ends a pod as Kubernetes does, and starts another in its place.
func (p *pod) restart(t *testing.T, log *stack.LogFile, sim string) *pod {
	t.Helper()
	stack.Signal(t, p.program.Process.Pid, syscall.SIGTERM)
	stack.Receive(t, p.program.Ended, "the end of the filter")
	if p.program.Exit != 0 {
		t.Errorf("exit status %d", p.program.Exit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), stack.Patience)
	defer cancel()
	if err := p.envoy.Drain(ctx); err != nil {
		t.Error(err)
	}
	p.envoy.Stop(ctx)
	return startPod(t, log, sim)
}

// balancer chooses pods by their health, as a load balancer does.
type balancer struct {
	mu   sync.Mutex
	pods []*pod
	n    int
}

func (b *balancer) next(client *http.Client) *stack.Dataplane {
	b.mu.Lock()
	pods := slices.Clone(b.pods)
	b.n++
	n := b.n
	b.mu.Unlock()
	for i := range pods {
		if p := pods[(n+i)%len(pods)]; p.ready(client) {
			return &stack.Dataplane{URL: p.url, Client: client}
		}
	}
	return &stack.Dataplane{URL: "http://127.0.0.1:1", Client: client}
}

func (b *balancer) replace(i int, p *pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[i] = p
}

// Pods of an Envoy and a filter that are restarted one after the other under load
// lose no stream: those that run end where they are, the next ones go to the other
// pod, because the filter has its Envoy fail its health checks first.
func TestRollingRestartOfEnvoy(t *testing.T) {
	log := stack.LogOf(t)
	sim := stack.StartSim(t, log)
	b := &balancer{pods: []*pod{startPod(t, log, sim), startPod(t, log, sim)}}

	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var done, failed atomic.Int64
	for i := range 8 {
		load.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				if !streams(t, b.next(client), &stack.FaultAPIs[n%len(stack.FaultAPIs)]) {
					failed.Add(1)
				}
				done.Add(1)
			}
		})
	}

	more := func() {
		t.Helper()
		from := done.Load()
		stack.Eventually(t, "more streams", func() bool { return done.Load() >= from+24 })
	}

	for i := range b.pods {
		more()
		b.replace(i, b.pods[i].restart(t, log, sim))
	}

	more()
	stop()
	load.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d streams failed", n, done.Load())
	}
}

// streams asks for a stream that takes a moment, and reports whether it is complete.
func streams(t *testing.T, d *stack.Dataplane, a *stack.FaultAPI) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	resp, err := d.Client.Do(d.Request(t, a.Path, a.Body(stack.VLLMModel, "NOTHINK\nWORDS 20 20", true), "").WithContext(ctx))
	if err != nil {
		t.Logf("%s: %v", a.Name, err)
		return false
	}
	defer resp.Body.Close()
	text, message, err := a.Read(resp.Body)
	if err != nil || message != "" || resp.StatusCode != http.StatusOK {
		t.Logf("%s: status %d, %v, %s, in\n%.2000s", a.Name, resp.StatusCode, err, message, text)
		return false
	}
	return true
}
