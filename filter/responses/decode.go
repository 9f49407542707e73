package responses

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Decode reads the body of a request and makes it ready for the engine. What
// it refuses is a 400 that names the field at fault. It keeps no part of body.
//
// ctx is for reading from the store now, and its values for writing to it at
// the end of the reply.
func (a *API) Decode(ctx context.Context, body []byte, scope *turn.Scope) (*Call, *apierror.Error) {
	return a.newDecoder(scope).decode(ctx, body)
}

// newDecoder begins to decode a request.
func (a *API) newDecoder(scope *turn.Scope) *decoder {
	wanted := options{usagePerTurn: a.UsagePerTurn, openReasoning: a.OpenReasoningEvents}
	input := turn.Input{Strict: map[turn.ToolName]bool{}}
	return &decoder{api: a, input: input, options: wanted, scope: scope, id: scope.NewID("resp_"), store: true, custom: map[toolName]bool{}, echo: newEcho()}
}

// ofInput names this API's field for the conversation in an error of turn.
func ofInput(err *apierror.Error) *apierror.Error {
	if err.Param != "messages" {
		return err
	}
	e := *err
	e.Param = "input"
	return &e
}

// decoder gathers the fields of a request.
type decoder struct {
	api     *API
	scope   *turn.Scope
	input   turn.Input
	given   jsontext.Field // the field input
	options options
	store   bool
	ignored jsontext.Ignored
	custom  map[toolName]bool
	echo    echo

	hosted        []*hosted
	hostedChoices []hostedChoice
	reading       bool            // the request's own input is
	asked         map[string]item // the requests for approval, by id
	verdicts      []verdict
	chosen        string // the container that the request names
	facts         facts

	instructions string
	previous     string                             // previous_response_id
	chain        *chain                             // what is remembered of it
	whole        func() (*decoder, *apierror.Error) // reads it all the same
	references   map[string]*reference              // the items that the input refers to
	stored       int                                // bytes of the stored items that the request brings in
	kept         []store.Item                       // the input, where it is stored
	sealer       *Sealer                            // where the request wants encrypted_content

	id           string       // of the response
	conversation string       // that the response belongs to
	earlier      []store.Item // what the conversation has
	holder       *holder      // nil: no conversation is held
	compat       *compat      // nil: not in Codex compatibility mode
	compacting
}

// decode makes a call of the body, and lets go what it holds if it cannot.
func (d *decoder) decode(ctx context.Context, body []byte) (*Call, *apierror.Error) {
	call, err := d.call(ctx, body)
	if err != nil {
		d.holder.release(ctx)
		return nil, err
	}
	return call, nil
}

func (d *decoder) call(ctx context.Context, body []byte) (*Call, *apierror.Error) {
	root, err := jsontext.Parse(body)
	if err != nil {
		return nil, err
	}
	if err := fields.Decode(d, jsontext.Field{Result: root}, &d.ignored); err != nil {
		return nil, err
	}
	if err := d.checkStandalone(); err != nil {
		return nil, err
	}
	if call, err := d.continueTurn(ctx); call != nil || err != nil {
		return call, err
	}
	for _, add := range []func(*decoder, context.Context) *apierror.Error{(*decoder).addConversation, (*decoder).addChain, (*decoder).addInput} {
		if err := add(d, ctx); err != nil {
			return nil, err
		}
	}
	if d.holder != nil {
		if err := d.checkIDs("input"); err != nil {
			return nil, err
		}
		held := store.Size{Items: len(d.earlier), Bytes: int64(itemBytes(d.earlier...))}
		if err := checkRoom(d.scope, "conversation", held, d.kept); err != nil {
			return nil, err
		}
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	opening, err := d.openingOf(ctx)
	if err != nil {
		return nil, err
	}
	var t *turn.Turn
	if opening == nil {
		if t, err = d.prepare(ctx); err != nil {
			return nil, ofInput(err)
		}
	}
	return d.asTurn(&Call{
		api: d.api, turn: t, opening: opening, hosted: d.hostedSpaces(), container: d.containerID(), pages: d.facts.pages, scope: d.scope, store: d.api.Store, created: d.scope.Now().Unix(), id: d.id, model: d.input.Engine.Model,
		ignored: d.ignored, options: d.options, custom: d.custom, fixed: d.echo.append(nil), maxOutput: d.echo.maxOutputTokens, maxToolCalls: d.echo.maxToolCalls,
		previous: d.previous, input: d.kept, keep: d.keeper(ctx), sealer: d.sealer,
		holder: d.holder, extend: d.extender(ctx), compaction: d.compaction(),
	}), nil
}

// finish checks what only all fields together show.
func (d *decoder) finish() *apierror.Error {
	switch {
	case d.input.Engine.Model == "":
		return apierror.Invalid("model", "The field \"model\" is missing. Name the model.")
	case !d.given.Exists() && d.previous == "" && d.conversation == "":
		return apierror.Invalid("input", "The field \"input\" is missing. Send a text or a list of items.")
	case d.input.Before.Len()+len(d.input.Items)+len(d.verdicts) == 0:
		return apierror.Invalid("input", "The field \"input\" has nothing for the model. Send at least one message.")
	case d.options.background && !d.stores():
		return apierror.Invalid("background", "Background responses must be stored. Leave out store: false, or background (where the operator stores no responses at all).")
	case d.options.messages && d.options.background:
		return apierror.Invalid("enable_response_messages", "enable_response_messages is not for background responses, because the messages are not stored. Leave one of the two out.")
	case d.options.messages && d.options.hideReasoning:
		return apierror.Invalid("enable_response_messages", "enable_response_messages would show the reasoning that the request hides. Leave one of the two out.")
	}
	d.options.follow = d.options.stream
	d.options.stream = d.options.stream || d.options.background
	d.echo.background = d.options.background
	if err := d.finishCompaction(); err != nil {
		return err
	}
	d.input.Instructions = d.instructions
	d.input.Session = d.conversation
	if key := d.echo.cacheKey; key != nil && *key != "" {
		d.input.Session = *key
	}
	d.shapeCustom()
	e := &d.input.Engine
	d.echo.maxOutputTokens = e.MaxTokens
	d.echo.temperature, d.echo.topP = e.Temperature, e.TopP
	d.echo.frequencyPenalty, d.echo.presencePenalty = e.FrequencyPenalty, e.PresencePenalty
	d.echo.effort = cmp.Or(d.echo.effort, string(d.scope.Model.Effort), string(harmony.EffortMedium))
	e.ID = d.scope.ID("resp_")
	e.Whole = !d.options.stream
	return nil
}

func setText(dst **string, v jsontext.Field) *apierror.Error {
	s, err := v.ShortText()
	*dst = &s
	return err
}

func (d *decoder) readInstructions(v jsontext.Field) *apierror.Error {
	text, err := v.Text()
	d.instructions = text
	d.echo.instructions = &d.instructions
	return err
}

func (d *decoder) readPrevious(v jsontext.Field) (err *apierror.Error) {
	d.previous, err = v.ShortText()
	if err == nil && d.previous == "" {
		return apierror.Invalid(v.Path, "The field \"previous_response_id\" is empty. Leave it out.")
	}
	return err
}

// included are the values of include that have no effect, because no response
// has what they ask for.
var included = map[string]bool{
	"file_search_call.results":              true,
	"web_search_call.results":               true,
	"web_search_call.action.sources":        true,
	"computer_call_output.output.image_url": true,
	"message.input_image.image_url":         true,
}

func (d *decoder) readInclude(v jsontext.Field) *apierror.Error {
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		value, err := v.Text()
		if err != nil {
			return err
		}
		switch {
		case value == "message.output_text.logprobs":
			return apierror.Invalid("include", noLogprobs)
		case value == "code_interpreter_call.outputs":
			d.options.outputs = true
		case value == "usage.per_turn":
			d.options.usagePerTurn = true
		case value == "reasoning.encrypted_content" && d.api.Sealer != nil:
			d.sealer = d.api.Sealer
		case value == "reasoning.encrypted_content", included[value]:
			d.ignored.Add("include." + value)
		default:
			return apierror.Invalid(v.Path, "The value is not one of those that \"include\" can have. Leave it out.")
		}
		return nil
	})
}

func (d *decoder) readTruncation(v jsontext.Field) *apierror.Error {
	if v.Str != "auto" && v.Str != "disabled" {
		return apierror.Invalid(v.Path, "The field \"truncation\" must be \"auto\" or \"disabled\".")
	}
	d.input.Truncate = v.Str == "auto"
	d.echo.truncation = strings.Clone(v.Str)
	return nil
}

func (d *decoder) readReasoning(v jsontext.Field) *apierror.Error {
	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "effort":
			return d.readEffort(v)
		case "summary", "generate_summary":
			switch v.Str {
			case "auto", "concise", "detailed":
				d.echo.summary = strings.Clone(v.Str)
				d.options.summary = true
				return nil
			}
			return apierror.Invalid(v.Path, "The field %q must be one of auto, concise and detailed.", v.Path)
		}
		d.ignored.Add(v.Path)
		return nil
	})
}

func (d *decoder) readEffort(v jsontext.Field) *apierror.Error {
	hide, err := d.input.SetEffort(v)
	d.options.hideReasoning = hide
	d.echo.effort = strings.Clone(v.Str)
	return err
}

func (d *decoder) readText(v jsontext.Field) *apierror.Error {
	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "format":
			return d.readTextFormat(v)
		case "verbosity":
			switch v.Str {
			case "low", "medium", "high":
				d.echo.verbosity = strings.Clone(v.Str)
			default:
				return apierror.Invalid(v.Path, "The field %q must be one of low, medium and high.", v.Path)
			}
		}
		d.ignored.Add(v.Path)
		return nil
	})
}

// The bounds of metadata, as OpenAI has them.
const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

func (d *decoder) readMetadata(v jsontext.Field) *apierror.Error {
	n := 0
	d.echo.metadata = jsontext.AppendCompact(nil, v.Raw)
	return v.Entries(func(key string, v jsontext.Field) *apierror.Error {
		value, err := v.Text()
		n++
		switch {
		case err != nil:
			return apierror.Invalid(v.Path, "The values of \"metadata\" must be strings.")
		case n > maxMetadata:
			return apierror.Invalid("metadata", "The field \"metadata\" has more than %d entries.", maxMetadata)
		case utf8.RuneCountInString(key) > maxMetadataKey:
			return apierror.Invalid("metadata", "A key of \"metadata\" is longer than %d characters.", maxMetadataKey)
		case utf8.RuneCountInString(value) > maxMetadataValue:
			return apierror.Invalid(v.Path, "A value of \"metadata\" is longer than %d characters.", maxMetadataValue)
		}
		return nil
	})
}
