package turn

import (
	"math"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// EngineFields is the fields that go unchanged into the engine's request.
var EngineFields = jsontext.Table[*engine.Request]{
	"model": {Read: func(r *engine.Request, v jsontext.Field) (err *apierror.Error) {
		r.Model, err = v.ShortText() // a stream has it in every event
		return err
	}},
	"temperature": {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error { return v.SetNumber(&r.Temperature, 0, 2) }},
	"top_p":       {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error { return v.SetNumber(&r.TopP, 0, 1) }},
	"frequency_penalty": {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error {
		return v.SetNumber(&r.FrequencyPenalty, -2, 2)
	}},
	"presence_penalty": {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error {
		return v.SetNumber(&r.PresencePenalty, -2, 2)
	}},
	"top_k": {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error {
		r.TopK = new(int)
		return v.SetInteger(r.TopK, -1, math.MaxInt32)
	}},
	"priority": {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error {
		r.Priority = new(int)
		return v.SetInteger(r.Priority, math.MinInt32, math.MaxInt32)
	}},
	"seed": {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error {
		n, err := v.Integer(math.MinInt64, math.MaxInt64)
		r.Seed = &n
		return err
	}},
	"cache_salt": {Read: func(r *engine.Request, v jsontext.Field) *apierror.Error {
		salt, err := v.Text()
		if err == nil && salt == "" { // it would share what it is to keep apart
			err = apierror.Invalid(v.Path, "The field %q is empty. Send a text that is not, or leave it out.", v.Path)
		}
		r.CacheSalt = strings.Clone(salt)
		return err
	}},
}

// SetEffort reads a reasoning effort. It reports whether the reply hides the
// reasoning: with the effort none. The model has low, medium and high; none and
// minimal become low, xhigh and max become high.
func (in *Input) SetEffort(v jsontext.Field) (hide bool, err *apierror.Error) {
	word, err := v.Text()
	if err != nil {
		return false, err
	}
	switch word {
	case "none", "minimal", "low":
		in.Effort = harmony.EffortLow
	case "medium":
		in.Effort = harmony.EffortMedium
	case "high", "xhigh", "max":
		in.Effort = harmony.EffortHigh
	default:
		return false, apierror.Invalid(v.Path, "The field %q must be one of none, minimal, low, medium, high, xhigh and max.", v.Path)
	}
	return word == "none", nil
}

// SetChoice sets a tool_choice that is a word. It reports whether the word is
// valid.
func (in *Input) SetChoice(word string) bool {
	switch word {
	case "auto":
	case "none":
		in.NoCalls = true
	case "required":
		in.Choice.Required = true
	default:
		return false
	}
	return true
}
