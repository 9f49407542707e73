package jsontext

import (
	"bytes"
	"strconv"
)

// Writer is JSON that is being written, and the bytes before it. It is a byte slice, so that
// it stands between functions that append to one, and its methods return what they have
// appended to:
//
//	dst = jsontext.Writer(dst).Open().Text("type", kind).Raw("schema", schema).Close()
//
// A comma is written where one is missing: the byte before says so, and nothing else is kept.
// An object that another function has begun, or a piece of one, is therefore continued like
// any other. What is written is JSON if the calls nest as JSON does; nothing checks that.
//
// The keys of an API are written as they are. Keys and texts of clients are escaped.
//
// The text of a delta is no call for each token: its event is made of literals, once, and
// [AppendEscaped] adds to it.
type Writer []byte

// Open begins an object: as the value of a key, as an element, or as all of the JSON, at the
// beginning or after [Writer.Event].
func (w Writer) Open() Writer { return append(w.separated(), '{') }

// Close ends the innermost object.
func (w Writer) Close() Writer { return append(w, '}') }

// OpenList begins an array.
func (w Writer) OpenList() Writer { return append(w.separated(), '[') }

// CloseList ends the innermost array.
func (w Writer) CloseList() Writer { return append(w, ']') }

// Key begins a member whose name is one of the API's own. Its value comes next.
func (w Writer) Key(name string) Writer {
	w = append(w.separated(), '"')
	w = append(w, name...)
	return append(w, '"', ':')
}

// ClientKey begins a member whose name a client has chosen. Its value comes next.
func (w Writer) ClientKey(name string) Writer {
	return append(AppendString(w.separated(), name), ':')
}

// Text writes a member with a text.
func (w Writer) Text(key, text string) Writer { return AppendString(w.Key(key), text) }

// Raw writes a member with a value that is JSON.
func (w Writer) Raw(key string, value []byte) Writer { return append(w.Key(key), value...) }

// Literal writes a member with a value of the program that is JSON, such as null or [].
func (w Writer) Literal(key, value string) Writer { return append(w.Key(key), value...) }

// Int writes a member with a whole number.
func (w Writer) Int(key string, n int64) Writer { return strconv.AppendInt(w.Key(key), n, 10) }

// Bool writes a member with true or false.
func (w Writer) Bool(key string, is bool) Writer { return strconv.AppendBool(w.Key(key), is) }

// Element begins an element of an array that is not an object or array. Its value comes next.
func (w Writer) Element() Writer { return w.separated() }

// separated returns w with a comma, if what comes next follows a value.
func (w Writer) separated() Writer {
	if len(w) == 0 {
		return w
	}

	switch w[len(w)-1] {
	case '{', '[', ':', ',':
		return w
	// White space alone says nothing: a value of a client may have some after it.
	case ' ':
		if bytes.HasSuffix(w, []byte(eventData)) {
			return w
		}
	}
	return append(w, ',')
}

// eventData begins a line of an event's data.
const eventData = "data: "

// Done is the event that ends the streams of OpenAI's APIs.
const Done = eventData + "[DONE]\n\n"

// Event begins a server-sent event with a name; "": it has none. Its data comes next, which
// must be one line.
func (w Writer) Event(name string) Writer {
	if name != "" {
		w = append(w, "event: "...)
		w = append(w, name...)
		w = append(w, '\n')
	}
	return append(w, eventData...)
}

// EndEvent ends a server-sent event.
func (w Writer) EndEvent() Writer { return append(w, '\n', '\n') }
