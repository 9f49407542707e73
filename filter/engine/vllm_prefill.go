package engine

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// kvTransfer implements vLLM's disaggregated serving: the prefill engine
// generates one token, which is dropped, and returns the location of the
// prompt's KV cache, from which the decode engine fetches it.
type kvTransfer struct{}

func (kvTransfer) UsesBootstrapRoom() bool { return false }

// prefillParams are the kv_transfer_params of a prefill request. With them the
// engine keeps the KV cache until a decode engine has fetched it.
const prefillParams = `{"do_remote_decode":true,"do_remote_prefill":false,` +
	`"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

func (kvTransfer) PrefillRequest(r *Request, _ *Bootstrap) (*Request, *apierror.Error) {
	// The token is dropped: nothing that the request says of the output matters.
	prefill := *r
	prefill.N, prefill.MaxTokens, prefill.MinTokens = 1, 1, 1
	prefill.Constraint, prefill.StopTokens, prefill.Whole, prefill.Logprobs = nil, nil, false, false
	prefill.Disaggregation = &Disaggregation{KVTransferParams: []byte(prefillParams), Unstreamed: true}
	return &prefill, nil
}

func (kvTransfer) DecodeRequest(r *Request, _ *Bootstrap, transfer *KVTransfer) *Request {
	decode := *r
	decode.Disaggregation = &Disaggregation{KVTransferParams: transfer.Params}
	return &decode
}

// streaming requests a stream that includes the usage, or one object for
// requests that are not streamed.
func (o *object) streaming(r *Request) {
	if r.unstreamed() {
		o.boolean("stream", false)
		return
	}
	o.boolean("stream", true)
	o.name("stream_options")
	options := newObject(o.b)
	options.boolean("include_usage", true)
	o.b = options.end()
}

// kvTransferParams writes the kv_transfer_params of a prefill or decode request.
func (o *object) kvTransferParams(r *Request) {
	if r.Disaggregation == nil {
		return
	}
	o.name("kv_transfer_params")
	o.b = append(o.b, r.Disaggregation.KVTransferParams...)
}

// missingTransfer returns the error for a prefill reply without the location of
// the prompt's KV cache.
func missingTransfer() *apierror.Error {
	return badGateway("The prefill engine returned no kv_transfer_params. " +
		"The engine's operator has to start it with --kv-transfer-config.")
}

// objectReader reads a prefill reply that is one JSON object.
type objectReader struct{ body []byte }

func (r *objectReader) Feed(p []byte) *apierror.Error {
	// Its caller bounds the size.
	r.body = append(r.body, p...)
	return nil
}

func (r *objectReader) End(func(string) string) (*KVTransfer, *apierror.Error) {
	var d vllmDecoder
	d.usage.CachedTokens = Unknown
	var params []byte
	aborted := false

	s := scanner{b: r.body}
	if s.enter('{') {
		for s.more('}') {
			switch string(s.key()) {
			case "kv_transfer_params":
				params = s.raw()
			case "usage":
				d.readUsage(&s)
			case "choices":
				s.elements(func() { aborted = abortsPrefill(vllmFinish(s.finishReason())) || aborted })
			case "error":
				return nil, eventError(r.body)
			default:
				s.skip()
			}
		}
	}

	if !s.whole() {
		return nil, unreadable("the reply to a prefill request is not vLLM's")
	}
	if aborted {
		return nil, prefillAborted()
	}
	return newTransfer(params, d.usage)
}

// finishReason reads the finish_reason of a choice, as JSON.
func (s *scanner) finishReason() (raw []byte) {
	s.member("finish_reason", func() { raw = s.raw() })
	return raw
}

// abortsPrefill reports whether a prefill request that ended with this result of
// vllmFinish or grpcFinish has not computed its prompt.
func abortsPrefill(finish Finish, err *apierror.Error) bool {
	return err != nil || finish == FinishAbort
}

// newTransfer returns the result of a prefill request. It checks that params is a
// JSON object, because it becomes part of the decode request.
func newTransfer(params []byte, usage Usage) (*KVTransfer, *apierror.Error) {
	if len(params) == 0 || params[0] != '{' || !json.Valid(params) {
		return nil, missingTransfer()
	}
	return &KVTransfer{Params: params, Usage: usage}, nil
}

// grpcKVTransfer is the gRPC dialect with vLLM's disaggregated serving.
type grpcKVTransfer struct {
	*grpcDialect
	kvTransfer
	// paramsField is the field of kv_transfer_params, a JSON text, in a Complete.
	paramsField protowire.Number
}

// Traits are those of the gRPC service, and disaggregated serving.
func (d *grpcKVTransfer) Traits() Traits {
	traits := d.grpcDialect.Traits()
	traits.Disaggregation = d
	return traits
}

func (d *grpcKVTransfer) NewPrefillReader(*Request) PrefillReader {
	return &completeReader{dialect: d}
}

// completeReader reads a prefill reply that is one Complete.
type completeReader struct {
	dialect *grpcKVTransfer
	frames  frames
	params  []byte
	usage   Usage
	aborted bool
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

// read decodes one GenerateResponse. It returns false if m is none.
func (r *completeReader) read(m []byte) bool {
	return readFields(m, func(number protowire.Number, kind protowire.Type, value []byte) bool {
		if number != r.dialect.complete.field || kind != protowire.BytesType {
			return true
		}
		complete, _ := protowire.ConsumeBytes(value)
		return readFields(complete, r.readField)
	})
}

// readField reads a field of the Complete.
func (r *completeReader) readField(number protowire.Number, kind protowire.Type, value []byte) bool {
	switch {
	case number == r.dialect.paramsField && kind == protowire.BytesType:
		params, _ := protowire.ConsumeBytes(value)
		r.params = append([]byte(nil), params...)
	case number == r.dialect.complete.finish && kind == protowire.BytesType:
		reason, _ := protowire.ConsumeBytes(value)
		r.aborted = abortsPrefill(grpcFinish(reason))
	case number == r.dialect.complete.cached && kind == protowire.VarintType:
		if n, _ := protowire.ConsumeVarint(value); n <= maxCount {
			r.usage.CachedTokens = int(n)
		}
	}
	return true
}

func (r *completeReader) End(trailer func(string) string) (*KVTransfer, *apierror.Error) {
	if err := statusError(trailer); err != nil {
		return nil, err
	}
	if r.aborted {
		return nil, prefillAborted()
	}
	return newTransfer(r.params, r.usage)
}
