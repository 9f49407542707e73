package loopback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// ErrTooLarge is the error for an answer above the limit of its caller.
var ErrTooLarge = errors.New("the answer is too large")

// Get sends a GET request with these headers, and returns the answer's status and
// body, of at most limit bytes, else [ErrTooLarge].
func (c *Client) Get(ctx context.Context, header http.Header, path string, limit int64) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return 0, nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header, req.Host = header, header.Get("host")
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("send the request: %w", c.explain(err))
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(body)) > limit:
		return resp.StatusCode, nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return resp.StatusCode, body, nil
}

// Answer is the whole answer to a request of [Client.Ask].
type Answer struct {
	Status int
	Body   []byte
	header http.Header
	end    http.Header
}

// Field returns a field of the answer's trailers, else of its headers.
func (a *Answer) Field(name string) string { return cmp.Or(a.end.Get(name), a.header.Get(name)) }

// Header returns a field of the answer's headers.
func (a *Answer) Header(name string) string { return a.header.Get(name) }

// Ask sends a request as an engine's dialect wrote it, and returns the answer with
// the first limit bytes of its body.
func (c *Client) Ask(ctx context.Context, header http.Header, wire *engine.HTTPRequest, limit int) (*Answer, error) {
	var a Answer
	err := c.exchange(ctx, header, wire, func(e run.Event) bool {
		if e.Header != nil {
			a.Status, a.header = e.Status, e.Header
		}
		a.Body, a.end = append(a.Body, e.Body...), e.Trailer
		return len(a.Body) <= limit
	})
	return &a, err
}
