package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
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
	"model":    {read: (*decoder).readModel},
	"messages": {read: (*decoder).readMessages},

	"stream":         {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.stream, v) }},
	"stream_options": {read: (*decoder).readStreamOptions},
	"n":              {read: (*decoder).readChoices},

	"max_tokens":            {read: (*decoder).readMaxTokens},
	"max_completion_tokens": {read: (*decoder).readMaxCompletionTokens},
	"min_tokens":            {read: (*decoder).readMinTokens},
	"temperature":           {read: (*decoder).readTemperature},
	"top_p":                 {read: (*decoder).readTopP},
	"top_k":                 {read: (*decoder).readTopK},
	"min_p":                 {read: (*decoder).readMinP},
	"frequency_penalty":     {read: (*decoder).readFrequencyPenalty},
	"presence_penalty":      {read: (*decoder).readPresencePenalty},
	"repetition_penalty":    {read: (*decoder).readRepetitionPenalty},
	"seed":                  {read: (*decoder).readSeed},
	"logit_bias":            {read: (*decoder).readLogitBias},
	"cache_salt":            {read: (*decoder).readCacheSalt},
	"prompt_cache_key":      {read: (*decoder).readCacheKey},
	"priority":              {read: (*decoder).readPriority},

	"stop":                       {read: (*decoder).readStop},
	"stop_token_ids":             {read: (*decoder).readStopTokens},
	"include_stop_str_in_output": {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.input.KeepStop, v) }},

	"reasoning_effort":  {read: (*decoder).readEffort},
	"include_reasoning": {read: (*decoder).readIncludeReasoning},

	"tools":               {read: (*decoder).readTools},
	"tool_choice":         {read: (*decoder).readToolChoice},
	"parallel_tool_calls": {read: (*decoder).readParallelCalls},

	"continue_final_message": {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.input.Continue, v) }},
	"add_generation_prompt":  {read: (*decoder).readAddGenerationPrompt},
	"return_token_ids":       {read: func(d *decoder, v jsontext.Field) *apierror.Error { return setSwitch(&d.options.tokenIDs, v) }},
	"response_format":        {read: (*decoder).readResponseFormat},
	"structured_outputs":     {read: (*decoder).readStructuredOutputs},
	"guided_json":            {read: (*decoder).readSchema},
	"guided_regex":           {read: (*decoder).readRegex},
	"guided_choice":          {read: (*decoder).readTexts},
	"guided_grammar":         {read: (*decoder).readGrammar},
	"json_schema":            {read: (*decoder).readSchema},
	"regex":                  {read: (*decoder).readRegex},
	"ebnf":                   {read: (*decoder).readGrammar},
	"modalities":             {read: (*decoder).readModalities},

	"logprobs":             {on: noLogprobs},
	"top_logprobs":         {on: noLogprobs},
	"prompt_logprobs":      {on: noLogprobs},
	"ignore_eos":           {on: "The end tokens of the Harmony format cannot be ignored. Leave ignore_eos out and set max_tokens."},
	"echo":                 {on: "echo is not supported. Leave it out; the request's own messages hold what it would repeat."},
	"use_beam_search":      {on: "Beam search is not supported. Leave use_beam_search out."},
	"no_stop_trim":         {on: "no_stop_trim is not supported. Use include_stop_str_in_output."},
	"return_hidden_states": {on: "Hidden states are not supported. Leave return_hidden_states out."},

	"functions":                 {refused: "functions is not supported. Use tools."},
	"function_call":             {refused: "function_call is not supported. Use tool_choice."},
	"audio":                     {refused: "Audio output is not supported. Leave audio out."},
	"web_search_options":        {refused: "Web search is not supported. Leave web_search_options out."},
	"best_of":                   {refused: "best_of is not supported. Use n."},
	"length_penalty":            {refused: "length_penalty belongs to beam search, which is not supported. Leave it out."},
	"early_stopping":            {refused: "early_stopping belongs to beam search, which is not supported. Leave it out."},
	"bad_words":                 {refused: "bad_words is not supported. Use logit_bias."},
	"allowed_token_ids":         {refused: "allowed_token_ids is not supported. Leave it out."},
	"logits_processors":         {refused: "logits_processors is not supported. Leave it out."},
	"custom_logit_processor":    {refused: "custom_logit_processor is not supported. Leave it out."},
	"truncate_prompt_tokens":    {refused: "truncate_prompt_tokens would cut the system message. Leave out old messages instead."},
	"chat_template":             {refused: "Harmony conversations have no chat template. Leave chat_template out."},
	"documents":                 {refused: "documents is not supported. Put the documents into a message."},
	"kv_transfer_params":        {refused: "kv_transfer_params is not for clients. Leave it out."},
	"lora_path":                 {refused: "lora_path is not supported. Choose the adapter with model."},
	"guided_decoding_backend":   {ignored: true},
	"guided_whitespace_pattern": {ignored: true},
	"structural_tag":            {refused: turn.NoTags},

	"user":                   {ignored: true},
	"metadata":               {ignored: true},
	"store":                  {ignored: true},
	"service_tier":           {ignored: true},
	"safety_identifier":      {ignored: true},
	"prompt_cache_retention": {ignored: true},
	"prediction":             {ignored: true},
	"verbosity":              {ignored: true},
	"chat_template_kwargs":   {ignored: true},
	"mm_processor_kwargs":    {ignored: true},
	"add_special_tokens":     {ignored: true},
	"request_id":             {ignored: true},
	"separate_reasoning":     {ignored: true},
	"stream_reasoning":       {ignored: true},
	"skip_special_tokens":    {ignored: true},

	"spaces_between_special_tokens": {ignored: true},
	"return_tokens_as_token_ids":    {ignored: true},
}

const noLogprobs = "logprobs are not supported for Harmony models"

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
