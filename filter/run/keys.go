package run

import (
	"net/http"
	"net/url"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// Keys names the headers of a model call that Envoy chooses the engine's replica
// by. An empty name sends no such header.
type Keys struct {
	Prefix    string // the key of the conversation's beginning
	Session   string // the key of the session
	Selection string // the last user's text, percent-encoded
}

// Headers are the headers for a request. One with an empty value removes what the
// client sent.
func (k Keys) Headers(r api.Request) []engine.Header {
	keys := r.Affinity()
	var headers []engine.Header
	for _, h := range []engine.Header{{Name: k.Prefix, Value: keys.Prefix}, {Name: k.Session, Value: keys.Session}} {
		if h.Name != "" {
			headers = append(headers, h)
		}
	}
	if k.Selection != "" {
		headers = append(headers, engine.Header{Name: k.Selection, Value: url.PathEscape(r.RoutingInfo().LastUserText)})
	}
	return headers
}

func setHeaders(to http.Header, headers []engine.Header) {
	for _, h := range headers {
		// In place of what a client sent.
		to.Set(h.Name, h.Value)
		if h.Value == "" {
			to.Del(h.Name)
		}
	}
}
