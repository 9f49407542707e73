package turn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Prepare turns a request into a token request. If it rejects the request, the
// error is a 400 that names the field at fault.
//
// It reads from the store and renders the conversation, which can take seconds:
// call it from jobs and from handlers of endpoints, with the context that bounds
// them, and never between the chunks of a reply.
func Prepare(ctx context.Context, rc *request.Context, in *request.Input) (*Turn, *apierror.Error) {
	turn := &Turn{rc: *rc, noCalls: in.NoCalls, oneCall: in.OneCall, keepStop: in.KeepStop}
	turn.rc.Work = rc.Work.Within(ctx)

	// From here on rc is the turn's own copy, whose work ends with this context.
	rc = &turn.rc

	in, err := withOwnHistory(in, rc.Model)
	if err != nil {
		return nil, err
	}
	before := prefixOf(in)
	if before == nil {
		before = &Prefix{}
	}
	if rc.Model.Canonical {
		in = withSortedSchemas(&rc.Limits, in)
	}

	// Checked before anything is computed of them: what follows takes the calls' results for granted.
	items := before.followed(in.Items)
	if err := validate(rc, in, before, items); err != nil {
		return nil, err
	}

	tools, err := toolset.New(rc, in, joinedIn(before.joined, items))
	if err != nil {
		return nil, err
	}

	// Without its names of tools a request has no spec, so that the tools are read first.
	choice := tools.Narrow(in.Choice)
	spec, err := toolset.NewSpec(rc, in, choice, tools)
	if err != nil {
		return nil, err
	}
	later, err := newLaterSpec(rc, in, &spec, tools)
	if err != nil {
		return nil, err
	}

	turn.later, turn.tools = later, tools
	if rc.Model.ToolArguments == request.ArgumentsRetry {
		turn.calls = newCallRules(tools)
	}
	turn.stops = newStops(in.Stop)
	turn.routing = routingOf(rc, in.Tools, before, items)
	prompt, err := turn.render(ctx, in, before, items)
	if err != nil {
		return nil, err
	}

	tools.DropDefinitions()
	turn.compareDiagnosed(prompt, in.Replies.Compared)

	// A grammar describes messages from their beginning, and the engine would apply it to the rest of
	// one.
	format := spec.Format(rc.Work)
	if in.Continue && format != nil {
		return nil, apierror.Invalid("continue_final_message",
			"A message cannot be continued under tool_choice, strict tools or an output format. Leave them "+
				"out, or continue_final_message.")
	}
	if turn.Engine, err = engineRequest(rc, in, prompt, format); err != nil {
		return nil, err
	}

	turn.constraintParam = "tools"
	if in.Format != nil {
		turn.constraintParam = in.Format.Path
	}
	turn.watching = newWatchRules(rc, in)

	// Where any output is valid there is nothing to verify.
	if format != nil {
		if turn.verifier, err = newVerifier(rc, in, &spec, choice, tools); err != nil {
			return nil, err
		}
	}

	// Work that was refused on the way may have been done without, in silence.
	if err := rc.WorkRefused(""); err != nil {
		return nil, err
	}
	return turn, nil
}

// withOwnHistory returns the input with its items in the place of a prefix that has the model's
// steps in another form than the model's prompts have them.
func withOwnHistory(in *request.Input, m *request.Model) (*request.Input, *apierror.Error) {
	if !prefixOf(in).otherHistory(m) {
		return in, nil
	}

	all, err := in.Whole()
	if err != nil {
		return nil, err
	}
	own := *in
	own.Before, own.Items = nil, slices.Concat(all, in.Items)
	return &own, nil
}

// render returns the turn's prompt, for the items after before. It reads from the
// store what earlier requests have kept.
func (t *Turn) render(
	ctx context.Context, in *request.Input, before *Prefix, items []item.Item,
) ([]harmony.Token, *apierror.Error) {
	rc := &t.rc
	read, cancel := context.WithTimeout(ctx, kept.ReadTimeout)
	defer cancel()

	start := newConversationStart(in, before, items)
	t.affinity = affinityOf(rc, in, start)
	date, dateFault := conversationDate(read, rc, in, start)
	head := newHead(rc, in, date, t.tools)

	// What is kept is part of the prompt, but not of what the client has sent: the comparison is of
	// the latter.
	t.diagnose(in, head, before, items, start)

	// The message that the reply continues is rendered without its end.
	var last item.Item
	if in.Continue {
		items, last = items[:len(items)-1], items[len(items)-1]
	}
	stored, keptFault := kept.Read(read, rc, before.reasoned, items)
	defer stored.GiveRoomBack(rc)
	t.fault = errors.Join(dateFault, keptFault)
	t.diagnosed.head.Stored = storedLast(items, stored.Choices)
	t.due = kept.Renewal{Choices: kept.Due(rc, before.choicesBefore(stored.Choices, items)), Renewed: &before.renewed}

	renderer := rendering{rc, rc.RenderLimit()}
	if in.Truncate {
		renderer.limit = min(renderer.limit, roomForPrompt(rc, in))
	}

	prompt, err := renderer.prompt(ctx, head, before, stored.Items)
	if in.Truncate && (tooLong(err) || err == nil && len(prompt) > renderer.limit) {
		prompt, err = truncatedPrompt(ctx, rc, in, head, stored.Items)
		t.truncated = true
	}
	if err != nil {
		return nil, err
	}

	if in.Continue {
		renderer.limit = rc.RenderLimit()
		begin := len(prompt)
		if prompt, t.prefix, err = renderer.continued(ctx, prompt, last); err == nil {
			t.begun = prompt[begin:]
		}
		return prompt, err
	}

	t.completionStart = len(prompt)
	return appendCompletion(rc, prompt)
}

// engineRequest returns the model call for a prompt; format is the constraint of
// its output, nil for none.
func engineRequest(
	rc *request.Context, in *request.Input, prompt []harmony.Token, format constraint.Format,
) (*engine.Request, *apierror.Error) {
	call := in.Engine
	call.ID.Unique, call.ID.Number = uniqueID(rc), 1
	call.Prompt = prompt
	call.Model = cmp.Or(rc.Model.Upstream, call.Model)
	call.N = max(call.N, 1)
	if !rc.Checked {
		call.Constraint = format
	}
	return &call, limitOutput(rc, &call)
}

// uniqueID returns what tells the request from others at the engine. Ids that [Env.NewID] makes
// have no length that is sure.
func uniqueID(rc *request.Context) string {
	sum := sha256.Sum256([]byte(rc.NewID("")))
	return hex.EncodeToString(sum[:4])
}

// validate rejects conversations that are invalid in all APIs.
func validate(rc *request.Context, in *request.Input, before *Prefix, items []item.Item) *apierror.Error {
	if before.settled+len(items) > rc.Limits.Items {
		return apierror.Invalid("", "The conversation has more than %d messages, calls and results.", rc.Limits.Items)
	}

	if in.Continue {
		last := item.Item{}
		if len(items) > 0 {
			last = items[len(items)-1]
		}
		if last.Kind != item.Answer && last.Kind != item.Preamble && last.Kind != item.Reasoning {
			return apierror.Invalid("continue_final_message",
				"Only a last message with the assistant's text can be continued.")
		}
	}

	pairs, err := before.openAfter(items)
	if err != nil {
		return err
	}
	return pairs.broken(true, in.ShownID)
}

// head is what precedes a conversation in its prompt.
type head struct {
	system harmony.Message
	// Of the request, which precede those of the conversation.
	instructions string
	tools        []harmony.Namespace
	// Tools are offered.
	offered bool
	formats []harmony.ResponseFormat

	last renderedHead
}

// renderedHead is a head as it was rendered last. To truncate a conversation is to try the
// same head many times.
type renderedHead struct {
	// Namespaces of the opening, of one conversation.
	tools        int
	instructions string
	// Nil: there was an error.
	tokens []harmony.Token
	// Of the tokens.
	limit int
	// That it is too long for the limit; nil: it is not, or nothing was rendered.
	err *apierror.Error
}

func newHead(rc *request.Context, in *request.Input, date string, tools *toolset.Set) *head {
	h := &head{instructions: in.AllInstructions()}
	var builtins []harmony.Namespace
	if !in.NoCalls {
		h.tools, builtins = tools.Namespaces, tools.Builtins
		h.offered = true
	}
	h.system = systemMessage(rc, in, date, builtins)
	if in.Format != nil && in.Format.Announced != nil {
		h.formats = []harmony.ResponseFormat{*in.Format.Announced}
	}
	return h
}

// messages returns the head as Harmony messages, with what the conversation begins
// with. Every text with instructions is a developer message of its own. The tools
// and the output format are in the first one.
func (h *head) messages(opening opening) []harmony.Message {
	developer := &harmony.DeveloperContent{Instructions: h.instructions, Tools: h.tools, ResponseFormats: h.formats}
	if h.offered {
		developer.Tools = inModelNames(developer.Tools, opening.tools)
	}

	first := opening.instructions
	if developer.Instructions == "" {
		developer.Instructions, first = first, ""
	}

	msgs := []harmony.Message{h.system}
	if developer.Instructions != "" || len(developer.Tools) > 0 || len(developer.ResponseFormats) > 0 {
		msgs = append(msgs, harmony.Message{Role: harmony.RoleDeveloper, Content: []harmony.Content{developer}})
	}
	if first != "" {
		msgs = append(msgs, item.Message(item.Item{Kind: item.Instructions, Text: first}, item.Callee{}))
	}
	return msgs
}

// prompt renders a conversation: its head, the prefix before the items, and the
// items.
func (r rendering) prompt(
	ctx context.Context, head *head, before *Prefix, items []item.Item,
) ([]harmony.Token, *apierror.Error) {
	first := before.first
	if before.settled == 0 {
		first, items = cutOpening(items)
	}

	msgs := before.messages(first, items, r.rc.Model.History == request.HistoryExact)
	earlier, since := before.tokens(lastAnswer(msgs) >= 0)

	prompt := make([]harmony.Token, 0, len(earlier)+len(since)+r.room(before, msgs))
	prompt, err := r.begin(ctx, prompt, head, first)
	if err != nil {
		return nil, err
	}

	// The prefix is copied token by token, and never rendered again.
	return r.append(ctx, append(append(prompt, earlier...), since...), msgs)
}

// begin appends the head to an empty prompt, with what the conversation begins with.
func (r rendering) begin(
	ctx context.Context, prompt []harmony.Token, head *head, first opening,
) ([]harmony.Token, *apierror.Error) {
	last := &head.last
	if last.tools == len(first.tools) && last.instructions == first.instructions {
		switch {
		case last.tokens != nil:
			return append(prompt, last.tokens...), nil
		case last.err != nil && r.limit <= last.limit:
			return nil, last.err
		}
	}

	prompt, err := r.append(ctx, prompt, head.messages(first))
	*last = renderedHead{
		tools: len(first.tools), instructions: first.instructions, tokens: slices.Clip(prompt), limit: r.limit,
	}
	if tooLong(err) {
		last.err = err
	}

	return prompt, err
}

const (
	// spareTokens is the capacity of a prompt, beside the prefix that is copied to it,
	// for its head and its last items.
	spareTokens = 4096
	// headerTokens is how many tokens a message has beside its text, of most messages.
	headerTokens = 8
	// shortHead is the capacity for a head without tools.
	shortHead = 128
)

// room returns the capacity for msgs in a prompt, if their texts are as most are. To move
// a long prompt while it grows would copy it several times.
func (r rendering) room(before *Prefix, msgs []harmony.Message) int {
	// The prefix's length is known, and what follows it is short.
	if before.settled > 0 {
		return spareTokens
	}

	tokens := 0
	for i := range msgs {
		tokens += headerTokens
		for _, c := range msgs[i].Content {
			if text, ok := c.(harmony.Text); ok {
				tokens += len(text) / harmony.TextBytes
			}
		}
	}

	return min(tokens, max(r.limit, 0)) + shortHead
}

// systemMessage returns the system message.
func systemMessage(rc *request.Context, in *request.Input, date string, builtins []harmony.Namespace) harmony.Message {
	return harmony.Message{Role: harmony.RoleSystem, Content: []harmony.Content{&harmony.SystemContent{
		Identity:        cmp.Or(rc.Model.Identity, request.DefaultIdentity),
		KnowledgeCutoff: cmp.Or(rc.Model.KnowledgeCutoff, request.DefaultKnowledgeCutoff),
		StartDate:       date,
		Effort:          rc.Efforts(in).Head,
		Channels:        []string{harmony.ChannelAnalysis, harmony.ChannelCommentary, harmony.ChannelFinal},
		ChannelRequired: true,
		Tools:           builtins,
	}}}
}

// continued appends the message that the reply continues, without its end, and
// returns the message's header.
func (r rendering) continued(
	ctx context.Context, prompt []harmony.Token, it item.Item,
) (all, header []harmony.Token, err *apierror.Error) {
	begin := len(prompt)
	if prompt, err = r.append(ctx, prompt, []harmony.Message{item.Message(it, item.Callee{})}); err != nil {
		return nil, nil, err
	}

	// Without its <|end|>.
	prompt = prompt[:len(prompt)-1]

	// The reader has to know the header: the engine does not repeat it.
	for i := begin; i < len(prompt); i++ {
		if prompt[i] == harmony.TokenMessage {
			return prompt, prompt[begin : i+1], nil
		}
	}
	err = apierror.New(http.StatusInternalServerError, "", "", "Internal error.")
	return nil, nil, err.With(errors.New("a rendered message has no header"))
}

// limitOutput limits the output of a request to what the context leaves.
func limitOutput(rc *request.Context, call *engine.Request) *apierror.Error {
	left := rc.ContextLength() - len(call.Prompt)

	switch {
	case left <= 0 && rc.Unbounded && len(call.Prompt) <= rc.RenderLimit():
		call.MaxTokens, call.MinTokens = 0, 0
		return nil
	case left <= 0:
		return promptTooLong(rc, len(call.Prompt), "")
	}

	// Without a limit the output may have all that is left.
	call.Unlimited = call.MaxTokens <= 0
	if call.MaxTokens <= 0 || call.MaxTokens > left {
		call.MaxTokens = left
	}
	call.MinTokens = min(call.MinTokens, call.MaxTokens)
	return nil
}

// withSortedSchemas returns an input with the members of its tools' schemas sorted. Schemas that
// are refused later stay as they are.
func withSortedSchemas(l *request.Limits, in *request.Input) *request.Input {
	sorted := *in
	sorted.Tools = slices.Clone(in.Tools)

	for i := range sorted.Tools {
		ns := &sorted.Tools[i]
		ns.Tools = slices.Clone(ns.Tools)
		for k := range ns.Tools {
			// Sorting recurses, so that a schema is looked at before: one that is too deep is
			// refused later, in the client's own words. Any name does here.
			t := &ns.Tools[k]
			fits := l.CheckTool(harmony.Tool{Name: "t", Parameters: t.Parameters}) == nil
			if len(t.Parameters) > 0 && fits {
				t.Parameters = jsontext.AppendSorted(make([]byte, 0, len(t.Parameters)), string(t.Parameters))
			}
		}
	}
	return &sorted
}
