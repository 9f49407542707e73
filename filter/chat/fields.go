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

	"echo":                 {Refused: "echo is not supported. Leave it out, and take the text from the messages of the request."},
	"return_hidden_states": {Refused: "Hidden states are not supported. Leave return_hidden_states out."},

	"functions":                 {Refused: "functions is not supported. Use tools."},
	"function_call":             {Refused: "function_call is not supported. Use tool_choice."},
	"audio":                     {Refused: "Audio output is not supported. Leave audio out."},
	"web_search_options":        {Refused: "Web search is not supported. Leave web_search_options out."},
	"best_of":                   {Refused: "best_of is not supported. Use n."},
	"truncate_prompt_tokens":    {Refused: "truncate_prompt_tokens would cut the system message. Leave out old messages instead."},
	"chat_template":             {Refused: "Harmony conversations have no chat template. Leave chat_template out."},
	"documents":                 {Refused: "documents is not supported. Put the documents into a message."},
	"kv_transfer_params":        {Refused: "kv_transfer_params is not for clients. Leave it out."},
	"lora_path":                 {Refused: "lora_path is not supported. Choose the adapter with model."},
	"guided_decoding_backend":   {Ignored: "which library enforces a grammar does not change what it allows"},
	"guided_whitespace_pattern": {Ignored: "to be mapped or refused"},
	"structural_tag":            {Refused: turn.NoTags},

	"user":                   {Ignored: "names the client's user, for the service that serves it"},
	"metadata":               {Ignored: "labels a stored completion, and none is stored"},
	"store":                  {Ignored: "completions are not stored; the reply is the same"},
	"service_tier":           {Ignored: "the order in which requests are served is Envoy's and the engine's"},
	"safety_identifier":      {Ignored: "names the client's user, for the service that serves it"},
	"prompt_cache_retention": {Ignored: "engines cache prefixes by themselves"},
	"prediction":             {Ignored: "a text that makes an answer faster, not another one"},
	"verbosity":              {Ignored: "to be mapped or refused"},
	"chat_template_kwargs":   {Ignored: "to be mapped or refused"},
	"mm_processor_kwargs":    {Ignored: "the model sees no pictures"},
	"add_special_tokens":     {Ignored: "Harmony's prompt has all its control tokens; there are none to add"},
	"request_id":             {Ignored: "the request's id is Envoy's `x-request-id`"},
	"separate_reasoning":     {Ignored: "to be mapped or refused"},
	"stream_reasoning":       {Ignored: "only the cuts between the deltas of the reasoning differ"},
	"skip_special_tokens":    {Ignored: "control tokens are the structure of a reply, and never part of its texts"},

	"spaces_between_special_tokens": {Ignored: "control tokens are never part of a text"},
	"return_tokens_as_token_ids":    {Ignored: "to be mapped or refused"},
}, turn.SamplingFields, func(d *decoder) turn.Sampling { return turn.Sampling{Input: &d.input, Limits: &d.rc.Limits} })
