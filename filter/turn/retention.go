package turn

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/retention"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// retained is what a turn's engine is asked to keep in its cache. The zero value asks for nothing.
type retained struct {
	// What is remembered of sessions; nil: the engine takes no hints.
	memory  *retention.Memory
	now     func() time.Time
	session string
	// Of the prompt's head, and whether it is remembered.
	head  uint64
	begun bool
	// What is known of the model call, but for its prompt's length and what follows from that.
	known retention.Call
}

// retain sets the hints of the model call. tools: the request has some.
func (t *Turn) retain(conversation *prompt.Conversation, rendered *prompt.Prompt, tools bool) {
	rc, in := &t.rc, conversation.Input
	if !rc.KVHints || rc.Retention == nil || rc.Unbounded {
		return
	}

	r := &t.heard.retained
	r.memory, r.now, r.session = rc.Retention, rc.Now, t.affinity.Session
	for _, id := range conversation.Answered() {
		r.memory.Resumed(r.session, id, r.now())
	}

	head := t.Engine.Prompt[:rendered.HeadTokens()]
	r.head = headSum(t.Engine, head)
	r.known = retention.Call{
		Head: len(head), Shared: r.memory.Shared(r.head),
		Tools: tools && !in.NoCalls, Choices: t.Engine.N, Ends: in.Summarizes,
	}
	r.hint(t.Engine)
}

// next sets the hints of the reply's next model call, for which items have the results of this one.
func (r *retained) next(items []item.Item, call *engine.Request) {
	if r.memory == nil {
		return
	}
	for i := range items {
		if items[i].Kind == item.Result {
			r.memory.Resumed(r.session, items[i].CallID, r.now())
		}
	}
	r.known.Shared = true
	r.hint(call)
}

// hint sets the hints of a model call.
func (r *retained) hint(call *engine.Request) {
	known := r.known
	known.Prompt, known.Turn = len(call.Prompt), prompt.Unanswered(call.Prompt)
	known.Pause = r.memory.Pause(r.session)

	call.Retention = nil
	if directives := known.Directives(); directives != nil {
		call.Retention = &retention.Hints{Scope: r.session, Directives: directives}
	}
}

// began notes the head, once: an engine has it now.
func (r *retained) began() {
	if r.memory != nil && !r.begun {
		r.begun = true
		r.memory.Began(r.head)
	}
}

// called notes that the model has called tools.
func (r *retained) called(id string) {
	if r.memory != nil {
		r.memory.Called(r.session, id, r.now())
	}
}

// headSum is what a head is known by, whosever it is: engines share nothing between models or salts.
func headSum(call *engine.Request, head []harmony.Token) uint64 {
	const prime = 1099511628211 // FNV's
	sum := uint64(diagnosis.Text(call.Model).With(call.CacheSalt))
	for _, token := range head {
		sum = (sum ^ uint64(token)) * prime
	}
	return sum
}
