package engine

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Disaggregator is the dialect of an engine that supports disaggregated serving
// ([Traits.Disaggregation]): one process, prefill, computes the prompt, and another
// one, decode, generates the output. A request then consists of two model calls,
// the prefill request and the decode request. Encode encodes both. The reply to
// the decode request is read by the Decoder of the dialect.
type Disaggregator interface {
	Dialect
	// UsesBootstrapRoom reports whether both requests are sent at the same time
	// and find each other by a Bootstrap. Otherwise the decode request is sent
	// after the reply to the prefill request and contains its KVTransfer.
	UsesBootstrapRoom() bool
	// PrefillRequest returns the prefill request of r. at is nil unless the
	// dialect uses a bootstrap room. Requests that cannot be disaggregated are
	// an error with status 400.
	PrefillRequest(r *Request, at *Bootstrap) (*Request, *apierror.Error)
	// DecodeRequest returns the decode request of r. at is nil unless the
	// dialect uses a bootstrap room; otherwise transfer is nil.
	DecodeRequest(r *Request, at *Bootstrap, transfer *KVTransfer) *Request
	// NewPrefillReader returns a reader for the body of a 200 reply to the
	// prefill request.
	NewPrefillReader(prefill *Request) PrefillReader
}

// PrefillReader reads the reply to a prefill request. Input that is not a reply
// of the dialect results in an error, never in a panic. The caller bounds the
// size of the reply.
type PrefillReader interface {
	// Feed reads the next piece of the body, which may be cut anywhere.
	Feed(p []byte) *apierror.Error
	// End must be called at the end of the body. trailer returns a trailer of
	// the reply by name, or a header if the reply consists of headers only. The
	// KVTransfer is nil if the dialect uses a bootstrap room.
	End(trailer func(name string) string) (*KVTransfer, *apierror.Error)
}

// Bootstrap identifies the room in which the two requests of SGLang's
// disaggregated serving find each other. The prefill engine runs the bootstrap
// server.
type Bootstrap struct {
	Host string // the prefill engine's host, as the decode engine reaches it
	Port int
	Room int32 // not negative, unique among concurrent requests
}

// KVTransfer is the result of vLLM's prefill request.
type KVTransfer struct {
	Params []byte // kv_transfer_params: the location of the prompt's KV cache, as the engine's JSON object
	Usage  Usage  // of the prompt; the decode engine reports transferred tokens as cached, so its count is not used
}

// Disaggregation is what a prefill or decode request has in addition to an
// ordinary request.
type Disaggregation struct {
	Bootstrap        *Bootstrap // the same in both requests; nil unless the dialect uses a bootstrap room
	KVTransferParams []byte     // the kv_transfer_params of dialects without a bootstrap room
	Unstreamed       bool       // the reply is one object instead of a stream
}

// unstreamed reports whether the reply to r is one object instead of a stream.
func (r *Request) unstreamed() bool { return r.Disaggregation != nil && r.Disaggregation.Unstreamed }

// prefillAborted returns the error for a prefill request that the engine ended
// before it had computed the prompt.
func prefillAborted() *apierror.Error {
	return badGateway("The engine aborted the prefill of this request. Send the request again.")
}
