package read

import (
	"cmp"
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// decoder makes a [Request] of a body: its fields, the stored items that it brings
// in, and its input, in this order.
type decoder struct {
	reader  *Reader
	rc      *turn.RequestContext
	id      string          // of the response
	fields  fieldReader     // what the fields say
	tools   *toolset.Reader // what the tools and tool_choice say
	items   itemReader      // the conversation
	history history         // the stored part of the conversation
	codex   *codexTurn      // nil: not in Codex compatibility mode
}

// newDecoder begins to decode a request.
func (a *Reader) newDecoder(rc *turn.RequestContext) *decoder {
	d := &decoder{reader: a, rc: rc, id: rc.NewID("resp_")}
	d.fields = newFieldReader(a, rc)
	d.tools = toolset.NewReader(a.Tools, rc, &d.fields.input, &d.fields.echo.tools, &d.fields.ignored)
	d.fields.tools = d.tools
	d.items = itemReader{reader: a, rc: rc, ignored: &d.fields.ignored}
	return d
}

// decode makes a request of a body. What is wrong with the body is a 400 that names the
// field at fault. No part of the body is kept.
func (d *decoder) decode(ctx context.Context, body []byte) (*request.Request, *Repeated, *apierror.Error) {
	repeated, err := d.read(ctx, body)
	if err != nil || repeated != nil {
		return nil, repeated, err
	}

	q, err := d.build(ctx)
	if err != nil {
		d.history.lock.Abandon(ctx)
	}
	return q, nil, err
}

// read reads the fields of a body. A request that has been answered before, in
// Codex compatibility mode, has its outcome at once.
func (d *decoder) read(ctx context.Context, body []byte) (*Repeated, *apierror.Error) {
	d.fields.connected = store.HasLocal(ctx)
	root, err := jsontext.Parse(body)
	if err != nil {
		return nil, err
	}
	if err := topFields.DecodeRequest(&d.fields, jsontext.Field{Result: root}, &d.fields.ignored); err != nil {
		return nil, err
	}
	if err := d.checkStandalone(); err != nil {
		return nil, err
	}

	return d.continueTurn(ctx)
}

// build makes the request of what the fields say.
func (d *decoder) build(ctx context.Context) (*request.Request, *apierror.Error) {
	// What is stored comes first: the input can refer to it, repeat it, or compact it.
	for _, add := range []func(*decoder, context.Context) *apierror.Error{
		(*decoder).addConversation,
		(*decoder).addChain,
		(*decoder).addInput,
	} {
		if err := add(d, ctx); err != nil {
			return nil, err
		}
	}

	// Only a locked conversation gets the items: a request that stores nothing may have any ids.
	if d.history.lock != nil {
		if err := d.checkIDs("input"); err != nil {
			return nil, err
		}
		size := store.Size{Items: len(d.history.earlier), Bytes: int64(stored.ItemBytes(d.history.earlier...))}
		if err := stored.CheckRoom(d.rc, "conversation", size, d.history.added); err != nil {
			return nil, err
		}
	}

	if err := d.finish(); err != nil {
		return nil, err
	}

	first, err := d.newPreflight(ctx)
	if err != nil {
		return nil, err
	}

	var t *turn.Turn
	if first == nil {
		p := d.firstCall()
		t, err = p.prepare(ctx)
		switch {
		case p.compacts(t, err):
			t, first = nil, &request.Preflight{Preparation: d, Compacts: true}
		case err != nil:
			return nil, request.OfInput(err)
		}
	}

	f := &d.fields
	// The reply goes on when ctx has ended.
	rc := d.rc.Within(context.Background())
	r := &request.Request{
		Context: rc, ResponseID: d.id,
		Model: f.input.Engine.Model, Created: d.rc.Now().Unix(),
		Options: f.options, IgnoredFields: f.ignored, Echo: f.echo.append(nil),
		Turn: t, Preflight: first, MaxOutput: f.echo.maxOutputTokens, Sealer: f.sealer,
		Carrier: carrierSealer(d),
		Tools: d.tools.Called(f.echo.maxToolCalls, d.items.state.container, d.items.state.pages,
			d.items.state.joined.Loaded),
		Storage: request.Storage{
			Wanted: d.stores(), Local: d.keeps() && !d.stores(), Previous: f.previous, Input: d.history.added,
		},
		Lock:       d.history.lock,
		Compaction: d.compaction(),
	}
	r.Conversation = &readConversation{reader: d.reader, rc: rc, chain: d.remembered(), hosted: r.Tools.Hosted}
	if d.codex != nil && d.codex.continues {
		continueAs(r, d.codex.turn)
	}

	return r, nil
}

// stores reports whether the response will be stored.
func (d *decoder) stores() bool { return d.fields.store && d.reader.Store != nil && !d.reader.KeptOnly }

// carrierSealer is what seals the steps of the reply; nil: the stored response has them.
func carrierSealer(d *decoder) *seal.Sealer {
	if d.fields.sealer == nil && d.stores() {
		return nil
	}
	return d.reader.Sealer
}

// keeps reports whether a later request can continue the response.
func (d *decoder) keeps() bool {
	return d.reader.Store != nil && (d.fields.store || d.fields.connected)
}

// finish checks what only all fields together show.
func (d *decoder) finish() *apierror.Error {
	f := &d.fields
	f.input.EffortUpdates = d.items.state.config.efforts
	switch {
	case f.input.Engine.Model == "":
		return apierror.Invalid("model", "The field \"model\" is missing. Name the model.")
	case f.unread != "" && d.items.compacting.triggered:
		return apierror.Invalid(f.unread,
			"A compaction writes a summary, and with %s nothing is written. Leave one of the two out.", f.unread)
	case f.unread != "" && len(d.items.verdicts) > 0:
		return apierror.Invalid(f.unread,
			"A call that is approved would be made before the request that waits for its result. Send the "+
				"mcp_approval_response with that request, without %s.", f.unread)
	// Codex prepares its instructions and tools before the user has written anything.
	case f.unread == "" && !f.items.Exists() && f.previous == "" && f.conversation == "":
		return apierror.Invalid("input", "The field \"input\" is missing. Send a text or a list of items.")
	case f.unread == "" && d.items.before.Len()+len(d.items.items)+len(d.items.verdicts) == 0:
		return apierror.Invalid("input", "The field \"input\" has nothing for the model. Send at least one message.")
	case f.options.Background && !d.stores():
		return apierror.Invalid("background",
			"Background responses must be stored. Leave out store: false, or background (where the operator "+
				"stores no responses at all).")
	case f.options.Messages && f.options.Background:
		return apierror.Invalid("enable_response_messages",
			"enable_response_messages is not for background responses, because the messages are not stored. Leave "+
				"one of the two out.")
	case f.options.Messages && f.input.Hides():
		return apierror.Invalid("enable_response_messages",
			"enable_response_messages would show the reasoning that the request hides. Leave one of the two out.")
	}

	if f.options.PrepareOnly {
		f.compactAbove = 0
	}
	if err := f.input.FinishLength("max_output_tokens"); err != nil {
		return err
	}

	// The Harmony messages are those of the first model call, which has to be the reply's own.
	if f.options.Messages && f.compactAbove > 0 {
		f.compactAbove = 0
		f.ignored.Add("context_management")
	}

	// The events of a background response are stored in any case: a client that wants them follows the
	// journal, now or later.
	f.options.Follow = f.options.Stream
	f.options.Stream = f.options.Stream || f.options.Background
	// Items that configure precede the fields, and a compaction asks for a form of its own: both
	// come before what the response repeats is settled.
	if err := d.configure(); err != nil {
		return err
	}
	if err := d.finishCompaction(); err != nil {
		return err
	}
	if err := d.tools.Join(&d.items.state.joined, d.items.tools.hosted); err != nil {
		return err
	}

	// Which tools there are is known only with those of the items.
	d.tools.EnforceText()
	f.finishLogprobs()
	f.finishEcho()
	f.options.HideReasoning = f.input.Hides()
	f.input.Instructions = fields.WithoutBilling(f.instructions)
	// Requests of one session go to one replica, which has their prefix cached.
	f.input.Session = f.conversation
	if key := f.echo.cacheKey; key != nil && *key != "" {
		f.input.Session = *key
	}

	f.input.Engine.ID.Request = d.rc.ID("resp_")
	f.input.Engine.Whole = !f.options.Stream
	return nil
}

// finishEcho completes what the response object repeats of the request.
func (f *fieldReader) finishEcho() {
	e := &f.input.Engine
	f.echo.background = f.options.Background
	f.echo.maxOutputTokens = e.MaxTokens
	f.echo.sampling = samplingEcho{e.Temperature, e.TopP, e.FrequencyPenalty, e.PresencePenalty, e.TopLogprobs}
	if f.input.OptsOut() {
		f.echo.reasoning.effort = "none"
	}
	f.echo.reasoning.effort = cmp.Or(f.echo.reasoning.effort, string(f.input.Effort), string(f.rc.Model.Effort),
		string(harmony.EffortMedium))
}

// firstCall is the turn's input, with the conversation as it is now.
func (d *decoder) firstCall() *firstCall {
	in := d.fields.input
	in.Items, in.Whole = d.items.items, d.items.whole
	if d.items.before != nil {
		in.Before = d.items.before
	}
	in.Replies = d.replies()
	return &firstCall{
		rc: d.rc, input: in, summary: d.items.compacting.triggered, unread: d.fields.options.PrepareOnly,
		compactAbove: d.fields.compactAbove, compactor: d.reader.Compactor,
	}
}

// remembered is the chain that the conversation begins with; nil if it begins with
// items.
func (d *decoder) remembered() *chain {
	// A compaction has replaced the prefix by items: the chain says no more what they are.
	if d.items.before == nil {
		return nil
	}
	return d.history.chain
}
