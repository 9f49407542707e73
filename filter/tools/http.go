package tools

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	clientName   = "envoy-harmony"
	maxRedirects = 3
)

var (
	errRedirect = errors.New("the server redirects to another place")
	errTooLarge = errors.New("the answer is too large")
	errClosed   = errors.New("the session is closed")
)

// guard sends the HTTP requests of one session: only to the server's own origin,
// with its headers, and for no longer than the session lives. What comes back is
// bounded and counted.
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
	share := &g.session.stream
	if known != nil && req.Method == http.MethodPost {
		share = &known.share
	}
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
	left := int64(g.session.client.o.MaxMessageBytes)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if req.Method == http.MethodGet && kind == "text/event-stream" {
		left = -1 // a stream for the life of the session, whose events are bounded
	}
	resp.Body = &body{ReadCloser: counted{resp.Body, share}, left: left, finish: finish, call: known}
	switch {
	case known == nil || req.Method != http.MethodPost:
	case resp.StatusCode >= http.StatusBadRequest:
		known.lookAt(resp)
	case kind == "application/json":
		resp.Body = &message{ReadCloser: resp.Body, call: known}
	}
	return resp, nil
}

// lookAt notes an answer of the server's own that comes with an HTTP error: the
// server has had the request then, whatever the status says. One that breaks off
// says nothing.
func (c *call) lookAt(resp *http.Response) {
	text, err := io.ReadAll(resp.Body)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(text), resp.Body}
	if err != nil {
		c.note(func(f *facts) { f.status = 0 })
		return
	}
	if m, err := jsonrpc.DecodeMessage(text); err == nil {
		if answer, ok := m.(*jsonrpc.Response); ok && answer.Error != nil {
			c.note(func(f *facts) {
				if answer.ID == f.id {
					f.answer = answer
				}
			})
		}
	}
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

// body is a response's body that ends with an error where it is too long, or
// where there is no room for it.
type body struct {
	io.ReadCloser
	left   int64 // < 0: any length
	finish func()
	call   *call
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.left >= 0 && int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, errBusy) {
		b.call.note(func(f *facts) { f.busy = true })
	}
	if b.left < 0 {
		return n, err
	}
	if int64(n) > b.left {
		b.call.note(func(f *facts) { f.tooLarge = true })
		n, err = int(b.left), errTooLarge
	}
	b.left -= int64(n)
	return n, err
}

// message is a body that is one message. Where it is too long, or there is no room
// for it, an error of the call stands in its place: the session's other calls go on.
type message struct {
	io.ReadCloser
	call *call
	all  *bytes.Reader // nil: nothing has been read
	err  error         // that it ended with
}

// Read implements [io.Reader].
func (m *message) Read(p []byte) (int, error) {
	if m.all == nil {
		b, err := io.ReadAll(m.ReadCloser)
		if errors.Is(err, errBusy) || errors.Is(err, errTooLarge) {
			b, err = jsonrpc.EncodeMessage(&jsonrpc.Response{ID: m.call.known().id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}})
		}
		m.all, m.err = bytes.NewReader(b), err
	}
	if m.err != nil {
		return 0, m.err
	}
	return m.all.Read(p)
}

// Close implements [io.Closer].
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.finish()
	return err
}
