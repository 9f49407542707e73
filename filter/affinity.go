package filter

import (
	"net/http"
	"net/url"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// sessionHeaders are those by which Codex, in its versions, names a session, in
// the order in which they count.
var sessionHeaders = []string{"session-id", "session_id", "conversation_id", "thread-id"}

// session is the session that a request's headers name, "" if they name none.
func session(h *corev3.HeaderMap) string {
	for _, name := range sessionHeaders {
		if id := header(h, name); id != "" {
			return id
		}
	}
	return ""
}

// affinity is what goes with a model call for Envoy to choose the engine's
// replica by.
func (s *Server) affinity(c call) []engine.Header {
	keys := c.Affinity()
	var headers []engine.Header
	for _, h := range []engine.Header{{Name: s.cfg.Routing.PrefixHeader, Value: keys.Prefix}, {Name: s.cfg.Routing.SessionHeader, Value: keys.Session}} {
		if h.Name != "" {
			headers = append(headers, h)
		}
	}
	if name := s.cfg.Routing.SelectionHeader; name != "" {
		headers = append(headers, engine.Header{Name: name, Value: url.PathEscape(c.Outline().Question)})
	}
	return headers
}

func setHeaders(to http.Header, headers []engine.Header) {
	for _, h := range headers {
		to.Set(h.Name, h.Value) // in place of what a client sent
		if h.Value == "" {
			to.Del(h.Name)
		}
	}
}
