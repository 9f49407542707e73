package responses

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// fields is every top-level field that the decoder knows. Fields that are not
// in it are ignored too. The table of docs/compatibility.md has the same rows.
var fields = jsontext.With(jsontext.Table[*decoder]{
	"input":                {Read: (*decoder).readInput},
	"previous_response_id": {Read: (*decoder).readPrevious},
	"conversation":         {Read: (*decoder).readConversation},
	"instructions":         {Read: (*decoder).readInstructions},
	"stream":               {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.options.stream) }},
	"include":              {Read: (*decoder).readInclude},

	"tools":               {Read: (*decoder).readTools},
	"tool_choice":         {Read: (*decoder).readToolChoice},
	"parallel_tool_calls": {Read: (*decoder).readParallelCalls},
	"max_tool_calls": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.echo.maxToolCalls, 1, math.MaxInt32)
	}},

	"max_output_tokens": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.input.Engine.MaxTokens, 1, math.MaxInt32)
	}},
	"truncation": {Read: (*decoder).readTruncation},
	"reasoning":  {Read: (*decoder).readReasoning},
	"text":       {Read: (*decoder).readText},

	"enable_response_messages": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.options.messages) }},

	"store":             {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.store) }},
	"metadata":          {Read: (*decoder).readMetadata},
	"safety_identifier": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setText(&d.echo.safety, v) }},
	"prompt_cache_key":  {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setText(&d.echo.cacheKey, v) }},

	"background":              {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.options.background) }},
	"top_logprobs":            {On: noLogprobs},
	"logprobs":                {On: noLogprobs},
	"ignore_eos":              {On: "The end tokens of the Harmony format cannot be ignored. Leave ignore_eos out and set max_output_tokens."},
	"previous_input_messages": {Refused: "previous_input_messages is not supported. Send the conversation as input items."},
	"prompt":                  {Refused: "Prompt templates are not supported. Send instructions and input."},
	"stop":                    {Refused: "stop is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"stop_token_ids":          {Refused: "stop_token_ids is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"logit_bias":              {Refused: "logit_bias is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"min_p":                   {Refused: "min_p is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"repetition_penalty":      {Refused: "repetition_penalty is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"structured_outputs":      {Read: (*decoder).readStructuredOutputs},
	"messages":                {Refused: "messages is a field of POST /v1/chat/completions. Use input."},
	"response_format":         {Refused: "response_format is a field of POST /v1/chat/completions. Use text.format."},
	"reasoning_effort":        {Refused: "reasoning_effort is a field of POST /v1/chat/completions. Use reasoning.effort."},
	"max_tokens":              {Refused: "max_tokens is a field of POST /v1/chat/completions. Use max_output_tokens."},
	"max_completion_tokens":   {Refused: "max_completion_tokens is a field of POST /v1/chat/completions. Use max_output_tokens."},
	"service_tier":            {Ignored: true},
	"stream_options":          {Ignored: true},
	"user":                    {Ignored: true},
	"client_metadata":         {Ignored: true},
	"prompt_cache_retention":  {Ignored: true},
	"request_id":              {Ignored: true},
	"skip_special_tokens":     {Ignored: true},
	"context_management":      {Ignored: true},
}, turn.EngineFields, func(d *decoder) *engine.Request { return &d.input.Engine })

const noLogprobs = "logprobs are not supported with gpt-oss models"
