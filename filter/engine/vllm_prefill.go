package engine

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

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

// grpcHandedOver is the same for vLLM's gRPC service.
type grpcHandedOver struct {
	*grpcDialect
	handedOver
	// transfer is the field of kv_transfer_params, JSON text, in a Complete.
	transfer protowire.Number
}

func (d grpcHandedOver) NewPrefillReader(*Request) PrefillReader {
	return &completeReader{dialect: d}
}

// completeReader reads a prefill leg's answer that is one Complete.
type completeReader struct {
	dialect grpcHandedOver
	frames  frames
	params  []byte
	usage   Usage
	givenUp bool
}

func (r *completeReader) Feed(p []byte) *apierror.Error {
	for {
		m, rest, ok := r.frames.next(p)
		if !ok {
			if r.frames.fault != "" {
				return unreadable(r.frames.fault)
			}
			return nil
		}
		p = rest
		if !r.read(m) {
			return notProtobuf()
		}
	}
}

// read takes one GenerateResponse; false if it is none.
func (r *completeReader) read(m []byte) bool {
	return readFields(m, func(number protowire.Number, kind protowire.Type, value []byte) bool {
		if number != r.dialect.complete.field || kind != protowire.BytesType {
			return true
		}
		complete, _ := protowire.ConsumeBytes(value)
		return readFields(complete, r.take)
	})
}

// take takes a field of the Complete.
func (r *completeReader) take(number protowire.Number, kind protowire.Type, value []byte) bool {
	switch {
	case number == r.dialect.transfer && kind == protowire.BytesType:
		params, _ := protowire.ConsumeBytes(value)
		r.params = append([]byte(nil), params...)
	case number == r.dialect.complete.finish && kind == protowire.BytesType:
		reason, _ := protowire.ConsumeBytes(value)
		r.givenUp = givesUp(grpcFinish(reason))
	case number == r.dialect.complete.cached && kind == protowire.VarintType:
		if n, _ := protowire.ConsumeVarint(value); n <= maxCount {
			r.usage.CachedTokens = int(n)
		}
	}
	return true
}

func (r *completeReader) End(trailer func(string) string) (*Transfer, *apierror.Error) {
	if err := statusError(trailer); err != nil {
		return nil, err
	}
	if r.givenUp {
		return nil, promptGivenUp()
	}
	return newTransfer(r.params, r.usage)
}
