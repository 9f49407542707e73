package event

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Reader reads the events that a [Writer] has written, in any pieces, for those who pass them on in
// another transport.
type Reader struct{ rest []byte }

// Step is how far an event brings its response.
type Step uint8

// The steps of a response.
const (
	// Other is that of nearly all events: text, and what a tool does.
	Other Step = iota
	// Created is that of the first event: the response has an id.
	Created
	// ItemChanged is that of an item which begins or ends.
	ItemChanged
	// Ended is that of the last event.
	Ended
)

// Event is one event of a response.
type Event struct {
	// JSON is its data, valid until the next one is read.
	JSON []byte
	Step Step
	// Status is how the response has ended, in the words of its member status; "": it has not.
	Status string
}

// The parts of a server-sent event that are read here.
var (
	blankLine  = []byte("\n\n")
	dataPrefix = []byte("data: ")
	doneMark   = []byte("[DONE]")
)

// Feed calls take with each event that is complete now. Comments, which keep connections of HTTP
// alive, and the mark at the end are no events.
func (r *Reader) Feed(p []byte, take func(Event) error) error {
	// Nearly always a piece has whole events, and nothing is copied.
	if len(r.rest) > 0 {
		p = append(r.rest, p...)
	}

	for {
		end := bytes.Index(p, blankLine)
		if end < 0 {
			r.rest = append(r.rest[:0], p...)
			return nil
		}
		json := dataOf(p[:end])
		p = p[end+len(blankLine):]
		if json == nil || bytes.Equal(json, doneMark) {
			continue
		}
		if err := take(eventOf(json)); err != nil {
			return err
		}
	}
}

// dataOf returns the data of an event; nil if it has none.
func dataOf(event []byte) []byte {
	for line := range bytes.SplitSeq(event, []byte("\n")) {
		if data, ok := bytes.CutPrefix(line, dataPrefix); ok {
			return data
		}
	}
	return nil
}

// steps are the events that are steps of a response. Begin writes the type as the first member, so
// that nothing is parsed: most events are of one token.
var steps = []struct {
	begins []byte
	step   Step
	status string
}{
	{[]byte(`{"type":"response.created"`), Created, ""},
	{[]byte(`{"type":"response.output_item.`), ItemChanged, ""},
	{[]byte(`{"type":"response.completed"`), Ended, "completed"},
	{[]byte(`{"type":"response.incomplete"`), Ended, "incomplete"},
	{[]byte(`{"type":"response.failed"`), Ended, "failed"},
	{[]byte(`{"type":"response.cancelled"`), Ended, "cancelled"},
	// With which a stored stream breaks off.
	{[]byte(`{"type":"error"`), Ended, "failed"},
}

func eventOf(json []byte) Event {
	for i := range steps {
		if bytes.HasPrefix(json, steps[i].begins) {
			return Event{JSON: json, Step: steps[i].step, Status: steps[i].status}
		}
	}
	return Event{JSON: json}
}

// ID returns the id of the response of an event that has the response.
func (e *Event) ID() string { return gjson.GetBytes(e.JSON, "response.id").String() }

// answers are the types of items that wait for the client, with the types of those that answer them.
var answers = map[string]string{
	"function_call":        "function_call_output",
	"custom_tool_call":     "custom_tool_call_output",
	"computer_call":        "computer_call_output",
	"shell_call":           "shell_call_output",
	"local_shell_call":     "local_shell_call_output",
	"apply_patch_call":     "apply_patch_call_output",
	"tool_search_call":     "tool_search_output",
	"mcp_approval_request": "mcp_approval_response",
}

// AnswerOf returns the type of the item by which a client answers one of a type; "": it waits for no
// answer.
func AnswerOf(kind string) string { return answers[kind] }

// Required returns what the client has to send before the response of a last event can be continued,
// as the beginnings of input items.
func Required(last []byte) (stubs []string) {
	output := gjson.GetBytes(last, "response.output")
	output.ForEach(func(_, item gjson.Result) bool {
		kind := item.Get("type").Str
		answer := AnswerOf(kind)
		// The filter has searched by itself where it says so.
		if answer == "" || kind == "tool_search_call" && item.Get("execution").Str != "client" ||
			item.Get("status").Str == "incomplete" {
			return true
		}

		w := jsontext.Writer{}.Open().Text("type", answer)
		switch kind {
		case "mcp_approval_request":
			w = w.Text("approval_request_id", item.Get("id").Str)
		case "tool_search_call":
			w = w.Text("call_id", item.Get("call_id").Str).Text("execution", "client")
		case "function_call":
			w = w.Text("call_id", item.Get("call_id").Str).Text("name", item.Get("name").Str)
		default:
			w = w.Text("call_id", item.Get("call_id").Str)
		}
		stubs = append(stubs, string(w.Close()))
		return true
	})
	return stubs
}
