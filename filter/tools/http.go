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
	errRedirect = errors.New("the server redirects to another origin")
	errTooLarge = errors.New("the answer is too large")
	errClosed   = errors.New("the session is closed")
)

// limitedSender sends the HTTP requests of one session. It adds the server's headers,
// allows only the server's own origin, and ends requests with the session. Response
// bodies are bounded and count as in flight.
type limitedSender struct {
	session *session
	origin  string
	// Nil until the session is connected.
	wire *wire
	// The initialize request that opens the session.
	opener *request
}

func newLimitedSender(s *session, opener *request) (*limitedSender, error) {
	u, err := url.Parse(s.server.URL)
	if err != nil {
		return nil, errors.New("the server's URL is not valid")
	}
	return &limitedSender{session: s, origin: origin(u), opener: opener}, nil
}

// client returns the HTTP client of the session.
func (g *limitedSender) client() *http.Client {
	return &http.Client{Transport: g, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || req.Method != via[0].Method {
			requestOf(req.Context()).update(func(f *requestState) { f.err = errRedirect })
			return errRedirect
		}
		// RoundTrip checks the origin.
		return nil
	}}
}

// RoundTrip implements [http.RoundTripper].
func (g *limitedSender) RoundTrip(req *http.Request) (*http.Response, error) {
	request := requestOf(req.Context())
	// The bytes of an answer belong to its request, those of a stream to the session.
	share := &g.session.stream
	if request != nil && req.Method == http.MethodPost {
		share = &request.share
	}

	if request != g.opener && req.Method != http.MethodPost {
		// This request fetches an answer: its status is not the request's own.
		request = nil
	}

	// The SDK follows what a server names, such as the endpoint of an SSE session: secrets are sent to
	// one origin only.
	if origin(req.URL) != g.origin {
		request.update(func(f *requestState) { f.err = errRedirect })
		closeBody(req)
		return nil, errRedirect
	}

	// A request ends with its session too, whose context is not the request's.
	ctx, end := context.WithCancelCause(req.Context())
	unbind := context.AfterFunc(g.session.ctx, func() { end(errClosed) })
	finish := func() { unbind(); end(nil) }

	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { request.update(func(f *requestState) { f.httpWritten = true }) },
	})

	// A request is sent again after a redirect: what was known of the first try does not count.
	request.update(func(f *requestState) {
		f.err, f.status, f.session = nil, 0, req.Header.Get("Mcp-Session-Id") != ""
	})
	req = req.Clone(ctx)
	req.Header.Set("User-Agent", clientName)
	// A trace is the operator's, and is not shown to servers of requests.
	if g.session.server.Trusted {
		g.session.client.o.Trace.Inject(ctx, req.Header.Set)
	}

	// The server's own headers come last, and win.
	setHeaders(req.Header, g.session.server.Header)
	if v, _ := g.version(); v != "" && req.Header.Get("Mcp-Protocol-Version") == "" {
		req.Header.Set("Mcp-Protocol-Version", v)
	}

	resp, err := g.session.client.transport(g.session.server).RoundTrip(req)
	if err != nil {
		finish()
		request.update(func(f *requestState) { f.err = err })
		return nil, err
	}

	request.update(func(f *requestState) { f.status = resp.StatusCode })
	limit := int64(g.session.client.o.MaxMessageBytes)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if req.Method == http.MethodGet && kind == "text/event-stream" {
		// A stream that lives as long as the session; the SDK bounds its events.
		limit = -1
	}

	resp.Body = &body{ReadCloser: counted{resp.Body, share}, left: limit, finish: finish, call: request}
	switch {
	case request == nil || req.Method != http.MethodPost:
	case resp.StatusCode >= http.StatusBadRequest:
		request.readErrorBody(resp)
	case kind == "application/json":
		resp.Body = &message{ReadCloser: resp.Body, call: request}
	}
	return resp, nil
}

// readErrorBody records a JSON-RPC error in the body of an HTTP error. The server
// has then processed the request, whatever the status is. If the body ends early,
// the status is discarded.
func (c *request) readErrorBody(resp *http.Response) {
	text, err := io.ReadAll(resp.Body)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(text), resp.Body}
	if err != nil {
		c.update(func(f *requestState) { f.status = 0 })
		return
	}

	if m, err := jsonrpc.DecodeMessage(text); err == nil {
		if answer, ok := m.(*jsonrpc.Response); ok && answer.Error != nil {
			c.update(func(f *requestState) {
				if answer.ID == f.id {
					f.answer = answer
				}
			})
		}
	}
}

func (g *limitedSender) version() (string, bool) {
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

// body is a response body that ends with an error if it is too long, or if the
// bytes in flight are exhausted.
type body struct {
	io.ReadCloser
	// < 0: unlimited.
	left   int64
	finish func()
	call   *request
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.left >= 0 && int64(len(p)) > b.left+1 {
		// One byte more than is left tells that it is too much.
		p = p[:b.left+1]
	}

	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, errBusy) {
		b.call.update(func(f *requestState) { f.busy = true })
	}

	if b.left < 0 {
		return n, err
	}
	if int64(n) > b.left {
		b.call.update(func(f *requestState) { f.tooLarge = true })
		n, err = int(b.left), errTooLarge
	}
	b.left -= int64(n)
	return n, err
}

// message is a body with one JSON-RPC message. If it is too long, or the bytes in
// flight are exhausted, it is replaced by a JSON-RPC error for this request: the
// session's other requests go on.
type message struct {
	io.ReadCloser
	call *request
	// Nil until the body has been read.
	all *bytes.Reader
	// The error of reading the body.
	err error
}

// Read implements [io.Reader].
func (m *message) Read(p []byte) (int, error) {
	if m.all == nil {
		b, err := io.ReadAll(m.ReadCloser)
		if errors.Is(err, errBusy) || errors.Is(err, errTooLarge) {
			b, err = jsonrpc.EncodeMessage(&jsonrpc.Response{
				ID:    m.call.snapshot().id,
				Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()},
			})
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
