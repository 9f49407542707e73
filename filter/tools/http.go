package tools

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
)

const (
	clientName   = "envoy-harmony"
	maxRedirects = 3
	// maxEventBytes bounds an event of a stream that lives as long as its
	// session. Others are bounded as a whole.
	maxEventBytes = MaxMessageBytes + 64<<10
)

var (
	errRedirect = errors.New("the server redirects to another place")
	errTooLarge = errors.New("the answer is too large")
	errClosed   = errors.New("the session is closed")
)

// guard sends the HTTP requests of one session: only to the server's own origin,
// with its headers, and for no longer than the session lives. What comes back is
// bounded.
type guard struct {
	session *session
	origin  string
	wire    *wire // nil until there is a connection
	opening *call // the call that the session is opened for
}

func newGuard(s *session, opening *call) (*guard, error) {
	u, err := url.Parse(s.server.URL)
	if err != nil {
		return nil, errors.New("the server's URL is not valid")
	}
	return &guard{session: s, origin: origin(u), opening: opening}, nil
}

// client is the HTTP client of the session.
func (g *guard) client() *http.Client {
	return &http.Client{Transport: g, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || req.Method != via[0].Method {
			callOf(req.Context()).note(func(f *facts) { f.err = errRedirect })
			return errRedirect
		}
		return nil // RoundTrip looks at the origin
	}}
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	known := callOf(req.Context())
	if known != g.opening && req.Method != http.MethodPost {
		known = nil // an answer is being fetched: that tells nothing of the call itself
	}
	if origin(req.URL) != g.origin {
		known.note(func(f *facts) { f.err = errRedirect })
		closeBody(req)
		return nil, errRedirect
	}
	ctx, end := context.WithCancelCause(req.Context())
	unbind := context.AfterFunc(g.session.ctx, func() { end(errClosed) })
	finish := func() { unbind(); end(nil) }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { known.note(func(f *facts) { f.wrote = true }) },
	})
	known.note(func(f *facts) { f.err, f.status, f.session = nil, 0, req.Header.Get("Mcp-Session-Id") != "" })
	req = req.Clone(ctx)
	req.Header.Set("User-Agent", clientName)
	addHeader(req.Header, g.session.server.Header)
	if v, _ := g.version(); v != "" && req.Header.Get("Mcp-Protocol-Version") == "" {
		req.Header.Set("Mcp-Protocol-Version", v)
	}
	resp, err := g.session.client.transport(g.session.server).RoundTrip(req)
	if err != nil {
		finish()
		known.note(func(f *facts) { f.err = err })
		return nil, err
	}
	known.note(func(f *facts) { f.status = resp.StatusCode })
	left := int64(MaxMessageBytes)
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); req.Method == http.MethodGet && kind == "text/event-stream" {
		left = -1 // a stream for the life of the session, whose events are bounded
	}
	resp.Body = &body{ReadCloser: resp.Body, left: left, finish: finish, call: known}
	return resp, nil
}

func (g *guard) version() (string, bool) {
	if g.wire == nil {
		return "", false
	}
	v, ok := g.wire.version.Load().(string)
	return v, ok
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// body is a response's body that ends with an error where it is too long.
type body struct {
	io.ReadCloser
	left   int64 // < 0: any length
	finish func()
	call   *call
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return b.ReadCloser.Read(p)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		b.call.note(func(f *facts) { f.tooLarge = true })
		n, err = int(b.left), errTooLarge
	}
	b.left -= int64(n)
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.finish()
	return err
}
