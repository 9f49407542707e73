package turn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Prepare turns a request into a token request. What it refuses is a 400 that
// names the field at fault.
//
// ctx is for reading from the store now, and its values for writing to it at
// the end of the reply.
func (s *Scope) Prepare(ctx context.Context, in *Input) (*Turn, *apierror.Error) {
	before := in.Before
	if before == nil {
		before = &Prefix{}
	}
	items := before.followed(in.Items)
	if err := s.check(in, before, items); err != nil {
		return nil, err
	}
	tools, err := newToolset(in.Tools, in.Builtins, s.Limits)
	if err != nil {
		return nil, err
	}
	choice := tools.narrow(in.Choice)
	promised, err := promise(in, choice, tools)
	if err != nil {
		return nil, err
	}
	later, err := s.later(in, &promised, tools)
	if err != nil {
		return nil, err
	}
	t := &Turn{ctx: ctx, later: later, scope: *s, tools: tools, noCalls: in.NoCalls, oneCall: in.OneCall, keepStop: in.KeepStop}
	for _, stop := range in.Stop {
		t.stops = append(t.stops, newStopPattern(stop))
	}
	read, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	opening := newOpening(in, before, items)
	t.affinity = s.affinity(in, opening)
	t.outline = s.outline(in.Tools, before, items)
	date, dateFault := s.date(read, in, opening)
	head := s.head(in, date, tools)
	var last Item // that the reply goes on with
	if in.Continue {
		items, last = items[:len(items)-1], items[len(items)-1]
	}
	reasoned, keptFault := s.withKeptReasoning(read, items)
	t.fault = errors.Join(dateFault, keptFault)
	r := rendering{ctx, s, s.promptLimit()}
	if in.Truncate {
		r.limit = min(r.limit, s.room(in))
	}
	prompt, err := r.prompt(head, before, reasoned)
	if in.Truncate && (tooLong(err) || err == nil && len(prompt) > r.limit) {
		prompt, err = s.truncated(ctx, in, head, reasoned)
	}
	r.limit = s.promptLimit()
	if err != nil {
		return nil, err
	}
	if in.Continue {
		if prompt, t.prefix, err = r.continued(prompt, last); err != nil {
			return nil, err
		}
	} else {
		t.asked = len(prompt)
		if prompt, err = s.complete(prompt); err != nil {
			return nil, err
		}
	}
	tools.namespaces, tools.builtins = nil, nil // with their schemas, which the reply has no use for
	request := in.Engine
	request.ID += s.distinction()
	request.Prompt = prompt
	request.Model = cmp.Or(s.Model.Upstream, request.Model)
	request.N = max(request.N, 1)
	binding := promised.Format()
	if in.Continue && binding != nil {
		return nil, apierror.Invalid("continue_final_message", "A message cannot be continued under tool_choice, strict tools or an output format. Leave them out, or continue_final_message.")
	}
	if !s.Checked {
		request.Constraint = binding
	}
	if err := s.budget(&request); err != nil {
		return nil, err
	}
	t.Engine, t.id = &request, request.ID
	if binding != nil {
		if t.kept, err = s.kept(in, &promised, choice, tools); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// distinction is what makes the engine's request id differ from those of other
// requests with the same x-request-id, which a client is free to send.
func (s *Scope) distinction() string {
	sum := sha256.Sum256([]byte(s.NewID("")))
	return "-" + hex.EncodeToString(sum[:4])
}

// check refuses what no conversation may have, whatever its API.
func (s *Scope) check(in *Input, before *Prefix, items []Item) *apierror.Error {
	if before.settled+len(items) > s.Limits.Items {
		return apierror.Invalid("", "The conversation has more than %d messages, calls and results.", s.Limits.Items)
	}
	if in.Continue {
		last := Item{}
		if len(items) > 0 {
			last = items[len(items)-1]
		}
		if last.Kind != Answer && last.Kind != Preamble && last.Kind != Reasoning {
			return apierror.Invalid("continue_final_message", "Only a last message with the assistant's text can be continued.")
		}
	}
	open, _, err := before.openAfter(items)
	if err == nil && len(open) > 0 {
		return apierror.Invalid(open[0].Path, "The tool call with the id %q has no output.", open[0].CallID)
	}
	return err
}

// head is what a conversation's messages are begun with, whatever their
// number.
type head struct {
	system       harmony.Message
	instructions string // of the request, which stand before those of the conversation
	tools        []harmony.Namespace
	formats      []harmony.ResponseFormat
}

func (s *Scope) head(in *Input, date string, tools *toolset) *head {
	h := &head{instructions: in.Instructions}
	var builtins []harmony.Namespace
	if !in.NoCalls {
		h.tools, builtins = tools.namespaces, tools.builtins
	}
	h.system = s.system(in, date, builtins)
	if in.Format != nil && in.Format.Announced != nil {
		h.formats = []harmony.ResponseFormat{*in.Format.Announced}
	}
	return h
}

// messages is the head in Harmony's terms; first is what a conversation that
// begins with instructions has there. Every text with instructions is a
// developer message of its own; the tools and the form of the answer stand in the
// one that opens the conversation.
func (h *head) messages(first string) []harmony.Message {
	developer := &harmony.DeveloperContent{Instructions: h.instructions, Tools: h.tools, ResponseFormats: h.formats}
	if developer.Instructions == "" {
		developer.Instructions, first = first, ""
	}
	msgs := []harmony.Message{h.system}
	if developer.Instructions != "" || len(developer.Tools) > 0 || len(developer.ResponseFormats) > 0 {
		msgs = append(msgs, harmony.Message{Role: harmony.RoleDeveloper, Content: []harmony.Content{developer}})
	}
	if first != "" {
		msgs = append(msgs, message(Item{Kind: Instructions, Text: first}, callee{}))
	}
	return msgs
}

// prompt renders a conversation: its head, what stands before the items, and
// the items.
func (r rendering) prompt(h *head, before *Prefix, items []Item) ([]harmony.Token, *apierror.Error) {
	first := before.first
	if before.settled == 0 {
		first, items = cutFirst(items)
	}
	msgs := before.messages(items)
	earlier, since := before.tokens(lastAnswer(msgs) >= 0)
	var prompt []harmony.Token
	if before.settled > 0 {
		prompt = make([]harmony.Token, 0, len(earlier)+len(since)+spareTokens)
	}
	prompt, err := r.append(prompt, h.messages(first))
	if err != nil {
		return nil, err
	}
	return r.append(append(append(prompt, earlier...), since...), msgs)
}

// spareTokens is the room that a prompt has for its head and its last items
// when a prefix is copied to it.
const spareTokens = 4096

// cutFirst takes the instructions that a conversation may begin with from its
// items.
func cutFirst(items []Item) (string, []Item) {
	if len(items) > 0 && items[0].Kind == Instructions {
		return items[0].Text, items[1:]
	}
	return "", items
}

// message is one item in the form the model was trained on; by is the tool of a
// call or result.
func message(item Item, by callee) harmony.Message {
	text := []harmony.Content{harmony.Text(item.Text)}
	switch item.Kind {
	case Instructions:
		return harmony.Message{Role: harmony.RoleDeveloper, Content: []harmony.Content{&harmony.DeveloperContent{Instructions: item.Text}}}
	case Reasoning:
		return harmony.Message{Role: harmony.RoleAssistant, Channel: harmony.ChannelAnalysis, Content: text}
	case Preamble:
		return harmony.Message{Role: harmony.RoleAssistant, Channel: harmony.ChannelCommentary, Content: text}
	case Answer:
		return harmony.Message{Role: harmony.RoleAssistant, Channel: harmony.ChannelFinal, Content: text}
	case Call:
		channel, contentType := by.form()
		return harmony.Message{Role: harmony.RoleAssistant, Recipient: by.recipient, Channel: channel, ContentType: contentType, Content: text}
	case Result:
		channel, _ := by.form()
		return harmony.Message{Role: harmony.RoleTool, Name: by.recipient, Recipient: string(harmony.RoleAssistant), Channel: channel, Content: text}
	}
	return harmony.Message{Role: harmony.RoleUser, Content: text}
}

// system is the system message.
func (s *Scope) system(in *Input, date string, builtins []harmony.Namespace) harmony.Message {
	return harmony.Message{Role: harmony.RoleSystem, Content: []harmony.Content{&harmony.SystemContent{
		Identity:        cmp.Or(s.Model.Identity, DefaultIdentity),
		KnowledgeCutoff: cmp.Or(s.Model.KnowledgeCutoff, DefaultKnowledgeCutoff),
		StartDate:       date,
		Effort:          cmp.Or(in.Effort, s.Model.Effort, harmony.EffortMedium),
		Channels:        []string{harmony.ChannelAnalysis, harmony.ChannelCommentary, harmony.ChannelFinal},
		ChannelRequired: true,
		Tools:           builtins,
	}}}
}

// continued appends the message that the reply goes on with, without its end,
// and gives its header.
func (r rendering) continued(prompt []harmony.Token, item Item) (all, header []harmony.Token, err *apierror.Error) {
	begin := len(prompt)
	if prompt, err = r.append(prompt, []harmony.Message{message(item, callee{})}); err != nil {
		return nil, nil, err
	}
	prompt = prompt[:len(prompt)-1] // <|end|>
	for i := begin; i < len(prompt); i++ {
		if prompt[i] == harmony.TokenMessage {
			return prompt, prompt[begin : i+1], nil
		}
	}
	return nil, nil, apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(errors.New("a rendered message has no header"))
}

// budget fits the request into the context.
func (s *Scope) budget(r *engine.Request) *apierror.Error {
	left := s.contextLength() - len(r.Prompt)
	switch {
	case left <= 0 && s.Unbounded && len(r.Prompt) <= s.promptLimit():
		r.MaxTokens, r.MinTokens = 0, 0
		return nil
	case left <= 0:
		return s.promptTooLong(strconv.Itoa(len(r.Prompt)))
	}
	if r.MaxTokens <= 0 || r.MaxTokens > left {
		r.MaxTokens = left
	}
	r.MinTokens = min(r.MinTokens, r.MaxTokens)
	return nil
}
