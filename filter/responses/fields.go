package responses

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// fieldReader reads the fields of a body, and has what they say.
type fieldReader struct {
	api   *API
	rc    *turn.RequestContext
	tools *toolReader

	input        turn.Input     // but for the conversation
	items        jsontext.Field // the field input, or the items for a conversation
	instructions string
	previous     string // previous_response_id
	conversation string // the id of the conversation that the response belongs to
	store        bool
	sealer       *seal.Sealer // for reasoning.encrypted_content, if the request wants it
	options      options
	ignored      jsontext.Ignored
	echo         echo // what the response object repeats
	compactAbove int  // the tokens of a prompt above which the conversation is compacted; 0: never
}

func newFieldReader(a *API, rc *turn.RequestContext, t *toolReader) fieldReader {
	return fieldReader{
		api: a, rc: rc, tools: t, store: true, echo: newEcho(),
		input:   turn.Input{Strict: map[turn.ToolName]bool{}},
		options: options{usagePerTurn: a.UsagePerTurn, openReasoning: a.OpenReasoningEvents},
	}
}

// fields are the top-level fields that are known. All others are ignored. The
// table of docs/compatibility.md has the same rows.
var fields = jsontext.With(jsontext.Table[*fieldReader]{
	"input":                {Read: (*fieldReader).readInput},
	"previous_response_id": {Read: (*fieldReader).readPrevious},
	"conversation":         {Read: (*fieldReader).readConversation},
	"instructions":         {Read: (*fieldReader).readInstructions},
	"stream":               {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return v.SetSwitch(&f.options.stream) }},
	"include":              {Read: (*fieldReader).readInclude},

	"tools":               {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return f.tools.readTools(v) }},
	"tool_choice":         {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return f.tools.readToolChoice(v) }},
	"parallel_tool_calls": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return f.tools.readParallelCalls(v) }},
	"max_tool_calls": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&f.echo.maxToolCalls, 1, math.MaxInt32)
	}},

	"max_output_tokens": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&f.input.Engine.MaxTokens, 1, math.MaxInt32)
	}},
	"truncation": {Read: (*fieldReader).readTruncation},
	"reasoning":  {Read: (*fieldReader).readReasoning},
	"text":       {Read: (*fieldReader).readText},

	"enable_response_messages": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return v.SetSwitch(&f.options.messages) }},

	"moderation":        {Read: (*fieldReader).readModeration},
	"store":             {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return v.SetSwitch(&f.store) }},
	"metadata":          {Read: (*fieldReader).readMetadata},
	"safety_identifier": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return setText(&f.echo.safety, v) }},
	"prompt_cache_key":  {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return setText(&f.echo.cacheKey, v) }},

	"background":              {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return v.SetSwitch(&f.options.background) }},
	"top_logprobs":            {Read: (*fieldReader).readTopLogprobs},
	"logprobs":                {Refused: "logprobs is a field of POST /v1/chat/completions. Use include with message.output_text.logprobs."},
	"previous_input_messages": {Refused: "previous_input_messages is not supported. Send the conversation as input items."},
	"prompt":                  {Refused: "Prompt templates are not supported. Send instructions and input."},
	"structured_outputs":      {Read: (*fieldReader).readStructuredOutputs},
	"messages":                {Refused: "messages is a field of POST /v1/chat/completions. Use input."},
	"response_format":         {Refused: "response_format is a field of POST /v1/chat/completions. Use text.format."},
	"reasoning_effort":        {Refused: "reasoning_effort is a field of POST /v1/chat/completions. Use reasoning.effort."},
	"max_tokens":              {Refused: "max_tokens is a field of POST /v1/chat/completions. Use max_output_tokens."},
	"max_completion_tokens":   {Refused: "max_completion_tokens is a field of POST /v1/chat/completions. Use max_output_tokens."},
	"service_tier":            {Ignored: "the order in which requests are served is Envoy's and the engine's; the response has `default`"},
	"stream_options":          {Ignored: "its one member pads events against eavesdroppers; the last event always has the usage"},
	"user":                    {Ignored: "names the client's user, for the service that serves it"},
	"client_metadata":         {Ignored: "what a client notes about itself"},
	"prompt_cache_retention":  {Ignored: "engines cache prefixes by themselves"},
	"request_id":              {Ignored: "the request's id is Envoy's `x-request-id`"},
	"skip_special_tokens":     {Ignored: "control tokens are the structure of a reply, and never part of its texts"},
	"context_management":      {Read: (*fieldReader).readContextManagement},
	"prompt_cache_options":    {Read: (*fieldReader).readCacheOptions},
}, turn.SamplingFields, func(f *fieldReader) turn.Sampling { return turn.Sampling{Input: &f.input, Limits: &f.rc.Limits} })
