package extproc

import (
	"context"
	"net/http"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// elsewhere adds an endpoint that stores nothing, with errors in Anthropic's form.
func elsewhere(change func(*config.Config, *api.Endpoint)) func(*wiring) {
	return func(w *wiring) {
		endpoint := api.Endpoint{API: "test", Method: http.MethodPost, Pattern: "/test", NoModel: true, Errors: (*apierror.Error).Anthropic, Handle: func(context.Context, *api.HTTPRequest) api.Outcome {
			return api.Elsewhere(apierror.New(http.StatusNotFound, "", "", "It is not stored here."))
		}}
		change(w.cfg, &endpoint)
		w.endpoints = []api.Endpoint{endpoint}
	}
}

// Where no upstream has other responses, a request for something that is not stored
// here ends here: the engine behind Envoy's default route does not know it.
func TestElsewhereWithoutAnUpstream(t *testing.T) {
	t.Parallel()
	script(t, elsewhere(func(*config.Config, *api.Endpoint) {}), func(s *scripted) {
		s.request(false, ":method=POST", ":path=/test")
		s.body("{}", true)
		if status, body := s.answered(); status != 404 || body != `{"type":"error","error":{"type":"not_found_error","message":"It is not stored here."},"request_id":"id1"}` {
			t.Errorf("%d %s", status, body)
		}
	})
}

// Where an upstream may have it, the request is passed on. If the upstream does not
// have it either, the client gets the endpoint's own error.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	all := 100
	for name, change := range map[string]func(*config.Config, *api.Endpoint){
		"configured":      func(c *config.Config, _ *api.Endpoint) { c.Responses.RelayUnknown = true },
		"a rollout":       func(c *config.Config, _ *api.Endpoint) { c.Rollout = []config.Rollout{{Percent: &all}} },
		"a list of all's": func(_ *config.Config, e *api.Endpoint) { e.Public = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, elsewhere(change), func(s *scripted) {
				for _, trailers := range []bool{false, true} {
					s.request(false, ":method=POST", ":path=/test")
					s.body("{}", !trailers)
					if trailers {
						s.trailers()
						s.expect("request headers", "request body {}", "request trailers")
					} else {
						s.expect("request headers", "request body {} END")
					}
					s.envoyAnswer(false, ":status=403")
					s.envoyAnswerBody("none", true)
					s.expect("response headers", "response body none END")
					s.next()
				}
				s.request(true, ":method=POST", ":path=/test")
				s.expect("request headers")
				s.envoyAnswer(false, ":status=404", "content-type=text/html")
				s.expectLike(`immediate 404`)
				if body := string(s.immediate.GetBody()); body != `{"type":"error","error":{"type":"not_found_error","message":"It is not stored here."},"request_id":"id3"}` {
					t.Error(body)
				}
				if n := s.inUse(); n != 0 {
					t.Errorf("%d bytes of the budget are lost", n)
				}
			})
		})
	}
}

// The filter asks for the headers of the upstream's answer where Envoy sends only what
// it asks for.
func TestElsewhereOnDemand(t *testing.T) {
	t.Parallel()
	script(t, elsewhere(func(c *config.Config, _ *api.Endpoint) { c.Responses.RelayUnknown = true }), func(s *scripted) {
		const answersHeaders = " {request SEND FULL_DUPLEX_STREAMED SEND, response SEND NONE SKIP}"
		s.onDemand(true, ":method=POST", ":path=/test")
		s.expect("request headers" + answersHeaders)
		s.envoyAnswer(false, ":status=404")
		s.expectLike("immediate 404")
		s.next()
		s.onDemand(false, ":method=POST", ":path=/test")
		s.body("{}", true)
		s.expect("mode"+requestOnly, "request headers"+answersHeaders, "request body {} END")
		s.envoyAnswer(true, ":status=404")
		s.expectLike("immediate 404")
	})
}
