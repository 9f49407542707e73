package engine

import "strconv"

// CallID is the id of a model call. It is sent as the engine's request id.
//
// SGLang aborts by prefix: with a request it ends every other one whose id begins with the
// id of the first, and it may notice seconds later that a client is gone. Calls follow one
// another in a request, when one is repeated or continued, so that no id may begin with
// another one. Of two ids the Unique parts differ, or the Numbers, each with its end marked;
// what the client has chosen stands behind both.
type CallID struct {
	// Unique tells the request from all others: hexadecimal digits, always as many. Clients
	// send several requests with one x-request-id.
	Unique string
	// Number of the model call in the request, from 1.
	Number int
	// Request is the id that the client knows, such as chatcmpl-….
	Request string
}

// String is the id as the engine gets it.
func (id CallID) String() string {
	return id.Unique + "-" + strconv.Itoa(id.Number) + "-" + id.Request
}
