package engine

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// bootstrapRoom implements SGLang's disaggregated serving: both engines get the
// same request at the same time, and the decode engine fetches the prompt's KV
// cache from the prefill engine.
type bootstrapRoom struct{}

func (bootstrapRoom) UsesBootstrapRoom() bool { return true }

func (bootstrapRoom) PrefillRequest(r *Request, at *Bootstrap) (*Request, *apierror.Error) {
	if r.N > 1 {
		return nil, apierror.Invalid("n",
			"n must be 1 for this model, because its prefill and decode engines are separate. Set n to 1.")
	}
	prefill := *r
	prefill.Disaggregation = &Disaggregation{Bootstrap: at}
	return &prefill, nil
}

func (bootstrapRoom) DecodeRequest(r *Request, at *Bootstrap, _ *KVTransfer) *Request {
	decode := *r
	decode.Disaggregation = &Disaggregation{Bootstrap: at}
	return &decode
}

// bootstrap writes the bootstrap room of a prefill or decode request.
func (o *object) bootstrap(r *Request) {
	if r.Disaggregation == nil {
		return
	}
	at := r.Disaggregation.Bootstrap
	o.text("bootstrap_host", at.Host)
	o.integer("bootstrap_port", at.Port)
	o.integer("bootstrap_room", int(at.Room))
}

// bootstrapReader reads the reply to a prefill request with the dialect's
// Decoder. It reports errors and drops the output, which is one token.
type bootstrapReader struct{ decoder Decoder }

func newBootstrapReader(d Dialect, prefill *Request) bootstrapReader {
	plain := *prefill
	// Missing log probabilities are no error here.
	plain.Logprobs = false
	return bootstrapReader{d.NewDecoder(&plain)}
}

func (r bootstrapReader) Feed(p []byte) *apierror.Error {
	chunks, err := r.decoder.Feed(p, nil)
	if err != nil {
		return err
	}
	for i := range chunks {
		if chunks[i].Finish == FinishAbort {
			return prefillAborted()
		}
	}
	return nil
}

// End does not require that the choice has finished: the decode request
// finishes it.
func (r bootstrapReader) End(trailer func(string) string) (*KVTransfer, *apierror.Error) {
	return nil, r.decoder.Trailers(trailer)
}

// grpcBootstrapRoom is the gRPC dialect with SGLang's disaggregated serving.
type grpcBootstrapRoom struct {
	*grpcDialect
	bootstrapRoom
}

// Traits are those of the gRPC service, and disaggregated serving.
func (d *grpcBootstrapRoom) Traits() Traits {
	traits := d.grpcDialect.Traits()
	traits.Disaggregation = d
	return traits
}

func (d *grpcBootstrapRoom) NewPrefillReader(prefill *Request) PrefillReader {
	return newBootstrapReader(d, prefill)
}
