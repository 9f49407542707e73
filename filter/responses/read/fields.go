package read

import (
	"math"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// fieldReader reads the fields of a body, and has what they say.
type fieldReader struct {
	reader *Reader
	rc     *turn.RequestContext
	tools  *toolset.Reader

	// What the model call is made of. input has no conversation yet: items is the field
	// input, or the items for a conversation, which are read later.
	input        turn.Input
	items        jsontext.Field
	instructions string

	// unread is the field that says that there is no output; "": there is.
	unread string

	// What the request continues: previous_response_id, or the id of a conversation.
	previous     string
	conversation string

	// What becomes of the reply. sealer is for reasoning.encrypted_content, if the request
	// wants it.
	store   bool
	options request.Options
	sealer  *seal.Sealer
	// connected says that the client has a connection that keeps responses which are not stored:
	// see [store.Local].
	connected bool
	// compactAbove are the tokens of a prompt above which the conversation is compacted; 0:
	// never.
	compactAbove int

	// What the response says of the request.
	ignored jsontext.Ignored
	echo    echo
}

func newFieldReader(a *Reader, rc *turn.RequestContext) fieldReader {
	return fieldReader{
		reader: a, rc: rc, store: true, echo: newEcho(),
		input: turn.Input{Strict: map[turn.ToolName]bool{}},
		options: request.Options{
			UsagePerTurn: a.UsagePerTurn, OpenReasoning: rc.Model.ReasoningEvents == turn.EventsReasoning,
		},
	}
}

// fields are the top-level fields that are known. All others are ignored. The
// table of docs/compatibility.md has the same rows.
var topFields = fields.WithVocabulary(jsontext.With(jsontext.Table[*fieldReader]{
	"input":                {Read: (*fieldReader).readInput},
	"previous_response_id": {Read: (*fieldReader).readPrevious},
	"conversation":         {Read: (*fieldReader).readConversation},
	"instructions":         {Read: (*fieldReader).readInstructions},
	"stream": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&f.options.Stream)
	}},
	"include": {Read: (*fieldReader).readInclude},

	"tools": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return f.tools.ReadTools(v)
	}},
	"tool_choice": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return f.tools.ReadChoice(v)
	}},
	"parallel_tool_calls": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return f.tools.ReadParallelCalls(v)
	}},
	"max_tool_calls": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&f.echo.maxToolCalls, 1, math.MaxInt32)
	}},

	"max_output_tokens": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&f.input.Engine.MaxTokens, 1, math.MaxInt32)
	}},
	"truncation": {Read: (*fieldReader).readTruncation},
	"reasoning":  {Read: (*fieldReader).readReasoning},
	"text":       {Read: (*fieldReader).readText},

	"enable_response_messages": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&f.options.Messages)
	}},

	"moderation": {Read: (*fieldReader).readModeration},
	"store":      {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return v.SetSwitch(&f.store) }},
	"metadata":   {Read: (*fieldReader).readMetadata, Keep: jsontext.KeepGuarded},
	"safety_identifier": {
		Read: func(f *fieldReader, v jsontext.Field) *apierror.Error { return setText(&f.echo.safety, v) },
		Keep: jsontext.KeepNothing,
	},
	"prompt_cache_key": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return setText(&f.echo.cacheKey, v)
	}},

	"background": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&f.options.Background)
	}},
	"top_logprobs": {Read: (*fieldReader).readTopLogprobs},
	"logprobs":     {Refused: ofChat("logprobs", "Use include with message.output_text.logprobs.")},
	"previous_input_messages": {
		Refused: "previous_input_messages is not supported. Send the conversation as input items.",
	},
	"prompt":             {Refused: "Prompt templates are not supported. Send instructions and input."},
	"structured_outputs": {Read: (*fieldReader).readStructuredOutputs, Keep: jsontext.KeepWhole},
	"messages":           {Refused: ofChat("messages", "Use input.")},
	"response_format":    {Refused: ofChat("response_format", "Use text.format.")},
	"reasoning_effort":   {Refused: ofChat("reasoning_effort", "Use reasoning.effort.")},
	"max_tokens": {
		Refused: ofChat("max_tokens", "Use max_output_tokens."),
		Unless:  []string{},
	},
	"max_completion_tokens": {
		Refused: ofChat("max_completion_tokens", "Use max_output_tokens."),
		Unless:  []string{},
	},
	"service_tier": {
		Ignored: "the order in which requests are served is Envoy's and the engine's; the response has `default`",
	},
	"stream_options": {
		Ignored: "its one member pads events against eavesdroppers; the last event always has the usage",
	},
	"user":            {Ignored: "names the client's user, for the service that serves it"},
	"client_metadata": {Ignored: "what a client notes about itself"},
	"thinking": {Read: func(f *fieldReader, v jsontext.Field) *apierror.Error {
		return f.sampling().ReadThinking(v)
	}},
	"verbosity":      {Refused: ofChat("verbosity", "Use text.verbosity.")},
	"n":              {Refused: "A response has one answer. Leave n out.", Unless: []string{"1"}},
	"functions":      {Refused: ofChat("functions", "Use tools.")},
	"system":         {Refused: "system is a field of POST /v1/messages. Use instructions."},
	"format":         {Refused: "format belongs to Ollama. Use text.format."},
	"grammar":        {Refused: ofChat("grammar", "Use structured_outputs.grammar.")},
	"json_schema":    {Refused: ofChat("json_schema", "Use text.format.")},
	"regex":          {Refused: ofChat("regex", "Use structured_outputs.regex.")},
	"ebnf":           {Refused: ofChat("ebnf", "Use structured_outputs.grammar.")},
	"guided_json":    {Refused: ofChat("guided_json", "Use structured_outputs.json.")},
	"guided_regex":   {Refused: ofChat("guided_regex", "Use structured_outputs.regex.")},
	"guided_choice":  {Refused: ofChat("guided_choice", "Use structured_outputs.choice.")},
	"guided_grammar": {Refused: ofChat("guided_grammar", "Use structured_outputs.grammar.")},
	"modalities": {
		Refused: "The model writes text only. Leave modalities out.",
		Unless:  []string{`["text"]`},
	},
	"audio": {Refused: "Audio output is not supported. Leave audio out."},
	"previous_response": {Refused: "Whole responses are not sent back. Use previous_response_id, or send its " +
		"output as input items."},
	"generate":             {Read: (*fieldReader).readGenerate},
	"background_options":   {Ignored: "when a background response is made: as soon as there is room"},
	"image":                {Ignored: "how much of pictures the model sees: it sees none"},
	"access_programs":      {Ignored: "which of OpenAI's models may answer: here it is the one that is named"},
	"context_management":   {Read: (*fieldReader).readContextManagement},
	"prompt_cache_options": {Read: (*fieldReader).readCacheOptions},
}, fields.SamplingFields, (*fieldReader).sampling), fields.Own{
	Limit: "Use max_output_tokens.", Stop: "Use stop.", Answers: "A response has one answer: leave it out.",
	System: "Use instructions.", Conversation: "Use input.",
	Effort: "Use reasoning.effort.", Format: "Use text.format.",
})

// ofChat is why a field of Chat Completions is refused.
func ofChat(field, use string) string {
	return field + " is a field of POST /v1/chat/completions. " + use
}

func (f *fieldReader) sampling() fields.Sampling {
	return fields.Sampling{Input: &f.input, Limits: &f.rc.Limits, Ignored: &f.ignored}
}

// readGenerate reads whether there is an answer. Without one the prompt is prepared. Only events of a
// WebSocket have this field: elsewhere prompt_cache_options.prewarm says the same.
func (f *fieldReader) readGenerate(v jsontext.Field) *apierror.Error {
	on, err := v.Switch()
	if err != nil || on {
		return err
	}
	if !f.connected {
		return apierror.Invalid(v.Path,
			"The field %q is for a WebSocket only. Set prompt_cache_options.prewarm in its place.", v.Path)
	}
	f.leaveUnread(v)
	return nil
}

// leaveUnread notes that the prompt is prepared without output, by a field.
func (f *fieldReader) leaveUnread(v jsontext.Field) {
	f.options.PrepareOnly, f.unread = true, strings.Clone(v.Path)
}

// reasoningFields are the members of reasoning.
var reasoningFields = jsontext.With(jsontext.Table[*fieldReader]{
	"effort":           {Read: (*fieldReader).readEffort},
	"summary":          {Read: (*fieldReader).readSummary},
	"generate_summary": {Read: (*fieldReader).readSummary},
	"context":          {Read: (*fieldReader).readReasoningContext},
	"mode":             {Read: (*fieldReader).readReasoningMode},
}, fields.OtherReasoning, (*fieldReader).sampling)

// textFields are the members of text.
var textFields = jsontext.Table[*fieldReader]{
	"format":    {Read: (*fieldReader).readTextFormat},
	"verbosity": {Read: (*fieldReader).readVerbosity},
}

// Fields are the described fields of the objects of a request, by their paths.
// docs/compatibility.md has them, and records keep of each what its row says.
func Fields() jsontext.Objects {
	return jsontext.Objects{
		"":                           topFields.Describe(),
		"reasoning":                  reasoningFields.Describe(),
		"thinking":                   fields.ThinkingFields.Describe(),
		"chat_template_kwargs":       fields.TemplateFields.Describe(),
		"text":                       textFields.Describe(),
		"text.format":                toolset.FormatFields.Describe(),
		"context_management":         toolset.ManagementFields.Describe(),
		"structured_outputs":         fields.OutputFields.Describe(),
		"tools[function]":            toolset.FunctionFields.Describe(),
		"tools[custom]":              toolset.CustomFields.Describe(),
		"tools[namespace]":           toolset.SpaceFields.Describe(),
		"tools[tool_search]":         toolset.SearchFields.Describe(),
		"tools[mcp]":                 toolset.ServerFields.Describe(),
		"prompt_cache_options":       toolset.CacheFields.Describe(),
		"tools.tools[function]":      toolset.FunctionFields.Describe(),
		"tools.tools[custom]":        toolset.CustomFields.Describe(),
		"tool_choice[allowed_tools]": toolset.AllowedFields.Describe(),

		"input[message]":                 itemMembers["message"].Describe(),
		"input[reasoning]":               itemMembers["reasoning"].Describe(),
		"input[function_call]":           itemMembers["function_call"].Describe(),
		"input[function_call_output]":    itemMembers["function_call_output"].Describe(),
		"input[custom_tool_call]":        itemMembers["custom_tool_call"].Describe(),
		"input[custom_tool_call_output]": itemMembers["custom_tool_call_output"].Describe(),
		"input.content[input_text]":      partMembers["input_text"].Describe(),
		"input.content[output_text]":     partMembers["output_text"].Describe(),
		"input.content[refusal]":         partMembers["refusal"].Describe(),
		"input.content[input_image]":     partMembers["input_image"].Describe(),
		"input.output[input_text]":       partMembers["input_text"].Describe(),
		"input.output[input_image]":      partMembers["input_image"].Describe(),
		"input.content[reasoning_text]":  partMembers["reasoning_text"].Describe(),
		"input.summary[summary_text]":    partMembers["summary_text"].Describe(),
		"input.content[input_file]":      partMembers["input_file"].Describe(),
		"input.output[input_file]":       partMembers["input_file"].Describe(),
	}
}
