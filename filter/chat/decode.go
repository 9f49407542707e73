package chat

import (
	"cmp"
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Decode decodes the body of a request and prepares its first turn. If it rejects
// the request, the error is a 400 that names the field at fault. It keeps no part
// of body. Like [turn.Prepare] it reads from the store and can take
// seconds, until ctx ends.
func Decode(ctx context.Context, body []byte, rc *turn.RequestContext) (*Request, *apierror.Error) {
	root, err := jsontext.Parse(body)
	if err != nil {
		return nil, err
	}

	d := &decoder{rc: rc, input: turn.Input{Strict: map[turn.ToolName]bool{}}}
	if err := topFields.DecodeRequest(d, jsontext.Field{Result: root}, &d.ignored); err != nil {
		return nil, err
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	t, err := turn.Prepare(ctx, rc, &d.input)
	if err != nil {
		return nil, err
	}

	// A second turn follows one choice, and none follows a begun message: its prompt ends
	// within it.
	corrects := rc.Model.UnknownTools == turn.UnknownToModel && t.Engine.N == 1 && !d.input.Continue
	return &Request{
		turn: t, rc: rc, id: d.input.Engine.ID.Request, model: d.input.Engine.Model,
		ignored: d.ignored, options: d.options,
		maxTokens: d.input.Engine.MaxTokens, corrects: corrects,
	}, nil
}

// decoder gathers the fields of a request.
//
// It is large because each field that is not a plain value has a method.
type decoder struct {
	rc      *turn.RequestContext
	input   turn.Input
	options options
	ignored jsontext.Ignored

	// What finish compares with other fields. generationPrompt is nil where there is no
	// add_generation_prompt.
	maxTokens           int
	maxCompletionTokens int
	streamOptions       bool
	generationPrompt    *bool

	// The messages so far: whether the last one says that it is begun, their content
	// parts, and the ids of function_call whose results have not been read, by
	// function.
	prefixed    bool
	parts       int
	legacyCalls map[string][]string

	grammars int // cost of the grammars of custom tools so far
}

// finish checks what depends on several fields.
func (d *decoder) finish() *apierror.Error {
	e := &d.input.Engine
	// A message's prefix asks for the same as continue_final_message, and is known with the messages.
	d.input.Continue = d.input.Continue || d.prefixed
	// The newer name of the field counts where both are sent.
	if e.MaxTokens = d.maxCompletionTokens; e.MaxTokens == 0 {
		e.MaxTokens = d.maxTokens
	}

	switch {
	case e.Model == "":
		return apierror.Invalid("model", "The field \"model\" is missing. Name the model.")
	case len(d.input.Items) == 0:
		return apierror.Invalid("messages",
			"The field \"messages\" is missing or has no messages. Send at least one.")
	case d.streamOptions && !d.options.stream:
		return apierror.Invalid("stream_options",
			"The field \"stream_options\" is only for streams. Leave it out or set stream to true.")
	case d.generationPrompt != nil && *d.generationPrompt == d.input.Continue:
		return apierror.Invalid("add_generation_prompt",
			"The last message is continued, or a new one begins: add_generation_prompt must be false with "+
				"continue_final_message, and true without. Leave it out.")
	case e.TopLogprobs > 0 && !e.Logprobs:
		return apierror.Invalid("top_logprobs",
			"The field \"top_logprobs\" requires logprobs: true. Send both, or leave both out.")
	case d.options.tokenIDs && d.input.Hides():
		return apierror.Invalid("return_token_ids",
			"return_token_ids would show the reasoning that the request hides. Leave one of the two out.")
	}
	if err := d.input.FinishLength("max_completion_tokens"); err != nil {
		return err
	}

	// Both need what several fields say, in whatever order they came: tools, tool_choice and messages.
	d.enforceCustom()
	d.answerLegacyCalls()

	d.options.logprobs = e.Logprobs
	d.options.hideReasoning = d.input.Hides()
	e.ID.Request = d.rc.ID("chatcmpl-")
	d.input.Replies.Own = e.ID.Request
	// An engine need not flush each token of a reply that the client gets in one piece.
	e.Whole = !d.options.stream
	return nil
}

func (d *decoder) readStreamOptions(v jsontext.Field) *apierror.Error {
	d.streamOptions = true
	return streamOptions.Decode(d, v, &d.ignored)
}

func (d *decoder) readUsage(v jsontext.Field) *apierror.Error {
	return usageFields.Decode(d, v, &d.ignored)
}

// readModeration refuses what would have to be blocked. Scores are not made.
func (d *decoder) readModeration(v jsontext.Field) *apierror.Error {
	return fields.CheckModeration(v, &d.ignored)
}

func (d *decoder) readCacheKey(v jsontext.Field) *apierror.Error {
	key, err := v.Text()
	d.input.Session = key
	return err
}

func (d *decoder) readAddGenerationPrompt(v jsontext.Field) *apierror.Error {
	add, err := v.Switch()
	d.generationPrompt = &add
	return err
}

func (d *decoder) readModalities(v jsontext.Field) *apierror.Error {
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if v.Str != "text" {
			return apierror.Invalid("modalities", "Only the modality \"text\" is supported.")
		}
		return nil
	})
}

func (d *decoder) readTools(v jsontext.Field) *apierror.Error {
	tools := harmony.Namespace{Name: turn.FunctionsNamespace}
	err := v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= d.rc.Limits.Tools {
			return apierror.Invalid("tools", "The request has more than %d tools.", d.rc.Limits.Tools)
		}
		t, err := d.readTool(v)
		tools.Tools = append(tools.Tools, t)
		return err
	})
	return cmp.Or(err, d.offer(tools))
}

// offer offers tools to the model.
func (d *decoder) offer(tools harmony.Namespace) *apierror.Error {
	// An empty list in the other form asks for nothing.
	if len(d.input.Tools) > 0 && len(d.input.Tools[0].Tools) > 0 {
		if len(tools.Tools) == 0 {
			return nil
		}
		return apierror.Invalid("functions", "The request has tools and functions. Send all of them in tools.")
	}
	d.input.Tools = []harmony.Namespace{tools}
	return nil
}

func (d *decoder) readTool(v jsontext.Field) (t harmony.Tool, err *apierror.Error) {
	given := false
	err = v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "type":
			if v.Str != "function" && v.Str != "custom" {
				return apierror.Invalid(v.Path, "Only tools of the types \"function\" and \"custom\" are supported.")
			}
		case "function":
			given = true
			return d.readFunction(v, &t)
		case "custom":
			given = true
			return d.readCustom(v, &t)
		default:
			return toolFields.Other(key, v, &d.ignored)
		}
		return nil
	})

	if err == nil && !given {
		err = apierror.Invalid(v.Path, "A tool has no field \"function\" or \"custom\". Describe the tool there.")
	}
	return t, err
}

func (d *decoder) readFunction(v jsontext.Field, t *harmony.Tool) *apierror.Error {
	var strict turn.Strictness
	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "name":
			t.Name, err = v.Text()
		case "description":
			t.Description, err = v.Text()
		case "parameters":
			if !v.IsObject() {
				return apierror.Invalid(v.Path, "A tool's parameters must be a JSON Schema object.")
			}
			t.Parameters = []byte(v.Raw)
		case "strict":
			var on bool
			on, err = v.Switch()
			strict = turn.Said(on)
		default:
			err = functionFields.Other(key, v, &d.ignored)
		}
		return err
	})

	if err == nil && t.Name == "" {
		err = apierror.Invalid(v.Path+".name", "A tool has no name. Give every tool one.")
	}
	if strict.Matters(d.rc) {
		d.input.SetStrict(functionNamed(t.Name), strict)
	}
	return err
}
