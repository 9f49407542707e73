package read

import (
	"math"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// codeNoThreads is the code on which Anthropic's SDKs send the whole conversation.
const codeNoThreads = "thread_unsupported_request"

// topFields has the top-level fields that the decoder knows. Other fields are ignored.
// The table in docs/compatibility.md has the same rows.
var topFields = fields.WithVocabulary(jsontext.With(jsontext.Table[*decoder]{
	"messages": {Read: (*decoder).readMessages},
	"system":   {Read: (*decoder).readSystem},

	"max_tokens": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		err := v.SetInteger(&d.input.Engine.MaxTokens, 0, math.MaxInt32)
		// No engine computes a prompt without writing a token after it: nobody gets that one.
		if d.prepares = err == nil && d.input.Engine.MaxTokens == 0; d.prepares {
			d.input.Engine.MaxTokens = 1
		}
		return err
	}},
	"stream": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.options.Stream)
	}},
	"stop_sequences": {Read: (*decoder).readStopSequences},
	"thinking":       {Read: (*decoder).readThinking},
	"output_config":  {Read: (*decoder).readOutputConfig},
	"output_format":  {Read: (*decoder).readOutputFormat},
	"metadata":       {Read: (*decoder).readMetadata, Keep: jsontext.KeepGuarded},
	"diagnostics":    {Read: (*decoder).readDiagnostics},
	// Accepted at every place without an effect: engines cache prefixes by themselves.
	"cache_control": {Read: func(*decoder, jsontext.Field) *apierror.Error {
		return nil
	}},

	"thread": {Read: func(*decoder, jsontext.Field) *apierror.Error {
		return apierror.New(http.StatusBadRequest, codeNoThreads, "thread",
			"Message threads are not supported. Leave thread out, and send the whole conversation.")
	}},

	"tools":       {Read: ofTools((*toolset.Reader).ReadTools)},
	"tool_choice": {Read: ofTools((*toolset.Reader).ReadChoice)},
	"mcp_servers": {Read: ofTools((*toolset.Reader).ReadServers)},
	"container":   {Read: ofTools((*toolset.Reader).ReadContainer)},
	"compaction":  {Read: (*decoder).readCompaction},

	"context_management": {
		Ignored: "it drops what the model no longer needs, to save tokens: here it sees the whole conversation, " +
			"without the reasoning of finished turns",
	},
	// Fields of the other APIs.
	"reasoning_effort":    {Read: (*decoder).readEffort},
	"parallel_tool_calls": {Read: (*decoder).readParallelCalls},
	"reasoning": {
		Refused: "reasoning is a field of POST /v1/responses. Use output_config.effort and thinking.",
	},
	"verbosity": {
		Refused: "verbosity is a field of POST /v1/chat/completions. Say in system how long the answer should be.",
	},
	"response_format": {
		Refused: "response_format is a field of POST /v1/chat/completions. Use output_config.format.",
	},
	"text": {Refused: "text is a field of POST /v1/responses. Use output_config.format."},
	"structured_outputs": {
		Refused: "structured_outputs is a field of POST /v1/chat/completions. Use output_config.format.",
	},
	"guided_json": {
		Refused: "guided_json is a field of POST /v1/chat/completions. Use output_config.format.",
	},
	"guided_regex": {
		Refused: "guided_regex is a field of POST /v1/chat/completions. Use output_config.format.",
	},
	"guided_choice": {
		Refused: "guided_choice is a field of POST /v1/chat/completions. Use output_config.format.",
	},
	"guided_grammar": {
		Refused: "guided_grammar is a field of POST /v1/chat/completions. Use output_config.format.",
	},
	"json_schema": {
		Refused: "json_schema is a field of POST /v1/chat/completions. Use output_config.format.",
	},
	"grammar": {Refused: "grammar is a field of POST /v1/chat/completions. Use output_config.format."},
	"regex":   {Refused: "regex is a field of POST /v1/chat/completions. Use output_config.format."},
	"ebnf":    {Refused: "ebnf is a field of POST /v1/chat/completions. Use output_config.format."},
	"format":  {Refused: "format belongs to Ollama. Use output_config.format."},
	"max_completion_tokens": {
		Refused: "max_completion_tokens is a field of POST /v1/chat/completions. Use max_tokens.",
		Unless:  []string{},
	},
	"max_output_tokens": {
		Refused: "max_output_tokens is a field of POST /v1/responses. Use max_tokens.",
		Unless:  []string{},
	},
	"n":            {Refused: "A message has one answer. Leave n out.", Unless: []string{"1"}},
	"logprobs":     {Refused: "Messages have no log probabilities. Leave logprobs out."},
	"top_logprobs": {Refused: "Messages have no log probabilities. Leave top_logprobs out."},
	"input":        {Refused: "input is a field of POST /v1/responses. Use messages."},
	"prompt":       {Refused: "prompt is a field of POST /v1/completions. Use messages."},
	"instructions": {Refused: "instructions is a field of POST /v1/responses. Use system."},
	"previous_response_id": {
		Refused: "previous_response_id is a field of POST /v1/responses. Send the whole conversation.",
	},

	"fallbacks": {
		Ignored: "other models, for a request that this one refuses: the answer is always this model's",
	},
	"fallback_credit_token": {Ignored: "who pays for other models, which never answer here"},
	"billing_policy":        {Ignored: "who pays"},
	"inference_geo":         {Ignored: "where requests are served is Envoy's routing"},
	"service_tier":          {Ignored: "the order in which requests are served is Envoy's and the engine's"},
	"speed":                 {Ignored: "how fast the same answer is made"},
	"user_profile_id":       {Ignored: "names the client's user, for the service that serves it"},
	"workspace_id":          {Ignored: "names the client's workspace, for the service that serves it"},
}, fields.SamplingFields, (*decoder).sampling), fields.Own{
	Limit: "Use max_tokens.", Stop: "Use stop_sequences.", Answers: "A message has one answer: leave it out.",
	System: "Use system.", Conversation: "Use messages.",
	Effort: "Use output_config.effort.", Format: "Use output_config.format.",
})

// The members of objects whose readers have code of their own.
var (
	messageFields = jsontext.Members{
		"role": {}, "content": {}, "output_config": {}, "clear_at": {},
		"tools":      {Refused: "Tools are those of the request. Send them as its field tools."},
		"tool_calls": {Refused: "tool_calls is a field of POST /v1/chat/completions. Use blocks of the type tool_use."},
		"id":         {Ignored: "what a service or a client notes about it"},
		"model":      {Ignored: "what a service or a client notes about it"},
		"type":       {Ignored: "what a service or a client notes about it"},
	}

	messageConfigFields = jsontext.Members{
		"effort": {},
		"format": {Refused: "The format of the answer is one of the request. Send it as its field output_config."},
	}

	thinkingFields = jsontext.Members{
		"type": {}, "budget_tokens": {}, "display": {},
		"block_binding": {Ignored: "to what a signature is bound: here it is the tenant"},
	}

	outputFields = jsontext.Members{
		"effort": {}, "format": {},
		"task_budget": {
			Ignored: "a hint to models that were trained with it, which gpt-oss was not; `max_tokens` bounds what " +
				"it writes",
		},
	}

	compactionFields = jsontext.Members{"type": {}, "instructions": {}}

	metadataFields = jsontext.Members{"user_id": {Keep: jsontext.KeepNothing}}

	callFields = jsontext.Members{
		"type": {}, "id": {}, "name": {}, "toolset_name": {}, "input": {}, "cache_control": {}, "caller": {},
	}

	resultFields = jsontext.Members{
		"type": {}, "tool_use_id": {}, "toolset_name": {}, "content": {}, "is_error": {}, "cache_control": {},
	}
)

// ofTools is how the decoder has a field read by the reader of the tools.
func ofTools(
	read func(*toolset.Reader, jsontext.Field) *apierror.Error,
) func(*decoder, jsontext.Field) *apierror.Error {
	return func(d *decoder, v jsontext.Field) *apierror.Error { return read(&d.tools, v) }
}

func (d *decoder) sampling() fields.Sampling {
	return fields.Sampling{Input: &d.input, Limits: &d.rc.Limits, Ignored: &d.ignored}
}

// Fields are the described fields of the objects of a request, by their paths.
// docs/compatibility.md has them, and records keep of each what its row says.
func Fields() jsontext.Objects {
	return jsontext.Objects{
		"":                              topFields.Describe(),
		"messages":                      messageFields.Describe(),
		"messages.content[tool_use]":    callFields.Describe(),
		"messages.content[tool_result]": resultFields.Describe(),
		"thinking":                      thinkingFields.Describe(),
		"output_config":                 outputFields.Describe(),
		"messages.output_config":        messageConfigFields.Describe(),
		"container":                     toolset.ContainerFields.Describe(),
		"compaction":                    compactionFields.Describe(),
		"metadata":                      metadataFields.Describe(),
		"tools":                         toolset.ToolFields.Describe(),
		"tool_choice":                   toolset.ChoiceFields.Describe(),
		"chat_template_kwargs":          fields.TemplateFields.Describe(),
	}
}
