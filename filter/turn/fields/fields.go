// Package fields reads what the bodies of all APIs have in common into a turn's input: how the model
// samples, where its answer ends, how much it reasons, what form its answer has, and what clients send
// of their history.
//
// The fields of one name and one meaning are rows of tables: [EngineFields] go to the engine as they
// are, [SamplingFields] have those too, and the fields of other servers, which are refused or ignored.
// An API puts the tables beside its own, see jsontext.With and [WithVocabulary]. What stands elsewhere
// in each API is read by functions: [SetEffort], [NamedFormat], [ReadArguments].
//
// It is the only room of a turn that reads bodies, and no other room imports it.
package fields

import (
	"math"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// EngineFields is the fields that go unchanged into the engine's request.
var EngineFields = jsontext.Table[*engine.Request]{
	"model": {Read: func(r *engine.Request, v jsontext.Field) (err *apierror.Error) {
		r.Model, err = v.ShortText() // a stream has it in every event
		return err
	}},
	"temperature": {
		Read: func(r *engine.Request, v jsontext.Field) *apierror.Error { return v.SetNumber(&r.Temperature, 0, 2) },
	},
	"top_p": {
		// Of the engines some refuse 0, and others take it for all tokens.
		Read: func(r *engine.Request, v jsontext.Field) *apierror.Error { return setPositive(&r.TopP, v, 1) },
	},
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

// setPositive sets dst to a number that is greater than 0 and at most most.
func setPositive(dst **float64, v jsontext.Field, most float64) *apierror.Error {
	err := v.SetNumber(dst, 0, most)
	if err == nil && **dst == 0 {
		return apierror.Invalid(v.Path, "The field %q must be greater than 0.", v.Path)
	}
	return err
}

// NoneAllowed is the error of allowed_tools without tools: none could be called, which is another
// choice.
func NoneAllowed(path string) *apierror.Error {
	return apierror.Invalid(path,
		"The field %q has no tools. Name those that may be called, or send the tool_choice \"none\".", path)
}

// CheckModeration refuses what would have to be blocked: texts are not moderated here.
// Scores are not made.
func CheckModeration(v jsontext.Field, ignored *jsontext.Ignored) *apierror.Error {
	for _, side := range []string{"input", "output"} {
		mode := v.Path + ".policy." + side + ".mode"
		if v.Get("policy."+side+".mode").Str == "block" {
			return apierror.Invalid(mode, "Texts are not moderated here, so none can be blocked. "+
				"Leave moderation out, or moderate texts before and behind this service.")
		}
	}
	ignored.Add(v.Path)
	return nil
}
