package extproc

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// headerOf returns the value of a header by its lower-case name, "" if it is absent.
// Envoy sets raw_value; value is for older senders.
func headerOf(m *corev3.HeaderMap, name string) string {
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

// isJSON reports whether a request's content type can be that of a JSON body. An
// absent one can.
func isJSON(contentType string) bool {
	mt := mediaType(contentType)
	return mt == "" || mt == "application/json" || strings.HasSuffix(mt, "+json")
}
