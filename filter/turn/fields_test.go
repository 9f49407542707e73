package turn

import (
	"encoding/json"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestEngineFields shows the bounds of the fields.
func TestEngineFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		member              string // of the engine's request
		taken               []string
		below, above, wrong string
	}{
		"temperature":       {"Temperature", []string{"0", "2"}, "-0.1", "2.1", `"1"`},
		"top_p":             {"TopP", []string{"0", "1"}, "-0.1", "1.1", "true"},
		"frequency_penalty": {"FrequencyPenalty", []string{"-2", "2"}, "-2.1", "2.1", "[]"},
		"presence_penalty":  {"PresencePenalty", []string{"-2", "2"}, "-2.1", "2.1", "{}"},
		"top_k":             {"TopK", []string{"-1", "2147483647"}, "-2", "2147483648", "1.5"},
		"priority":          {"Priority", []string{"-2147483648", "2147483647"}, "-2147483649", "2147483648", "1.5"},
		"seed":              {"Seed", []string{"-9223372036854775808", "9223372036854775807"}, "-9223372036854775809", "9223372036854775808", "1.5"},
	} {
		for _, value := range c.taken {
			r, err := readEngineField(t, name, value)
			all, _ := json.Marshal(r)
			var members map[string]json.RawMessage
			if json.Unmarshal(all, &members) != nil || err != nil || string(members[c.member]) != value {
				t.Errorf("%s %s: %s, %v", name, value, members[c.member], err)
			}
		}
		for _, value := range []string{c.below, c.above, c.wrong} {
			if _, err := readEngineField(t, name, value); err == nil || err.Param != name || err.Status != 400 {
				t.Errorf("%s %s: %v", name, value, err)
			}
		}
	}
}

func readEngineField(t *testing.T, name, value string) (*engine.Request, *apierror.Error) {
	root, err := jsontext.Parse([]byte(`{"` + name + `":` + value + `}`))
	if err != nil {
		t.Fatal(err)
	}
	r := &engine.Request{}
	err = EngineFields.Decode(r, jsontext.Field{Result: root}, &jsontext.Ignored{})
	return r, err
}

func TestSetEffort(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]harmony.Effort{
		"none": harmony.EffortLow, "minimal": harmony.EffortLow, "low": harmony.EffortLow,
		"medium": harmony.EffortMedium, "high": harmony.EffortHigh, "xhigh": harmony.EffortHigh, "max": harmony.EffortHigh, "most": "", "": "",
	} {
		root, err := jsontext.Parse([]byte(`{"effort":"` + word + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		var in Input
		hide, err := in.SetEffort(jsontext.Field{Result: root.Get("effort"), Path: "effort"})
		if in.Effort != want || hide != (word == "none") || (err == nil) != (want != "") {
			t.Errorf("%q: %q, hidden %v, %v", word, in.Effort, hide, err)
		}
	}
}
