package replies

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// An engine that notices late that a call is left, and aborts it by the beginning of its id, does
// not abort the call that goes on.
func TestLeftCallsDoNotEndTheNext(t *testing.T) {
	const content = "@@<channel>analysis<message><loop>@@<channel>final<message><rand 150><return>@@\nSIM delay=5ms"
	for _, kind := range []string{"sglang", "sglang-grpc"} {
		d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Engines[0].Kind = kind }})
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}],"thinking_token_budget":20,"max_tokens":300}`, stack.SGLangModel, content)
		text := d.Answer(t, "/v1/chat/completions", body, "x-request-id", "left")
		if gjson.Get(text, "choices.0.finish_reason").Str != "stop" {
			t.Errorf("%s: %s", kind, text)
		}
		calls := d.EngineRequests(t, "left")
		if len(calls) != 2 || calls[0].State != stack.StateCancelled || calls[1].State != stack.StateFinished {
			t.Errorf("%s: %v", kind, states(calls))
		}
	}
}

func states(calls []stack.EngineRequest) (all []string) {
	for _, c := range calls {
		all = append(all, c.RequestID+" "+c.State)
	}
	return all
}

// A call whose connection breaks before its answer is repeated, and the engine takes the second
// one, though it aborts the first only later.
func TestBrokenCallsDoNotEndTheNext(t *testing.T) {
	var calls atomic.Int32
	d := stack.Start(t, stack.Options{Engine: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || calls.Add(1)%2 == 0 {
				next.ServeHTTP(w, r)
				return
			}
			// The engine has begun with it when its client is gone.
			ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
			defer cancel()
			next.ServeHTTP(discarding{http.Header{}}, r.WithContext(ctx))
			panic(http.ErrAbortHandler)
		})
	}})
	for _, format := range []string{"", `,"response_format":{"type":"json_object"}`} {
		resp, text := d.Chat(t, stack.SGLangModel, "NOTHINK\nSAY {}\nSIM first=1s", format)
		if resp.StatusCode != http.StatusOK || gjson.Get(text, "choices.0.message.content").Str != "{}" {
			t.Errorf("%s: status %d: %s", format, resp.StatusCode, text)
		}
	}
	if n := calls.Load(); n != 4 {
		t.Errorf("%d calls", n)
	}
}

// discarding is an answer that nobody reads.
type discarding struct{ header http.Header }

func (d discarding) Header() http.Header         { return d.header }
func (d discarding) Write(p []byte) (int, error) { return len(p), nil }
func (d discarding) WriteHeader(int)             {}
func (d discarding) FlushError() error           { return nil }
func (d discarding) EnableFullDuplex() error     { return nil }
