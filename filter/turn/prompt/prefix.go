package prompt

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Prefix is the first items of a conversation, rendered. A turn that begins with a
// Prefix has the same prompt as one with the prefix's items, and costs as much as
// the items that follow. nil is the prefix of no items.
//
// A rendered conversation is the sequence of its rendered messages. Later items
// decide only whether a message is shown: with the next answer reasoning
// disappears, and so do the calls of built-in tools and their results, which are
// part of it. So a prefix has two lists of tokens: those of all its items without
// such messages, and those of the items after the last answer with such messages.
// The step that the assistant may not have completed is kept as items: the next
// items decide whether its texts are preambles, and its reasoning may belong to
// one of its calls.
//
// A prefix does not depend on the request's instructions, tools, effort and model, except
// for the model's setting of the history. It is immutable and safe for concurrent use.
type Prefix struct {
	// Number of rendered items.
	settled int
	// What the conversation begins with, which is not rendered.
	first opening
	// Of the settled items, those of first included.
	joined []*item.JoinedTools
	start  conversationStart
	// Of the rendered items, for the routing of requests.
	lastUserText string
	// Of the rendered items, without reasoning.
	plain []harmony.Token
	// Length of plain up to the last answer.
	answered int
	// Of the rendered items after the last answer, with reasoning.
	since []harmony.Token
	// [request.Model].History is exact: what of since the model has generated is as it wrote it, and calls have
	// the forms that their ids are marked with.
	exact bool
	// What an answer leaves of the rendered items depends on that: a call has a mark, or is as the model
	// wrote it.
	marked bool
	// Of the last summary among the rendered items; 0: there is none.
	summary diagnosis.Sum
	// What is kept of the rendered items, and when it was kept on last; 0: it has not been.
	choices []kept.Choice
	renewed atomic.Int64
	// The first calls of the choices whose reasoning since has.
	reasoned map[string]bool
	// The calls among the rendered items that have no output.
	open []item.Item
	// Number of these that precede the last answer.
	openPast int
	// The items that are not rendered.
	pending []item.Item

	// The first prefix that extends this one appends to the arrays of plain and
	// since; the others copy them.
	extended atomic.Bool
}

// prefixOf returns the prefix of an input; nil: it has none.
func prefixOf(in *request.Input) *Prefix {
	p, _ := in.Before.(*Prefix)
	return p
}

// Len returns the number of items of the prefix.
func (p *Prefix) Len() int {
	if p == nil {
		return 0
	}
	return p.settled + len(p.pending)
}

// prefixOverhead is the approximate size of a prefix without texts and tokens, in bytes.
const prefixOverhead = 256

// Bytes returns the approximate size of the prefix in memory.
func (p *Prefix) Bytes() int64 {
	n := prefixOverhead + len(p.first.instructions) + len(p.lastUserText) + cap(p.start.sums)
	n += 4 * (cap(p.plain) + cap(p.since))
	for _, j := range p.joined {
		n += j.Bytes()
	}
	for i := range p.choices {
		n += p.choices[i].Bytes()
	}
	for id := range p.reasoned {
		n += item.Overhead + len(id)
	}
	for _, items := range [][]item.Item{p.open, p.pending} {
		for i := range items {
			it := &items[i]
			n += item.Overhead + it.Tools.Bytes()
			n += len(it.Text) + len(it.CallID) + len(it.Namespace) + len(it.Name)
		}
	}
	return int64(n)
}

// errOtherHistory is why a prefix is not extended for a model with another setting.
var errOtherHistory = errors.New("the prefix has the model's steps in another form")

// otherHistory reports whether the prefix has the model's steps in another form than a model's
// prompts have them: a conversation may go on with another model, or after a reload.
func (p *Prefix) otherHistory(m *request.Model) bool {
	return p != nil && (p.marked || len(p.since) > 0) && p.exact != (m.History == request.HistoryExact)
}

// Extend returns the prefix of the items of before followed by items. An error
// means that no turn with these items can be prepared, that they are longer than
// the model's context, or that the store could not be read. The prefix keeps no
// part of the items' texts.
func Extend(ctx context.Context, rc *request.Context, before *Prefix, items []item.Item) (*Prefix, error) {
	if before == nil {
		before = &Prefix{}
	}
	if before.otherHistory(rc.Model) {
		return nil, errOtherHistory
	}
	// Chains are also remembered after the request has been decoded.
	rc = rc.Within(ctx)

	items = afterCalls(slices.Concat(before.pending, items))
	decidePhases(items, item.Unphased)

	steps, end, err := settle(ctx, rc, before, items)
	defer steps.GiveRoomBack(rc)
	if err != nil {
		return nil, err
	}
	settled, pending := items[:end], items[end:]

	pairs, apiErr := before.openAfter(settled)
	if apiErr == nil {
		apiErr = pairs.broken(false, nil)
	}
	if apiErr != nil {
		return nil, apiErr
	}

	answered := steps.Answered()
	next := &Prefix{
		settled: before.settled + len(settled),
		exact:   rc.Model.History == request.HistoryExact,
		marked: before.marked || slices.ContainsFunc(settled, item.IsMarked) ||
			slices.ContainsFunc(answered, isWritten),
		reasoned:     before.reasonedWith(&steps, settled),
		first:        before.first,
		start:        before.start.with(settled),
		summary:      before.summary,
		lastUserText: lastUserText(rc, before.lastUserText, settled),
		choices:      before.choicesBefore(steps.Choices, settled),
		open:         item.Clone(pairs.open),
		openPast:     pairs.past,
		pending:      item.Clone(pending),
	}

	settled = slices.Clone(settled)
	for i := range settled {
		settled[i].Tools = settled[i].Tools.Clone()
		if settled[i].Summary {
			next.summary = diagnosis.Text(settled[i].Text)
		}
	}

	next.joined = joinedIn(before.joined, settled)
	var begin opening
	if before.settled == 0 {
		begin, _ = cutOpening(settled)
		_, steps.Items = cutOpening(steps.Items)
		_, answered = cutOpening(answered)
		begin.instructions = strings.Clone(begin.instructions)
		next.first = begin
	}

	plain, since := before.messages(begin, answered, next.exact), before.messages(begin, steps.Items, next.exact)
	if apiErr := extendTokens(ctx, rc, next, before, plain, since); apiErr != nil {
		return nil, apiErr
	}
	return next, nil
}

// settle returns the items that are rendered, with what is kept of them, and how many of items
// those are: what follows can still change.
func settle(
	ctx context.Context, rc *request.Context, before *Prefix, items []item.Item,
) (stored kept.Items, end int, err error) {
	end = stepEnd(items)
	if stored, err = kept.Read(ctx, rc, before.reasoned, items[:end]); err != nil {
		return stored, 0, err
	}

	// What the model wrote in one step is rendered together, though the results of some of its calls
	// have come.
	end = stored.CutOpen(end)
	if before.settled == 0 && onlyTools(items[:end]) {
		// The instructions after them stand in the same message.
		end = 0
		stored.Clear()
	}
	return stored, end, nil
}

// choicesBefore returns the choices of the prefix and of the items after it of which prompts have
// something.
func (p *Prefix) choicesBefore(choices []kept.Choice, items []item.Item) []kept.Choice {
	return kept.FollowedBy(p.choices, p.renewed.Load(), choices, item.AnyAnswer(items))
}

// reasonedWith returns the first calls of the choices whose reasoning the prefix has, extended by items.
func (p *Prefix) reasonedWith(stored *kept.Items, items []item.Item) map[string]bool {
	if len(p.reasoned) == 0 || item.AnyAnswer(items) {
		return stored.Reasoned
	}
	all := maps.Clone(p.reasoned)
	maps.Copy(all, stored.Reasoned)
	return all
}

// extendTokens sets the tokens of next to those of before followed by messages: as they are shown
// after an answer, and whole, with what is kept of them.
func extendTokens(
	ctx context.Context, rc *request.Context, next, before *Prefix, answered, whole []harmony.Message,
) (err *apierror.Error) {
	renderer := rendering{rc, rc.RenderLimit()}

	plain, since := before.plain, before.since
	if before.extended.Swap(true) {
		plain, since = slices.Clip(plain), slices.Clip(since)
	}

	next.answered = before.answered
	if end := lastAnswer(answered) + 1; end > 0 {
		if plain, err = renderer.append(ctx, plain, answered[:end]); err != nil {
			return err
		}
		next.answered, since, answered, whole = len(plain), nil, answered[end:], whole[lastAnswer(whole)+1:]
	}
	if next.since, err = renderer.append(ctx, since, whole); err != nil {
		return err
	}

	// What later requests may show without reasoning is rendered without it, too.
	isReasoning := func(m harmony.Message) bool { return m.Channel == harmony.ChannelAnalysis }
	next.plain, err = renderer.append(ctx, plain, slices.DeleteFunc(answered, isReasoning))
	return err
}

// followed returns the items that are not rendered and those of a request, with all
// phases decided. The prefix may be nil.
func (p *Prefix) followed(items []item.Item) []item.Item {
	if p != nil && len(p.pending) > 0 {
		items = slices.Concat(p.pending, items)
	}
	items = afterCalls(items)

	if slices.ContainsFunc(items, func(i item.Item) bool { return i.Kind == item.Unphased }) {
		items = slices.Clone(items)
		decidePhases(items, item.Answer)
	}
	return items
}

// tokens returns the tokens of the rendered items in two pieces; answered reports
// whether an answer follows them.
func (p *Prefix) tokens(answered bool) (plain, since []harmony.Token) {
	if answered {
		return p.plain, nil
	}
	return p.plain[:p.answered], p.since
}

// messages returns the items after the prefix as Harmony messages. The output of a
// built-in tool is left out if an answer stands between it and its call, which the
// renderer leaves out. Results stand in the order of [inCallOrder]. begin is the
// opening that precedes the items, if the prefix has no items. marks: calls have the forms that
// their ids are marked with, also after an answer, so that the engine still has those that no
// reasoning precedes.
func (p *Prefix) messages(begin opening, items []item.Item, marks bool) []harmony.Message {
	msgs := make([]harmony.Message, 0, len(items))
	var known knownTools

	// By call id.
	callees := map[string]item.Callee{}
	answers := min(p.openPast, 1)

	// The order of open calls says which of them an answer follows: those are the first.
	for i := range p.open {
		before := answers
		if i < p.openPast {
			before = 0
		}
		callees[p.open[i].CallID] = item.CalleeOf(&p.open[i], before, i-len(p.open))
	}

	// What is left of the results after the model's step.
	var results []item.Item

	for i := range items {
		it := &items[i]
		if it.Kind == item.Result && len(results) == 0 {
			results = inCallOrder(items[i:], callees)
		}
		if len(results) > 0 {
			it, results = &results[0], results[1:]
		}
		if it.Blank() {
			continue
		}

		switch it.Kind {
		case item.Tools:
			if known == nil {
				known = p.known(begin)
			}
			if m, ok := known.message(it.Tools); ok {
				msgs = append(msgs, m)
			}
			continue
		case item.Call:
			callee := item.CalleeOf(it, answers, i)
			if marks {
				callee.Header = item.FormOf(it.CallID)
			}
			callees[it.CallID] = callee
		case item.Result:
			if by := callees[it.CallID]; by.Builtin && by.Answers < answers {
				continue
			}
		case item.Answer:
			answers++
		}

		msgs = append(msgs, item.Message(*it, callees[it.CallID]))
	}
	return msgs
}

// known returns the tools that the prefix and an opening have.
func (p *Prefix) known(begin opening) knownTools {
	known := knownTools{}
	known.add(&item.JoinedTools{Namespaces: begin.tools})
	for _, j := range p.joined {
		known.add(j)
	}
	return known
}

// lastAnswer returns the index of the last answer, or -1.
func lastAnswer(msgs []harmony.Message) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Channel == harmony.ChannelFinal {
			return i
		}
	}
	return -1
}

// pairing is which calls and outputs of a conversation belong together.
type pairing struct {
	// The calls that have no output after them, in order, without their texts. The first past
	// of them precede an answer.
	open []item.Item
	past int

	// Calls with the id of a call that is open, and outputs without a call before them.
	twice, stray []*item.Item
}

// openAfter pairs the calls and outputs of items after the prefix.
func (p *Prefix) openAfter(items []item.Item) (pairing, *apierror.Error) {
	var pairs pairing
	open := map[string]*item.Item{}
	var order []*item.Item
	orderPast := p.openPast
	for i := range p.open {
		open[p.open[i].CallID] = &p.open[i]
		order = append(order, &p.open[i])
	}

	for i := range items {
		it := &items[i]
		if max(len(it.CallID), len(it.Namespace), len(it.Name)) > item.MaxNameBytes {
			return pairs, apierror.Invalid(it.Path,
				"The id or the name of a tool call is longer than %d bytes.", item.MaxNameBytes)
		}

		// Two calls of one id cannot be told apart by their outputs. The first stays open.
		switch it.Kind {
		case item.Call:
			if open[it.CallID] != nil {
				pairs.twice = append(pairs.twice, it)
				continue
			}
			open[it.CallID] = it
			order = append(order, it)
		case item.Result:
			if open[it.CallID] == nil {
				pairs.stray = append(pairs.stray, it)
				continue
			}
			delete(open, it.CallID)
		case item.Answer:
			if it.IsAnswer() {
				orderPast = len(order)
			}
		}
	}

	pairs.open = make([]item.Item, 0, len(open))
	for i, call := range order {
		if open[call.CallID] == call {
			pairs.open = append(pairs.open, item.Item{
				Kind: item.Call, CallID: call.CallID, Namespace: call.Namespace, Name: call.Name, Builtin: call.Builtin,
				Path: call.Path,
			})
			if i < orderPast {
				pairs.past = len(pairs.open)
			}
		}
	}
	return pairs, nil
}

// broken returns the error about calls and outputs that do not belong together; nil if there
// are none. Where nothing follows the items, calls without an output are an error too. It names
// all ids, as the client knows them: clients repair their history by it.
func (p *pairing) broken(nothingFollows bool, shownID func(id string) string) *apierror.Error {
	// A call that is there twice is named once: its outputs belong to nobody knows which.
	var texts []string
	param := ""
	// Whose outputs belong to nobody knows which call.
	var twice map[string]bool

	add := func(items []*item.Item, one, several string) {
		var ids []string
		for _, item := range items {
			if twice[item.CallID] {
				continue
			}
			id := item.CallID
			if shownID != nil {
				id = shownID(id)
			}
			ids, param = append(ids, id), cmp.Or(param, item.Path)
		}
		if ids != nil {
			texts = append(texts, apierror.One(ids, one, several))
		}
	}

	add(p.twice, "Two tool calls have the id %s.", "Two tool calls have each of the ids %s.")
	twice = map[string]bool{}
	for _, item := range p.twice {
		twice[item.CallID] = true
	}

	add(p.stray, "There is no tool call with the id %s before its output, or the call has an output already.",
		"There are no tool calls with the ids %s before their outputs, or the calls have outputs already.")

	if nothingFollows {
		open := make([]*item.Item, len(p.open))
		for i := range p.open {
			open[i] = &p.open[i]
		}
		add(open, "The tool call with the id %s has no output.", "The tool calls with the ids %s have no outputs.")
	}

	if texts == nil {
		return nil
	}
	return apierror.Invalid(param, "%s", strings.Join(texts, " "))
}

// decidePhases sets the kinds of texts without a phase: a text is a preamble if a
// call follows it in the same turn of the assistant. last is the kind of a text
// that nothing follows.
func decidePhases(items []item.Item, last item.Kind) {
	kind := last
	for i := len(items) - 1; i >= 0; i-- {
		switch items[i].Kind {
		case item.Call:
			kind = item.Preamble
		case item.User, item.Result, item.Instructions, item.Tools:
			kind = item.Answer
		case item.Unphased:
			items[i].Kind = kind
		}
	}
}

// stepEnd returns the index at which the last step ends that no later item can
// change: texts whose phase is not decided, calls whose results have not come, and the
// assistant's next step, follow it.
func stepEnd(items []item.Item) int {
	end := slices.IndexFunc(items, func(i item.Item) bool { return i.Kind == item.Unphased })
	if end < 0 {
		end = len(items)
	}

	end = min(end, firstOpen(items))

	// The assistant's own step goes on until somebody else says something.
	for ; end > 0; end-- {
		switch items[end-1].Kind {
		case item.Instructions, item.User, item.Answer, item.Result, item.Tools:
			return end
		}
	}
	return 0
}

func isWritten(i item.Item) bool { return i.Written != nil }
