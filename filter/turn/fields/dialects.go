package fields

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Clients of other servers send these servers' own fields too. A field that changes what
// the model writes, or what the client gets of it, is refused, since nothing of an engine
// behind this service does it. A field that only moves where, when or how fast the same
// is written is ignored.

// dialects are the fields of vLLM, SGLang, llama.cpp, Ollama, OpenRouter and other
// services that no API here has. The lists of them are in filter/api/apitest/testdata.
var dialects = jsontext.Table[Sampling]{
	// Other names of what there is.
	"repeat_penalty": {Read: Sampling.readRepetitionPenalty},
	"random_seed": {Read: func(s Sampling, v jsontext.Field) *apierror.Error {
		return EngineFields["seed"].Read(&s.Input.Engine, v)
	}},
	"options": {
		Refused: "options belongs to Ollama's own API. Send its members as fields of the request, such as temperature.",
		Unless:  []string{"{}"},
	},
	"generation_config": {Refused: noNesting, Unless: []string{"{}"}},
	"inference_config":  {Refused: noNesting, Unless: []string{"{}"}},
	"model_kwargs":      {Refused: noNesting, Unless: []string{"{}"}},
	"parameters":        {Refused: noNesting, Unless: []string{"{}"}},
	"sampling_params":   {Refused: noNesting, Unless: []string{"{}"}},
	"nvext": {
		Refused: "nvext is not supported. Send its members as fields of the request.",
		Unless:  []string{"{}"},
	},
	"extra_body": {
		Refused: "extra_body is an argument of SDKs. Send its members as fields of the request.",
		Unless:  []string{"{}"},
	},

	// What is sampled.
	"do_sample":                  {Refused: "do_sample is not supported. Use temperature.", Unless: []string{"true"}},
	"temp":                       {Refused: "temp is not supported. Use temperature.", Unless: []string{}},
	"p":                          {Refused: "p is not supported. Use top_p.", Unless: []string{}},
	"k":                          {Refused: "k is not supported. Use top_k.", Unless: []string{}},
	"rep_pen":                    {Refused: "rep_pen is not supported. Use repetition_penalty.", Unless: []string{"1"}},
	"random_state":               {Refused: "random_state is not supported. Use seed.", Unless: []string{}},
	"rng_seed":                   {Refused: "rng_seed is not supported. Use seed.", Unless: []string{}},
	"guidance_scale":             {Refused: noSampler, Unless: []string{"1"}},
	"negative_prompt":            {Refused: noSampler},
	"no_repeat_ngram_size":       {Refused: noSampler},
	"encoder_repetition_penalty": {Refused: noSampler, Unless: []string{"1"}},
	"penalty_alpha":              {Refused: noSampler},
	"smoothing_factor":           {Refused: noSampler},
	"dynamic_temperature":        {Refused: noSampler},
	"watermark":                  {Refused: noSampler},
	"num_beams": {
		Refused: "num_beams belongs to beam search, which is not supported. Leave it out.",
		Unless:  []string{"1"},
	},
	"top_a":           {Refused: noSampler},
	"tfs_z":           {Refused: noSampler, Unless: []string{"1"}},
	"typical_p":       {Refused: noSampler, Unless: []string{"1"}},
	"typ_p":           {Refused: noSampler, Unless: []string{"1"}},
	"top_n_sigma":     {Refused: noSampler, Unless: []string{"-1", "0"}},
	"dynatemp_range":  {Refused: noSampler},
	"xtc_probability": {Refused: noSampler},
	"dry_multiplier":  {Refused: noSampler},
	"mirostat":        {Refused: noSampler},
	"mirostat_mode":   {Refused: noSampler},
	"mirostat_target": {Refused: noSampler},
	"mirostat_lr":     {Refused: noSampler},
	"adaptive_target": {Refused: noSampler, Unless: []string{"-1"}},
	"samplers":        {Refused: noSampler},
	"min_keep":        {Refused: noSampler},
	"watermarking":    {Refused: noSampler},
	"repeat_last_n": {
		Refused: "Penalties are for the whole text. Leave repeat_last_n out.",
		Unless:  []string{"-1"},
	},
	"repetition_detection": {Refused: "The operator bounds repetitions. Leave repetition_detection out."},
	"lora":                 {Refused: noAdapter},
	"lora_path":            {Refused: noAdapter},
	"adapter_id":           {Refused: noAdapter},
	"vllm_xargs":           {Refused: "Extensions of engines are not for clients. Leave vllm_xargs out."},
	"safe_prompt":          {Refused: "Nothing is added to the prompt. Send a message of the role system."},
	"prompt_mode":          {Refused: "prompt_mode is not supported. Use an effort."},
	"dynatemp_exponent":    {Ignored: "belongs to `dynatemp_range`, which is refused"},
	"xtc_threshold":        {Ignored: "belongs to `xtc_probability`, which is refused"},
	"dry_base":             {Ignored: "belongs to `dry_multiplier`, which is refused"},
	"dry_allowed_length":   {Ignored: "belongs to `dry_multiplier`, which is refused"},
	"dry_penalty_last_n":   {Ignored: "belongs to `dry_multiplier`, which is refused"},
	"dry_sequence_breakers": {
		Ignored: "belongs to `dry_multiplier`, which is refused",
	},
	"mirostat_tau":   {Ignored: "belongs to `mirostat`, which is refused"},
	"mirostat_eta":   {Ignored: "belongs to `mirostat`, which is refused"},
	"adaptive_decay": {Ignored: "belongs to `adaptive_target`, which is refused"},
	"custom_params":  {Ignored: "belongs to `custom_logit_processor`, which is refused"},

	// Where it ends.
	"min_new_tokens":        {Refused: noLeast},
	"min_length":            {Refused: noLeast},
	"min_completion_tokens": {Refused: noLeast},
	"ban_eos_token":         {Refused: "ban_eos_token is not supported. Use ignore_eos."},
	"eos_token_id":          {Refused: noStopIDs},
	"stop_ids":              {Refused: noStopIDs},
	"stop_tokens":           {Refused: noStopIDs},
	"max_time":              {Refused: "max_time is not supported. Limit the output's tokens."},
	"stop_regex":            {Refused: "stop_regex is not supported. Use stop."},
	"t_max_predict_ms": {
		Refused: "t_max_predict_ms is not supported. Limit the output's tokens.",
		Unless:  []string{"-1", "0"},
	},
	"n_indent": {Refused: "n_indent is not supported. Use stop."},
	"context_length_exceeded_behavior": {
		Ignored: "more output than the context leaves is never an error here, and a prompt that is too long always is",
	},

	// The grammar of the answer.
	"guided_whitespace_pattern": {Ignored: noWhitespace},
	"grammar_lazy": {
		Refused: "A grammar holds from the first character of the answer. Leave grammar_lazy out.",
	},
	"grammar_triggers": {
		Refused: "A grammar holds from the first character of the answer. Leave grammar_triggers out.",
	},
	"structural_tag":          {Refused: NoTags},
	"guided_decoding_backend": {Ignored: "which library enforces a grammar does not change what it allows"},

	// The prompt.
	"chat_template": {Refused: noTemplate},
	"documents":     {Refused: "documents is not supported. Put the documents into a message."},
	"input_ids": {
		Refused: "input_ids is not supported. Send messages, or tokens to the engine's own API.",
	},
	"session_params": {Refused: "Prompts of engines are not continued. Send the whole conversation."},
	"truncate_prompt_tokens": {
		Refused: "truncate_prompt_tokens would cut the system message. Leave out old messages instead.",
	},
	"prompt_truncate_len": {Refused: "prompt_truncate_len is not supported. Leave out old messages instead."},
	"preset":              {Refused: "Presets are OpenRouter's own. Send what it has as fields of the request."},
	"plugins":             {Refused: "Plugins are OpenRouter's own. Leave plugins out."},
	"enable_search":       {Refused: "Web search is not a switch here. Leave enable_search out."},
	"search_parameters": {
		Refused: "Web search is not a switch here. Leave search_parameters out.",
		Unless:  []string{"{\"mode\":\"off\"}"},
	},
	"search_settings":  {Refused: "Web search is not a switch here. Leave search_settings out."},
	"parse_tool_calls": {Read: onlyTrue("Calls are always read. Leave %s out.")},
	"truncation_side":  {Ignored: "belongs to `truncate_prompt_tokens`, which is refused"},
	"transforms":       {Ignored: "shortens conversations that are too long, which are a 400 here"},
	"n_keep":           {Ignored: "what is kept of conversations that are too long, which are a 400 here"},
	"n_discard": {
		Ignored: "what is dropped of conversations that are too long, which are a 400 here",
	},
	"task":                         {Ignored: "of another model's prompts"},
	"add_special_tokens":           {Ignored: "Harmony's prompt has all its control tokens; there are none to add"},
	"image_config":                 {Ignored: noPictures},
	"images_config":                {Ignored: noPictures},
	"max_dynamic_patch":            {Ignored: noPictures},
	"min_dynamic_patch":            {Ignored: noPictures},
	"media_io_kwargs":              {Ignored: noPictures},
	"mm_processor_kwargs":          {Ignored: noPictures},
	"return_mm_kwargs":             {Ignored: noPictures},
	"use_audio_in_video":           {Ignored: noPictures},
	"vl_high_resolution_images":    {Ignored: noPictures},
	"chat_template_content_format": {Ignored: "how a template gets the same texts"},

	// What the client gets beside the answer.
	"echo": {
		Refused: "echo is not supported. Leave it out, and take the text from the messages of the request.",
	},
	"return_full_text": {
		Refused: "return_full_text is not supported. Leave it out, and take the text from the messages of the request.",
	},
	"response_fields": {
		Refused: "response_fields is not supported. Leave it out: the reply has all its fields.",
	},
	"return_hidden_states":  {Refused: "Hidden states are not supported. Leave return_hidden_states out."},
	"return_routed_experts": {Refused: "Routed experts are not supported. Leave return_routed_experts out."},
	"return_prompt_text":    {Refused: "return_prompt_text is not supported. Use the render service."},
	"return_prompt_token_ids": {
		Refused: "return_prompt_token_ids is not supported. Use return_token_ids of chat, or the render service.",
	},
	"return_tokens": {Refused: "return_tokens is not supported. Use return_token_ids of chat."},
	"return_tokens_as_token_ids": {
		Refused: "return_tokens_as_token_ids is not supported. Use return_token_ids of chat.",
	},
	"n_probs": {Refused: "n_probs is not supported. Use the API's own log probabilities."},
	"post_sampling_probs": {
		Refused: "Probabilities behind the samplers are not supported. Leave post_sampling_probs out.",
	},
	"logprob_token_ids": {
		Refused: "Log probabilities of named tokens are not supported. Leave logprob_token_ids out.",
	},
	"return_token_offsets":     {Ignored: "vLLM's render service has them, and no reply"},
	"routed_experts_start_len": {Ignored: "belongs to `return_routed_experts`, which is refused"},
	"routed_experts_prompt_start": {
		Ignored: "belongs to `return_routed_experts`, which is refused",
	},
	"return_cached_tokens_details": {Ignored: noFigures},
	"return_meta_info":             {Ignored: noFigures},
	"return_progress":              {Ignored: noFigures},
	"timings_per_token":            {Ignored: noFigures},
	"perf_metrics_in_response":     {Ignored: noFigures},
	"verbose":                      {Ignored: noFigures},
	"skip_special_tokens": {
		Ignored: "control tokens are the structure of a reply, and never part of its texts",
	},
	"spaces_between_special_tokens": {Ignored: "control tokens are never part of a text"},
	"preserved_tokens":              {Ignored: "control tokens are never part of a text"},
	"chat_format":                   {Ignored: "how a reply is read is Harmony's"},
	"stream_interval":               {Ignored: "only the cuts between deltas differ"},
	"incremental_output":            {Ignored: "a stream always has what is new"},

	// Where and when it is written.
	"kv_transfer_params":     {Refused: noTransfer},
	"ec_transfer_params":     {Refused: noTransfer},
	"bootstrap_host":         {Refused: noTransfer},
	"bootstrap_port":         {Refused: noTransfer},
	"bootstrap_room":         {Refused: noTransfer},
	"deferred":               {Refused: "deferred is not supported. Use background of POST /v1/responses."},
	"provider":               {Ignored: "chooses among OpenRouter's providers: here the model has one"},
	"models":                 {Ignored: "other models, for when this one fails: that is an error here"},
	"route":                  {Ignored: "other models, for when this one fails: that is an error here"},
	"routed_dp_rank":         {Ignored: noPlace},
	"data_parallel_rank":     {Ignored: noPlace},
	"disagg_prefill_dp_rank": {Ignored: noPlace},
	"id_slot":                {Ignored: noPlace},
	"keep_alive":             {Ignored: "how long Ollama keeps a model in memory"},
	"cache_prompt":           {Ignored: noCache},
	"n_cache_reuse":          {Ignored: noCache},
	"prompt_cache_retention": {Ignored: noCache},
	"extra_key":              {Ignored: "separates caches; `cache_salt` does it here"},
	"backend_sampling":       {Ignored: "where the same tokens are sampled"},
	"ngram_corpus_id":        {Ignored: noSpeculation},
	"speculative.n_max":      {Ignored: noSpeculation},
	"speculative.n_min":      {Ignored: noSpeculation},
	"speculative.p_min":      {Ignored: noSpeculation},
	"speculative.type":       {Ignored: noSpeculation},
	"prediction":             {Ignored: "a text that makes an answer faster, not another one"},

	// What a request is called.
	"request_id":    {Ignored: "the request's id is Envoy's `x-request-id`"},
	"rid":           {Ignored: "the request's id is Envoy's `x-request-id`"},
	"session_id":    {Ignored: "names the client's session; `prompt_cache_key` does it here"},
	"custom_labels": {Ignored: "labels the engine's metrics"},
	"trace":         {Ignored: "labels the client's traces"},
}

const (
	noNesting     = "Parameters stand beside one another here. Send its members as fields of the request."
	noLeast       = "The least length has one name. Use min_tokens."
	noStopIDs     = "Tokens that end the output have one name. Use stop_token_ids."
	noSampler     = "This sampler is not supported. Use temperature, top_p, top_k, min_p and the penalties."
	noAdapter     = "Adapters are not chosen by a field. Choose the adapter with model."
	noWhitespace  = "white space between the tokens of JSON, which is no part of what it says"
	noTransfer    = "How engines hand over a prompt's cache is not for clients. Leave the field out."
	noPictures    = "the model sees no pictures, sounds or videos"
	noFigures     = "adds figures to the reply, and nothing to the answer"
	noPlace       = "where the engine runs a request"
	noCache       = "engines cache prefixes by themselves"
	noSpeculation = "how the engine writes the same text faster"
)

// withDialects returns the fields that all APIs have, with those of other servers.
func withDialects(own jsontext.Table[Sampling]) jsontext.Table[Sampling] {
	same := func(s Sampling) Sampling { return s }
	all := jsontext.With(jsontext.With(own, dialects, same), reasoningSwitches, same)
	return jsontext.With(all, EngineFields, func(s Sampling) *engine.Request { return &s.Input.Engine })
}
