package fields

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Sampling is what the fields of [SamplingFields] are decoded into: the input of a
// turn, within the limits of its request.
type Sampling struct {
	Input   *request.Input
	Limits  *request.Limits
	Ignored *jsontext.Ignored
}

// SamplingFields are the fields that say how the model writes, and where its answer
// ends. They have the same names and bounds in every API. [EngineFields] are among
// them, and the fields of other servers.
var SamplingFields = withDialects(jsontext.Table[Sampling]{
	"min_tokens": {Read: func(s Sampling, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&s.Input.Engine.MinTokens, 0, math.MaxInt32)
	}},
	"min_p": {
		Read: func(s Sampling, v jsontext.Field) *apierror.Error { return v.SetNumber(&s.Input.Engine.MinP, 0, 1) },
	},
	"repetition_penalty": {Read: Sampling.readRepetitionPenalty},
	"logit_bias":         {Read: Sampling.readLogitBias, Keep: jsontext.KeepGuarded},

	"stop":           {Read: Sampling.readStop},
	"stop_token_ids": {Read: Sampling.readStopTokens},
	"include_stop_str_in_output": {
		Read: func(s Sampling, v jsontext.Field) *apierror.Error { return v.SetSwitch(&s.Input.KeepStop) },
	},
	"ignore_eos": {
		Read: func(s Sampling, v jsontext.Field) *apierror.Error { return v.SetSwitch(&s.Input.IgnoreEOS) },
	},

	"use_beam_search": {Refused: "Beam search is not supported. Leave use_beam_search out."},
	"no_stop_trim":    {Refused: "no_stop_trim is not supported. Use include_stop_str_in_output."},
	"prompt_logprobs": {Refused: "Log probabilities of prompts are not supported. Leave prompt_logprobs out."},
	"length_penalty": {
		Refused: "length_penalty belongs to beam search, which is not supported. Leave it out.",
		Unless:  []string{"1", "0"},
	},
	"early_stopping":         {Refused: "early_stopping belongs to beam search, which is not supported. Leave it out."},
	"bad_words":              {Refused: "bad_words is not supported. Use logit_bias."},
	"allowed_token_ids":      {Refused: "allowed_token_ids is not supported. Leave it out."},
	"logits_processors":      {Refused: "logits_processors is not supported. Leave it out."},
	"custom_logit_processor": {Refused: "custom_logit_processor is not supported. Leave it out."},
})

// maxLogitBias bounds the entries of logit_bias, as OpenAI does.
const maxLogitBias = 1024

func (s Sampling) readLogitBias(v jsontext.Field) *apierror.Error {
	bias := map[harmony.Token]float64{}
	s.Input.Engine.LogitBias = bias

	return v.Entries(func(key string, v jsontext.Field) *apierror.Error {
		id, convErr := strconv.ParseUint(key, 10, 32)
		if convErr != nil || id > maxToken {
			return apierror.Invalid("logit_bias",
				"The keys of \"logit_bias\" must be token ids from 0 to %d.", maxToken)
		}
		if len(bias) == maxLogitBias {
			return apierror.Invalid("logit_bias", "The field \"logit_bias\" has more than %d entries.", maxLogitBias)
		}

		n, err := v.Number(-100, 100)
		if err != nil {
			return apierror.Invalid("logit_bias", "The values of \"logit_bias\" must be numbers from -100 to 100.")
		}
		bias[harmony.Token(id)] = n
		return nil
	})
}

// maxToken is the largest token id of the vocabulary.
const maxToken = 201087

func (s Sampling) readStop(v jsontext.Field) *apierror.Error {
	if v.Type == gjson.String {
		return s.AddStop(v)
	}
	if !v.IsArray() {
		return apierror.Invalid(v.Path, "The field %q must be a string or an array of strings.", v.Path)
	}
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error { return s.AddStop(v) })
}

// AddStop adds a stop string to those of the input. An empty one, one that is too
// long and one too many is a 400.
func (s Sampling) AddStop(v jsontext.Field) *apierror.Error {
	text, err := v.Text()
	switch {
	case err != nil:
		return err
	case text == "":
		return apierror.Invalid(v.Path, "A stop string is empty. Leave it out.")
	case len(text) > s.Limits.StopBytes:
		return apierror.Invalid(v.Path, "A stop string is longer than %d bytes.", s.Limits.StopBytes)
	case len(s.Input.Stop) == s.Limits.Stops:
		list, _, _ := strings.Cut(v.Path, "[")
		return apierror.Invalid(list, "The request has more than %d stop strings.", s.Limits.Stops)
	}
	s.Input.Stop = append(s.Input.Stop, text)
	return nil
}

func (s Sampling) readStopTokens(v jsontext.Field) *apierror.Error {
	e := &s.Input.Engine
	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		id, err := v.Integer(0, maxToken)
		if err == nil && i >= s.Limits.Stops {
			err = apierror.Invalid("stop_token_ids", "The request has more than %d stop token ids.", s.Limits.Stops)
		}
		e.StopTokens = append(e.StopTokens, harmony.Token(id))
		return err
	})
}

func (s Sampling) readRepetitionPenalty(v jsontext.Field) *apierror.Error {
	return setPositive(&s.Input.Engine.RepetitionPenalty, v, 2)
}
