package apitest

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Handles shows that requests are handled as the tables say: refused fields are a 400 that
// names them, unless they ask for nothing; ignored ones are accepted and listed; mapped ones
// are not listed. bodies has a request for each object, with %s where a
// member is added; "": none can be made.
func (a *API) Handles(t *testing.T, o Objects, bodies map[string]string) {
	t.Helper()
	for path, fields := range o {
		body, ok := bodies[path]
		if !ok {
			t.Errorf("no body for the members of %q", path)
		}
		// It needs what the test has not configured.
		if body == "" {
			continue
		}

		for name, h := range fields {
			at := strings.TrimPrefix(indexless(path)+"."+name, ".")
			send := func(value string) (listed bool, err *apierror.Error) {
				r, err := a.Decode([]byte(strings.Replace(body, "%s", `"`+name+`":`+value, 1)), NewContext())
				if err != nil {
					return false, err
				}
				return slices.Contains(r.Ignored(), at), nil
			}
			h.check(t, at, send)
		}
	}
}

// check shows that a field is handled so. send sends it with a value, and reports whether
// it is listed as ignored.
func (h *Handled) check(t *testing.T, at string, send func(value string) (listed bool, err *apierror.Error)) {
	t.Helper()
	// An object asks for something in every field, whatever its type.
	listed, err := send(`{"x":1}`)

	switch h.State {
	case "refused":
		named := err != nil && indexless(err.Param) == at && strings.HasPrefix(h.Effect, err.Message)
		if !named || err.Status != 400 {
			t.Errorf("%s: %v", at, err)
		}

		// What asks for nothing is accepted; a field with values of its own takes only these.
		accepted := h.unless
		if accepted == nil {
			accepted = []string{"false", "0", `""`, "[]"}
		} else if _, err := send(`"x"`); err == nil {
			t.Errorf("%s: accepted", at)
		}
		for _, nothing := range append(accepted, "null") {
			if listed, err := send(nothing); err != nil || listed {
				t.Errorf("%s %s: listed %v, %v", at, nothing, listed, err)
			}
		}

	case "ignored":
		if err != nil { // of a wrong type
			listed, err = send(`"x"`)
		}
		if err != nil || !listed {
			t.Errorf("%s: listed %v, %v", at, listed, err)
		}

	default:
		if text, _ := send(`"x"`); listed && text && !slices.Contains(unused, at) {
			t.Errorf("%s is listed as ignored", at)
		}
	}
}

// indexless returns the path of a field without the indexes of lists, and without types.
func indexless(path string) string {
	var plain strings.Builder
	for path != "" {
		before, after, _ := strings.Cut(path, "[")
		plain.WriteString(before)
		_, path, _ = strings.Cut(after, "]")
	}
	return plain.String()
}

// unused are mapped fields that have no effect with these values, or without what tests do
// not configure.
var unused = []string{
	"moderation", "mcp_servers", "diagnostics", "reasoning.context", "prompt_cache_options.comparison_response_id",
}
