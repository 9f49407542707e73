package prompt

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Prompt is a rendered conversation.
type Prompt struct {
	Tokens []harmony.Token
	// Where in the tokens the model's own message begins.
	Completion int
	// Of the message that the reply continues: its header, and all of it that the prompt has; nil: the
	// reply continues none.
	Header, Begun []harmony.Token

	// What earlier choices have kept, and is due to be kept on.
	Due kept.Renewal
	// Why texts of earlier requests could not be read; nil if nothing went wrong.
	Fault error

	// What the prompt begins with.
	head *head
	// The last call is one of a choice that is kept.
	stored bool
	// The oldest turns of the conversation are left out.
	truncated bool
}

// Render returns the prompt of the conversation. It reads from the store what earlier requests have kept.
func (c *Conversation) Render(
	ctx context.Context, rc *request.Context, tools *toolset.Set,
) (p Prompt, err *apierror.Error) {
	in, before, items := c.Input, c.before, c.items
	read, cancel := context.WithTimeout(ctx, kept.ReadTimeout)
	defer cancel()

	date, dateFault := conversationDate(read, rc, in, c.start)
	p.head = newHead(rc, in, date, tools)

	// The message that the reply continues is rendered without its end.
	var last item.Item
	if in.Continue {
		items, last = items[:len(items)-1], items[len(items)-1]
	}
	stored, keptFault := kept.Read(read, rc, before.reasoned, items)
	defer stored.GiveRoomBack(rc)
	p.Fault = errors.Join(dateFault, keptFault)
	p.stored = storedLast(items, stored.Choices)
	p.Due = kept.Renewal{
		Choices: kept.Due(rc, before.choicesBefore(stored.Choices, items)), Renewed: &before.renewed,
	}

	renderer := rendering{rc, rc.RenderLimit()}
	if in.Truncate {
		renderer.limit = min(renderer.limit, roomForPrompt(rc, in))
	}

	p.Tokens, err = renderer.prompt(ctx, p.head, before, stored.Items)
	if in.Truncate && (tooLong(err) || err == nil && len(p.Tokens) > renderer.limit) {
		p.Tokens, err = truncatedPrompt(ctx, rc, in, p.head, stored.Items)
		p.truncated = true
	}
	if err != nil {
		return p, err
	}

	if in.Continue {
		renderer.limit = rc.RenderLimit()
		begin := len(p.Tokens)
		if p.Tokens, p.Header, err = renderer.continued(ctx, p.Tokens, last); err == nil {
			p.Begun = p.Tokens[begin:]
		}
		return p, err
	}

	p.Completion = len(p.Tokens)
	p.Tokens, err = appendCompletion(rc, p.Tokens)
	return p, err
}

// Append appends items to the tokens of a prompt that ends where the model's own message begins, and
// the start of the message that the model writes next. completion is where that begins. The tokens that are
// given stay as they are.
func Append(
	ctx context.Context, rc *request.Context, tokens []harmony.Token, items []item.Item,
) (prompt []harmony.Token, completion int, err *apierror.Error) {
	r := rendering{rc, rc.RenderLimit()}
	msgs := (&Prefix{}).messages(opening{}, items, rc.Model.History == request.HistoryExact)
	if prompt, err = r.append(ctx, slices.Clip(tokens), msgs); err != nil {
		return nil, 0, err
	}

	completion = len(prompt)
	prompt, err = appendCompletion(rc, prompt)
	return prompt, completion, err
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

	prompt := make([]harmony.Token, 0, len(earlier)+len(since)+r.capacity(before, msgs))
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

// capacity returns the capacity for msgs in a prompt, if their texts are as most are. To move
// a long prompt while it grows would copy it several times.
func (r rendering) capacity(before *Prefix, msgs []harmony.Message) int {
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
