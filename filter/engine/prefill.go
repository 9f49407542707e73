package engine

import (
	"encoding/json"
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

// promptGivenUp is the error of a prefill leg that the engine has ended before
// the prompt was computed.
func promptGivenUp() *apierror.Error {
	return badGateway("The engine gave up the prompt of this request.")
}

// End does not ask for a finished choice: the decode leg finishes it.
func (r roomReader) End(trailer func(string) string) (*Transfer, *apierror.Error) {
	if t, ok := r.decoder.(TrailerReader); ok {
		return nil, t.Trailers(trailer)
	}
	return nil, nil
}

// handedOver is disaggregation as vLLM has it: the prefill engine makes one
// token, which is dropped, and tells where the prompt's keys and values are.
type handedOver struct{}

func (handedOver) MeetsInRoom() bool { return false }

// keepForDecode are the parameters that have a prefill engine keep what it
// computes until a decode engine has fetched it.
const keepForDecode = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

func (handedOver) PrefillLeg(r *Request, _ *Bootstrap) (*Request, *apierror.Error) {
	leg := *r
	leg.N, leg.MaxTokens, leg.MinTokens = 1, 1, 1
	leg.Constraint, leg.StopTokens, leg.Whole, leg.Logprobs = nil, nil, false, false
	leg.Leg = &Leg{Params: []byte(keepForDecode), Whole: true}
	return &leg, nil
}

func (handedOver) DecodeLeg(r *Request, _ *Bootstrap, told *Transfer) *Request {
	leg := *r
	leg.Leg = &Leg{Params: told.Params}
	return &leg
}

// streamed writes that the reply is to be a stream, with its usage, but where
// a leg wants it whole. The ids of that one's token do not matter.
func (o *object) streamed(r *Request) {
	if r.Leg != nil && r.Leg.Whole {
		o.boolean("stream", false)
		return
	}
	o.boolean("stream", true)
	o.name("stream_options")
	options := newObject(o.b)
	options.boolean("include_usage", true)
	o.b = options.end()
}

// transfer writes the kv_transfer_params of a leg.
func (o *object) transfer(r *Request) {
	if r.Leg == nil {
		return
	}
	o.name("kv_transfer_params")
	o.b = append(o.b, r.Leg.Params...)
}

// noTransfer is the error of a prefill leg whose answer does not say where the
// prompt's keys and values are.
func noTransfer() *apierror.Error {
	return badGateway("The engine computed the prompt and did not say where. Its operator has to give it a --kv-transfer-config.")
}

// wholeReader reads a prefill leg's answer that is one JSON object.
type wholeReader struct{ body []byte }

func (r *wholeReader) Feed(p []byte) *apierror.Error {
	r.body = append(r.body, p...)
	return nil
}

func (r *wholeReader) End(func(string) string) (*Transfer, *apierror.Error) {
	var d vllmDecoder
	d.usage.CachedTokens = Unknown
	var params []byte
	givenUp := false
	s := scanner{b: r.body}
	if s.enter('{') {
		for s.more('}') {
			switch string(s.key()) {
			case "kv_transfer_params":
				params = s.raw()
			case "usage":
				d.readUsage(&s)
			case "choices":
				s.elements(func() { givenUp = givesUp(vllmFinish(s.finishReason())) || givenUp })
			case "error":
				return nil, eventError(r.body)
			default:
				s.skip()
			}
		}
	}
	if !s.whole() {
		return nil, unreadable("the answer to a prefill leg is not vLLM's")
	}
	if givenUp {
		return nil, promptGivenUp()
	}
	return newTransfer(params, d.usage)
}

// finishReason reads that of a choice.
func (s *scanner) finishReason() (raw []byte) {
	if !s.enter('{') {
		return nil
	}
	for s.more('}') {
		if string(s.key()) == "finish_reason" {
			raw = s.raw()
		} else {
			s.skip()
		}
	}
	return raw
}

// givesUp tells whether a prefill leg that ended so has not computed its prompt.
func givesUp(finish Finish, err *apierror.Error) bool { return err != nil || finish == FinishAbort }

// newTransfer checks what goes into the decode leg as it is.
func newTransfer(params []byte, usage Usage) (*Transfer, *apierror.Error) {
	if len(params) == 0 || params[0] != '{' || !json.Valid(params) {
		return nil, noTransfer()
	}
	return &Transfer{Params: params, Usage: usage}, nil
}
