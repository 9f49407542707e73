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
	request := &h2.Request{
		Method:    http.MethodGet,
		Scheme:    c.scheme,
		Authority: c.authority(header),
		Path:      path,
		Header:    header,
	}
	err = c.receive(ctx, request, func(st *h2.Stream) (done bool, _ error) {
		for p, ok := st.Next(); ok; p, ok = st.Next() {
			switch {
			case p.Err != nil:
				return true, c.explain(p.Err)
			case p.End:
				return true, nil
			case p.Header != nil:
				status = p.Status
			}
			if body = append(body, p.Body...); int64(len(body)) > limit {
				return true, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
			}
		}
		return false, nil
	})

	// What is too large has been answered: its status counts. What broke has not.
	switch {
	case errors.Is(err, ErrTooLarge):
		return status, nil, err
	case err != nil:
		return 0, nil, fmt.Errorf("send the request: %w", err)
	}
	return status, body, nil
}

// receive sends a request and calls take, with what there is of the answer, until it is done.
func (c *Client) receive(
	ctx context.Context, r *h2.Request, take func(*h2.Stream) (done bool, err error),
) error {
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
	c.pool.Do(ctx, st, r)

	for {
		select {
		case <-notified:
		case <-ctx.Done():
			return ctx.Err()
		}
		if done, err := take(st); done || err != nil {
			return err
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
