package fields

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestSamplingFields shows the bounds of the
func TestSamplingFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// Of the engine's request.
		member              string
		taken               []string
		below, above, wrong string
	}{
		"temperature":       {"Temperature", []string{"0", "2"}, "-0.1", "2.1", `"1"`},
		"top_p":             {"TopP", []string{"0.001", "1"}, "0", "1.1", "true"},
		"frequency_penalty": {"FrequencyPenalty", []string{"-2", "2"}, "-2.1", "2.1", "[]"},
		"presence_penalty":  {"PresencePenalty", []string{"-2", "2"}, "-2.1", "2.1", "{}"},
		"top_k":             {"TopK", []string{"-1", "2147483647"}, "-2", "2147483648", "1.5"},
		"priority":          {"Priority", []string{"-2147483648", "2147483647"}, "-2147483649", "2147483648", "1.5"},
		"min_tokens":        {"MinTokens", []string{"0", "2147483647"}, "-1", "2147483648", "1.5"},
		"min_p":             {"MinP", []string{"0", "1"}, "-0.1", "1.1", `"0"`},
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

// TestSamplingLists shows the bounds of the fields that have several values.
func TestSamplingLists(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`1,`, request.DefaultLimits().Stops)
	texts := strings.Repeat(`"a",`, request.DefaultLimits().Stops)

	for _, c := range []struct{ name, value, param, message string }{
		{"repetition_penalty", `0`, "repetition_penalty", "greater than 0"},
		{"repetition_penalty", `2.1`, "repetition_penalty", "between 0 and 2"},
		{"logit_bias", `{"x":1}`, "logit_bias", "token ids"},
		{"logit_bias", `{"201088":1}`, "logit_bias", "token ids"},
		{"logit_bias", `{"1":101}`, "logit_bias", "from -100 to 100"},
		{"stop", `7`, "stop", "a string or an array"},
		{"stop", `""`, "stop", "empty"},
		{"stop", `[7]`, "stop[0]", "must be a string"},
		{"stop", `"` + strings.Repeat("a", 1025) + `"`, "stop", "longer than 1024 bytes"},
		{"stop", `[` + texts + `"a"]`, "stop", "more than 64"},
		{"stop_token_ids", `[201088]`, "stop_token_ids[0]", "between"},
		{"stop_token_ids", `[` + many + `1]`, "stop_token_ids", "more than 64"},
		{"bad_words", `["a"]`, "bad_words", "logit_bias"},
		{"ignore_eos", `"yes"`, "ignore_eos", "boolean"},
	} {
		if _, err := readEngineField(t, c.name, c.value); err == nil || err.Param != c.param || !strings.Contains(err.Message, c.message) {
			t.Errorf("%s %.30s: %v", c.name, c.value, err)
		}
	}

	root, _ := jsontext.Parse([]byte(`{"stop":["a","b"],"stop_token_ids":[5],"logit_bias":{"7":-1},"include_stop_str_in_output":true,"ignore_eos":false}`))
	var in request.Input
	limits := request.DefaultLimits()
	if err := SamplingFields.Decode(Sampling{Input: &in, Limits: &limits, Ignored: &jsontext.Ignored{}}, jsontext.Field{Result: root}, &jsontext.Ignored{}); err != nil {
		t.Fatal(err)
	}

	want := request.Input{Stop: []string{"a", "b"}, KeepStop: true, Engine: engine.Request{StopTokens: []harmony.Token{5}, LogitBias: map[harmony.Token]float64{7: -1}}}
	if diff := cmp.Diff(want, in, cmp.AllowUnexported(request.Input{}, request.EffortUpdates{}, engine.Request{})); diff != "" {
		t.Error(diff)
	}
}

func readEngineField(t *testing.T, name, value string) (*engine.Request, *apierror.Error) {
	root, err := jsontext.Parse([]byte(`{"` + name + `":` + value + `}`))
	if err != nil {
		t.Fatal(err)
	}
	in, limits := &request.Input{}, request.DefaultLimits()
	err = SamplingFields.Decode(Sampling{Input: in, Limits: &limits, Ignored: &jsontext.Ignored{}}, jsontext.Field{Result: root}, &jsontext.Ignored{})
	return &in.Engine, err
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
		var in request.Input
		err = SetEffort(&in, jsontext.Field{Result: root.Get("effort"), Path: "effort"})
		if in.Effort != want || in.OptsOut() != (word == "none") || (err == nil) != (want != "") {
			t.Errorf("%q: %q, opted out %v, %v", word, in.Effort, in.OptsOut(), err)
		}
	}
}
