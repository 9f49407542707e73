package engine

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// inRoom is disaggregation as SGLang has it: the same request goes to both, each
// does its part, and the decode engine fetches what the prefill engine has
// computed.
type inRoom struct{}

func (inRoom) MeetsInRoom() bool { return true }

func (inRoom) PrefillLeg(r *Request, at *Bootstrap) (*Request, *apierror.Error) {
	if r.N > 1 {
		return nil, apierror.Invalid("n", "n must be 1 where prompt and output are computed by different engines.")
	}
	leg := *r
	leg.Leg = &Leg{Bootstrap: at}
	return &leg, nil
}

func (d inRoom) DecodeLeg(r *Request, at *Bootstrap, _ *Transfer) *Request {
	leg := *r
	leg.Leg = &Leg{Bootstrap: at}
	return &leg
}

// bootstrap writes where the legs meet.
func (o *object) bootstrap(r *Request) {
	if r.Leg == nil {
		return
	}
	at := r.Leg.Bootstrap
	o.text("bootstrap_host", at.Host)
	o.integer("bootstrap_port", at.Port)
	o.integer("bootstrap_room", int(at.Room))
}

// roomReader reads a prefill leg's answer as any answer: of its one token
// nothing is kept, but failures count.
type roomReader struct{ decoder Decoder }

func newRoomReader(d Dialect, leg *Request) roomReader {
	plain := *leg
	plain.Logprobs = false // are not missed
	return roomReader{d.NewDecoder(&plain)}
}

func (r roomReader) Feed(p []byte) *apierror.Error {
	chunks, err := r.decoder.Feed(p, nil)
	if err != nil {
		return err
	}
	for i := range chunks {
		if chunks[i].Finish == FinishAbort {
			return promptGivenUp()
		}
	}
	return nil
}

// End does not ask for a finished choice: the decode leg finishes it.
func (r roomReader) End(trailer func(string) string) (*Transfer, *apierror.Error) {
	if t, ok := r.decoder.(TrailerReader); ok {
		return nil, t.Trailers(trailer)
	}
	return nil, nil
}

// grpcInRoom is the same for SGLang's gRPC service.
type grpcInRoom struct {
	*grpcDialect
	inRoom
}

func (d grpcInRoom) NewPrefillReader(leg *Request) PrefillReader { return newRoomReader(d, leg) }
