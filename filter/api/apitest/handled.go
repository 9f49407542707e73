package apitest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// Handles shows that requests are handled as the tables say: refused fields are a 400 that
// names them, unless they ask for nothing; ignored ones are accepted and listed; mapped ones
// are not listed; and that each can be made again from its record. bodies has a request for each object, with %s where a
// member is added; "": none can be made.
func (a *API) Handles(t *testing.T, o Objects, bodies map[string]string) {
	t.Helper()
	keeper := record.NewKeeper(jsontext.Objects(o))
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
			checkHandled(t, h, at, send)
			a.checkRecorded(t, at, keeper, h.Unless, func(value string) string {
				return strings.Replace(body, "%s", `"`+name+`":`+value, 1)
			})
		}
	}
}

// checkHandled shows that a field is handled as its row says. send sends it with a value, and reports whether
// it is listed as ignored.
func checkHandled(
	t *testing.T, h jsontext.Described, at string, send func(value string) (listed bool, err *apierror.Error),
) {
	t.Helper()
	// An object asks for something in every field, whatever its type.
	listed, err := send(`{"x":1}`)

	switch h.State {
	case "refused":
		named := err != nil && indexless(err.Param) == at && h.Effect == err.Message
		if !named || err.Status != 400 {
			t.Errorf("%s: %v", at, err)
		}

		// What asks for nothing is accepted; a field with values of its own takes only these.
		accepted := slices.Clone(h.Unless)
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

// recordedValues are values of every kind, with those that often ask for nothing.
var recordedValues = []string{
	"null", "true", "false", "-1", "0", "0.5", "1", "7", `""`, `"x"`, `"auto"`, `"none"`, `"disabled"`, "[]", `["x"]`, "[1]", "{}",
	`{"x":1}`, `{"type":"auto"}`, `{"type":"text"}`, `{"type":"summarize"}`, `{"type":"enabled","budget_tokens":2000}`,
}

// checkRecorded shows that a request with any value of a field is accepted or refused as its record is,
// and that both ask the engine for the same. with returns the request with a value.
func (a *API) checkRecorded(
	t *testing.T, at string, keeper *record.Keeper, unless []string, with func(value string) string,
) {
	t.Helper()
	for _, value := range slices.Concat(recordedValues, unless) {
		body := with(value)
		kept := keeper.Body([]byte(body)).Bytes()
		if want, got := a.asked([]byte(body)), a.asked(kept); want != got {
			t.Errorf("%s %s: the request comes to\n%s\nand its record %s to\n%s\nSay in the field's row what a record "+
				"keeps of it (Keep).", at, value, want, kept, got)
		}
	}
}

// asked is what a request comes to: what the engine is asked for, or the error.
func (a *API) asked(body []byte) string {
	r, err := a.Decode(body, NewContext())
	switch {
	case err != nil:
		return fmt.Sprintf("%d %s %s", err.Status, err.Param, err.Message)
	case r.Engine() == nil:
		return fmt.Sprint("jobs, ignored: ", r.Ignored())
	}
	e := r.Engine()
	return fmt.Sprint(e.Prompt, string(e.AppendSampling(nil)), " ignored: ", r.Ignored())
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
