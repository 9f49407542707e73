package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Client sends requests and notes when each token of their streams arrives.
type Client struct{ http *http.Client }

// NewClient returns a client with a connection for each stream.
func NewClient() *Client {
	// Connections of a round serve the next one: the default keeps two, and the others would be made
	// anew in the window. Prompts have up to a megabyte, which is many writes of 4 KiB.
	return &Client{&http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 1 << 14, DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 16 << 10,
	}}}
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// errNoEnd means that a stream has ended without [DONE].
var errNoEnd = errors.New("the stream has no end")

// Stream sends a request and reads its stream to the end. It calls arrived for each
// piece of text with the number of its tokens.
func (c *Client) Stream(ctx context.Context, t *Target, body []byte, arrived func(at time.Time, tokens int)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("content-type", "application/json")

	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s: %s", t.Name, resp.Status, text)
	}

	r := reader{key: []byte(t.Key), arrived: arrived}
	buf := make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(buf)

		// The time of arrival is taken before the bytes are read: reading costs some of it.
		at := time.Now()
		if failed := r.read(at, buf[:n]); failed != nil {
			return fmt.Errorf("%s: %w", t.Name, failed)
		}

		switch {
		case err == io.EOF && !r.done:
			return fmt.Errorf("%s: %w", t.Name, errNoEnd)
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
}

// reader finds tokens in server-sent events. The simulated engine's filler words are
// one token each and begin with a space, so that tokens are counted in pieces of any
// size.
type reader struct {
	// key is the JSON key before the text, with the quote that opens it.
	key     []byte
	arrived func(time.Time, int)

	// partial is the beginning of a line.
	partial []byte
	// done says that the stream has ended as it should.
	done bool
}

// read takes bytes that have arrived at a time, cut anywhere.
func (r *reader) read(at time.Time, b []byte) error {
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			// Only the rest of a line is copied; most lines are whole.
			r.partial = append(r.partial, b...)
			return nil
		}
		line := b[:end]
		if len(r.partial) > 0 {
			r.partial = append(r.partial, line...)
			line = r.partial
		}
		if err := r.line(at, line); err != nil {
			return err
		}
		r.partial = r.partial[:0]
		b = b[end+1:]
	}
}

var (
	dataField = []byte("data: ")
	doneEvent = []byte("data: [DONE]")
	errorKey  = []byte(`"error":{`)
)

func (r *reader) line(at time.Time, line []byte) error {
	if !bytes.HasPrefix(line, dataField) {
		return nil
	}
	if bytes.HasPrefix(line, doneEvent) {
		r.done = true
		return nil
	}

	// Found without decoding JSON: the client shares the CPUs with what it measures.
	i := bytes.Index(line, r.key)
	if i < 0 {
		if bytes.Contains(line, errorKey) {
			return fmt.Errorf("error in the stream: %s", line)
		}
		return nil
	}

	// Words of letters have no quotes that are escaped.
	text, _, _ := bytes.Cut(line[i+len(r.key):], []byte(`"`))
	if n := bytes.Count(text, []byte(" ")); n > 0 {
		r.arrived(at, n)
	}
	return nil
}
