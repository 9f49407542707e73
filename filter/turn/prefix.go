package turn

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Prefix stands for the first items of a conversation, in the form in which
// every later turn needs them: rendered. A turn that begins with a prefix has
// the same prompt as one that has its items, and costs as much as what stands
// behind it. nil stands for no items.
//
// A rendered conversation is its rendered messages, one after the other. What
// later items can still change is, of a message, whether it is shown:
// reasoning vanishes with the next answer, and so do the calls of built-in tools
// and their results, which are part of it. So a prefix has the tokens of its
// items without any of these, and with them those of the items behind the last
// answer. The step that the assistant may still be at stays a list of items:
// the next ones tell whether its texts are preambles, and its reasoning may be
// that of one of its calls.
//
// It is independent of the request's instructions, tools, effort and model. It
// never changes and is safe for concurrent use.
type Prefix struct {
	settled  int    // how many items are rendered
	first    string // the instructions that the conversation begins with, which are not
	opening  opening
	question string          // of the rendered items, for an [Outline]
	plain    []harmony.Token // without reasoning
	answered int             // where in plain the last answer ends
	since    []harmony.Token // what follows there, with reasoning
	open     []Item          // the calls among the rendered items that have no output
	openPast int             // how many of these have an answer behind them
	pending  []Item          // behind the rendered ones

	// The first prefix that extends this one writes behind the tokens of
	// both lists; others copy them.
	extended atomic.Bool
}

// Len is how many items the prefix stands for.
func (p *Prefix) Len() int {
	if p == nil {
		return 0
	}
	return p.settled + len(p.pending)
}

// What a prefix and an item take beside their texts and tokens, roughly.
const (
	prefixOverhead = 256
	itemOverhead   = 128
)

// Bytes is how much memory the prefix takes, roughly.
func (p *Prefix) Bytes() int64 {
	n := prefixOverhead + len(p.first) + len(p.question) + cap(p.opening.sums) + 4*(cap(p.plain)+cap(p.since))
	for _, items := range [][]Item{p.open, p.pending} {
		for i := range items {
			n += itemOverhead + len(items[i].Text) + len(items[i].CallID) + len(items[i].Namespace) + len(items[i].Name)
		}
	}
	return int64(n)
}

// Extend gives the prefix that stands for the items of before and the ones
// behind them. An error means that no turn with these items can be prepared, that
// they are longer than the model's context, or that what has to be read of the
// store cannot be. It keeps no part of the
// items' texts.
func (s *Scope) Extend(ctx context.Context, before *Prefix, items []Item) (*Prefix, error) {
	if before == nil {
		before = &Prefix{}
	}
	items = slices.Concat(before.pending, items)
	decidePhases(items, Unphased)
	end := stepEnd(items)
	settled, pending := items[:end], items[end:]
	open, openPast, apiErr := before.openAfter(settled)
	if apiErr != nil {
		return nil, apiErr
	}
	next := &Prefix{
		settled:  before.settled + len(settled),
		first:    before.first,
		opening:  before.opening.with(settled),
		question: s.question(before.question, settled),
		open:     cloneItems(open),
		openPast: openPast,
		pending:  cloneItems(pending),
	}
	if before.settled == 0 {
		next.first, settled = cutFirst(settled)
		next.first = strings.Clone(next.first)
	}
	settled, err := s.withKeptReasoning(ctx, settled)
	if err != nil {
		return nil, err
	}
	if apiErr := s.extendTokens(ctx, next, before, before.messages(settled)); apiErr != nil {
		return nil, apiErr
	}
	return next, nil
}

// extendTokens gives next the tokens of before and of msgs.
func (s *Scope) extendTokens(ctx context.Context, next, before *Prefix, msgs []harmony.Message) (err *apierror.Error) {
	r := rendering{ctx, s, s.promptLimit()}
	plain, since := before.plain, before.since
	if before.extended.Swap(true) {
		plain, since = slices.Clip(plain), slices.Clip(since)
	}
	next.answered = before.answered
	if end := lastAnswer(msgs) + 1; end > 0 {
		if plain, err = r.append(plain, msgs[:end]); err != nil {
			return err
		}
		next.answered, since, msgs = len(plain), nil, msgs[end:]
	}
	if next.since, err = r.append(since, msgs); err != nil {
		return err
	}
	msgs = slices.DeleteFunc(msgs, func(m harmony.Message) bool { return m.Channel == harmony.ChannelAnalysis })
	next.plain, err = r.append(plain, msgs)
	return err
}

// followed is the items that are not rendered and those of a request, with all
// phases decided. The prefix may be nil.
func (p *Prefix) followed(items []Item) []Item {
	if p != nil && len(p.pending) > 0 {
		items = slices.Concat(p.pending, items)
	}
	if slices.ContainsFunc(items, func(i Item) bool { return i.Kind == Unphased }) {
		items = slices.Clone(items)
		decidePhases(items, Answer)
	}
	return items
}

// tokens is the rendered items, in two pieces, but for the first instructions;
// answered says that an answer follows them.
func (p *Prefix) tokens(answered bool) (plain, since []harmony.Token) {
	if answered {
		return p.plain, nil
	}
	return p.plain[:p.answered], p.since
}

// callee is what the output of a call needs to know of it.
type callee struct {
	recipient string
	builtin   bool
	answers   int // how many stood before the call
}

func calleeOf(call *Item, answers int) callee {
	return callee{recipient(tool{call.Namespace, call.Name, call.Builtin}), call.Builtin, answers}
}

// form is the channel of the call and its output, and the content type of the
// call. Built-in tools are part of the reasoning.
func (c callee) form() (channel, contentType string) {
	if c.builtin {
		return harmony.ChannelAnalysis, "code"
	}
	return harmony.ChannelCommentary, "json"
}

// messages is items behind the prefix in Harmony's terms. The output of a
// built-in tool behind an answer that its call is before is left out, as the
// call is.
func (p *Prefix) messages(items []Item) []harmony.Message {
	msgs := make([]harmony.Message, 0, len(items))
	callees := map[string]callee{} // by call id
	answers := min(p.openPast, 1)
	for i := range p.open {
		before := answers
		if i < p.openPast {
			before = 0
		}
		callees[p.open[i].CallID] = calleeOf(&p.open[i], before)
	}
	for i := range items {
		item := &items[i]
		switch item.Kind {
		case User:
		case Call:
			callees[item.CallID] = calleeOf(item, answers)
		case Result:
			if by := callees[item.CallID]; by.builtin && by.answers < answers {
				continue
			}
		default:
			if item.Text == "" {
				continue
			}
			if item.Kind == Answer {
				answers++
			}
		}
		msgs = append(msgs, message(*item, callees[item.CallID]))
	}
	return msgs
}

// lastAnswer is the index of the last answer, or -1.
func lastAnswer(msgs []harmony.Message) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Channel == harmony.ChannelFinal {
			return i
		}
	}
	return -1
}

// openAfter checks the calls and outputs of items behind the prefix and gives,
// in order, the calls that have no output then; the first past of them have an
// answer behind them.
func (p *Prefix) openAfter(items []Item) (left []Item, past int, err *apierror.Error) {
	open := map[string]*Item{}
	var order []*Item
	orderPast := p.openPast
	for i := range p.open {
		open[p.open[i].CallID] = &p.open[i]
		order = append(order, &p.open[i])
	}
	for i := range items {
		item := &items[i]
		if len(item.CallID) > maxNameBytes || len(item.Namespace) > maxNameBytes || len(item.Name) > maxNameBytes {
			return nil, 0, apierror.Invalid(item.Path, "The id or the name of a tool call is longer than %d bytes.", maxNameBytes)
		}
		switch item.Kind {
		case Call:
			if open[item.CallID] != nil {
				return nil, 0, apierror.Invalid(item.Path, "Two tool calls have the id %q.", item.CallID)
			}
			open[item.CallID] = item
			order = append(order, item)
		case Result:
			if open[item.CallID] == nil {
				return nil, 0, apierror.Invalid(item.Path, "There is no tool call with the id %q before its output, or it has an output already.", item.CallID)
			}
			delete(open, item.CallID)
		case Answer:
			if item.Text != "" {
				orderPast = len(order)
			}
		}
	}
	left = make([]Item, 0, len(open))
	for i, call := range order {
		if open[call.CallID] == call {
			left = append(left, Item{Kind: Call, CallID: call.CallID, Namespace: call.Namespace, Name: call.Name, Builtin: call.Builtin, Path: call.Path})
			if i < orderPast {
				past = len(left)
			}
		}
	}
	return left, past, nil
}

// decidePhases tells preambles from answers where nobody has: text with calls
// behind it, before anybody else speaks, is a preamble. last is what a text is
// that has nothing behind it.
func decidePhases(items []Item, last Kind) {
	kind := last
	for i := len(items) - 1; i >= 0; i-- {
		switch items[i].Kind {
		case Call:
			kind = Preamble
		case User, Result, Instructions:
			kind = Answer
		case Unphased:
			items[i].Kind = kind
		}
	}
}

// stepEnd is where the last step ends that no later item can change: a text
// whose phase is not decided, or what the assistant does next, is behind it.
func stepEnd(items []Item) int {
	end := slices.IndexFunc(items, func(i Item) bool { return i.Kind == Unphased })
	if end < 0 {
		end = len(items)
	}
	for ; end > 0; end-- {
		switch items[end-1].Kind {
		case Instructions, User, Answer, Result:
			return end
		}
	}
	return 0
}

// cloneItems is items with strings of their own.
func cloneItems(items []Item) []Item {
	clones := make([]Item, len(items))
	for i, item := range items {
		clones[i] = Item{
			Kind: item.Kind, Text: strings.Clone(item.Text), CallID: strings.Clone(item.CallID),
			Namespace: strings.Clone(item.Namespace), Name: strings.Clone(item.Name), Path: strings.Clone(item.Path), Summary: item.Summary, Hosted: item.Hosted,
			Builtin: item.Builtin,
		}
	}
	return clones
}
