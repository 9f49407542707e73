package filter

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// EngineHeader is the request header that Envoy's engine routes match on. The
// filter sets it and takes it out of what clients send.
const EngineHeader = "x-harmony-engine"

// UpstreamHeader is the header by which Envoy tells in an answer on the loopback
// listener which of an engine's replicas has given it, as IP:port, and by which the
// filter names in a call those that may take it, with commas between, the first one
// that is there first.
const UpstreamHeader = "x-harmony-upstream"

// attemptsHeader is the header by which Envoy tells in an answer on the loopback
// listener how often it has made the call.
const attemptsHeader = "x-envoy-attempt-count"

// IgnoredHeader is the reply header that lists the request's parameters that
// were accepted and not used.
const IgnoredHeader = "x-harmony-ignored"

// overrideHeader lets a client switch the filter on or off for one request,
// where the configuration allows it.
const overrideHeader = "x-envoy-harmony"

// codexHeader switches Codex compatibility mode on or off for one request, where
// the configuration allows it.
const codexHeader = "x-envoy-harmony-codex"

// destinationHeader is the request header by which an endpoint picker names the
// replica that takes a call.
const destinationHeader = "x-gateway-destination-endpoint"

// header gives the value of a header by its lower-case name, "" if absent.
// Envoy fills raw_value; value is read for older senders.
func header(m *corev3.HeaderMap, name string) string {
	for _, h := range m.GetHeaders() {
		if strings.EqualFold(h.GetKey(), name) {
			if raw := h.GetRawValue(); len(raw) > 0 {
				return string(raw)
			}
			return h.GetValue()
		}
	}
	return ""
}

// mutation collects changes to a header map.
type mutation struct{ m extprocv3.HeaderMutation }

func (m *mutation) set(name, value string) {
	m.m.SetHeaders = append(m.m.SetHeaders, &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	})
}

func (m *mutation) remove(names ...string) {
	m.m.RemoveHeaders = append(m.m.RemoveHeaders, names...)
}

// mediaType is the content type without parameters, in lower case.
func mediaType(contentType string) string {
	mt, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mt))
}

// isJSON tells whether a request's content type can be a JSON body. An absent
// one can.
func isJSON(contentType string) bool {
	mt := mediaType(contentType)
	return mt == "" || mt == "application/json" || strings.HasSuffix(mt, "+json")
}
