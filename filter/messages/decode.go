package messages

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Decode decodes the body of a request and prepares its first turn. If it rejects
// the request, the error is a 400 that names the field at fault. It keeps no part
// of body. Like [turn.Prepare] it reads from the store and can take
// seconds, until ctx ends. betas are the values of the request's header anthropic-beta.
func (a *API) Decode(
	ctx context.Context, body []byte, rc *turn.RequestContext, betas ...string,
) (*Request, *apierror.Error) {
	return a.decode(ctx, body, rc, reading{betas: betas})
}

// reading is what a request is read for, and how.
type reading struct {
	// Only the length of the prompt is asked for, of which a compaction is no part.
	counts bool
	betas  []string
}

// interleaved reports whether the model may think between its calls, in every step of a turn:
// the budget is for all of them together. Betas have the date in their names.
func (r reading) interleaved() bool {
	return slices.ContainsFunc(r.betas, func(beta string) bool {
		return strings.HasPrefix(beta, "interleaved-thinking-")
	})
}

// decode is Decode.
func (a *API) decode(
	ctx context.Context, body []byte, rc *turn.RequestContext, how reading,
) (*Request, *apierror.Error) {
	root, err := jsontext.Parse(body)
	if err != nil {
		return nil, err
	}

	d := &decoder{
		api: a, rc: rc, input: turn.Input{Strict: map[turn.ToolName]bool{}}, interleaved: how.interleaved(),
	}
	// Errors name calls as the client does, whatever prefix its ids have here.
	d.input.ShownID = d.sentID
	if err := topFields.DecodeRequest(d, jsontext.Field{Result: root}, &d.ignored); err != nil {
		return nil, err
	}
	d.compaction.asked = d.compaction.asked && !how.counts
	if err := d.finish(); err != nil {
		return nil, err
	}

	r := d.request()
	unlisted := d.unlisted()
	switch {
	case len(unlisted) == 0:
	case rc.Unbounded:
		// No model call follows, and so no reply that could have a preflight.
		hosted.List(ctx, a.runner(), unlisted, rc)
	default:
		r.preflight = &preflight{decoder: d, unlisted: unlisted}
		return r, nil
	}

	if err := d.offerTools(); err != nil {
		return nil, err
	}
	d.settleTools(r)
	r.turn, err = d.prepareTurn(ctx)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// decoder gathers the fields of a request.
//
// It is large because each field that is not a plain value has a method.
type decoder struct {
	api     *API
	rc      *turn.RequestContext
	input   turn.Input
	options options
	ignored jsontext.Ignored

	// The client's tools: those that are offered from the beginning, and those that are
	// offered once the conversation refers to them, with their names in order, whether they are
	// strict and the names that several of them have.
	tools         []harmony.Tool
	deferred      map[string]harmony.Tool
	deferredNames []string
	strict        map[string]bool
	twice         []string
	// The searches for deferred tools that run here, by name. unsearchable is that one cannot.
	searches     []string
	unsearchable bool
	// toolsets are the client's toolsets, each a namespace.
	toolsets []harmony.Namespace
	// toolChanges are the changes of tools that the conversation has made, as a compaction has
	// them.
	toolChanges []byte
	// absent are the names of tools that the filter does not run; nil: there are none.
	absent map[string]bool
	// chosen is the tool that tool_choice names; "": none.
	chosen string
	served serverTools

	// The conversation: the tools that it refers to, and where they join it; messages and
	// content blocks so far; and the ids of calls that the client spells in another way than
	// shownID, by the turn's ids.
	found   map[string]bool
	joining []*joining
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

// request returns the request without its first turn.
func (d *decoder) request() *Request {
	r := &Request{
		api: d.api, rc: d.rc, id: d.input.Engine.ID.Request, model: d.input.Engine.Model, ignored: d.ignored,
		options: d.options, compared: d.input.Replies.Compared, maxTokens: d.input.Engine.MaxTokens,
		begunMessage: d.input.Continue, maxSearches: d.served.maxSearches, container: d.served.container,
		compacts: d.compaction.asked, prepares: d.prepares,
	}

	// Where the filter runs tools, the model has several turns anyway.
	told := d.rc.Model.UnknownTools == turn.UnknownToModel || len(d.served.servers)+len(d.searches) > 0
	r.corrects = told && !d.input.Continue

	for _, s := range d.served.servers {
		if r.hosted == nil {
			r.hosted = map[hosted.Space]*hosted.Server{}
		}
		r.hosted[s.Space()] = s
		if s.Builtin != nil && r.container == "" {
			r.container = d.rc.NewID(containerPrefix)
		}
	}
	return r
}

// settleTools gives the request what its reply has to know of the tools, once they are offered.
func (d *decoder) settleTools(r *Request) {
	r.search = d.search()
	r.withdrawn, r.toolChanges = d.input.Withdrawn, d.toolChanges
}

// prepareTurn prepares the first turn: the model's own, or that of a summary.
func (d *decoder) prepareTurn(ctx context.Context) (*turn.Turn, *apierror.Error) {
	if d.compaction.asked {
		return compaction.Prepare(ctx, d.rc, &d.input)
	}
	return turn.Prepare(ctx, d.rc, &d.input)
}

// containerPrefix begins the ids of containers.
const containerPrefix = "container_"

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
	case d.input.Continue && (d.input.Format != nil || d.input.Choice.Required || len(d.input.Strict) > 0):
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
		d.options.thinking = hidden
	}
	if err := d.findServers(); err != nil {
		return err
	}
	d.offerUnsearchable()

	e.ID.Request = d.rc.ID("msg_")
	d.input.Replies.Own = e.ID.Request
	e.Whole = !d.options.stream
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
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		s, err := v.Text()
		limits := d.rc.Limits
		switch {
		case err != nil:
			return err
		case s == "":
			return apierror.Invalid(v.Path, "A stop sequence is empty. Leave it out.")
		case len(s) > limits.StopBytes:
			return apierror.Invalid(v.Path, "A stop sequence is longer than %d bytes.", limits.StopBytes)
		case len(d.input.Stop) == limits.Stops:
			return apierror.Invalid("stop_sequences", "The request has more than %d stop sequences.", limits.Stops)
		}
		d.input.Stop = append(d.input.Stop, s)
		return nil
	})
}

// leastBudget is the least budget of thinking that Anthropic's API accepts, in tokens.
const leastBudget = 1024

// readThinking reads {"type":…,"budget_tokens":…,"display":…}. The model always
// thinks; the type says whether the client sees it.
func (d *decoder) readThinking(v jsontext.Field) *apierror.Error {
	kind := ""
	var budget jsontext.Field
	d.options.thinking = shown

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
		d.options.thinking = hidden
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
		d.options.thinking = omitted
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
