package render

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// newTestServer serves the service, of which requests at a time may hold 64 KiB.
func newTestServer(observe func(string, int, time.Duration)) *Server {
	rc := apitest.NewContext()
	return NewServer(&ServerOptions{
		Endpoints: service, Turns: rc.Env, Timeout: time.Minute, MaxBodyBytes: 16 << 10, MaxInflightBytes: 64 << 10, Observe: observe,
		Model: func(name string) *turn.Model {
			if name == "llama" {
				return nil
			}
			return rc.Model
		},
	})
}

func TestServer(t *testing.T) {
	t.Parallel()
	observed := map[string]int{}
	s := newTestServer(func(path string, status int, _ time.Duration) { observed[fmt.Sprintf("%s %d", path, status)]++ })
	const chat, messages = "/v1/chat/completions", "/v1/messages"
	plain := http.Header{"Content-Type": {"application/json"}}
	streamed := fmt.Sprintf(`{"stream":true,"chat_request":%s,"generate_response":%s}`, requests[chat], generated(apitest.Said(said)))
	for _, c := range []struct {
		name, method, path, body string
		header                   http.Header
		status                   int
		want                     string
	}{
		{"a text", "POST", TokenizePath, `{"prompt":"Hello"}`, plain, 200, `"tokens":[13225]`},
		{"no content type", "POST", TokenizePath, `{"prompt":"Hello"}`, nil, 200, `"tokens":[13225]`},
		{"a request", "POST", chat + "/render", requests[chat], plain, 200, `"token_ids":[200006,`},
		{"a reply", "POST", chat + "/derender", strings.Replace(streamed, "true", "false", 1), plain, 200, `"object":"chat.completion"`},
		{"a stream", "POST", chat + "/derender", streamed, plain, 200, "data: [DONE]"},
		{"another model", "POST", chat + "/render", apitest.With(t, requests[chat], "model", "llama"), plain, 404, `"model_not_found"`},
		{"another model in the request", "POST", chat + "/derender", strings.Replace(streamed, "gpt-oss-20b", "llama", 1), plain, 404, `"model_not_found"`},
		{"Anthropic's errors", "POST", messages + "/render", `{`, plain, 400, `{"type":"error"`},
		{"no path", "POST", "/v1/nothing", `{}`, plain, 404, `"not_found"`},
		{"another method", "GET", TokenizePath, "", plain, 404, `"not_found"`},
		{"the model is not called", "POST", chat, requests[chat], plain, 404, `"not_found"`},
		{"another content type", "POST", TokenizePath, `{"prompt":"Hello"}`, http.Header{"Content-Type": {"text/plain"}}, 415, `"unsupported_media_type"`},
		{"a compressed body", "POST", TokenizePath, `{"prompt":"Hello"}`, http.Header{"Content-Encoding": {"gzip"}}, 415, `"unsupported_media_type"`},
		{"a large body", "POST", TokenizePath, `{"prompt":"` + strings.Repeat("a", 16<<10) + `"}`, plain, 413, `"request_too_large"`},
	} {
		for _, length := range []string{"known", "unknown"} {
			t.Run(c.name+"/length "+length, func(t *testing.T) {
				r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
				if length == "unknown" {
					r.ContentLength = -1
				}
				r.Header = c.header.Clone()
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
					t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
				}
				if kind := w.Header().Get("Content-Type"); (kind == "text/event-stream") != (c.name == "a stream") {
					t.Errorf("content type %q", kind)
				}
				if n := s.held.Load(); n != 0 {
					t.Errorf("%d bytes are held for no request", n)
				}
			})
		}
	}
	if observed["other 404"] != 6 || observed[TokenizePath+" 200"] != 4 || observed["/v1/messages/render 400"] != 2 {
		t.Errorf("observed: %v", observed)
	}
}

// Requests whose bodies are still arriving hold their bytes, and what does not fit is
// rejected.
func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	s := newTestServer(nil)
	bodies := make([]*io.PipeWriter, 5)
	ended := make(chan *httptest.ResponseRecorder, len(bodies))
	for i := range bodies {
		var body io.Reader
		body, bodies[i] = io.Pipe()
		r := httptest.NewRequest(http.MethodPost, TokenizePath, body)
		r.ContentLength = 15 << 10
		go func() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			ended <- w
		}()
	}
	if w := <-ended; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || gjson.Get(w.Body.String(), "error.code").Str != "overloaded" {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	for _, b := range bodies {
		_ = b.CloseWithError(io.ErrUnexpectedEOF)
	}
	for range len(bodies) - 1 {
		if w := <-ended; w.Code != http.StatusBadRequest {
			t.Errorf("a body that breaks off: status %d: %s", w.Code, w.Body)
		}
	}
	if n := s.held.Load(); n != 0 {
		t.Errorf("%d bytes are held for no request", n)
	}
}

// FuzzServer has any body answered on any path, whatever is in it, and never with an
// error of the server.
func FuzzServer(f *testing.F) {
	s := newTestServer(nil)
	reply := generated(apitest.Said(said))
	for path, request := range requests {
		f.Add(path+renderSuffix, request)
		f.Add(path+derenderSuffix, fmt.Sprintf(`{%q:%s,"generate_response":%s}`, kindOf(path).request, request, reply))
		f.Add(path+derenderSuffix, fmt.Sprintf(`{%q:%s,"stream":true,"generate_chunk":%s}`, kindOf(path).request, request, reply))
	}
	f.Add(TokenizePath, `{"prompt":"Hello","return_token_strs":true}`)
	f.Add(DetokenizePath, `{"tokens":[13225,200006,199]}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \r\n\t%?#\x7f") {
			t.Skip()
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.URL.Path = path
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError || s.held.Load() != 0 {
			t.Errorf("status %d, %d bytes held: %s", w.Code, s.held.Load(), w.Body)
		}
		if w.Header().Get("Content-Type") == "application/json" && !gjson.Valid(w.Body.String()) {
			t.Errorf("no JSON: %s", w.Body)
		}
	})
}
