package responses

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// field is what becomes of one field of a request. Of its members exactly one
// is set.
type field struct {
	read    func(d *decoder, v jsontext.Field) *apierror.Error // mapped
	refused string                                             // refused; says why, and what to do instead
	on      string                                             // refused so, unless it is false or 0, which is what happens anyway
	ignored bool
}

// fields is every top-level field that the decoder knows. Fields that are not
// in it are ignored too. The table of docs/compatibility.md has the same rows.
var fields = map[string]field{
	"model":                {read: (*decoder).readModel},
	"input":                {read: (*decoder).readInput},
	"previous_response_id": {read: (*decoder).readPrevious},
	"conversation":         {read: (*decoder).readConversation},
	"instructions":         {read: (*decoder).readInstructions},
	"stream":               {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.stream, v) }},
	"include":              {read: (*decoder).readInclude},

	"tools":               {read: (*decoder).readTools},
	"tool_choice":         {read: (*decoder).readToolChoice},
	"parallel_tool_calls": {read: (*decoder).readParallelCalls},
	"max_tool_calls":      {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setCount(&d.echo.maxToolCalls, v) }},

	"max_output_tokens": {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setCount(&d.input.Engine.MaxTokens, v) }},
	"truncation":        {read: (*decoder).readTruncation},
	"reasoning":         {read: (*decoder).readReasoning},
	"text":              {read: (*decoder).readText},

	"temperature": {read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return setNumber(&d.input.Engine.Temperature, v, 0, 2)
	}},
	"top_p": {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setNumber(&d.input.Engine.TopP, v, 0, 1) }},
	"frequency_penalty": {read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return setNumber(&d.input.Engine.FrequencyPenalty, v, -2, 2)
	}},
	"presence_penalty": {read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return setNumber(&d.input.Engine.PresencePenalty, v, -2, 2)
	}},
	"top_k":      {read: (*decoder).readTopK},
	"seed":       {read: (*decoder).readSeed},
	"priority":   {read: (*decoder).readPriority},
	"cache_salt": {read: (*decoder).readCacheSalt},

	"enable_response_messages": {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.messages, v) }},

	"store":             {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.store, v) }},
	"metadata":          {read: (*decoder).readMetadata},
	"safety_identifier": {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setText(&d.echo.safety, v) }},
	"prompt_cache_key":  {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setText(&d.echo.cacheKey, v) }},

	"background":              {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.background, v) }},
	"top_logprobs":            {on: noLogprobs},
	"logprobs":                {on: noLogprobs},
	"ignore_eos":              {on: "The end tokens of the Harmony format cannot be ignored. Leave ignore_eos out and set max_output_tokens."},
	"previous_input_messages": {refused: "previous_input_messages is not supported. Send the conversation as input items."},
	"prompt":                  {refused: "Prompt templates are not supported. Send instructions and input."},
	"stop":                    {refused: "stop is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"stop_token_ids":          {refused: "stop_token_ids is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"logit_bias":              {refused: "logit_bias is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"min_p":                   {refused: "min_p is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"repetition_penalty":      {refused: "repetition_penalty is not a field of the Responses API. Use POST /v1/chat/completions, or leave it out."},
	"structured_outputs":      {read: (*decoder).readStructuredOutputs},
	"messages":                {refused: "messages is a field of POST /v1/chat/completions. Use input."},
	"response_format":         {refused: "response_format is a field of POST /v1/chat/completions. Use text.format."},
	"reasoning_effort":        {refused: "reasoning_effort is a field of POST /v1/chat/completions. Use reasoning.effort."},
	"max_tokens":              {refused: "max_tokens is a field of POST /v1/chat/completions. Use max_output_tokens."},
	"max_completion_tokens":   {refused: "max_completion_tokens is a field of POST /v1/chat/completions. Use max_output_tokens."},
	"service_tier":            {ignored: true},
	"stream_options":          {ignored: true},
	"user":                    {ignored: true},
	"client_metadata":         {ignored: true},
	"prompt_cache_retention":  {ignored: true},
	"request_id":              {ignored: true},
	"skip_special_tokens":     {ignored: true},
	"context_management":      {ignored: true},
}

const noLogprobs = "logprobs are not supported with gpt-oss models"

// isField tells whether the decoder knows a top-level field.
func isField(name string) bool {
	_, known := fields[name]
	return known
}

// read takes one field of the request.
func (d *decoder) read(key string, v jsontext.Field) *apierror.Error {
	f, known := fields[key]
	switch {
	case !known || f.ignored:
		d.ignored.Add(v.Path)
	case f.refused != "":
		return apierror.Invalid(v.Path, "%s", f.refused)
	case f.on != "":
		if v.Raw != "false" && v.Raw != "0" {
			return apierror.Invalid(v.Path, "%s", f.on)
		}
	default:
		return f.read(d, v)
	}
	return nil
}
