package probes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// client sends probes to one engine.
type client struct {
	engine Engine
	url    string
	http   *http.Client
	number int // of the last id
	run    int64
}

func newClient(e Engine, url string) *client {
	// llama.cpp closes connections that a client may be about to use again.
	transport := &http.Transport{Protocols: new(http.Protocols), DisableKeepAlives: e.service() == nil}
	transport.Protocols.SetHTTP1(e.service() == nil)
	transport.Protocols.SetUnencryptedHTTP2(e.service() != nil)
	return &client{engine: e, url: url, http: &http.Client{Transport: transport}, run: time.Now().UnixNano()}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// newID returns an id that the engine has not seen, of one length, and no beginning of another.
func (c *client) newID() string {
	c.number++
	return fmt.Sprintf("probe-%d-%03d", c.run, c.number)
}

// pause is how long an engine on a busy CPU has to notice something.
const pause = 2 * time.Second

// probe sends a probe and returns the answer as text.
func (c *client) probe(ctx context.Context, p *probe) (string, error) {
	if p.method != "" {
		resp, err := c.send(ctx, p.method, c.path(p.path), p.contentType, []byte(p.body), nil)
		if err != nil {
			return "", err
		}
		return c.read(resp, &reading{engine: c.engine, probe: p})
	}

	id := c.newID()
	switch p.act {
	case again:
		if _, err := c.ask(ctx, p, id, nil); err != nil {
			return "", err
		}
		id = c.newID()
	case leave:
		if err := c.left(ctx, p, id); err != nil {
			return "", err
		}
	case twice:
		return c.twice(ctx, p, id)
	case abort:
		return c.ask(ctx, p, id, func() error { return c.abort(ctx, id, false) })
	case abortPrefix:
		return c.prefixed(ctx, p, id)
	case abortAll:
		return c.ask(ctx, p, id, func() error { return c.abort(ctx, "", true) })
	}
	return c.ask(ctx, p, id, nil)
}

// ask sends a request and reads the answer. begun is called when the answer has begun, or for
// a whole one when the engine has had time to begin.
func (c *client) ask(ctx context.Context, p *probe, id string, begun func() error) (string, error) {
	failed := make(chan error, 1)
	if begun != nil && p.whole {
		time.AfterFunc(pause/2, func() { failed <- begun() })
	} else {
		failed <- nil
	}

	resp, r, err := c.generate(ctx, p, id)
	if err != nil {
		return "", err
	}
	if begun != nil && !p.whole {
		r.begun = begun
	}
	text, err := c.read(resp, r)
	return text, errors.Join(err, <-failed)
}

func (c *client) generate(ctx context.Context, p *probe, id string) (*http.Response, *reading, error) {
	prompt := p.ids(c.engine.Kind)
	body, header := c.engine.encode(p, id, prompt)
	resp, err := c.send(ctx, http.MethodPost, c.path(""), "application/json", body, header)
	return resp, &reading{engine: c.engine, probe: p, id: id, prompt: len(prompt)}, err
}

// left begins a request and leaves, and gives the engine the time to notice.
func (c *client) left(ctx context.Context, p *probe, id string) error {
	leaving, cancel := context.WithCancel(ctx)
	defer cancel()
	streamed := *p
	streamed.whole = false
	resp, r, err := c.generate(leaving, &streamed, id)
	if err != nil {
		return err
	}
	r.begun = func() error { cancel(); return nil }
	_, _ = c.read(resp, r) // it ends where it is cut
	time.Sleep(pause)
	return nil
}

// twice begins a request, sends another one with its id, and returns both answers.
func (c *client) twice(ctx context.Context, p *probe, id string) (string, error) {
	first := *p
	first.whole = false
	var second string
	var failed error
	before, err := c.ask(ctx, &first, id, func() error {
		second, failed = c.ask(ctx, p, id, nil)
		return nil
	})
	return "the second:\n" + second + "the first:\n" + before, errors.Join(err, failed)
}

// prefixed begins a request with a longer id, and another that is aborted by its own.
func (c *client) prefixed(ctx context.Context, p *probe, id string) (string, error) {
	return c.ask(ctx, p, id+"-c1", func() error {
		_, err := c.ask(ctx, p, id, func() error { return c.abort(ctx, id, false) })
		return err
	})
}

// abort aborts a request by its id, or all.
func (c *client) abort(ctx context.Context, id string, all bool) error {
	path, body := c.url+"/abort_request", fmt.Appendf(nil, `{"rid":%q,"abort_all":%t}`, id, all)
	if c.engine.service() != nil {
		path, body = c.path("Abort"), appendText(nil, 1, id)
	}
	resp, err := c.send(ctx, http.MethodPost, path, "application/json", body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// path is the URL of a path or of a call; "" stands for that of generation.
func (c *client) path(name string) string {
	if s := c.engine.service(); s != nil {
		if name == "" {
			name = "Generate"
		}
		return c.url + s.path + name
	}
	if name == "" {
		name = generatePaths[c.engine.Kind]
	}
	return c.url + name
}

func (c *client) send(
	ctx context.Context, method, url, contentType string, body []byte, header map[string]string,
) (*http.Response, error) {
	if c.engine.service() != nil {
		body = frame(body)
		contentType = "application/grpc"
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("content-type", contentType)
	}
	if c.engine.service() != nil {
		req.Header.Set("te", "trailers")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	return c.http.Do(req)
}

// ids is the prompt where it is token ids, and nothing else.
func (p *probe) ids(kind string) []harmony.Token {
	switch v := p.prompt.(type) {
	case nil:
		return conversation(p.script)
	case string:
		// So many of one id: another one for each API, because vLLM's two share a cache.
		list := make([]harmony.Token, strings.Count(v, ","))
		for i := range list {
			list[i] = harmony.Token(len(kind)) //nolint:gosec // a short name
		}
		return list
	}
	return nil
}

func show(name string, value any) string {
	if n, ok := value.(int); ok {
		return name + " " + strconv.Itoa(n)
	}
	return fmt.Sprintf("%s %v", name, value)
}
