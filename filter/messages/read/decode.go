package read

import (
	"cmp"
	"context"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// decoder gathers the fields of a request.
type decoder struct {
	reader  Reader
	rc      *turn.RequestContext
	input   turn.Input
	options request.Options
	ignored jsontext.Ignored
	// tools are what the fields and the conversation say of tools.
	tools toolset.Reader

	// The conversation: messages and content blocks so far; and the ids of calls that the client
	// spells in another way than names.Shown, by the turn's ids.
	blocks  int
	sentIDs map[string]string

	compaction compactionRequest
	// prepares is that there is no output: the prompt is to be in the engine's cache.
	prepares bool

	// clearing is where among the items the first text is that the next message of the user
	// clears, and cleared are the paths of their messages; nil: there are none.
	clearing int
	cleared  map[string]bool

	// thinkingBudget is the budget_tokens of thinking that is enabled; 0: there is none.
	// interleaved is that it is for all steps of a turn, so that it may exceed max_tokens.
	thinkingBudget int
	interleaved    bool
}

// decode makes a request of a body.
func (d *decoder) decode(
	ctx context.Context, body []byte, purpose Purpose,
) (*request.Request, *apierror.Error) {
	root, err := jsontext.Parse(body)
	if err != nil {
		return nil, err
	}
	if err := topFields.DecodeRequest(d, jsontext.Field{Result: root}, &d.ignored); err != nil {
		return nil, err
	}
	d.compaction.asked = d.compaction.asked && !purpose.Counts
	if err := d.finish(); err != nil {
		return nil, err
	}

	r := d.request()
	unlisted := d.tools.Unlisted()
	switch {
	case len(unlisted) == 0:
	case d.rc.Unbounded:
		// No model call follows, and so no reply that could have a preflight.
		hosted.List(ctx, d.reader.Servers, unlisted, d.rc)
	default:
		r.Preflight = &request.Preflight{Unlisted: unlisted, Prepare: preparation{d, r.Tools}}
		return r, nil
	}

	p, err := d.prepare(ctx, r.Tools)
	if err != nil {
		return nil, err
	}
	r.Begin(&p)
	return r, nil
}

// request returns the request without its first turn.
func (d *decoder) request() *request.Request {
	// Where the filter runs tools, the model has several turns anyway.
	told := d.rc.Model.UnknownTools == turn.UnknownToModel || d.tools.RunsHere()
	return &request.Request{
		Context: d.rc, ID: d.input.Engine.ID.Request, Model: d.input.Engine.Model, IgnoredFields: d.ignored,
		Options: d.options, Compared: d.input.Replies.Compared, MaxTokens: d.input.Engine.MaxTokens,
		Corrects: told && !d.input.Continue, BegunMessage: d.input.Continue, Tools: d.tools.Called(),
		Compacts: d.compaction.asked, Prepares: d.prepares,
	}
}

// prepare offers the tools, once servers have listed theirs, and prepares the first turn: the
// model's own, or that of a summary. called are the tools as the request has them so far.
func (d *decoder) prepare(ctx context.Context, called toolset.Called) (p request.Prepared, err *apierror.Error) {
	if err := d.tools.Offer(); err != nil {
		return p, err
	}
	d.askForSummary()
	d.tools.Settle(&called)

	p.Tools = called
	if d.compaction.asked {
		p.Turn, err = compaction.Prepare(ctx, d.rc, &d.input)
	} else {
		p.Turn, err = turn.Prepare(ctx, d.rc, &d.input)
		if err == nil && d.prepares {
			p.Turn.LeaveUnread()
		}
	}
	return p, err
}

// preparation is the job of a preflight.
type preparation struct {
	decoder *decoder
	called  toolset.Called
}

// Do implements api.Job. Its result is a *request.Prepared.
func (p preparation) Do(ctx context.Context) (any, error) {
	prepared, err := p.decoder.prepare(ctx, p.called)
	if err != nil {
		return nil, err
	}
	return &prepared, nil
}

// finish checks what depends on several fields.
func (d *decoder) finish() *apierror.Error {
	if err := d.checkCompaction(); err != nil {
		return err
	}
	e := &d.input.Engine
	switch {
	case e.Model == "":
		return apierror.Invalid("model", "The field \"model\" is missing. Name the model.")
	case len(d.input.Items) == 0:
		return apierror.Invalid("messages", "The field \"messages\" is missing or has no messages. Send at least one.")
	case d.input.Continue && (d.input.Format != nil || d.input.Choice.Required || d.input.HasStrict()):
		return apierror.Invalid("messages",
			"The last message is the assistant's. It cannot be continued under a tool_choice that requires a call, "+
				"strict tools or an output format. Leave them out, or end with a message of the user.")
	}
	// Qwen Code, for one, always sends a larger budget, with the beta.
	if most := d.thinkingBudget; !d.interleaved && most > 0 && e.MaxTokens > 0 && most >= e.MaxTokens {
		return apierror.Invalid("thinking.budget_tokens",
			"The field \"thinking.budget_tokens\" must be less than \"max_tokens\": a message has room for both the "+
				"thinking and the answer. Only with the anthropic-beta interleaved-thinking-2025-05-14 it may be more.")
	}
	if err := d.input.FinishLength("max_tokens"); err != nil {
		return err
	}

	if d.input.Hides() {
		d.options.Thinking = request.Hidden
	}
	if err := d.tools.Finish(); err != nil {
		return err
	}

	e.ID.Request = d.rc.ID("msg_")
	d.input.Replies.Own = e.ID.Request
	e.Whole = !d.options.Stream
	return nil
}

// readSystem reads the system prompt: a string, or text blocks.
func (d *decoder) readSystem(v jsontext.Field) *apierror.Error {
	text, err := d.readTexts(v, func(i int, text string) string {
		if i == 0 {
			text = fields.WithoutBilling(text)
		}
		return text
	})
	d.input.Instructions = text
	return err
}

// readTexts reads a string, or an array of text blocks. edit returns the text of the
// i-th one that the model sees; nil: as it is.
func (d *decoder) readTexts(v jsontext.Field, edit func(i int, text string) string) (string, *apierror.Error) {
	if edit == nil {
		edit = func(_ int, text string) string { return text }
	}
	if !v.IsArray() {
		if v.Type != gjson.String {
			return "", apierror.Invalid(v.Path, "The field %q must be a string or an array of text blocks.", v.Path)
		}
		return edit(0, v.Str), nil
	}

	var joined jsontext.Joined
	err := v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		text, err := readText(v)
		joined.AddPart(edit(i, text))
		return err
	})
	return joined.String(), err
}

// readText reads the text of a text block.
func readText(v jsontext.Field) (string, *apierror.Error) {
	text := v.Get("text")
	if kind := v.Get("type"); kind.Str != "text" || text.Type != gjson.String {
		return "", apierror.Invalid(v.Path,
			"Only blocks of type \"text\" with a string \"text\" are supported in %q.", v.Path)
	}
	return text.Str, nil
}

func (d *decoder) readStopSequences(v jsontext.Field) *apierror.Error {
	into := d.sampling()
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error { return into.AddStop(v) })
}

// leastBudget is the least budget of thinking that Anthropic's API accepts, in tokens.
const leastBudget = 1024

// readThinking reads {"type":…,"budget_tokens":…,"display":…}. The model always
// thinks; the type says whether the client sees it.
func (d *decoder) readThinking(v jsontext.Field) *apierror.Error {
	kind := ""
	var budget jsontext.Field
	d.options.Thinking = request.Shown

	err := v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "type":
			switch v.Str {
			case "enabled", "adaptive", "between_tools", "disabled":
				kind = v.Str
			default:
				return apierror.Invalid(v.Path,
					"The type of \"thinking\" must be enabled, adaptive, between_tools or disabled.")
			}
		case "budget_tokens":
			budget = v
			return fields.SetBudget(&d.input, v)
		case "display":
			return d.readDisplay(v)
		default:
			return thinkingFields.Other(key, v, &d.ignored)
		}
		return nil
	})

	// The members come in any order: what the type says counts more than display.
	if kind == "disabled" || kind == "" {
		d.options.Thinking = request.Hidden
		// gpt-oss always thinks. A client that wants no thinking gets as little as there can be.
		d.input.OptedOut = d.input.OptedOut || kind != ""
	}
	switch {
	case err != nil:
		return err
	case kind == "":
		return apierror.Invalid(v.Path+".type",
			"The field \"thinking\" has no type. Send enabled, adaptive, between_tools or disabled.")
	// Other thinking has no budget in the API, so that one beside it says two things. No budget is
	// nothing, and so are no tokens of no thinking.
	case kind != "enabled" && budget.Exists() && budget.Num > turn.Unlimited && (kind != "disabled" || budget.Num > 0):
		return apierror.Invalid(v.Path+".budget_tokens",
			"The field \"thinking.budget_tokens\" belongs to the type enabled, not to %s. Leave it out, or send the "+
				"type enabled.", kind)
	case kind == "enabled":
		d.thinkingBudget = int(budget.Int())
		if d.thinkingBudget < leastBudget {
			return apierror.Invalid(v.Path+".budget_tokens",
				"The field \"thinking.budget_tokens\" must be a number of at least %d where the type is enabled. "+
					"Without a budget, send the type adaptive.", leastBudget)
		}
	}
	return nil
}

// readDisplay reads how thinking is shown. Updates are a form of the summary, which here is
// the text itself.
func (d *decoder) readDisplay(v jsontext.Field) *apierror.Error {
	switch v.Str {
	case "summarized", "updates":
	case "omitted":
		d.options.Thinking = request.Omitted
	default:
		return apierror.Invalid(v.Path, "The display of \"thinking\" must be summarized, updates or omitted.")
	}
	return nil
}

// readOutputConfig reads {"effort":…,"format":…}.
func (d *decoder) readOutputConfig(v jsontext.Field) *apierror.Error {
	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "effort":
			return d.readEffort(v)
		case "format":
			return d.readOutputFormat(v)
		}
		return outputFields.Other(key, v, &d.ignored)
	})
}

func (d *decoder) readEffort(v jsontext.Field) *apierror.Error { return fields.SetEffort(&d.input, v) }

// readParallelCalls reads whether the message may have several calls.
func (d *decoder) readParallelCalls(v jsontext.Field) *apierror.Error {
	parallel, err := v.Switch()
	d.input.OneCall = d.input.OneCall || err == nil && !parallel
	return err
}

// readOutputFormat reads {"type":"json_schema","schema":…}.
func (d *decoder) readOutputFormat(v jsontext.Field) *apierror.Error {
	if v.Get("type").Str != "json_schema" {
		return apierror.Invalid(v.Path+".type", "The type of an output format must be json_schema.")
	}
	schema := jsontext.Field{Result: v.Get("schema"), Path: v.Path + ".schema"}
	if !schema.IsObject() {
		return apierror.Invalid(schema.Path, "The schema of an output format must be a JSON Schema object.")
	}
	f, err := fields.SchemaFormat(d.rc, schema)
	return fields.SetFormat(&d.input, f, v.Path, err)
}

// readMetadata reads {"user_id":…}, which names the session: a text, or the text of
// an object with a session_id.
func (d *decoder) readMetadata(v jsontext.Field) *apierror.Error {
	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		if key != "user_id" {
			return metadataFields.Other(key, v, &d.ignored)
		}
		id, err := v.Text()
		if jsontext.IsObject(id) {
			id = cmp.Or(gjson.Get(id, "session_id").Str, id)
		}
		d.input.Session = strings.Clone(id)
		return err
	})
}
