// Package inspect makes of a record what people look at: the conversation as the model
// got it, its output token by token, the steps of the exchange on a line of time, and
// where two prompts differ. It is pure: the inspector's page and the command both show
// what [Of] returns.
//
// A [View] has the model calls, each with its prompt and output as [Message]s of [Piece]s, and
// the steps. The only thing with a socket is [Handler], which serves the page on the admin port
// and takes records from a [Source]; it reads, and changes nothing. A record may be redacted or
// cut, and an exchange may still go on: what is not there is not shown.
package inspect

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// View is what is shown of a record.
type View struct {
	Calls []Call `json:"calls"`
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
	Choice    int     `json:"choice,omitempty"`
	Role      string  `json:"role,omitempty"`
	Channel   string  `json:"channel,omitempty"`
	Recipient string  `json:"recipient,omitempty"`
	Type      string  `json:"type,omitempty"` // content type
	Start     int     `json:"start"`          // index of its first token
	Pieces    []Piece `json:"pieces"`
}

// Piece is a token.
type Piece struct {
	ID   harmony.Token `json:"id"`
	Text string        `json:"text"`
	Kind PieceKind     `json:"kind,omitempty"`
	// Of outputs:
	At      int64    `json:"at,omitempty"` // when it arrived, µs since the exchange began
	Logprob *float64 `json:"logprob,omitempty"`
}

// PieceKind says what a token is in its message.
type PieceKind string

// The kinds of tokens.
const (
	Content PieceKind = ""
	Header  PieceKind = "header"
	Special PieceKind = "special" // a control token
)

// Step is a part of the time of an exchange, in µs since it began.
type Step struct {
	Name string `json:"name"` // decode, queue, generate, tool, store, end
	Of   string `json:"of,omitempty"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// Of returns the view of a record.
func Of(r *record.Record) *View {
	w := &watcher{view: &View{Calls: []Call{}, Steps: []Step{}}}
	for i := range r.Events {
		w.take(&r.Events[i])
	}
	w.endCall("")
	if r.Result.Micros > w.last {
		w.step("end", "", w.last, r.Result.Micros)
	}
	return w.view
}

// Duration is µs as a duration.
func Duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
