package apitest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
)

// StructuredOutputs shows what vLLM's field structured_outputs, which every API has,
// constrains the output to.
func (a *API) StructuredOutputs(t *testing.T) {
	for _, c := range []struct {
		name, fields string
		want         constraint.Answer
	}{
		{"structured json", `{"json":{"type":"array"}}`, constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}},
		{"structured object", `{"json_object":true,"disable_any_whitespace":true}`, constraint.AnswerJSON{Schema: constraint.AnyObject}},
		{"structured regex", `{"regex":"a"}`, constraint.AnswerRegex("a")},
		{"structured choice", `{"choice":["a"]}`, constraint.AnswerChoice{"a"}},
		{"structured grammar", `{"grammar":"root ::= \"a\""}`, constraint.AnswerGrammar(`root ::= "a"`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a.Constraint(t, `,"structured_outputs":`+c.fields, constraint.Spec{Answer: c.want})
		})
	}
}

// Constraint shows what the output of a request with members, for [API.Ask], is
// constrained to.
func (a *API) Constraint(t testing.TB, members string, spec constraint.Spec) {
	t.Helper()
	got, want := a.MustDecode(t, a.Ask(members)).Engine().Constraint, spec.Format(nil)
	if got == nil || want == nil {
		if got != nil || want != nil {
			t.Errorf("got %v, want %v", got, want)
		}
		return
	}
	tag := func(c constraint.Format) string { return string(constraint.AppendStructuralTag(nil, c)) }
	if diff := cmp.Diff(tag(want), tag(got)); diff != "" {
		t.Error(diff)
	}
}
