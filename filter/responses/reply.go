package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Reply turns the engine's chunks into the reply to one request. Streams and
// whole objects are made of the same events: a stream writes each as it comes,
// the object is written from what they add up to.
//
// It is not safe for concurrent use.
type Reply struct {
	call    *Call
	reader  *turn.Reader
	created int64

	usage    usage
	past     turn.Summary // of the model calls before the one that goes on
	messages *messages    // nil: not wanted

	item    *outputItem     // that is being written
	made    []madeItem      // the items that have begun, in their order
	summary summary         // of a compaction
	items   int             // how many of them the client is told of
	stored  bool            // the response is stored, as far as is known
	apart   bool            // its conversation could not be given its items
	lost    error           // why the background response could not be stored as it has ended
	outrun  *apierror.Error // the turn that it goes on with has gone on with another request, or is gone
	refusal *apierror.Error
	fault   error // what went wrong aside, for the log
	begun   bool  // the first events have been written
	ended   bool

	steps       bool                                 // others may follow a model call
	next        func(*Reply) (Step, *apierror.Error) // begins the next one; nil: the first
	works       []*work                              // the step's, that the client has not been told of yet
	waiting     []*work                              // the step's jobs
	known       int                                  // how many of made the prompt has
	unknown     int                                  // calls of the turn to tools that there are not
	hostedCalls int                                  // calls that were made here
	handedOver  bool                                 // a call is the client's to make or to approve
	outOfRoom   bool                                 // the output has as many tokens as it may
	resultBytes int                                  // of what tools have given
	answered    int                                  // where in made the last answer is, -1 if there is none
	pages       pages                                // that the browser has shown
	found       []citation                           // of them in the text that is being added
	stopped     bool                                 // there were as many turns as there may be

	// Of a stream:
	dst      []byte // what is appended to while a method runs
	sequence int    // number of the next event
	delta    int    // where in the item's text the delta begins that is being written, -1 if there is none
}

// madeItem is an item of the reply.
type madeItem struct {
	id    string
	json  []byte      // nil: it is not complete, or the client is not told of it
	items []turn.Item // what it is to the model, where the JSON does not tell
}

// outputItem is an item while it is being written.
type outputItem struct {
	kind     itemKind
	index    int // among the items of the output
	slot     int // among those of the reply
	id       string
	call     *turn.CalledTool
	hosted   *hosted       // whose tool is called, or whose tools are listed
	result   *tools.Result // what came of it
	approval string        // the id of the request for approval of the call
	text     []byte        // as it stands between the quotes of JSON
	summary  bool          // the text is told as a summary too
	sealed   string        // the text, sealed; "" if it is not wanted
	unwrap   unwrapper

	arguments   gjson.Result // of a call of a built-in tool
	address     string       // of the page that the browser was asked for
	container   string       // where its code runs
	outputs     bool         // the client wants what the code has put out
	citations   *citations   // of an answer; nil while there is nothing to cite
	annotations []json.RawMessage
	plain       []byte // of a custom call, the piece of text being added
}

// NewReply begins the reply to the call.
func (c *Call) NewReply() *Reply {
	r := &Reply{call: c, created: c.created, usage: c.continued, delta: -1, stored: c.keep != nil, answered: -1, pages: facts{}.with(facts{pages: c.pages}).pages}
	if c.options.messages {
		r.messages = &messages{}
	}
	if c.turn != nil {
		r.beginTurn(c.turn)
	}
	return r
}

// Push takes news from the engine and appends to dst what the client gets of
// it: whole server-sent events, or nothing if the client wants one object. An
// error ends the reply; before the reply's headers are sent it can be answered
// with its own status, after them with Fail.
func (r *Reply) Push(dst []byte, chunk *engine.Chunk) ([]byte, *apierror.Error) {
	if r.ended {
		return dst, nil
	}
	if err := chunk.Refusal(1); err != nil {
		return dst, err
	}
	if chunk.Usage != nil && chunk.Usage.CachedTokens != engine.Unknown {
		r.usage.last().cached = chunk.Usage.CachedTokens
	}
	if len(chunk.Tokens) == 0 && chunk.Finish == engine.FinishNone {
		return dst, nil
	}
	r.dst = dst
	r.begin()
	taken, err := r.reader.Push(chunk)
	if r.messages != nil {
		r.messages.tokens = append(r.messages.tokens, chunk.Tokens[:taken]...)
	}
	r.closeDelta()
	dst, r.dst = r.dst, nil
	return dst, err
}

// Done tells that nothing that the engine may still send can change the reply:
// the request to it can be dropped, and End called.
func (r *Reply) Done() bool {
	return r.reader != nil && r.reader.Finish() != turn.FinishNone && r.reader.Early()
}

// closeTurn ends the model call's answer.
func (r *Reply) closeTurn() *apierror.Error {
	if r.reader == nil {
		return nil
	}
	err := r.reader.Close()
	r.closeDelta()
	return err
}

// End appends the rest of the reply, after the engine's stream has ended well
// or the reply is Done: the last events of a stream, or the whole object.
func (r *Reply) End(dst []byte) []byte { return r.unlessLost(dst, r.end) }

// unlessLost appends what write does, and nothing if that shows that the
// response is not this process's to end.
func (r *Reply) unlessLost(dst []byte, write func([]byte) []byte) []byte {
	begin, sequence := len(dst), r.sequence
	dst = write(dst)
	if r.lost != nil {
		r.sequence = sequence
		return dst[:begin]
	}
	return dst
}

func (r *Reply) end(dst []byte) []byte {
	if r.ended {
		return dst
	}
	r.dst = dst
	r.begin()
	err := r.closeTurn()
	if err == nil {
		err = r.compact()
	}
	if err != nil {
		return r.fail(r.dst, err)
	}
	r.ended = true
	end := ending{status: statusCompleted, at: r.call.scope.Now().Unix()}
	if r.outOfRoom || r.reader.Finish() == turn.FinishLength {
		end.status, end.reason = statusIncomplete, "max_output_tokens"
	} else if r.stopped || r.items == 0 {
		end.status = statusIncomplete
	}
	r.store(&end)
	if r.outrun != nil {
		r.ended = false
		return r.fail(r.dst, r.outrun)
	}
	r.writeEnd(&end)
	dst, r.dst = r.dst, nil
	return dst
}

// Cancel ends the reply because the client has gone: a stream is stored with
// what there is of it. Of a whole object the client knows no id.
func (r *Reply) Cancel() {
	if r.ended || !r.begun {
		return
	}
	r.ended = true
	r.cutItem()
	r.store(&ending{status: statusCancelled})
}

// Fault is what went wrong without an error for the client, such as that the
// response could not be stored; nil if nothing did. It is for the log.
func (r *Reply) Fault() error {
	if r.reader == nil {
		return r.fault
	}
	return errors.Join(r.fault, r.reader.Fault())
}

// note notes what went wrong aside.
func (r *Reply) note(err error) { r.fault = errors.Join(r.fault, err) }

// store stores the response, before the client is told how it has ended.
func (r *Reply) store(end *ending) {
	if r.call.keep == nil || r.call.Continues() && !end.ownEnd() {
		return
	}
	version := r.call.version + 1
	if r.call.options.background {
		version++ // the first is the live response
	}
	made := &store.Response{
		ID: r.call.id, Previous: r.call.previous, Conversation: r.call.conversation(), Version: version, Object: r.storedObject(end),
		Input: r.call.input, Output: r.output(),
	}
	if err := r.call.keep(made); err != nil {
		r.stored, r.fault = false, errors.Join(r.fault, fmt.Errorf("store the response: %w", err))
		if r.call.options.background {
			r.lost = err
			return
		}
		switch {
		case !r.call.Continues():
		case errors.Is(err, store.ErrConflict):
			r.outrun = turnConflict(r.call.id)
		case errors.Is(err, store.ErrNotFound):
			r.outrun = turnGone(r.call.id)
		}
	}
	r.extend(end, made)
}

// output is the items that are complete, and those that were cut.
func (r *Reply) output() []store.Item {
	items := make([]store.Item, 0, len(r.made))
	for i, m := range r.made {
		if m.json == nil {
			continue
		}
		item := store.Item{ID: m.id, JSON: m.json}
		if len(m.items) > 0 && (i > r.answered || !m.items[0].Builtin) { // else an answer has followed, and the model is told no more of it
			item.JSON = append(append(r.appendTold(nil, m.items), ','), m.json[1:]...)
		}
		items = append(items, item)
	}
	return items
}

// appendOutput appends the same as the elements of an array.
func (r *Reply) appendOutput(dst []byte) []byte {
	comma := false
	for _, m := range r.made {
		if m.json == nil {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = append(dst, m.json...)
	}
	return dst
}

// Fail ends the reply with an error after its headers have been sent: the last
// event of the stream says that the response failed, and has what there is of
// it. Of a whole object nothing has been sent yet; it is replaced by the error.
func (r *Reply) Fail(dst []byte, err *apierror.Error) []byte {
	return r.unlessLost(dst, func(dst []byte) []byte { return r.fail(dst, err) })
}

func (r *Reply) fail(dst []byte, err *apierror.Error) []byte {
	if r.ended {
		return dst
	}
	r.ended = true
	if !r.call.options.stream {
		r.refusal = err
		return append(dst, err.JSON()...)
	}
	r.dst = dst
	r.begin()
	r.closeDelta()
	r.cutItem()
	end := &ending{status: statusFailed, err: err}
	r.store(end)
	r.writeEnd(end)
	dst, r.dst = r.dst, nil
	return dst
}

// Refusal is the error with which a whole object has been replaced, nil if none
// has.
func (r *Reply) Refusal() *apierror.Error { return r.refusal }

// Summary is what the reply has come to so far.
func (r *Reply) Summary() turn.Summary {
	all := r.usage.total()
	s := r.past
	s.Prompt, s.Cached, s.ModelCalls = all.input, all.cached, len(r.usage.turns)-r.usage.earlier
	s.Repairs = maps.Clone(s.Repairs)
	if r.reader != nil {
		s.Finish = r.reader.Finish()
		r.reader.AddTo(&s)
	}
	return s
}

// event takes one event of the turn.
func (r *Reply) event(e turn.Event) {
	if r.call.compaction != nil {
		r.summary.event(e)
		return
	}
	if e.Kind == turn.Reasoning && r.call.options.hideReasoning {
		return
	}
	switch e.Step {
	case turn.Start:
		r.startItem(e)
	case turn.Delta:
		r.text(e.Text)
	case turn.End:
		r.endItem(e.Cut)
	}
}

func (r *Reply) startItem(e turn.Event) {
	r.closeDelta()
	it := &outputItem{kind: r.kindOf(e), call: e.Call}
	it.summary = it.kind == reasoningItem && r.call.options.summary
	r.item = it
	switch it.kind {
	case unknownItem:
	case serverItem, approvalItem, searchItem, codeItem, fileItem, imageItem:
		it.hosted = r.call.hosted[hostedSpace{e.Call.Namespace, e.Call.Builtin}]
		it.call = it.hosted.named(e.Call)
		it.id = it.kind.names().prefix + strings.TrimPrefix(e.Call.ID, callPrefix)
		it.container, it.outputs = r.call.container, r.call.options.outputs
		if !it.quiet() {
			r.place(it)
			r.writeItemAdded(it)
			r.writeItemStep(it, it.kind.names().step, ".in_progress")
		}
	default:
		it.id = r.call.scope.NewID(it.kind.names().prefix)
		r.place(it)
		r.writeItemStart()
	}
}

// place gives an item its place among those of the reply.
func (r *Reply) place(it *outputItem) {
	it.index, it.slot = r.items, len(r.made)
	r.made = append(r.made, madeItem{id: it.id})
	r.items++
}

// text adds a piece of text to the item.
func (r *Reply) text(p []byte) {
	it := r.item
	if it.kind == customItem {
		it.plain = it.unwrap.push(it.plain[:0], p)
		p = it.plain
	}
	r.addText(p)
	if it.kind == answerItem {
		r.cite(it, p)
	}
}

func (r *Reply) addText(p []byte) {
	if len(p) == 0 {
		return
	}
	it := r.item
	told := r.call.options.stream && !it.quiet()
	if told {
		r.openDelta()
	}
	begin := len(it.text)
	it.text = jsontext.AppendEscaped(it.text, p)
	if told {
		r.dst = append(r.dst, it.text[begin:]...)
	}
}

// endItem completes the item; cut says that the engine ended it.
func (r *Reply) endItem(cut bool) {
	it := r.item
	if it.kind == customItem {
		r.addText(it.unwrap.flush(it.plain[:0]))
	}
	r.closeDelta()
	r.item = nil
	switch {
	case cut && it.quiet():
	case it.kind == unknownItem:
		r.endUnknown(it)
	case it.kind == approvalItem:
		r.handedOver = true
		r.place(it)
		r.addItem(it, statusCompleted)
		r.writeItemAdded(it)
		r.writeItemDone(it)
	case it.hosted != nil && !cut:
		r.endCall(it)
	default:
		status := statusCompleted
		if cut {
			status = statusIncomplete
		}
		r.handedOver = r.handedOver || it.kind == functionItem || it.kind == customItem
		if it.kind == answerItem {
			r.answered = it.slot
		}
		r.addItem(it, status)
		r.writeItemEnd(it)
	}
}

// cutItem adds the items that have begun to those of the response, as far as
// they have come. No event says that they are complete: clients run the calls
// that are.
func (r *Reply) cutItem() {
	for _, w := range r.works {
		it := w.item
		if it.kind == listItem {
			it.result = &tools.Result{Error: "The response has ended before the tools were listed."}
		}
		if it.kind != listItem || it.hosted.builtin == nil {
			r.addItem(it, it.cutStatus())
		}
	}
	if it := r.item; it != nil && !it.quiet() {
		r.addItem(it, statusIncomplete)
	}
	r.item, r.works = nil, nil
}

// addItem makes the item's JSON, as it is now.
func (r *Reply) addItem(it *outputItem, status string) {
	r.seal(it)
	r.made[it.slot].json = it.append(nil, status)
}

// seal seals the text of a reasoning item where the request wants it. Without
// random bytes there is no sealed text; the content is there all the same.
func (r *Reply) seal(it *outputItem) {
	if r.call.sealer == nil || it.kind != reasoningItem {
		return
	}
	var err error
	if it.sealed, err = r.call.sealer.Seal(r.call.scope.Tenant, []byte(it.plainText())); err != nil {
		r.note(fmt.Errorf("seal reasoning: %w", err))
	}
}

// plainText is the item's text as the model wrote it.
func (it *outputItem) plainText() string {
	var text string
	_ = json.Unmarshal(append(append([]byte{'"'}, it.text...), '"'), &text) // what was escaped here can be read
	return text
}
