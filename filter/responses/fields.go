package responses

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// fields is every top-level field that the decoder knows. Fields that are not
// in it are ignored too. The table of docs/compatibility.md has the same rows.
var fields = jsontext.Table[*decoder]{
	"model":                {Read: (*decoder).readModel},
	"input":                {Read: (*decoder).readInput},
	"previous_response_id": {Read: (*decoder).readPrevious},
	"conversation":         {Read: (*decoder).readConversation},
	"instructions":         {Read: (*decoder).readInstructions},
	"stream":               {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.stream, v) }},
	"include":              {Read: (*decoder).readInclude},

	"tools":               {Read: (*decoder).readTools},
	"tool_choice":         {Read: (*decoder).readToolChoice},
	"parallel_tool_calls": {Read: (*decoder).readParallelCalls},
	"max_tool_calls":      {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setCount(&d.echo.maxToolCalls, v) }},

	"max_output_tokens": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setCount(&d.input.Engine.MaxTokens, v) }},
	"truncation":        {Read: (*decoder).readTruncation},
	"reasoning":         {Read: (*decoder).readReasoning},
	"text":              {Read: (*decoder).readText},

	"temperature": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return setNumber(&d.input.Engine.Temperature, v, 0, 2)
	}},
	"top_p": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setNumber(&d.input.Engine.TopP, v, 0, 1) }},
	"frequency_penalty": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return setNumber(&d.input.Engine.FrequencyPenalty, v, -2, 2)
	}},
	"presence_penalty": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return setNumber(&d.input.Engine.PresencePenalty, v, -2, 2)
	}},
	"top_k":      {Read: (*decoder).readTopK},
	"seed":       {Read: (*decoder).readSeed},
	"priority":   {Read: (*decoder).readPriority},
	"cache_salt": {Read: (*decoder).readCacheSalt},

	"enable_response_messages": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.messages, v) }},

	"store":             {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.store, v) }},
	"metadata":          {Read: (*decoder).readMetadata},
	"safety_identifier": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setText(&d.echo.safety, v) }},
	"prompt_cache_key":  {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setText(&d.echo.cacheKey, v) }},

	"background":              {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.background, v) }},
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
}

const noLogprobs = "logprobs are not supported with gpt-oss models"
