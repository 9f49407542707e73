package replies

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Errors before the reply are HTTP errors, streamed or not.
func TestErrorsBeforeTheReply(t *testing.T) {
	patient := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Limits.MaxBodyBytes = 1 << 20
		c.Engines = append(c.Engines, config.Engine{Name: "gone", Kind: "vllm", URLs: []string{"http://127.0.0.1:1"}})
		c.Models = append(c.Models, config.Model{Match: "=gpt-oss-gone", Engine: "gone"})
	}})

	impatient := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Limits.FirstTokenTimeout = config.Duration{Duration: time.Second}
	}})

	for _, tt := range []struct {
		name     string
		model    string // default: each of HarmonyModels
		more     string // further members of the request
		behavior string // directives for the engine
		status   int
		typ      string
	}{
		{"top_logprobs alone", "", `,"top_logprobs":2`, "", 400, "invalid_request_error"},
		{"wrong type", "", `,"temperature":"hot"`, "", 400, "invalid_request_error"},
		{"repeated model", "", `,"model":"x"`, "", 400, "invalid_request_error"},
		{"not JSON", "", `,`, "", 400, "invalid_request_error"},
		{"too large", "", `,"user":"` + strings.Repeat("x", 2<<20) + `"`, "", 413, "invalid_request_error"},
		{"engine 400", "", "", "status=400", 400, "invalid_request_error"},
		{"engine does not serve the model", "gpt-oss-none", "", "", 404, "not_found_error"},
		{"engine 429", "", "", "status=429 retry-after=7", 429, "rate_limit_error"},
		{"engine 429 without a time", "", "", "status=429", 429, "rate_limit_error"},
		{"engine 500", "", "", "status=500 body=detail", 502, "server_error"},
		{"engine 503", "", "", "status=503 body=empty", 503, "server_error"},
		{"engine 503 in HTML", "", "", "status=503 body=html", 503, "server_error"},
		{"engine error as first event", "", "", "fault=error@0", 502, "server_error"},
		{"engine hangs", "", "", "fault=hang@0", 504, "server_error"},
		{"engine is gone", "gpt-oss-gone", "", "", 503, "server_error"},
	} {
		models, d := stack.HarmonyModels, patient
		if tt.model != "" {
			models = []string{tt.model}
		}
		if tt.status == http.StatusGatewayTimeout {
			d = impatient
		}

		for _, model := range models {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/stream=%v", tt.name, model, stream), func(t *testing.T) {
					more := fmt.Sprintf(`,"stream":%v%s`, stream, tt.more)
					resp, text := d.Chat(t, model, stack.Secret, more, "x-engine-sim", tt.behavior)
					got := stack.ReadError(t, text)
					if resp.StatusCode != tt.status || got.Type != tt.typ {
						t.Errorf("status %d, type %s, want %d, %s: %s", resp.StatusCode, got.Type, tt.status, tt.typ, text)
					}

					if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
						t.Errorf("content type %q", ct)
					}

					want := map[int]string{429: "1", 503: "1"}[tt.status]
					if strings.Contains(tt.behavior, "retry-after=7") {
						want = "7"
					}
					if resp.Header.Get("Retry-After") != want {
						t.Errorf("retry-after %q, want %q", resp.Header.Get("Retry-After"), want)
					}
				})
			}
		}
	}
}

// slowWords is a reply that is slow enough for a client to receive its beginning
// before the fault.
const slowWords = "NOTHINK\nWORDS 60\nSIM delay=20ms fault="

// Errors during a stream are an error event, after which the stream ends normally.
// For a reply that is not streamed they are HTTP errors.
func TestErrorsDuringTheReply(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, fault := range []string{"error@40", "end@40", "garbage@40", "done@40", "cut@40"} {
		for _, model := range stack.HarmonyModels {
			t.Run(fault+"/"+model, func(t *testing.T) {
				resp, text := d.Chat(t, model, slowWords+fault, `,"stream":true`)
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("status %d: %s", resp.StatusCode, text)
				}
				events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
				if len(events) < 3 || events[len(events)-1] != "data: [DONE]" {
					t.Fatalf("the stream does not end normally:\n%s", text)
				}
				if e := stack.ReadError(t, strings.TrimPrefix(events[len(events)-2], "data: ")); !strings.Contains(e.Message, "server error") || !strings.Contains(e.Message, "connection") {
					t.Errorf("clients do not know that they can try again: %q", e.Message)
				}
				if !strings.Contains(text, `"content":"w`) {
					t.Errorf("the text before the fault is lost:\n%s", text)
				}

				resp, text = d.Chat(t, model, slowWords+fault, "")
				if stack.ReadError(t, text); resp.StatusCode < 500 {
					t.Errorf("not streamed: status %d", resp.StatusCode)
				}
			})
		}
	}
}

// Without a loopback listener, Envoy resets the client's stream if the engine
// disconnects: it must not look complete. Before the reply's headers it is an HTTP
// error.
func TestConnectionBreaksWithoutLoopback(t *testing.T) {
	d := stack.Start(t, stack.Options{Direct: true})
	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) {
			resp, text := d.Chat(t, model, slowWords+"cut@40", "")
			if stack.ReadError(t, text); resp.StatusCode < 500 {
				t.Errorf("not streamed: status %d", resp.StatusCode)
			}
			body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, model, slowWords+"cut@40")
			resp = d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body))
			got, err := io.ReadAll(resp.Body)
			if err == nil && !strings.Contains(string(got), `data: {"error"`) {
				t.Errorf("the stream looks complete:\n%s", got)
			}
			if !strings.Contains(string(got), `"content":"w`) {
				t.Errorf("the text before the disconnect is lost:\n%s", got)
			}
		})
	}
}

// If the engine disconnects before the first token, the call is retried once,
// invisibly to the client. After two failures the client gets an error.
func TestRetryBeforeFirstToken(t *testing.T) {
	for _, tt := range []struct {
		breaks int32
		status int
	}{{1, http.StatusOK}, {2, http.StatusBadGateway}} {
		var requests atomic.Int32
		d := stack.Start(t, stack.Options{Engine: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || requests.Add(1) > tt.breaks {
					next.ServeHTTP(w, r)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
		}})

		for _, more := range []string{"", `,"stream":true`} {
			requests.Store(0)
			resp, text := d.Chat(t, stack.VLLMModel, "NOTHINK\nSAY again", more)
			if resp.StatusCode != tt.status || tt.status == http.StatusOK && !strings.Contains(text, "again") {
				t.Errorf("%d disconnects%s: status %d: %s", tt.breaks, more, resp.StatusCode, text)
			}

			if got := requests.Load(); got != 2 {
				t.Errorf("%d disconnects%s: the engine got %d requests", tt.breaks, more, got)
			}
		}
	}
}

// Strict parsing fails at the first violation; tolerant parsing never fails.
func TestOnMalformed(t *testing.T) {
	malformed := "@@<channel>analysis<message>hm<end><message>no header<return>@@"
	t.Run("repair", func(t *testing.T) {
		d := stack.Start(t, stack.Options{})
		if resp, text := d.Chat(t, stack.SGLangModel, malformed, ""); resp.StatusCode != http.StatusOK || !strings.Contains(text, "no header") {
			t.Errorf("status %d: %s", resp.StatusCode, text)
		}
	})
	t.Run("fail", func(t *testing.T) {
		d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.OnMalformed = turn.MalformedFail }})
		resp, text := d.Chat(t, stack.SGLangModel, malformed, "")
		if stack.ReadError(t, text); resp.StatusCode < 500 {
			t.Errorf("status %d: %s", resp.StatusCode, text)
		}
	})
}

// Without the filter no request reaches an engine, and the client gets an OpenAI
// error.
func TestFilterIsDown(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "upstream") })
	d.Filter.Stop()
	resp, text := d.Chat(t, stack.SGLangModel, stack.Secret, "", "x-request-id", "down")
	if got := stack.ReadError(t, text); resp.StatusCode != http.StatusServiceUnavailable || got.Type != "server_error" {
		t.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if got := d.EngineRequests(t, "down"); len(got) > 0 {
		t.Errorf("the engine got %+v", got)
	}
	resp = d.Do(t, http.MethodGet, "/v1/files", "", http.NoBody)
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "upstream" {
		t.Errorf("a path that bypasses the filter: %q, %v", got, err)
	}
}

// If an engine answers 503 before the reply, Envoy retries with the same body, even
// a full context.
func TestEnvoyRetries(t *testing.T) {
	var requests atomic.Int32
	d := stack.Start(t, stack.Options{Engine: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1)%2 == 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})

	for _, model := range stack.HarmonyModels {
		for _, words := range []int{1, 120_000} {
			t.Run(fmt.Sprintf("%s/%d words", model, words), func(t *testing.T) {
				id := fmt.Sprintf("retry-%s-%d", model, words)
				resp, text := d.Chat(t, model, strings.Repeat("word ", words)+"\nSAY done", "", "x-request-id", id)
				if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"done"`) {
					t.Fatalf("status %d: %.200s", resp.StatusCode, text)
				}

				if n := strings.Count(d.AwaitEngine(t, id, stack.StateFinished).Prompt, "word "); n != words {
					t.Errorf("the engine saw %d words, want %d", n, words)
				}
			})
		}
	}
}
