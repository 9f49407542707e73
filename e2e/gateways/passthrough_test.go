package gateways

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// noise returns n bytes with all byte values.
func noise(n int) []byte {
	b := make([]byte, n)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it only has to be the same every time
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

const large = 20 << 20

// otherModelChat returns a chat request of n bytes for a model that is not gpt-oss.
func otherModelChat(n int) []byte {
	head := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"`, stack.OtherModel)
	return []byte(head + strings.Repeat("ab\\u00e4\\n", n/8) + `"}]}`)
}

// Requests that are not for the filter, and their responses, pass through
// unchanged.
func TestPassThrough(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, tt := range []struct {
		name, method, path, contentType string
		body                            []byte
	}{
		{"GET", http.MethodGet, "/v1/files?a=b&c=%20d", "", nil},
		{"GET on a path of the filter", http.MethodGet, "/v1/chat/completions", "", nil},
		{"DELETE with a body", http.MethodDelete, "/v1/files/1", "text/plain", []byte("body")},
		{"other path", http.MethodPost, "/v1/files", "application/octet-stream", noise(100_000)},
		{"other path, large", http.MethodPost, "/v1/files", "application/octet-stream", noise(large)},
		{"other model", http.MethodPost, "/v1/chat/completions", "application/json", otherModelChat(100)},
		{"other model, large", http.MethodPost, "/v1/chat/completions", "application/json", otherModelChat(large)},
		{"other model, named last", http.MethodPost, "/v1/chat/completions", "application/json; charset=utf-8", fmt.Appendf(nil, `{"messages":[{"model":"gpt-oss"}], "model" : %q }`, stack.OtherModel)},
		{"other content type", http.MethodPost, "/v1/audio/transcriptions", "multipart/form-data; boundary=x", noise(70_000)},
		{"completions", http.MethodPost, "/v1/completions", "application/json", fmt.Appendf(nil, `{"model":%q,"prompt":[1,2]}`, stack.OtherModel)},
		{"responses", http.MethodPost, "/v1/responses", "application/json", fmt.Appendf(nil, `{"model":%q,"input":"x"}`, stack.OtherModel)},
		{"responses, large", http.MethodPost, "/v1/responses", "application/json", otherModelChat(large)},
		{"input tokens", http.MethodPost, "/v1/responses/input_tokens", "application/json", fmt.Appendf(nil, `{"model":%q,"input":"x"}`, stack.OtherModel)},
		{"response that is not stored", http.MethodGet, "/v1/responses/resp_1?include[]=a", "", nil},
		{"deletion of a response that is not stored", http.MethodDelete, "/v1/responses/resp_1", "", nil},
		{"input items of a response that is not stored", http.MethodGet, "/v1/responses/resp_1/input_items?limit=2", "", nil},
		{"cancellation of a response that is not stored", http.MethodPost, "/v1/responses/resp_1/cancel", "application/json", []byte("{}")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reply := append([]byte("reply to "), tt.body...)
			var got struct {
				method, uri, contentType string
				length                   int64
				body                     []byte
			}

			d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				got.method, got.uri, got.contentType, got.length, got.body = r.Method, r.RequestURI, r.Header.Get("Content-Type"), r.ContentLength, body
				w.Header().Set("Content-Type", "x/y")
				w.Header().Set("X-Foreign", "yes")
				w.Header().Set("Content-Length", strconv.Itoa(len(reply)))
				w.WriteHeader(http.StatusTeapot)
				_, _ = w.Write(reply)
			})

			resp := d.Do(t, tt.method, tt.path, tt.contentType, bytes.NewReader(tt.body))
			back, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}

			if got.method != tt.method || got.uri != tt.path || got.contentType != tt.contentType {
				t.Errorf("arrived as %s %s, %s", got.method, got.uri, got.contentType)
			}
			if got.length != int64(len(tt.body)) {
				t.Errorf("arrived with content-length %d, sent %d bytes", got.length, len(tt.body))
			}
			if !bytes.Equal(got.body, tt.body) {
				t.Errorf("%d other bytes arrived, sent %d", len(got.body), len(tt.body))
			}

			if resp.StatusCode != http.StatusTeapot || resp.Header.Get("Content-Type") != "x/y" || resp.Header.Get("X-Foreign") != "yes" {
				t.Errorf("came back as %d %v", resp.StatusCode, resp.Header)
			}

			// The reply says so where the model is why. Of other paths the filter sees no reply.
			want := ""
			if strings.HasPrefix(tt.name, "other model") || strings.HasPrefix(tt.path, "/v1/responses") && bytes.Contains(tt.body, []byte("model")) {
				want = "model"
			}
			if passed := resp.Header.Get("X-Harmony-Passed"); passed != want && tt.path != "/v1/completions" {
				t.Errorf("x-harmony-passed: %q, want %q", passed, want)
			}

			if resp.ContentLength != int64(len(reply)) {
				t.Errorf("came back with content-length %d, sent %d bytes", resp.ContentLength, len(reply))
			}
			if !bytes.Equal(back, reply) {
				t.Errorf("%d other bytes came back, sent %d", len(back), len(reply))
			}
		})
	}
}

// Where nobody serves other models, a request for one does not reach the upstream: the client
// gets the names of the models that there are.
func TestOtherModelsAreRejected(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.UnknownModels = config.UnknownReject }})
	d.Upstream.Handle(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s has reached the upstream", r.URL) })
	for path, form := range map[string]string{"/v1/chat/completions": `"code":"model_not_found"`, "/v1/messages": `"type":"not_found_error"`} {
		for _, body := range [][]byte{otherModelChat(100), otherModelChat(large), []byte(`{"model":""}`)} {
			resp := d.Do(t, http.MethodPost, path, "application/json", bytes.NewReader(body))
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusNotFound || !strings.Contains(string(text), form) || !strings.Contains(string(text), "There is no model") {
				t.Errorf("%s with %d bytes: %d %.300s", path, len(body), resp.StatusCode, text)
			}
		}
	}
}

// The stream of another model passes through without delay: each chunk is written
// after the client has received the previous one.
func TestPassThroughStream(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	pieces := []string{"data: {\"a\":1}\n\n", "data: ha", "lf\r\n", "\r\n: comment\n\n", "\x00\xff\xfe not SSE", "data: [DONE]\n\n"}
	next := make(chan struct{}, 1)

	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = out.Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})

	resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json",
		strings.NewReader(fmt.Sprintf(`{"model":%q,"stream":true,"messages":[]}`, stack.OtherModel)))
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}

	for _, want := range pieces {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("piece (-want +got):\n%s", diff)
		}
		next <- struct{}{}
	}

	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the last piece: %q, %v", rest, err)
	}
}

// A client cannot select an engine by header.
func TestForgedEngineHeader(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "upstream %q", r.Header.Get("X-Harmony-Engine"))
	})
	for _, path := range []string{"/v1/files", "/v1/models/x", "/v1/chat/completions", "/health"} {
		resp := d.Do(t, http.MethodGet, path, "", http.NoBody, "x-harmony-engine", "vllm")
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if want := `upstream ""`; string(got) != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// With allow_override a header decides whether the filter handles a request.
func TestOverride(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		t.Run(strconv.FormatBool(allowed), func(t *testing.T) {
			d := stack.Start(t, stack.Options{Config: allowOverride(allowed)})
			d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "upstream %q", r.Header.Get("X-Envoy-Harmony"))
			})
			isForeign := func(model, value string) bool {
				_, text := d.Chat(t, model, "hi", "", "x-envoy-harmony", value)
				return strings.HasPrefix(text, "upstream")
			}
			if got := isForeign(stack.SGLangModel, "off"); got != allowed {
				t.Errorf("a Harmony model with the filter off passes through: %v", got)
			}
			if got := isForeign(stack.OtherModel, "on"); got == allowed {
				t.Errorf("another model with the filter on passes through: %v", got)
			}
		})
	}
}

func allowOverride(allow bool) func(*config.Config) {
	return func(c *config.Config) { c.AllowOverride = allow }
}
