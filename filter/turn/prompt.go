package turn

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Prepare turns a request into a token request. What it refuses is a 400 that
// names the field at fault.
func (s *Scope) Prepare(in *Input) (*Turn, *apierror.Error) {
	if err := s.check(in); err != nil {
		return nil, err
	}
	tools, err := newToolset(in.Tools, s.Limits)
	if err != nil {
		return nil, err
	}
	t := &Turn{scope: *s, tools: tools, noCalls: in.NoCalls, oneCall: in.OneCall, keepStop: in.KeepStop}
	for _, stop := range in.Stop {
		t.stops = append(t.stops, newStopPattern(stop))
	}
	items := in.Items
	if in.Continue {
		items = items[:len(items)-1]
	}
	prompt, err := s.render(s.messages(in, items, tools))
	if err == nil && in.Truncate && len(prompt) > s.room(in) {
		prompt, err = s.truncated(in, items, tools)
	}
	if err != nil {
		return nil, err
	}
	if in.Continue {
		if prompt, t.prefix, err = s.continued(prompt, in.Items[len(items)]); err != nil {
			return nil, err
		}
	} else if prompt, err = s.renderTo(prompt, nil, harmony.RoleAssistant); err != nil {
		return nil, err
	}
	tools.namespaces = nil // with their schemas, which the reply has no use for
	request := in.Engine
	request.ID += s.distinction()
	request.Prompt = prompt
	request.Model = cmp.Or(s.Model.Upstream, request.Model)
	request.N = max(request.N, 1)
	if err := s.budget(&request); err != nil {
		return nil, err
	}
	t.Engine = &request
	return t, nil
}

// distinction is what makes the engine's request id differ from those of other
// requests with the same x-request-id, which a client is free to send.
func (s *Scope) distinction() string {
	sum := sha256.Sum256([]byte(s.NewID("")))
	return "-" + hex.EncodeToString(sum[:4])
}

// check refuses what no conversation may have, whatever its API.
func (s *Scope) check(in *Input) *apierror.Error {
	if len(in.Items) > s.Limits.Items {
		return apierror.Invalid("", "The conversation has more than %d messages, calls and results.", s.Limits.Items)
	}
	if in.Continue {
		last := Item{}
		if len(in.Items) > 0 {
			last = in.Items[len(in.Items)-1]
		}
		if last.Kind != Answer && last.Kind != Preamble && last.Kind != Reasoning {
			return apierror.Invalid("continue_final_message", "Only a last message with the assistant's text can be continued.")
		}
	}
	waiting := map[string]string{} // calls without output, and where they stand
	var order []string
	for i := range in.Items {
		item := &in.Items[i]
		if len(item.CallID) > maxNameBytes || len(item.Namespace) > maxNameBytes || len(item.Name) > maxNameBytes {
			return apierror.Invalid(item.Path, "The id or the name of a tool call is longer than %d bytes.", maxNameBytes)
		}
		switch item.Kind {
		case Call:
			if _, twice := waiting[item.CallID]; twice {
				return apierror.Invalid(item.Path, "Two tool calls have the id %q.", item.CallID)
			}
			waiting[item.CallID] = item.Path
			order = append(order, item.CallID)
		case Result:
			if _, known := waiting[item.CallID]; !known {
				return apierror.Invalid(item.Path, "There is no tool call with the id %q before its output, or it has an output already.", item.CallID)
			}
			delete(waiting, item.CallID)
		}
	}
	for _, id := range order {
		if path, open := waiting[id]; open {
			return apierror.Invalid(path, "The tool call with the id %q has no output.", id)
		}
	}
	return nil
}

// messages is the conversation in Harmony's terms. Every text with
// instructions is a developer message of its own; the tools stand in the one
// that opens the conversation.
func (s *Scope) messages(in *Input, items []Item, tools *toolset) []harmony.Message {
	msgs := make([]harmony.Message, 0, len(items)+2)
	msgs = append(msgs, s.system(in))
	developer := &harmony.DeveloperContent{}
	if !in.NoCalls {
		developer.Tools = tools.namespaces
	}
	if len(items) > 0 && items[0].Kind == Instructions {
		developer.Instructions = items[0].Text
		items = items[1:]
	}
	if developer.Instructions != "" || len(developer.Tools) > 0 {
		msgs = append(msgs, harmony.Message{Role: harmony.RoleDeveloper, Content: []harmony.Content{developer}})
	}
	names := map[string]string{} // of the tools called, by call id
	for _, item := range s.withKeptReasoning(items) {
		if item.Text == "" && item.Kind != Call && item.Kind != Result && item.Kind != User {
			continue
		}
		if item.Kind == Call {
			names[item.CallID] = recipient(item.Namespace, item.Name)
		}
		msgs = append(msgs, message(item, names[item.CallID]))
	}
	return msgs
}

// message is one item in the form the model was trained on; tool is the full
// name of the tool of a call or result.
func message(item Item, tool string) harmony.Message {
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
		return harmony.Message{Role: harmony.RoleAssistant, Recipient: tool, Channel: harmony.ChannelCommentary, ContentType: "json", Content: text}
	case Result:
		return harmony.Message{Role: harmony.RoleTool, Name: tool, Recipient: string(harmony.RoleAssistant), Channel: harmony.ChannelCommentary, Content: text}
	}
	return harmony.Message{Role: harmony.RoleUser, Content: text}
}

// system is the system message.
func (s *Scope) system(in *Input) harmony.Message {
	return harmony.Message{Role: harmony.RoleSystem, Content: []harmony.Content{&harmony.SystemContent{
		Identity:        cmp.Or(s.Model.Identity, DefaultIdentity),
		KnowledgeCutoff: cmp.Or(s.Model.KnowledgeCutoff, DefaultKnowledgeCutoff),
		StartDate:       s.date(in),
		Effort:          cmp.Or(in.Effort, s.Model.Effort, harmony.EffortMedium),
		Channels:        []string{harmony.ChannelAnalysis, harmony.ChannelCommentary, harmony.ChannelFinal},
		ChannelRequired: true,
	}}}
}

// date is the conversation's date: the day, in UTC, on which its opening (the
// instructions up to and with the first user's text) was first seen. So the
// prompt of a conversation begins with the same tokens on every day, and the
// engine's prefix cache goes on to serve it.
func (s *Scope) date(in *Input) string {
	switch s.Model.Date {
	case "", DateUTC:
	case DateNone:
		return ""
	default:
		return s.Model.Date
	}
	today := s.Now().UTC().Format(time.DateOnly)
	if s.Memory == nil {
		return today
	}
	h := sha256.New()
	var size [8]byte
	add := func(kind byte, text string) {
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		h.Write([]byte{kind})
		h.Write(size[:])
		h.Write([]byte(text))
	}
	add(0, cmp.Or(s.Model.Upstream, in.Engine.Model))
	for _, item := range in.Items {
		if item.Kind == Instructions || item.Kind == User {
			add(byte(item.Kind), item.Text)
		}
		if item.Kind == User {
			break
		}
	}
	key := "date:" + hex.EncodeToString(h.Sum(nil))
	pinned := s.Memory.First(s.Tenant, key, today)
	if pinned < s.Now().UTC().Add(-maxDateAge).Format(time.DateOnly) {
		s.Memory.Put(s.Tenant, key, today)
		return today
	}
	return pinned
}

// maxDateAge bounds how old a conversation's date can be: many conversations
// open with the same words, and one is always going on.
const maxDateAge = 48 * time.Hour

// withKeptReasoning puts the reasoning kept for a tool call before the step
// that made the call, where the client sent none. Only steps after the last
// answer are looked at: reasoning before it is not shown to the model anyway.
func (s *Scope) withKeptReasoning(items []Item) []Item {
	if s.Memory == nil {
		return items
	}
	begin := 0
	for i := range items {
		if items[i].Kind == Answer {
			begin = i + 1
		}
	}
	out := items[:begin:begin]
	step, reasoned := begin, false // where the assistant's step began, and whether its reasoning is known
	for i := begin; i < len(items); i++ {
		switch items[i].Kind {
		case Reasoning:
			reasoned = true
		case Call:
			if reasoned {
				break
			}
			reasoned = true
			if text, ok := s.keptReasoning(items[i].CallID); ok {
				at := len(out) - (i - step)
				out = append(out, Item{})
				copy(out[at+1:], out[at:])
				out[at] = Item{Kind: Reasoning, Text: text}
			}
		case Preamble:
		default:
			step, reasoned = i+1, false
		}
		out = append(out, items[i])
	}
	return out
}

// keepReasoning keeps the text for the calls of one turn: once, under the id of
// the first, to which the others refer.
func (s *Scope) keepReasoning(calls []*CalledTool, text string) {
	first := calls[0].ID
	for _, call := range calls[1:] {
		s.Memory.Put(s.Tenant, firstCallKey(call.ID), first)
	}
	s.Memory.Put(s.Tenant, reasoningKey(first), text)
}

// keptReasoning gives the text kept for a call.
func (s *Scope) keptReasoning(callID string) (string, bool) {
	if first, ok := s.Memory.Get(s.Tenant, firstCallKey(callID)); ok {
		callID = first
	}
	return s.Memory.Get(s.Tenant, reasoningKey(callID))
}

func reasoningKey(callID string) string { return "reasoning:" + callID }

func firstCallKey(callID string) string { return "first_call:" + callID }

// render appends complete messages.
func (s *Scope) render(msgs []harmony.Message) ([]harmony.Token, *apierror.Error) {
	return s.renderTo(nil, msgs, "")
}

// renderTo appends msgs and, unless next is "", the beginning of a message of
// that role.
func (s *Scope) renderTo(prompt []harmony.Token, msgs []harmony.Message, next harmony.Role) ([]harmony.Token, *apierror.Error) {
	var err error
	if next == "" {
		prompt, err = s.Renderer.AppendConversation(prompt, msgs)
	} else {
		prompt, err = s.Renderer.AppendCompletion(prompt, msgs, next)
	}
	if err != nil {
		return nil, apierror.Invalid("", "The conversation cannot be written in the model's format: %s.", err).With(err)
	}
	return prompt, nil
}

// continued appends the message that the reply goes on with, without its end,
// and gives its header.
func (s *Scope) continued(prompt []harmony.Token, item Item) (all, header []harmony.Token, err *apierror.Error) {
	begin := len(prompt)
	if prompt, err = s.renderTo(prompt, []harmony.Message{message(item, "")}, ""); err != nil {
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
	context := s.contextLength()
	left := context - len(r.Prompt)
	if left <= 0 {
		return apierror.New(http.StatusBadRequest, "context_length_exceeded", "messages",
			"The model's context is %d tokens, but the conversation with its tools has %d. Shorten it.", context, len(r.Prompt))
	}
	if r.MaxTokens <= 0 || r.MaxTokens > left {
		r.MaxTokens = left
	}
	r.MinTokens = min(r.MinTokens, r.MaxTokens)
	return nil
}
