//go:build engines

package engines

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// Reasoning beyond its budget is ended, and the script's answer follows, also under a
// grammar.
func realBudget(t *testing.T, d *stack.Dataplane, model string) {
	think := "THINK" + strings.Repeat(" word", 200) + "\nSAY "
	for name, c := range map[string]struct{ answer, fields string }{
		"text":    {"It is 42.", ""},
		"grammar": {`{"ok":true}`, `,"response_format":{"type":"json_schema","json_schema":{"name":"r","strict":true,"schema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}}}`},
	} {
		_, reply := d.Chat(t, model, think+c.answer, `,"thinking_token_budget":30`+c.fields)
		choice := gjson.Get(reply, "choices.0")
		if choice.Get("message.content").Str != c.answer || choice.Get("finish_reason").Str != "stop" || gjson.Get(reply, "usage.completion_tokens_details.reasoning_tokens").Int() != 30 {
			t.Errorf("%s: %s", name, reply)
		}
		if got := streamedContent(d.Chat(t, model, think+c.answer, `,"stream":true,"thinking_token_budget":30`+c.fields)); got != c.answer {
			t.Errorf("%s, streamed: %q", name, got)
		}
	}
}

// Weights at random that have begun to reason go on without an end. With a budget every
// one of their replies has an answer.
func endlessReasoning(t *testing.T, d *stack.Dataplane, model string) {
	const requests = 10
	answers := map[bool]int{}
	for _, budget := range []int{-1, 15} {
		for i := range requests {
			body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Number %d"},{"role":"assistant","reasoning":"I begin"}],"continue_final_message":true,"add_generation_prompt":false,
				"max_completion_tokens":50,"seed":%d,"thinking_token_budget":%d,"logit_bias":{"200002":-100,"199999":-100,"200012":-100,"200007":-100,"200005":-100,"200006":-100}}`, model, i, i, budget)
			status, reply := d.Post(t, "/v1/chat/completions", body)
			if status != http.StatusOK {
				t.Fatalf("status %d: %s", status, reply.Raw)
			}

			if reply.Get("choices.0.message.content").Str != "" {
				answers[budget > 0]++
			}

			if n := reply.Get("usage.completion_tokens_details.reasoning_tokens").Int(); budget > 0 && (n < int64(budget) || n > int64(budget)+3) {
				t.Errorf("%d tokens of reasoning: %s", n, reply.Raw)
			}
		}
	}

	t.Logf("%d of %d replies have an answer with a budget, %d without", answers[true], requests, answers[false])
	if answers[true] != requests || answers[false] == requests {
		t.Errorf("answers: %v", answers)
	}
}

// One of two vLLMs is killed in mid-stream: the other one continues its streams.
func TestRealKill(t *testing.T) {
	first := engineAt(t, "ENGINE_TEST_VLLM", "vllm", nil)
	port := stack.FreePort(t)
	cmd := exec.Command("engines/run.sh", "serve", "vllm")
	cmd.Env = append(os.Environ(), "PORT="+port)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	log, err := os.Create("../.engines/vllm-killed.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	kill := sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	defer kill()

	second := "http://127.0.0.1:" + port
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Second) {
		if resp, err := http.Get(second + "/health"); err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the second engine is not ready: see .engines/vllm-killed.log")
		}
	}

	d := stack.Start(t, stack.Options{SimURL: first.url, Config: func(c *config.Config) {
		c.Date, c.Routing = tinyDate, config.Routing{}
		c.Engines = []config.Engine{{Kind: "vllm", URLs: []string{first.url, second}}}
		c.Models = []config.Model{{Match: "=" + stack.ModelOf("vllm"), UpstreamModel: tinyModel, ContextLength: tinyContext}}
	}})

	const words, streams = 120, 8
	want := make([]string, words)
	for i := range want {
		want[i] = fmt.Sprintf("w%d", i+1)
	}

	running := func() int { return metric("vllm:num_requests_running")(t, realEngine{url: second}) }
	var clients sync.WaitGroup
	for i := range streams {
		clients.Go(func() {
			_, events := d.Chat(t, stack.ModelOf("vllm"), fmt.Sprintf("Stream %d\nNOTHINK\nWORDS %d 30", i, words), `,"stream":true,"temperature":0`)
			if got := streamedContent(nil, events); got != strings.Join(want, " ") {
				t.Errorf("stream %d: %q: %s", i, got, events[max(0, len(events)-400):])
			}
		})
	}

	stack.Eventually(t, "streams at the second engine", func() bool { return running() > 1 })
	time.Sleep(time.Second) // in mid-stream

	lost := running()
	kill()
	clients.Wait()
	t.Logf("%d of %d streams were continued", lost, streams)
}
