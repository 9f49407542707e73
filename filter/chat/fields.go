package chat

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// fields has the top-level fields that the decoder knows. Other fields are ignored.
// The table in docs/compatibility.md has the same rows.
var fields = jsontext.With(jsontext.Table[*decoder]{
	"messages": {Read: (*decoder).readMessages},

	"stream":         {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.options.stream) }},
	"stream_options": {Read: (*decoder).readStreamOptions},
	"n": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.input.Engine.N, 1, int64(d.rc.Limits.Choices))
	}},

	"max_tokens": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.maxTokens, 1, math.MaxInt32)
	}},
	"max_completion_tokens": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.maxCompletionTokens, 1, math.MaxInt32)
	}},
	"prompt_cache_key": {Read: (*decoder).readCacheKey},

	"reasoning_effort":  {Read: (*decoder).readEffort},
	"reasoning":         {Read: (*decoder).readReasoning},
	"include_reasoning": {Read: (*decoder).readIncludeReasoning},

	"tools":               {Read: (*decoder).readTools},
	"tool_choice":         {Read: (*decoder).readToolChoice},
	"parallel_tool_calls": {Read: (*decoder).readParallelCalls},
	"functions":           {Read: (*decoder).readFunctions},
	"function_call":       {Read: (*decoder).readFunctionCall},

	"continue_final_message": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.input.Continue) }},
	"add_generation_prompt":  {Read: (*decoder).readAddGenerationPrompt},
	"return_token_ids":       {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.options.tokenIDs) }},
	"response_format":        {Read: (*decoder).readResponseFormat},
	"structured_outputs":     {Read: (*decoder).readStructuredOutputs},
	"guided_json":            {Read: (*decoder).readSchema},
	"guided_regex":           {Read: (*decoder).readRegex},
	"guided_choice":          {Read: (*decoder).readTexts},
	"guided_grammar":         {Read: (*decoder).readGrammar},
	"json_schema":            {Read: (*decoder).readSchema},
	"regex":                  {Read: (*decoder).readRegex},
	"ebnf":                   {Read: (*decoder).readGrammar},
	"modalities":             {Read: (*decoder).readModalities},

	"logprobs": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.input.Engine.Logprobs) }},
	"top_logprobs": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.input.Engine.TopLogprobs, 0, engine.MaxTopLogprobs)
	}},

	"echo":                 {On: "echo is not supported. Leave it out, and take the text from the messages of the request."},
	"return_hidden_states": {On: "Hidden states are not supported. Leave return_hidden_states out."},

	"audio":                     {Refused: "Audio output is not supported. Leave audio out."},
	"web_search_options":        {Refused: "Web search is not supported. Leave web_search_options out."},
	"best_of":                   {Refused: "best_of is not supported. Use n."},
	"truncate_prompt_tokens":    {Refused: "truncate_prompt_tokens would cut the system message. Leave out old messages instead."},
	"chat_template":             {Refused: "Harmony conversations have no chat template. Leave chat_template out."},
	"documents":                 {Refused: "documents is not supported. Put the documents into a message."},
	"kv_transfer_params":        {Refused: "kv_transfer_params is not for clients. Leave it out."},
	"lora_path":                 {Refused: "lora_path is not supported. Choose the adapter with model."},
	"guided_decoding_backend":   {Ignored: true},
	"guided_whitespace_pattern": {Ignored: true},
	"structural_tag":            {Refused: turn.NoTags},

	"user":                   {Ignored: true},
	"metadata":               {Ignored: true},
	"store":                  {Ignored: true},
	"service_tier":           {Ignored: true},
	"safety_identifier":      {Ignored: true},
	"prompt_cache_retention": {Ignored: true},
	"prediction":             {Ignored: true},
	"verbosity":              {Ignored: true},
	"chat_template_kwargs":   {Ignored: true},
	"mm_processor_kwargs":    {Ignored: true},
	"add_special_tokens":     {Ignored: true},
	"request_id":             {Ignored: true},
	"separate_reasoning":     {Ignored: true},
	"stream_reasoning":       {Ignored: true},
	"skip_special_tokens":    {Ignored: true},

	"spaces_between_special_tokens": {Ignored: true},
	"return_tokens_as_token_ids":    {Ignored: true},
}, turn.SamplingFields, func(d *decoder) turn.Sampling { return turn.Sampling{Input: &d.input, Limits: &d.rc.Limits} })
