package engine

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Disaggregator is implemented by the dialects of engines that can compute the
// prompt in one process, prefill, and say the output in another, decode. A
// request is two model calls then, its legs, which Encode writes. The decode
// leg is answered as any request is.
type Disaggregator interface {
	Dialect
	// MeetsInRoom tells that both legs are made at the same time and find
	// each other by a Bootstrap, which says who the prefill engine is. Else
	// the prefill leg is answered first, and what it tells goes into the
	// decode leg.
	MeetsInRoom() bool
	// PrefillLeg is the prefill leg of r; at is nil where the legs do not
	// meet in a room. It refuses what the two cannot do.
	PrefillLeg(r *Request, at *Bootstrap) (*Request, *apierror.Error)
	// DecodeLeg is the decode leg of r; one of at and told is nil.
	DecodeLeg(r *Request, at *Bootstrap, told *Transfer) *Request
	// NewPrefillReader reads the body of a 200 reply to a prefill leg.
	NewPrefillReader(leg *Request) PrefillReader
}

// Disaggregates tells whether engines of a kind can be disaggregated, and if so
// whether their legs meet in a room.
func Disaggregates(kind string) (inRoom, ok bool) {
	d, _ := ByKind(kind)
	disaggregator, ok := d.(Disaggregator)
	return ok && disaggregator.MeetsInRoom(), ok
}

// Disaggregating lists the kinds of engines that can be disaggregated, in the
// order of documentation.
func Disaggregating() []string {
	return slices.DeleteFunc(Kinds(), func(kind string) bool {
		_, ok := Disaggregates(kind)
		return !ok
	})
}

// PrefillReader reads the answer to a prefill leg. It is total, as a Decoder
// is; the caller bounds the answer's size.
type PrefillReader interface {
	// Feed takes the next piece of the body, cut anywhere.
	Feed(p []byte) *apierror.Error
	// End tells that the body has ended, and what stands behind it or, in a
	// reply that has no body, before it. The Transfer is nil where the legs
	// meet in a room.
	End(trailer func(name string) string) (*Transfer, *apierror.Error)
}

// Bootstrap is where the two legs of a request meet: a room of the server that
// the prefill engine runs for this.
type Bootstrap struct {
	Host string // of the prefill engine, as the decode engine reaches it
	Port int
	Room int32 // different for any two requests at one time; not negative
}

// Transfer is what the answer to a prefill leg tells.
type Transfer struct {
	Params []byte // where the prompt's keys and values are, a JSON object as the engine wrote it
	Usage  Usage  // of the prompt: the decode engine counts as cached what it was handed over
}

// Leg says which of the two model calls of a disaggregated request one is.
type Leg struct {
	Bootstrap *Bootstrap // in both legs, where they meet in a room
	Params    []byte     // else the kv_transfer_params
	Whole     bool       // the reply is one object, no stream
}

// promptGivenUp is the error of a prefill leg that the engine has ended before
// the prompt was computed.
func promptGivenUp() *apierror.Error {
	return badGateway("The engine gave up the prompt of this request.")
}
