package websocket

import (
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// The events of clients.
const (
	typeCreate = "response.create"
	typeSteer  = "response.steer"
	typeCancel = "response.cancel"
)

const (
	// maxLanes is how many lanes with a name a connection can have, and maxLane the bytes of a name.
	maxLanes = 32
	maxLane  = 256
)

// clientEvent is an event of a client.
type clientEvent struct {
	kind string
	lane string

	// response is that of response.cancel; "": the one that the lane makes.
	response string

	root gjson.Result
}

// ownFields are the members of events that this package reads. The others of response.create
// are read by the exchange.
var ownFields = map[string]bool{
	"type": true, "stream_id": true, "response_id": true, "stream": true, "stream_options": true,
	"input": true, "previous_response_id": true, "background": true,
}

// readEvent reads an event of a client. With an error the lane is set if the event has a valid one.
func readEvent(message []byte) (e clientEvent, err *apierror.Error) {
	if e.root, err = jsontext.Parse(message); err != nil {
		return e, err
	}

	// The lane comes first: the client looks for an error about anything else there.
	lane := e.root.Get("stream_id")
	if lane.Exists() && lane.Type != gjson.Null {
		if !validLane(lane) {
			return e, apierror.New(http.StatusBadRequest, "invalid_stream_id", "stream_id",
				"The field \"stream_id\" must be a text of 1 to %d letters, digits, underscores, hyphens and periods.",
				maxLane)
		}
		// A copy: the lane stays for as long as the connection, and would keep the whole event.
		e.lane = strings.Clone(lane.Str)
	}

	// A member that is there twice is refused, as in the body of a POST: one of the two would be
	// dropped here, before the exchange could see it.
	known := func(key string) bool { return ownFields[key] }
	err = jsontext.Field{Result: e.root}.FieldsOf(known, func(string, jsontext.Field) *apierror.Error { return nil })
	if err != nil {
		if err.Param == "stream_id" {
			e.lane = "" // nobody knows which
		}
		return e, err
	}

	e.kind, e.response = e.root.Get("type").Str, e.root.Get("response_id").Str
	switch e.kind {
	case typeCreate, typeSteer, typeCancel:
		return e, nil
	}
	return e, apierror.Invalid("type", "Send an event of the type %s, %s or %s.", typeCreate, typeSteer, typeCancel)
}

func validLane(v gjson.Result) bool {
	if v.Type != gjson.String || v.Str == "" || len(v.Str) > maxLane {
		return false
	}
	// None of them has to be escaped: see appendLane.
	for _, c := range []byte(v.Str) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

// settingsBytes is the most that [clientEvent.settings] takes: what the event has beside its input.
// The type of the event is longer than what takes its place.
func (e *clientEvent) settingsBytes() int { return len(e.root.Raw) - len(e.root.Get("input").Raw) }

// settings returns the body of a POST with which an event's response is made, without its input
// and what it continues, and without an end: see turn.appendTo.
func (e *clientEvent) settings() (body []byte, err *apierror.Error) {
	body = append(make([]byte, 0, e.settingsBytes()), `{"stream":true`...)
	e.root.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		// The transport's own, and what the server sets: Codex sends "stream": true all the same.
		case "type", "stream_id", "stream", "stream_options", "input", "previous_response_id":
			return true
		case "background":
			// It would go on without the connection, and its events to nobody.
			if value.Type == gjson.True {
				err = apierror.Invalid("background",
					"Background responses are made over HTTP. Leave background out, or send a POST.")
			}
			return err == nil
		}

		// As the client has spelled them: the exchange reads them, and says what is wrong.
		body = append(append(append(append(body, ','), key.Raw...), ':'), value.Raw...)
		return true
	})
	return body, err
}

// turn is what a response adds to a conversation, as raw JSON; "": nothing.
type turn struct{ input, previous string }

func (e *clientEvent) turn() turn {
	return turn{e.root.Get("input").Raw, e.root.Get("previous_response_id").Raw}
}

// appendTo completes the body of a POST.
func (t turn) appendTo(settings []byte) []byte {
	body := make([]byte, 0, len(settings)+len(t.input)+len(t.previous)+len(`,"input":,"previous_response_id":}`))
	body = append(body, settings...)
	if t.input != "" {
		body = append(append(body, `,"input":`...), t.input...)
	}
	if t.previous != "" {
		body = append(append(body, `,"previous_response_id":`...), t.previous...)
	}
	return append(body, '}')
}

// appendLane appends how an event of a lane begins, before what follows its brace. A lane has only
// characters that need no escape.
func appendLane(dst []byte, lane string) []byte {
	return append(append(append(dst, `{"stream_id":"`...), lane...), `",`...)
}
