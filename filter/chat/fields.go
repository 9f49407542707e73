package chat

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

func (d *decoder) readEffort(v jsontext.Field) *apierror.Error { return fields.SetEffort(&d.input, v) }

// topFields has the top-level fields that the decoder knows. Other fields are ignored.
// The table in docs/compatibility.md has the same rows.
var topFields = fields.WithVocabulary(jsontext.With(jsontext.Table[*decoder]{
	"messages": {Read: (*decoder).readMessages},

	"stream": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.options.stream)
	}},
	"stream_options": {Read: (*decoder).readStreamOptions},
	"usage":          {Read: (*decoder).readUsage},
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
	// OpenCode's spelling with setCacheKey, which the AI SDK passes on to OpenAI-compatible services.
	"promptCacheKey": {Read: (*decoder).readCacheKey},

	"reasoning_effort": {Read: (*decoder).readEffort},
	"reasoning": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return reasoningFields.Decode(d, v, &d.ignored)
	}},
	"thinking":  {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return d.sampling().ReadThinking(v) }},
	"verbosity": {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return fields.SetVerbosity(&d.input, v) }},

	"tools":               {Read: (*decoder).readTools},
	"tool_choice":         {Read: (*decoder).readToolChoice},
	"parallel_tool_calls": {Read: (*decoder).readParallelCalls},
	"functions":           {Read: (*decoder).readFunctions},
	"function_call":       {Read: (*decoder).readFunctionCall},

	"continue_final_message": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.input.Continue)
	}},
	"add_generation_prompt": {Read: (*decoder).readAddGenerationPrompt},
	"return_token_ids": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.options.tokenIDs)
	}},
	"response_format":    {Read: (*decoder).readResponseFormat},
	"structured_outputs": {Read: (*decoder).readStructuredOutputs, Keep: jsontext.KeepWhole},
	"guided_json":        {Read: (*decoder).readSchema, Keep: jsontext.KeepWhole},
	"guided_regex":       {Read: (*decoder).readRegex},
	"guided_choice":      {Read: (*decoder).readTexts},
	"guided_grammar":     {Read: (*decoder).readGrammar},
	"json_schema":        {Read: (*decoder).readSchema},
	"regex":              {Read: (*decoder).readRegex},
	"ebnf":               {Read: (*decoder).readGrammar},
	"grammar":            {Read: (*decoder).readGrammar},
	"format":             {Read: (*decoder).readFormat},
	"modalities":         {Read: (*decoder).readModalities},

	"logprobs": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.input.Engine.Logprobs)
	}},
	"top_logprobs": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.input.Engine.TopLogprobs, 0, engine.MaxTopLogprobs)
	}},

	"audio":              {Refused: "Audio output is not supported. Leave audio out."},
	"web_search_options": {Refused: "Web search is not supported. Leave web_search_options out."},

	"moderation": {Read: (*decoder).readModeration},

	"user":                 {Ignored: "names the client's user, for the service that serves it"},
	"metadata":             {Ignored: "labels a stored completion, and none is stored"},
	"store":                {Ignored: "completions are not stored; the reply is the same"},
	"service_tier":         {Ignored: "the order in which requests are served is Envoy's and the engine's"},
	"prompt_cache_options": {Ignored: "engines cache prefixes by themselves"},
	"cache_control":        {Ignored: "engines cache prefixes by themselves"},
	"max_tool_calls":       {Ignored: "of tools that the service runs: here the client runs them all"},
	"safety_identifier":    {Ignored: "names the client's user, for the service that serves it"},

	// Fields of the other APIs.
	"input":  {Refused: "input is a field of POST /v1/responses. Use messages."},
	"prompt": {Refused: "prompt is a field of POST /v1/completions. Use messages."},
	"suffix": {Refused: "suffix is a field of POST /v1/completions. Leave it out."},
	"instructions": {
		Refused: "instructions is a field of POST /v1/responses. Send a message of the role system.",
	},
	"system":   {Refused: "system is a field of POST /v1/messages. Send a message of the role system."},
	"template": {Refused: "Harmony conversations have no chat template. Leave template out."},
	"raw":      {Refused: "raw belongs to Ollama's own API. Leave it out."},
	"images":   {Refused: "images belongs to Ollama's own API. Send parts of the type image_url."},
	"previous_response_id": {
		Refused: "previous_response_id is a field of POST /v1/responses. Send the whole conversation.",
	},
	"conversation": {Refused: "conversation is a field of POST /v1/responses. Send the whole conversation."},
	"background":   {Refused: "background is a field of POST /v1/responses. Leave it out."},
	"include":      {Refused: "include is a field of POST /v1/responses. Leave it out."},
	"text":         {Refused: "text is a field of POST /v1/responses. Use response_format and verbosity."},
	"output_config": {
		Refused: "output_config is a field of POST /v1/messages. Use reasoning_effort and response_format.",
	},
	"output_format": {Refused: "output_format is a field of POST /v1/messages. Use response_format."},
	"max_output_tokens": {
		Refused: "max_output_tokens is a field of POST /v1/responses. Use max_completion_tokens.",
		Unless:  []string{},
	},
	"stop_sequences": {Refused: "stop_sequences is a field of POST /v1/messages. Use stop."},
	"mcp_servers":    {Refused: "mcp_servers is a field of POST /v1/messages. Use tools of the type function."},
	"truncation": {
		Refused: "truncation is a field of POST /v1/responses. Leave out old messages instead.",
		Unless:  []string{`"disabled"`},
	},
}, fields.SamplingFields, (*decoder).sampling), fields.Own{
	Limit: "Use max_completion_tokens.", Stop: "Use stop.", Answers: "Use n.",
	System: "Send a message of the role system.", Conversation: "Use messages.",
	Effort: "Use reasoning_effort.", Format: "Use response_format.",
})

func (d *decoder) sampling() fields.Sampling {
	return fields.Sampling{Input: &d.input, Limits: &d.rc.Limits, Ignored: &d.ignored}
}

// reasoningFields are the members of reasoning, as OpenRouter has it and Responses.
var reasoningFields = jsontext.With(jsontext.Table[*decoder]{
	"effort":           {Read: (*decoder).readEffort},
	"summary":          {Ignored: shownWhole},
	"generate_summary": {Ignored: shownWhole},
}, fields.OtherReasoning, (*decoder).sampling)

const shownWhole = "the reply has the chain of thought itself, which a summary would shorten"

// streamOptions are the members of stream_options.
var streamOptions = jsontext.Table[*decoder]{
	"include_usage": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.options.includeUsage)
	}},
	"continuous_usage_stats": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.options.continuousUsage)
	}},
	"include_obfuscation": {Ignored: "pads events against eavesdroppers, with a member that clients skip"},
}

// usageFields are the members of usage, as OpenRouter has it.
var usageFields = jsontext.Table[*decoder]{
	"include": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		include, err := v.Switch()
		d.options.includeUsage = d.options.includeUsage || include
		return err
	}},
}

// The members of the objects in messages and tools, whose readers have code of their own.
var (
	messageFields = jsontext.Members{
		"role": {}, "content": {}, "refusal": {}, "reasoning": {}, "reasoning_content": {}, "thinking": {},
		"reasoning_details": {},
		"thinking_blocks":   {}, "tool_calls": {}, "function_call": {}, "tool_call_id": {}, "prefix": {}, "partial": {},
		"output_config": {},

		"audio":  {Refused: "Sounds are not kept here. Send their text as the content."},
		"images": {Refused: "images belongs to Ollama's own API. Send parts of the type image_url."},
		"tools":  {Refused: "Tools are those of the request. Send them as its field tools."},

		"name": {
			Ignored: "Harmony's messages have no place for it: no server shows it to gpt-oss. The name of a tool " +
				"is that of its call",
		},
		"tool_name":     {Ignored: "the name of a tool is that of its call"},
		"annotations":   {Ignored: "where the text has citations, which its text has too"},
		"cache_control": {Ignored: "engines cache prefixes by themselves"},
		"id":            {Ignored: ownNotes},
		"index":         {Ignored: ownNotes},
		"type":          {Ignored: ownNotes},
		"status":        {Ignored: ownNotes},
		"metadata":      {Ignored: ownNotes},
		"created_at":    {Ignored: ownNotes},
		"timestamp":     {Ignored: ownNotes},
		"weight":        {Ignored: "of training"},
		"provider_specific_fields": {
			Ignored: ownNotes,
		},
	}

	configFields = jsontext.Members{
		"effort": {},
		"format": {Refused: "The format of the answer is one of the request. Send it as its field response_format."},
	}

	// Of OpenAI's items of the type configuration_update.
	updateFields = jsontext.Members{
		"type": {}, "reasoning": {}, "id": {Ignored: ownNotes}, "agent": {Ignored: ownNotes},
		"role":    {Refused: noMessage},
		"content": {Refused: noMessage},
		"text":    {Refused: "The format of the answer is one of the request. Send it as its field response_format."},
	}

	updateReasoningFields = jsontext.Members{"effort": {}}

	partFields = jsontext.Members{
		"type": {}, "text": {}, "refusal": {}, "image_url": {}, "input_image": {}, "image": {},
		"cache_control":           {Ignored: "engines cache prefixes by themselves"},
		"prompt_cache_breakpoint": {Ignored: "engines cache prefixes by themselves"},
		"annotations":             {Ignored: "where the text has citations, which its text has too"},
	}

	pictureFields = jsontext.Members{
		"url":               {},
		"detail":            {Ignored: shortText},
		"content_hash":      {Ignored: shortText},
		"max_dynamic_patch": {Ignored: shortText},
		"min_dynamic_patch": {Ignored: shortText},
	}

	callFields = jsontext.Members{
		"id": {}, "type": {}, "function": {}, "custom": {}, "index": {},
		"extra_content":            {Ignored: ownNotes},
		"provider_specific_fields": {Ignored: ownNotes},
		"cache_control":            {Ignored: "engines cache prefixes by themselves"},
	}

	calledFields = jsontext.Members{"name": {}, "arguments": {}}

	calledCustomFields = jsontext.Members{"name": {}, "input": {}}

	toolFields = jsontext.Members{
		"type": {}, "function": {}, "custom": {},
		"defer_loading": {Refused: noDeferred},
		"cache_control": {Ignored: "engines cache prefixes by themselves"},
	}

	functionFields = jsontext.Members{
		"name": {}, "description": {}, "parameters": {}, "strict": {},
		"defer_loading":  {Refused: noDeferred},
		"input_examples": {Refused: "Examples of the input belong into the description of the function."},
		"cache_control":  {Ignored: "engines cache prefixes by themselves"},
	}

	customFields = jsontext.Members{"name": {}, "description": {}, "format": {}}

	customFormatFields = jsontext.Members{"type": {}, "grammar": {}}

	grammarFields = jsontext.Members{"syntax": {}, "definition": {}}

	choiceFields = jsontext.Members{
		"type": {}, "function": {}, "custom": {}, "allowed_tools": {},
		"disable_parallel_tool_use": {
			Refused: "disable_parallel_tool_use is a field of POST /v1/messages. Use parallel_tool_calls.",
		},
	}

	// namedFields are those of what names a tool.
	namedFields = jsontext.Members{"name": {}}

	allowedFields = jsontext.Members{"mode": {}, "tools": {}}

	formatFields = jsontext.Members{
		"type": {}, "json_schema": {}, "schema": {}, "name": {}, "description": {}, "strict": {},
		"pattern": {}, "grammar": {},
	}

	schemaFields = jsontext.Members{"name": {}, "description": {}, "schema": {}, "strict": {}}
)

const (
	ownNotes   = "what a service or a client notes about it"
	shortText  = "a short text stands for the picture, whatever it shows"
	noMessage  = "A configuration_update has no text. Send it as a message of its own."
	noDeferred = "There is no search for tools here. Leave defer_loading out, or use POST /v1/responses."
)

// Fields are the described fields of the objects of a request, by their paths.
// docs/compatibility.md has them, and records keep of each what its row says.
func Fields() jsontext.Objects {
	return jsontext.Objects{
		"":                             topFields.Describe(),
		"messages":                     messageFields.Describe(),
		"messages.content":             partFields.Describe(),
		"messages.content.image_url":   pictureFields.Describe(),
		"messages.tool_calls":          callFields.Describe(),
		"messages.tool_calls.function": calledFields.Describe(),
		"messages.tool_calls.custom":   calledCustomFields.Describe(),
		"messages.function_call":       calledFields.Describe(),
		"functions":                    functionFields.Describe(),
		"function_call":                namedFields.Describe(),
		"tools.custom":                 customFields.Describe(),
		"tools.custom.format":          customFormatFields.Describe(),
		"tools.custom.format.grammar":  grammarFields.Describe(),
		"tool_choice.custom":           namedFields.Describe(),
		"tools":                        toolFields.Describe(),
		"tools.function":               functionFields.Describe(),
		"tool_choice":                  choiceFields.Describe(),
		"tool_choice.function":         namedFields.Describe(),
		"tool_choice.allowed_tools":    allowedFields.Describe(),
		"stream_options":               streamOptions.Describe(),
		"usage":                        usageFields.Describe(),
		"reasoning":                    reasoningFields.Describe(),
		"thinking":                     fields.ThinkingFields.Describe(),
		"chat_template_kwargs":         fields.TemplateFields.Describe(),
		"response_format":              formatFields.Describe(),
		"response_format.json_schema":  schemaFields.Describe(),
		"structured_outputs":           fields.OutputFields.Describe(),
	}
}
