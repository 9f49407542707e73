package websocket

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
)

// Input that steers a response. What becomes of it:
//
//	the response                                   the input
//	is not being made here, or has ended           response.steer.failed
//	goes on                                        response.steer.accepted: it waits, and the model is interrupted
//	has ended: interrupted (incomplete, reason     is the input of a response that follows at once, with
//	steered), or by itself, without open calls     the same settings: its response.created says so
//	has ended with calls for the client            response.steer.pending: it waits for a response.create that
//	                                               continues the response, and comes before its input
//	has failed, or was canceled                    response.steer.failed, with the input
//
// The model is interrupted between two tokens. The open message ends there, as one that has
// reached its token limit. While it writes a call it is not: the call ends first. If the filter
// makes that call, its result ends the response; one for the client is the client's to answer.

// maxSteers is how often a response can be steered while it is made.
const maxSteers = 16

// successorFailed is the code of an error: the input was accepted, and could not be used.
const successorFailed = "successor_creation_failed"

// steer is input that waits.
type steer struct {
	id string
	// parent is the id of the response that it steers.
	parent string
	// input is raw JSON: a text, or a list of messages.
	input string
	// held is the bytes of the memory budget, of its event.
	held int
}

// steer takes input for a response that is being made. It keeps the event's memory if the input
// waits.
func (c *connection) steer(e *clientEvent, held int) (kept bool) {
	s := steer{parent: e.root.Get("previous_response_id").Str, input: e.root.Get("input").Raw, held: held}
	c.mu.Lock()
	r, ending := c.made[s.parent], c.ending
	lane, over := c.past.lanes[s.parent]
	c.mu.Unlock()
	if r != nil {
		lane = r.lane
	}

	code, message := checkSteer(e)
	switch {
	case code != "":
	case r == nil && over:
		code, message = responseEnded()
	case r == nil:
		code, message = "response_not_found", "No such response is being made on this connection."
	case ending != "":
		// A successor is a new response: by one after the other a connection would never end.
		code, message = successorFailed, c.refusal(ending).Message
	case !r.steerable:
		code, message = "steering_not_supported",
			"A response of a conversation, or with automatic compaction, cannot be steered."
	default:
		s.id = c.s.o.NewID("steer_")
		code, message = c.accept(r, s)
	}
	if code != "" {
		// An id is for input that was accepted.
		s.id = ""
		c.steerFailed(lane, &s, code, message)
		return false
	}

	r.steering.stop(steered)
	return true
}

// accept lets input wait for the end of the response, and says so. No event of the response comes
// in between: the client learns that the input waits before what it brings about.
func (c *connection) accept(r *response, s steer) (code, message string) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if code, message = r.steering.keep(s); code == "" {
		_ = c.writeLocked(c.steerEvent(r.lane, "accepted", &s, ""))
	}
	return code, message
}

// checkSteer returns what is wrong with an event; "": nothing.
func checkSteer(e *clientEvent) (code, message string) {
	invalid := func(text string) (string, string) { return "invalid_input", text }

	// Settings would be ignored: the response that follows has those of the one before it.
	only := true
	e.root.ForEach(func(key, _ gjson.Result) bool {
		switch key.Str {
		case "type", "previous_response_id", "input":
		default:
			only = false
		}
		return only
	})
	if !only {
		return invalid("The event has only type, previous_response_id and input.")
	}

	input := e.root.Get("input")
	switch {
	case input.Type == gjson.String && input.Str != "":
		return "", ""
	case !input.IsArray() || jsontext.Empty(input):
		return invalid("input must be a text or a list of messages, and not empty.")
	}

	// Calls and their outputs would not belong to what the model has just been cut off from.
	input.ForEach(func(_, item gjson.Result) bool {
		kind := item.Get("type").Str
		if item.Get("role").Str != "user" || kind != "" && kind != "message" {
			code, message = invalid("input may have messages with the role user only.")
		}
		return code == ""
	})
	return code, message
}

// steerable reports whether a successor can be made of an event's response by its settings: one of
// a conversation would find that locked, and one of a compacted history would continue another.
func (e *clientEvent) steerable() bool {
	conversation, management := e.root.Get("conversation"), e.root.Get("context_management")
	return (!conversation.Exists() || conversation.Type == gjson.Null) &&
		(!management.Exists() || jsontext.Empty(management))
}

// responseEnded is why input for a response that has ended is not used.
func responseEnded() (code, message string) {
	return "response_already_completed", "The response has ended. Send a response.create that continues it."
}

// successor returns the response that follows one that has ended, made of the input that waits;
// nil: none does.
func (c *connection) successor(r *response) *response {
	// A response that was refused, or has failed without an event, is closed here. Afterwards nobody
	// else touches the input.
	r.steering.close()
	steers := r.steering.waiting
	if len(steers) == 0 {
		return nil
	}

	required := event.Required(r.last)
	switch {
	case r.status != "completed" && r.status != "incomplete":
		c.giveUp(r, steers, "The response has not been completed.")
		return nil
	case len(required) > 0:
		// A response that follows at once would have calls without outputs before the input, which
		// the model has never seen. The next response.create answers them.
		c.mu.Lock()
		c.pending[r.id] = steers
		c.mu.Unlock()

		for i := range steers {
			c.write(c.steerEvent(r.lane, "pending", &steers[i],
				`"reason":"waiting_for_required_input","required_input":[`+strings.Join(required, ",")+`]`))
		}
		return nil
	}

	next := turn{input: joined(steers, ""), previous: string(jsontext.AppendString(nil, r.id))}
	// It is made within the place of the response that it follows, whose memory stays taken.
	successor := newResponse(c, r.lane, r.settings, next)
	successor.brings, successor.steerable = steers, true
	if !r.steering.followedBy(successor) {
		c.giveUp(r, steers, "The response was canceled.")
		return nil
	}
	return successor
}

// withPending adds the input that waits for the response that this one continues.
func (r *response) withPending() {
	c, previous := r.c, gjson.Parse(r.turn.previous).Str

	c.mu.Lock()
	steers := c.pending[previous]
	delete(c.pending, previous)
	c.mu.Unlock()
	if len(steers) > 0 {
		r.turn.input, r.brings = joined(steers, r.turn.input), steers
	}
}

// notBegun gives the input that the response was to bring back to the client, if it has not begun:
// a successor may be refused as every response may.
func (r *response) notBegun() {
	r.c.giveUp(r, r.brings, "The response with the input was refused.")
	r.brings = nil
}

// giveUp tells the client that input will not be used.
func (c *connection) giveUp(r *response, steers []steer, why string) {
	for i := range steers {
		c.steerFailed(r.lane, &steers[i], successorFailed, why)
	}
	c.letGo(steers)
}

// letGo returns the memory of input that does not wait any more.
func (c *connection) letGo(steers []steer) {
	for i := range steers {
		c.giveBack(steers[i].held)
	}
}

// joined is one list of the inputs that wait, and of the input of an event after them. The items are
// not told apart: a list of small ones would take many times its size.
func joined(steers []steer, input string) string {
	size := len(input)
	for i := range steers {
		size += len(steers[i].input)
	}
	const framed = len(textBegins) + len(textEnds) + len(",")
	list := append(make([]byte, 0, size+framed*(len(steers)+1)+len("[]")), '[')

	for i := range steers {
		list = appendItems(list, steers[i].input)
	}
	return string(append(appendItems(list, input), ']'))
}

// A text stands between them as a message.
const textBegins, textEnds = `{"type":"message","role":"user","content":`, `}`

// appendItems appends the items of an input to a list: of a list, or of a text; "": none.
func appendItems(list []byte, input string) []byte {
	// What is neither a list nor a text becomes a message all the same: its content is refused when
	// the body is read, with the right error.
	items, begins, ends := input, textBegins, textEnds
	if strings.HasPrefix(input, "[") {
		items, begins, ends = strings.TrimSpace(input[1:len(input)-1]), "", ""
	}
	if items == "" {
		return list
	}

	if len(list) > len("[") {
		list = append(list, ',')
	}
	return append(append(append(list, begins...), items...), ends...)
}

// steerEvent is what has become of input; more are further members.
func (c *connection) steerEvent(lane, step string, s *steer, more string) []byte {
	w := c.beginSteer(lane, step)
	w = w.Key("steer").Open().Text("id", s.id).Text("previous_response_id", s.parent).Close()
	if more != "" {
		w = append(append(w, ','), more...)
	}
	return w.Close()
}

// steerFailed writes that input will not be used. It has the input, so that the client can send it
// in another way.
func (c *connection) steerFailed(lane string, s *steer, code, message string) {
	w := c.beginSteer(lane, "failed").Key("steer").Open()
	if s.id != "" {
		w = w.Text("id", s.id)
	}

	// The member is required by OpenAI's types.
	input := s.input
	if input == "" {
		input = `""`
	}
	w = w.Text("previous_response_id", s.parent).Literal("input", input).Close()
	w = w.Key("error").Open().Text("type", apierror.TypeInvalidRequest).Text("code", code)
	c.write(w.Text("message", message).Close().Close())
}

// beginSteer begins an event about input. The number is one of the connection's: the response's
// events have their own.
func (c *connection) beginSteer(lane, step string) jsontext.Writer {
	c.mu.Lock()
	c.steerNumber++
	number := c.steerNumber
	c.mu.Unlock()

	w := jsontext.Writer{}.Open().Text("type", "response.steer."+step).Int("sequence_number", int64(number))
	if lane != "" {
		w = w.Text("stream_id", lane)
	}
	return w
}
