package extproc

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// headerOf returns the value of a header by its lower-case name, "" if it is absent.
func headerOf(m *corev3.HeaderMap, name string) string {
	for _, h := range m.GetHeaders() {
		if strings.EqualFold(h.GetKey(), name) {
			return valueOf(h)
		}
	}
	return ""
}

// valueOf returns the value of a header. Envoy sets raw_value; value is for older senders.
func valueOf(h *corev3.HeaderValue) string {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return h.GetValue()
}

// headersOf returns all values of a header by its lower-case name, as HTTP joins
// them: with commas.
func headersOf(m *corev3.HeaderMap, name string) string {
	var values []string
	for _, h := range m.GetHeaders() {
		if strings.EqualFold(h.GetKey(), name) {
			values = append(values, valueOf(h))
		}
	}
	return strings.Join(values, ",")
}

// mutation collects changes to a header map.
type mutation struct{ m extprocv3.HeaderMutation }

// headerChange is a header that is set, with all its parts in one allocation.
type headerChange struct {
	option corev3.HeaderValueOption
	value  corev3.HeaderValue
}

// set sets headers, in place of what there is of the same names.
func (m *mutation) set(headers ...engine.Header) {
	size := 0
	for _, h := range headers {
		size += len(h.Value)
	}
	changes, values := make([]headerChange, len(headers)), make([]byte, 0, size)
	m.m.SetHeaders = slices.Grow(m.m.SetHeaders, len(headers))
	for i, h := range headers {
		c, begin := &changes[i], len(values)
		values = append(values, h.Value...)
		c.value.Key, c.value.RawValue = h.Name, values[begin:]
		c.option.Header, c.option.AppendAction = &c.value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		m.m.SetHeaders = append(m.m.SetHeaders, &c.option)
	}
}

func (m *mutation) remove(names ...string) {
	m.m.RemoveHeaders = append(m.m.RemoveHeaders, names...)
}
