package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
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
	output  []byte          // the items that are complete, with commas between them
	done    []doneItem      // where they stand in output
	summary summary         // of a compaction
	items   int             // how many have begun
	stored  bool            // the response is stored, as far as is known
	apart   bool            // its conversation could not be given its items
	lost    error           // why the background response could not be stored as it has ended
	outrun  *apierror.Error // the turn that it goes on with has gone on with another request, or is gone
	refusal *apierror.Error
	fault   error // what went wrong aside, for the log
	begun   bool  // the first events have been written
	ended   bool

	// Of a stream:
	dst      []byte // what is appended to while a method runs
	sequence int    // number of the next event
	delta    int    // where in the item's text the delta begins that is being written, -1 if there is none
}

// doneItem is an item that is complete: its id, and where its JSON stands.
type doneItem struct {
	id         string
	begin, end int
}

// outputItem is an item while it is being written.
type outputItem struct {
	kind    itemKind
	index   int
	id      string
	call    *turn.CalledTool
	text    []byte // as it stands between the quotes of JSON
	summary bool   // the text is told as a summary too
	sealed  string // the text, sealed; "" if it is not wanted
	unwrap  unwrapper
	plain   []byte // of a custom call, the piece of text being added
}

// NewReply begins the reply to the call.
func (c *Call) NewReply() *Reply {
	r := &Reply{call: c, created: c.created, usage: c.continued, delta: -1, stored: c.keep != nil}
	if c.options.messages {
		r.messages = &messages{}
	}
	r.beginTurn(c.turn)
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
	if chunk.Index != 0 {
		return dst, apierror.New(http.StatusBadGateway, "engine_error", "", "The engine answered with a choice that was not asked for.")
	}
	if chunk.Finish == engine.FinishAbort {
		return dst, apierror.New(http.StatusBadGateway, "engine_aborted", "", "The engine gave the request up. Try again.")
	}
	if chunk.Usage != nil && chunk.Usage.CachedTokens != engine.Unknown {
		r.usage.last().cached = chunk.Usage.CachedTokens
	}
	if len(chunk.Tokens) == 0 && chunk.Finish == engine.FinishNone {
		return dst, nil
	}
	r.dst = dst
	r.begin()
	taken, err := r.reader.Push(chunk.Tokens, chunk.Finish)
	if r.messages != nil {
		r.messages.tokens = append(r.messages.tokens, chunk.Tokens[:taken]...)
	}
	r.closeDelta()
	dst, r.dst = r.dst, nil
	return dst, err
}

// Done tells that nothing that the engine may still send can change the reply:
// the request to it can be dropped, and End called.
func (r *Reply) Done() bool { return r.reader.Finish() != turn.FinishNone && r.reader.Early() }

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
	err := r.reader.Close()
	r.closeDelta()
	if err == nil {
		err = r.compact()
	}
	if err != nil {
		return r.fail(r.dst, err)
	}
	r.ended = true
	end := ending{status: statusCompleted, at: r.call.scope.Now().Unix()}
	if r.reader.Finish() == turn.FinishLength {
		end.status, end.reason = statusIncomplete, "max_output_tokens"
	} else if r.items == 0 {
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
func (r *Reply) Fault() error { return errors.Join(r.fault, r.reader.Fault()) }

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
		Input: r.call.input, Output: r.made(),
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

// made is the items that are complete, and the one that was cut.
func (r *Reply) made() []store.Item {
	output := slices.Clone(r.output)
	items := make([]store.Item, len(r.done))
	for i, d := range r.done {
		items[i] = store.Item{ID: d.id, JSON: output[d.begin:d.end:d.end]}
	}
	return items
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
	s.Prompt, s.Cached, s.Finish = all.input, all.cached, r.reader.Finish()
	s.Repairs = maps.Clone(s.Repairs)
	r.reader.AddTo(&s)
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
	it := &outputItem{kind: r.call.kindOf(e), index: r.items, call: e.Call}
	it.id = r.call.scope.NewID(it.kind.names().prefix)
	it.summary = it.kind == reasoningItem && r.call.options.summary
	r.item = it
	r.items++
	r.writeItemStart()
}

// text adds a piece of text to the item.
func (r *Reply) text(p []byte) {
	it := r.item
	if it.kind == customItem {
		it.plain = it.unwrap.push(it.plain[:0], p)
		p = it.plain
	}
	r.addText(p)
}

func (r *Reply) addText(p []byte) {
	if len(p) == 0 {
		return
	}
	it := r.item
	r.openDelta()
	begin := len(it.text)
	it.text = jsontext.AppendEscaped(it.text, p)
	if r.call.options.stream {
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
	status := statusCompleted
	if cut {
		status = statusIncomplete
	}
	begin := r.addItem(status)
	r.writeItemEnd(r.output[begin:])
	r.item = nil
}

// cutItem adds the item that is being written, if there is one, to those of
// the response, as far as it has come. No event says that it is complete:
// clients run the calls that are.
func (r *Reply) cutItem() {
	if r.item != nil {
		r.addItem(statusIncomplete)
		r.item = nil
	}
}

// addItem appends the item to those that are complete and tells where it
// begins.
func (r *Reply) addItem(status string) int {
	if len(r.output) > 0 {
		r.output = append(r.output, ',')
	}
	r.seal()
	begin := len(r.output)
	r.output = r.item.append(r.output, status)
	r.done = append(r.done, doneItem{r.item.id, begin, len(r.output)})
	return begin
}

// seal seals the text of a reasoning item where the request wants it. Without
// random bytes there is no sealed text; the content is there all the same.
func (r *Reply) seal() {
	if r.call.sealer == nil || r.item.kind != reasoningItem {
		return
	}
	var text string
	quoted := append(append([]byte{'"'}, r.item.text...), '"')
	if err := json.Unmarshal(quoted, &text); err != nil {
		r.fault = fmt.Errorf("seal reasoning: %w", err)
		return
	}
	var err error
	if r.item.sealed, err = r.call.sealer.Seal(r.call.scope.Tenant, []byte(text)); err != nil {
		r.fault = fmt.Errorf("seal reasoning: %w", err)
	}
}
