//go:build engines

package engines

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// One of two engines is killed in mid-stream: the other one continues its streams.
func TestRealKillVLLM(t *testing.T) {
	killReplica(t, engineAt(t, "ENGINE_TEST_VLLM", "vllm", metric("vllm:num_requests_running")), "vllm")
}

func TestRealKillVLLMGRPC(t *testing.T) {
	killReplica(t, engineAt(t, "ENGINE_TEST_VLLM_GRPC", "vllm-grpc", grpcLoad), "vllm-grpc")
}

func TestRealKillSGLang(t *testing.T) {
	killReplica(t, engineAt(t, "ENGINE_TEST_SGLANG", "sglang", sglangLoad), "sglang")
}

func TestRealKillSGLangGRPC(t *testing.T) {
	killReplica(t, engineAt(t, "ENGINE_TEST_SGLANG_GRPC", "sglang-grpc", grpcLoad), "sglang-grpc")
}

// killReplica starts a second engine of a part of run.sh, and kills it while both generate.
func killReplica(t *testing.T, first realEngine, part string) {
	second := first
	var kill func()
	second.url, kill = startSecond(t, part)

	model := stack.ModelOf(first.kind)
	d := stack.Start(t, stack.Options{SimURL: first.url, Config: func(c *config.Config) {
		c.Date, c.Routing = tinyDate, config.Routing{}
		c.Engines = []config.Engine{{Kind: first.kind, URLs: []string{first.url, second.url}}}
		c.Models = []config.Model{{Match: "=" + model, UpstreamModel: tinyModel, ContextLength: tinyContext}}
	}})

	const words, streams = 120, 8
	var clients sync.WaitGroup
	for i := range streams {
		clients.Go(func() {
			script := fmt.Sprintf("Stream %d\nNOTHINK\nWORDS %d 30", i, words)
			_, events := d.Chat(t, model, script, `,"stream":true,"temperature":0`)
			if got := streamedContent(nil, events); got != wordsUpTo(words) {
				t.Errorf("stream %d: %q: %s", i, got, events[max(0, len(events)-400):])
			}
		})
	}

	running := func() int { return second.running(t, second) }
	stack.Eventually(t, "streams at the second engine", func() bool { return running() > 1 })
	time.Sleep(time.Second) // in mid-stream

	lost := running()
	kill()
	clients.Wait()
	t.Logf("%d calls were reported at the engine that was killed, of %d streams", lost, streams)
}

// startSecond starts another engine of a part of run.sh, and returns its URL when it is ready, and what kills it.
func startSecond(t *testing.T, part string) (url string, kill func()) {
	t.Helper()
	port := stack.FreePort(t)
	cmd := exec.Command("engines/run.sh", "serve", part)
	cmd.Env = append(os.Environ(), "PORT="+port)
	// The engine's processes are a group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	name := part + "-killed.log"
	log, err := os.Create("../.engines/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	kill = sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	})
	t.Cleanup(kill)

	address := "127.0.0.1:" + port
	for deadline := time.After(10 * time.Minute); !listens(address, strings.HasSuffix(part, "-grpc")); {
		select {
		case <-ended:
			t.Fatalf("the second engine does not start: see .engines/%s", name)
		case <-deadline:
			t.Fatalf("the second engine is not ready: see .engines/%s", name)
		case <-time.After(time.Second):
		}
	}
	return "http://" + address, kill
}

// listens reports whether an engine is ready. Only HTTP says so: a gRPC server listens when it is.
func listens(address string, ofGRPC bool) bool {
	if ofGRPC {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}

	resp, err := direct.Get("http://" + address + "/health")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
