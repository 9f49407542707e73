// Package inspect makes of a record what people look at: the conversation as the model
// got it, its output token by token, the steps of the exchange on a line of time, and
// where two prompts differ. It is pure: the inspector's page and the command both show
// what [Of] returns.
//
// A [View] has the model calls, each with its prompt and output as [Message]s of [Piece]s, and the steps. A record
// counts repairs and does not say where they were made: the output is read once more, as the filter has read it, to
// find the tokens. The only thing with a socket is [Handler], which serves the page on the admin port and takes records
// from a [Source]; it reads, and changes nothing. A record may be redacted or cut, and an exchange may still go on:
// what is not there is not shown, the words of a question included.
//
// The page is the files below page: inspector.js follows the address and the keys, list.js has the list, exchange.js
// and message.js show an exchange. They make elements and set their texts; nothing of a record is ever markup.
package inspect

import (
	"cmp"
	"slices"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// View is what is shown of a record.
type View struct {
	Calls []Call `json:"calls"`
	// Steps are in the order of their beginning.
	Steps []Step `json:"steps"`
	// Reply is the bytes that the client got, as text.
	Reply string `json:"reply"`
	// Refused is the error in place of the reply.
	Refused string `json:"refused,omitempty"`
	// Prefix says why the prompt does not continue that of its session; "": it does, or there is none.
	Prefix string `json:"prefix,omitempty"`
}

// Call is a model call.
type Call struct {
	ID      string `json:"id"`
	Retry   int    `json:"retry,omitempty"`
	Options string `json:"options,omitempty"`

	// Tokens is how many the prompt has.
	Tokens int `json:"tokens"`
	// Cached is how many of these come from the engine's cache; nil: it does not say.
	Cached *int `json:"cached,omitempty"`
	// Shared is how many of these the call before had.
	Shared int `json:"shared"`
	// Prompt is, of long exchanges, what the call before did not have.
	Prompt []Message `json:"prompt"`

	// Output is that of all choices, one after the other.
	Output []Message `json:"output"`
	// Ended says why the output ended, or broke.
	Ended   string `json:"ended"`
	Status  int    `json:"status,omitempty"`
	Replica string `json:"replica,omitempty"`
}

// Message is a message of a prompt or an output.
type Message struct {
	Choice    int    `json:"choice,omitempty"`
	Role      string `json:"role,omitempty"`
	Channel   string `json:"channel,omitempty"`
	Recipient string `json:"recipient,omitempty"`
	// Type is the type of the content.
	Type string `json:"type,omitempty"`
	// Start is the index of the first token.
	Start  int     `json:"start"`
	Pieces []Piece `json:"pieces"`
}

// Piece is a token.
type Piece struct {
	ID   harmony.Token `json:"id"`
	Text string        `json:"text"`
	Kind PieceKind     `json:"kind,omitempty"`

	// Of outputs.

	// At is when it arrived, in µs since the exchange began.
	At      int64    `json:"at,omitempty"`
	Logprob *float64 `json:"logprob,omitempty"`
	// Repairs are the kinds of repairs that were made here: at the token that showed that one was needed.
	Repairs []string `json:"repairs,omitempty"`
}

// PieceKind says what a token is in its message.
type PieceKind string

// The kinds of tokens.
const (
	Content PieceKind = ""
	Header  PieceKind = "header"
	// Special is a control token.
	Special PieceKind = "special"
)

// Step is a part of the time of an exchange, in µs since it began.
type Step struct {
	// Name is decode, queue, generate, tool, store or end.
	Name string `json:"name"`
	Of   string `json:"of,omitempty"`
	// Call is the number of its model call, from 1 on; 0: it is of none.
	Call int   `json:"call,omitempty"`
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Of returns the view of a record.
func Of(r *record.Record) *View {
	w := &watcher{view: &View{Calls: []Call{}, Steps: []Step{}}, marker: newMarker(r)}
	for i := range r.Events {
		w.take(&r.Events[i])
	}
	w.endCall("")
	w.marker.finish()
	if r.Result.Micros > w.last {
		w.step("end", "", w.last, r.Result.Micros)
	}

	// Events are in the order in which they end, and a step is known at its end.
	slices.SortStableFunc(w.view.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return w.view
}

// Duration is µs as a duration.
func Duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
