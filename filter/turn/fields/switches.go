package fields

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// Servers and SDKs have many names for three things: whether the model reasons, how much,
// and whether the client sees it. gpt-oss always reasons; a client that switches that off gets
// the low effort, and sees nothing of it, whatever effort the request names beside.

// reasoningSwitches are the fields that have the same names wherever they are read.
var reasoningSwitches = jsontext.Table[Sampling]{
	"chat_template_kwargs": {Read: func(s Sampling, v jsontext.Field) *apierror.Error {
		return TemplateFields.Decode(s, v, s.Ignored)
	}},
	"enable_thinking":   {Read: Sampling.readEnabled},
	"think":             {Read: Sampling.readThink},
	"disable_reasoning": {Read: Sampling.readDisabled},
	"include_reasoning": {Read: Sampling.readShown},
	"reasoning_format":  {Read: Sampling.readReasoningFormat},

	"thinking_token_budget":   {Read: Sampling.readBudget},
	"thinking_budget":         {Read: Sampling.readBudget},
	"thinking_budget_tokens":  {Read: Sampling.readBudget},
	"reasoning_budget":        {Read: Sampling.readBudget},
	"reasoning_budget_tokens": {Read: Sampling.readBudget},
	"max_thinking_tokens":     {Read: Sampling.readBudget},

	"separate_reasoning": {Read: onlyTrue("The reasoning is always a field of its own. Leave %s out.")},
	"reasoning_split":    {Read: onlyTrue("The reasoning is always a field of its own. Leave %s out.")},
	"reasoning_in_content": {
		Refused: "The reasoning is always a field of its own. Leave reasoning_in_content out.",
	},
	"stream_reasoning":     {Ignored: "only the cuts between the deltas of the reasoning differ"},
	"thinking_forced_open": {Refused: "Harmony says where reasoning begins. Leave thinking_forced_open out."},
	"min_thinking_tokens":  {Refused: "Reasoning has no least length. Use a higher effort."},
	"reasoning_budget_message": {
		Refused: "The end of a budget is not announced to the model. Leave reasoning_budget_message out.",
	},
}

// TemplateFields are the members of chat_template_kwargs: what other servers give to
// the model's chat template. That of gpt-oss has four variables.
var TemplateFields = jsontext.Table[Sampling]{
	"reasoning_effort": {Read: func(s Sampling, v jsontext.Field) *apierror.Error { return SetEffort(s.Input, v) }},
	"enable_thinking":  {Read: Sampling.readEnabled},
	"thinking":         {Read: Sampling.readEnabled},
	"thinking_budget":  {Read: Sampling.readBudget},
	"thinking_mode":    {Read: Sampling.readThinkingMode},

	"model_identity": {Refused: "The model's identity is the operator's. Send a message of the role system."},
	"builtin_tools": {
		Refused: "Built-in tools are offered by their type in the tools of POST /v1/responses. " +
			"Leave builtin_tools out.",
	},
	"tools":         {Refused: "Send the tools as the field tools."},
	"documents":     {Refused: "documents is not supported. Put the documents into a message."},
	"chat_template": {Refused: noTemplate},

	"add_generation_prompt": {
		Refused: "Send add_generation_prompt beside chat_template_kwargs.",
		Unless:  []string{"true"},
	},
	"continue_final_message": {Refused: "Send continue_final_message beside chat_template_kwargs."},

	"preserve_thinking":             {Ignored: noVariable},
	"clear_thinking":                {Ignored: noVariable},
	"add_vision_id":                 {Ignored: noVariable},
	"add_special_tokens":            {Ignored: noVariable},
	"enable_citations":              {Ignored: noVariable},
	"spaces_between_special_tokens": {Ignored: "control tokens are never part of a text"},
}

const (
	noTemplate = "Harmony conversations have no chat template. Leave chat_template out."
	noVariable = "a variable that the template of gpt-oss does not have, so that no server shows it to the model"
)

// readEnabled reads whether the model reasons.
func (s Sampling) readEnabled(v jsontext.Field) *apierror.Error {
	on, err := v.Switch()
	s.Input.OptedOut = s.Input.OptedOut || err == nil && !on
	return err
}

// readDisabled is readEnabled, the other way round.
func (s Sampling) readDisabled(v jsontext.Field) *apierror.Error {
	off, err := v.Switch()
	s.Input.OptedOut = s.Input.OptedOut || off
	return err
}

// readThink reads Ollama's field: whether the model reasons, or its effort.
func (s Sampling) readThink(v jsontext.Field) *apierror.Error {
	if v.Type == gjson.String {
		return SetEffort(s.Input, v)
	}
	return s.readEnabled(v)
}

// readThinkingMode reads whether the model reasons, as a word.
func (s Sampling) readThinkingMode(v jsontext.Field) *apierror.Error {
	switch v.Str {
	case "off", "disabled", "chat":
		s.Input.OptedOut = true
	case "on", "enabled", "auto", "thinking":
	default:
		return apierror.Invalid(v.Path, "The field %q must be on or off.", v.Path)
	}
	return nil
}

// ReadThinking reads {"type":…,"budget_tokens":…}, which several services have beside or in
// place of an effort, or whether the model reasons.
func (s Sampling) ReadThinking(v jsontext.Field) *apierror.Error {
	if v.IsBool() {
		return s.readEnabled(v)
	}
	return ThinkingFields.Decode(s, v, s.Ignored)
}

// ThinkingFields are the members of the object that [Sampling.ReadThinking] reads.
var ThinkingFields = jsontext.Table[Sampling]{
	"type": {Read: func(s Sampling, v jsontext.Field) *apierror.Error {
		switch v.Str {
		case "disabled":
			s.Input.OptedOut = true
		case "enabled", "adaptive", "auto", "between_tools":
		default:
			return apierror.Invalid(v.Path,
				"The type of \"thinking\" must be enabled, adaptive, auto, between_tools or disabled.")
		}
		return nil
	}},
	"budget_tokens": {Read: Sampling.readBudget},
	"effort":        {Read: func(s Sampling, v jsontext.Field) *apierror.Error { return SetEffort(s.Input, v) }},
	"display":       {Read: Sampling.readDisplay},
	"clear_thinking": {
		Ignored: "Harmony has no place for the reasoning of finished turns: the model was trained without it",
	},
	"keep": {
		Ignored: "Harmony has no place for the reasoning of finished turns: the model was trained without it",
	},
}

// readDisplay reads whether the client sees the reasoning.
func (s Sampling) readDisplay(v jsontext.Field) *apierror.Error {
	s.Input.HideReasoning = s.Input.HideReasoning || v.Str == "omitted"
	return nil
}

// readShown reads whether the client sees the reasoning.
func (s Sampling) readShown(v jsontext.Field) *apierror.Error {
	show, err := v.Switch()
	s.Input.HideReasoning = s.Input.HideReasoning || err == nil && !show
	return err
}

// ReadExcluded is [Sampling.readShown], the other way round.
func (s Sampling) readExcluded(v jsontext.Field) *apierror.Error {
	hide, err := v.Switch()
	s.Input.HideReasoning = s.Input.HideReasoning || hide
	return err
}

// readReasoningFormat reads where the reply has the reasoning: in a field of its own, or
// nowhere.
func (s Sampling) readReasoningFormat(v jsontext.Field) *apierror.Error {
	switch v.Str {
	case "hidden":
		s.Input.HideReasoning = true
	case "parsed", "auto", "deepseek":
	default:
		return apierror.Invalid(v.Path,
			"The reasoning is a field of its own, or hidden. Send parsed or hidden as %q.", v.Path)
	}
	return nil
}

func (s Sampling) readBudget(v jsontext.Field) *apierror.Error { return SetBudget(s.Input, v) }

// OtherReasoning are the members of the object reasoning beside the effort and a summary,
// as OpenRouter and SGLang have it.
var OtherReasoning = jsontext.Table[Sampling]{
	"reasoning_effort": {Read: func(s Sampling, v jsontext.Field) *apierror.Error { return SetEffort(s.Input, v) }},
	"enable":           {Read: Sampling.readEnabled},
	"max_tokens":       {Read: Sampling.readBudget},
	"enabled":          {Read: Sampling.readEnabled},
	"exclude":          {Read: Sampling.readExcluded},
}

// onlyTrue reads a switch that cannot be off. text says why, with its name.
func onlyTrue(text string) func(Sampling, jsontext.Field) *apierror.Error {
	return func(_ Sampling, v jsontext.Field) *apierror.Error {
		on, err := v.Switch()
		if err == nil && !on {
			err = apierror.Invalid(v.Path, text, v.Path)
		}
		return err
	}
}

// SetVerbosity reads how long answers are to be.
func SetVerbosity(in *request.Input, v jsontext.Field) *apierror.Error {
	line, known := verbosities[v.Str]
	if !known || v.Type != gjson.String {
		return apierror.Invalid(v.Path, "The field %q must be one of low, medium and high.", v.Path)
	}
	in.Verbosity = line
	return nil
}

// verbosities are what the model is told. It has no setting for it.
var verbosities = map[string]string{
	"low":    "Keep the final answer short: only what was asked for.",
	"medium": "",
	"high":   "Make the final answer thorough and detailed.",
}

// readEffort reads the word of an effort.
func readEffort(v jsontext.Field) (word string, err *apierror.Error) {
	if word, err = v.Text(); err != nil {
		return "", err
	}
	if request.EffortOf(word) == "" {
		return "", apierror.Invalid(v.Path,
			"The field %q must be one of none, minimal, low, medium, high, xhigh and max.", v.Path)
	}
	return word, nil
}

// SetEffort reads the reasoning effort of the request.
func SetEffort(in *request.Input, v jsontext.Field) *apierror.Error {
	word, err := readEffort(v)
	if err != nil {
		return err
	}

	in.SetEffort(word)
	return nil
}

// ReadEffortUpdate reads an effort that holds from here on in a conversation.
func ReadEffortUpdate(u *request.EffortUpdates, v jsontext.Field) *apierror.Error {
	word, err := readEffort(v)
	if err != nil {
		return err
	}

	u.Set(word)
	return nil
}
