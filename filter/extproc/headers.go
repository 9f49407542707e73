package extproc

import (
	"cmp"
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

// headersOf returns all values of a header by its lower-case name, as HTTP joins
// them: with commas.
func headersOf(m *corev3.HeaderMap, name string) string {
	var values []string
	for _, h := range m.GetHeaders() {
		if strings.EqualFold(h.GetKey(), name) {
			values = append(values, cmp.Or(string(h.GetRawValue()), h.GetValue()))
		}
	}
	return strings.Join(values, ",")
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
