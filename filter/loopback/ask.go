package loopback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback/h2"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// ErrTooLarge is the error for an answer above the limit of its caller.
var ErrTooLarge = errors.New("the answer is too large")

// Get sends a GET request with these headers, and returns the answer's status and
// body, of at most limit bytes, else [ErrTooLarge].
func (c *Client) Get(
	ctx context.Context, header http.Header, path string, limit int64,
) (status int, body []byte, err error) {
	// One place is enough: a notification says that there is something,
	// and what is there is read to its end.
	notified := make(chan struct{}, 1)
	st := c.pool.Prepare(func() {
		select {
		case notified <- struct{}{}:
		default:
		}
	})
	defer st.Close()
	c.pool.Do(ctx, st, &h2.Request{
		Method:    http.MethodGet,
		Scheme:    c.scheme,
		Authority: c.authority(header),
		Path:      path,
		Header:    header,
	})

	for {
		select {
		case <-notified:
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("send the request: %w", ctx.Err())
		}

		for p, ok := st.Next(); ok; p, ok = st.Next() {
			switch {
			case p.Err != nil:
				return 0, nil, fmt.Errorf("send the request: %w", c.explain(p.Err))
			case p.End:
				return status, body, nil
			case p.Header != nil:
				status = p.Status
			}
			if body = append(body, p.Body...); int64(len(body)) > limit {
				return status, nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
			}
		}
	}
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
		switch e.Kind {
		case run.EventAnswered:
			a.Status, a.header = e.Status, e.Header
		case run.EventBytes:
			a.Body = append(a.Body, e.Body...)
		case run.EventEnded:
			a.end = e.Header
		}
		return len(a.Body) <= limit
	})
	return &a, err
}
