//go:build engines

package engines

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// realCut shows that a call that is repeated is answered, whatever becomes of the first one.
func realCut(t *testing.T, e realEngine, user, more, want string) {
	for name, streamed := range map[string]string{"whole": "", "streamed": `,"stream":true`} {
		proxied(t, e, func(d *stack.Dataplane) {
			resp, reply := d.Chat(t, stack.ModelOf(e.kind), user, more+streamed)
			got := gjson.Get(reply, "choices.0.message.content").Str
			if streamed != "" {
				got = streamedContent(resp, reply)
			}
			if got != want {
				t.Errorf("%s: %s: %q, want %q: %s", name, resp.Status, got, want, reply[max(0, len(reply)-400):])
			}
		})
	}
}

// proxied calls request, which makes one request, for a data plane whose engine is behind a proxy. The connection breaks
// when the engine has begun to generate, and the filter repeats the call. The engine has the first one too, and learns
// that its client is gone while it generates for the second: it ends the first, and SGLang with it every other whose
// id begins like that of the first.
func proxied(t *testing.T, e realEngine, request func(*stack.Dataplane)) {
	t.Helper()
	proxy := newCuttingProxy(t, e)
	e.url = proxy.URL
	request(startReal(t, e))
	if n := proxy.calls.Load(); n != 2 {
		t.Errorf("the engine got %d calls, want 2", n)
	}
}

// cuttingProxy stands before an engine. It breaks the connection of the first model call when the engine has begun to
// answer, and leaves that call to the engine until the answer to the second begins.
type cuttingProxy struct {
	*httptest.Server
	calls     atomic.Int32
	target    *url.URL
	transport *http.Transport

	// first lasts as long as the engine has a client for the first call.
	first context.Context
	leave context.CancelFunc
}

func newCuttingProxy(t *testing.T, e realEngine) *cuttingProxy {
	t.Helper()
	target, err := url.Parse(e.url)
	if err != nil {
		t.Fatal(err)
	}
	p := &cuttingProxy{target: target, transport: &http.Transport{Protocols: new(http.Protocols)}}
	ofGRPC := strings.HasSuffix(e.kind, "-grpc")
	p.transport.Protocols.SetHTTP1(!ofGRPC)
	p.transport.Protocols.SetUnencryptedHTTP2(ofGRPC)
	t.Cleanup(p.transport.CloseIdleConnections)
	p.first, p.leave = context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(p.leave)

	forward := &httputil.ReverseProxy{
		Transport:     p.transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(resp *http.Response) error {
			if isModelCall(resp.Request) {
				p.leave()
			}
			return nil
		},
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isModelCall(r) && p.calls.Add(1) == 1 {
			p.cut(r)
		}
		forward.ServeHTTP(w, r)
	}))
	p.Config.Protocols = new(http.Protocols)
	p.Config.Protocols.SetHTTP1(true)
	p.Config.Protocols.SetUnencryptedHTTP2(true)
	p.Start()
	t.Cleanup(p.Close)
	return p
}

// isModelCall reports whether the engine generates for a request.
func isModelCall(r *http.Request) bool {
	return r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/GetModelInfo")
}

// cut sends the request to the engine, and breaks the client's connection once the engine answers.
func (p *cuttingProxy) cut(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	req := r.Clone(p.first)
	req.RequestURI, req.Body = "", io.NopCloser(bytes.NewReader(body))
	req.URL.Scheme, req.URL.Host = p.target.Scheme, p.target.Host

	if resp, err := p.transport.RoundTrip(req); err == nil {
		// The first event says that the engine generates.
		_, _ = resp.Body.Read(make([]byte, 1))
		go func() {
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
		}()
	}
	panic(http.ErrAbortHandler)
}
