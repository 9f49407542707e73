package turn

import (
	"context"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Continue returns the next turn of the reply, after the choice of this one has
// ended: items are what the model has done in this turn, and the results of its
// tool calls. maxTokens is how many tokens the reply may still have; 0: as many as
// the context leaves.
//
// The next turn's prompt is this one's followed by the items, as the model wrote them where
// they mean the same. Where they lack the reasoning that led to this turn's calls, it is
// inserted. A call is required in
// a reply's first turn only; the rest of the output's spec applies to all turns.
// Tools that join by an item must be among [Input].Deferred; those that the prompt
// has already are rendered again. A turn whose [Input] had Continue has no next one.
// Continue does no I/O. It ends with ctx, and can take long: see [Quick].
func (t *Turn) Continue(ctx context.Context, items []item.Item, maxTokens int) (*Turn, *apierror.Error) {
	next := *t
	next.fault = nil

	// What this turn keeps is there before it is written to the store, and reading it returns no
	// error. The context that the turn was prepared in has ended.
	stored := t.plan.Kept().Insert(t.rc.Within(ctx), items)

	// The prompt goes on where the model's own message began: the items say what that message was.
	tokens, completion, err := prompt.Append(ctx, &t.rc, t.Engine.Prompt[:t.completionStart], stored.Items)
	if err != nil {
		return nil, err
	}
	next.completionStart = completion
	call := *t.Engine
	call.Prompt, call.MaxTokens = tokens, maxTokens

	next.Engine = &call
	next.heard.diagnosed.next(t.completionStart, &call)
	next.heard.retained.next(items, &call)
	next.plan.GoOn(&next.rc, &call, &next.heard)
	return &next, limitOutput(&t.rc, &call)
}

// quickBytes is how much text [Turn.Continue] renders within 20 ms, whatever the text is: the
// worst takes 0.4 µs a byte. What models write in one turn is nearly always shorter.
const quickBytes = 48 << 10

// Quick reports whether [Turn.Continue] with these items takes no longer than a state machine
// may compute. Other calls are a job: results of tools have megabytes.
func Quick(items []item.Item) bool {
	size := 0
	for i := range items {
		it := &items[i]
		size += len(it.Text) + it.Tools.Bytes()
	}
	return size <= quickBytes
}

// NoSuchTool returns the result of a call of an unknown tool, for the model.
func NoSuchTool(name string) string {
	return "There is no tool " + strconv.Quote(name) + ". Call only tools that are listed, by their full names."
}

// maxStated bounds what it may take to state what is missing of a reply: about 0.1 s, on
// the goroutine of its exchange, where a model call was lost.
const maxStated = 2_000_000

// Stating returns the account for that. A nil Turn has none.
func (t *Turn) Stating() *work.Account {
	if t == nil {
		return nil
	}
	if part := t.rc.Work.Part(context.Background(), maxStated); part != nil {
		return part
	}

	return work.New(context.Background(), 0)
}

// BeginEvent says that the handling of another event of the reply begins: the checks of texts
// may take as much again on the goroutine that handles it. A nil Turn has none.
func (t *Turn) BeginEvent() {
	if t != nil {
		t.rc.BeginEvent()
	}
}
