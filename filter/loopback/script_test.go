package loopback

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// patience bounds waiting for events that must happen, also on a loaded machine.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestClient is a client of a listener at an address, with the engines of cfg.
func newTestClient(t *testing.T, cfg *config.Config, address string) *Client {
	t.Helper()
	cfg.Loopback = address
	dialects := map[string]engine.Dialect{}
	for _, e := range cfg.Engines {
		dialects[e.Name], _ = engine.ByKind(e.Kind)
	}
	c, err := New(cfg, dialects, func() uint64 { return 1<<64 - 1 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newTestGateway is a client whose requests h answers in place of Envoy's loopback
// listener.
func newTestGateway(t *testing.T, cfg *config.Config, h http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return newTestClient(t, cfg, strings.TrimPrefix(server.URL, "http://"))
}

// send begins the call of a request as a dialect wrote it.
func (c *Calls) send(wire *engine.HTTPRequest) {
	c.start(c.headerFor(c.target.Engine, run.Retry{}), wire)
}

// call begins a call of no content.
func call(t *testing.T, c *Client) <-chan run.Event {
	t.Helper()
	calls := c.Dial(t.Context(), http.Header{}, run.Target{}).(*Calls)
	calls.send(&engine.HTTPRequest{Path: "/"})
	t.Cleanup(calls.Cancel)
	return calls.Events()
}

// answerOf receives the events of a call until its end.
func answerOf(t *testing.T, events <-chan run.Event) (status int, body string, prompt *engine.Usage, err error) {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.Kind == run.EventAnnounced {
				var ok bool
				if e, ok = e.Source.Next(); !ok {
					continue
				}
			}
			if e.Kind == run.EventAnswered {
				status, prompt = e.Status, e.Prompt
			}
			body += string(e.Body)
			if e.Kind == run.EventEnded || e.Err != nil {
				return status, body, prompt, e.Err
			}
		case <-time.After(patience):
			t.Fatalf("no end after %q", body)
		}
	}
}
