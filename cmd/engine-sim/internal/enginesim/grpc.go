package enginesim

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// framePrefix is the size of the prefix of a gRPC message: a flag and the message's
// length.
const framePrefix = 5

// wireType is the encoding of a protobuf field.
type wireType int

const (
	typeString wireType = iota
	typeBool
	typeInt
	typeFloat
	typeIDs     // repeated uint32
	typeMessage // its fields become members of the outer message
	typeBias    // map from a token id, a number or a string, to a float
)

// protoField is a field of a message; name is its JSON name.
type protoField struct {
	name   string
	kind   wireType
	fields protoFields // of a typeMessage
}

type protoFields map[protowire.Number]protoField

// grpcAPI is a gRPC API of an engine. Messages are decoded and encoded by the field
// numbers of the package smg-grpc-proto.
type grpcAPI struct {
	path     string
	request  protoFields
	defaults sampling // values of absent fields
	min, max string   // names of the token limits
	// Field numbers of GenerateResponse and its two messages.
	chunk, complete             protowire.Number
	chunkFields, completeFields replyFields
	// The log probabilities that a request asks for, and their encoding for n tokens of
	// the output from an id on.
	readLogprobs   func(params) (*int, *apiError)
	appendLogprobs func(b []byte, number protowire.Number, c *choice, from, n, top int) []byte
	info           infoFields
	countsDelta    bool // completion_tokens counts only the ids of the message
	repeats        bool // a Complete repeats the last ids, otherwise all
	// The Completes of all choices come together, and only that of the choice that has ended last
	// has a finish reason (TensorRT-LLM).
	together  bool
	abortable bool // by the id of a request (SGLang)
	lenient   bool // takes any value of a sampling parameter (SGLang)
	// The error of a prompt that leaves no room for what an engine keeps free; nil: it keeps none.
	tooLong func(limit, size int) *apiError
	// Refuses what only this engine refuses, or in other words, given the error so far; nil: nothing.
	check func(err *apiError, p params, limit, size int) *apiError
	unset []string // members of which zero stands for the default
	// A stop id of the request is named as the match, even if it is the primary end token, where the engine
	// ignores its own (vLLM).
	namesListed bool
	namesEnd    bool // the primary end token is named as the match too (SGLang)
	// reads which part of a request this engine does; nil: always all
	partOf   func(*Sim, params) (*requestPart, *apiError)
	transfer protowire.Number // field number of kv_transfer_params_json in a Complete
}

// replyFields are the field numbers of a Chunk or a Complete.
type replyFields struct {
	ids, prompt, completion, cached, index, finish, matched, logprobs protowire.Number
}

var grpcAPIs = []grpcAPI{vllmGRPC, sglangGRPC, trtllmGRPC}

var vllmGRPC = grpcAPI{
	path: "/vllm.grpc.engine.VllmEngine/Generate",
	request: protoFields{
		1: {name: "request_id"},
		2: {kind: typeMessage, fields: protoFields{2: {name: "input_ids", kind: typeIDs}}},
		4: {kind: typeMessage, fields: protoFields{
			1: {name: "temperature", kind: typeFloat}, 2: {name: "top_p", kind: typeFloat},
			3: {name: "top_k", kind: typeInt}, 4: {name: "min_p", kind: typeFloat},
			5: {name: "frequency_penalty", kind: typeFloat}, 6: {name: "presence_penalty", kind: typeFloat},
			7: {name: "repetition_penalty", kind: typeFloat},
			8: {name: "max_tokens", kind: typeInt}, 9: {name: "min_tokens", kind: typeInt},
			10: {name: "stop"}, 11: {name: "stop_token_ids", kind: typeIDs},
			12: {name: "skip_special_tokens", kind: typeBool}, 14: {name: "ignore_eos", kind: typeBool},
			15: {name: "n", kind: typeInt},
			16: {name: "json_schema"}, 17: {name: "regex"}, 18: {name: "ebnf"}, 19: {name: "structural_tag"},
			22: {name: "logprobs", kind: typeInt}, 24: {name: "seed", kind: typeInt},
			26: {name: "logit_bias", kind: typeBias}, 28: {name: "grammar_from_first_token", kind: typeBool},
		}},
		5: {name: "stream", kind: typeBool}, 8: {name: "kv_transfer_params_json"},
	},
	partOf: partOfJSON, transfer: 12,
	defaults: sampling{temperature: 1, topP: 1, n: 1},
	check:    checkVLLMGRPC, unset: []string{"top_p", "n", "repetition_penalty"}, namesListed: true,
	min: "min_tokens", max: "max_tokens",
	chunk: 1, complete: 2,
	chunkFields: replyFields{ids: 1, prompt: 2, completion: 3, cached: 4, logprobs: 5, index: 7},
	completeFields: replyFields{
		ids: 1, finish: 2, prompt: 3, completion: 4, cached: 5, logprobs: 6, index: 8, matched: 10,
	},
	readLogprobs: params.readLogprobs, appendLogprobs: appendVLLMColumns,
	info: infoFields{
		id: []protowire.Number{1, 6}, generation: 2, context: 3, vocabulary: 4, kind: 8, architectures: 9, stops: 10,
		health: "Health",
	},
	countsDelta: true, repeats: true,
}

var sglangGRPC = grpcAPI{
	path: "/sglang.grpc.scheduler.SglangScheduler/Generate",
	request: protoFields{
		1: {name: "request_id"},
		2: {kind: typeMessage, fields: protoFields{2: {name: "input_ids", kind: typeIDs}}},
		4: {kind: typeMessage, fields: protoFields{
			1: {name: "temperature", kind: typeFloat}, 2: {name: "top_p", kind: typeFloat},
			3: {name: "top_k", kind: typeInt}, 4: {name: "min_p", kind: typeFloat},
			5: {name: "frequency_penalty", kind: typeFloat}, 6: {name: "presence_penalty", kind: typeFloat},
			7: {name: "repetition_penalty", kind: typeFloat},
			8: {name: "max_new_tokens", kind: typeInt}, 9: {name: "stop"},
			10: {name: "stop_token_ids", kind: typeIDs},
			11: {name: "skip_special_tokens", kind: typeBool}, 13: {name: "regex"}, 14: {name: "json_schema"},
			15: {name: "ebnf"}, 16: {name: "structural_tag"},
			17: {name: "n", kind: typeInt}, 18: {name: "min_new_tokens", kind: typeInt},
			19: {name: "ignore_eos", kind: typeBool}, 20: {name: "no_stop_trim", kind: typeBool},
			21: {name: "stream_interval", kind: typeInt}, 22: {name: "logit_bias", kind: typeBias},
		}},
		5: {name: "return_logprob", kind: typeBool}, 6: {name: "logprob_start_len", kind: typeInt},
		7: {name: "top_logprobs_num", kind: typeInt},
		10: {kind: typeMessage, fields: protoFields{
			1: {name: "bootstrap_host"}, 2: {name: "bootstrap_port", kind: typeInt},
			3: {name: "bootstrap_room", kind: typeInt},
		}},
		17: {name: "stream", kind: typeBool},
	},
	partOf:   (*Sim).readBootstrap,
	defaults: sampling{topP: 1, n: 1},
	min:      "min_new_tokens", max: "max_new_tokens",
	chunk: 2, complete: 3,
	chunkFields: replyFields{ids: 1, prompt: 2, completion: 3, cached: 4, logprobs: 5, index: 8},
	completeFields: replyFields{
		ids: 1, finish: 2, prompt: 3, completion: 4, cached: 5, logprobs: 6, index: 11, matched: 8,
	},
	readLogprobs: params.readSGLangLogprobs, appendLogprobs: appendSGLangColumns,
	info: infoFields{
		id: []protowire.Number{1, 2, 6}, generation: 3, context: 7, input: 14, vocabulary: 8, kind: 10, stops: 11,
		architectures: 15, health: "Health check passed",
	},
	repeats: true, abortable: true, namesEnd: true, lenient: true, tooLong: inputTooLong,
}

var trtllmGRPC = grpcAPI{
	path: "/trtllm.TrtllmService/Generate",
	request: protoFields{
		1: {name: "request_id"},
		2: {kind: typeMessage, fields: protoFields{2: {name: "input_ids", kind: typeIDs}}},
		3: {kind: typeMessage, fields: protoFields{
			1: {name: "beam_width", kind: typeInt}, 2: {name: "n", kind: typeInt},
			3: {name: "top_k", kind: typeInt}, 4: {name: "top_p", kind: typeFloat},
			8: {name: "seed", kind: typeInt}, 9: {name: "temperature", kind: typeFloat},
			10: {name: "min_tokens", kind: typeInt},
			12: {name: "repetition_penalty", kind: typeFloat}, 13: {name: "presence_penalty", kind: typeFloat},
			14: {name: "frequency_penalty", kind: typeFloat},
			19: {name: "min_p", kind: typeFloat},
		}},
		4: {kind: typeMessage, fields: protoFields{
			1: {name: "logprobs", kind: typeInt}, 5: {name: "exclude_input_from_output", kind: typeBool},
		}},
		5: {name: "max_tokens", kind: typeInt},
		6: {name: "stream", kind: typeBool},
		11: {kind: typeMessage, fields: protoFields{
			1: {name: "guide_type", kind: typeInt}, 2: {name: "structural_tag"},
		}},
		19: {name: "cache_salt_id", kind: typeInt},
		22: {name: "stop_token_ids", kind: typeIDs}, 23: {name: "ignore_eos", kind: typeBool},
		26: {name: "include_stop_token_in_output", kind: typeBool},
	},
	defaults: sampling{temperature: 1, topP: 1, n: 1},
	min:      "min_tokens", max: "max_tokens",
	chunk: 2, complete: 3,
	chunkFields: replyFields{ids: 1, index: 2, prompt: 3, completion: 4, cached: 5, logprobs: 6},
	completeFields: replyFields{
		ids: 1, index: 2, finish: 3, prompt: 5, completion: 6, cached: 7, logprobs: 8, matched: 13,
	},
	readLogprobs: params.readLogprobs, appendLogprobs: appendRows,
	info:     infoFields{id: []protowire.Number{1}, longest: 2, context: 3, vocabulary: 5, status: true},
	together: true,
}

// parse decodes a framed request to JSON members.
func (a grpcAPI) parse(body []byte) (map[string]json.RawMessage, *apiError) {
	// A real server also reads compressed messages (flag 1). The filter sends none, so one is a mistake of
	// the filter.
	if len(body) < framePrefix || body[0] != 0 ||
		uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-framePrefix) {
		return nil, &apiError{
			status: http.StatusInternalServerError, message: "the request is not a single gRPC message",
		}
	}

	p := map[string]json.RawMessage{}
	if !a.request.read(body[framePrefix:], p) {
		return nil, &apiError{status: http.StatusInternalServerError, message: "Exception deserializing request!"}
	}
	return p, nil
}

// read adds the fields of a message to p. It returns false if the message is
// invalid.
func (f protoFields) read(b []byte, p map[string]json.RawMessage) bool {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}

		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return false
		}
		// Fields that are not in the table are skipped, as protobuf requires: a newer filter may send more.
		if field, known := f[number]; known && !field.read(kind, b[:n], p) {
			return false
		}

		b = b[n:]
	}
	return true
}

// read adds a complete value to p. It returns false if the type is wrong.
func (f protoField) read(kind protowire.Type, value []byte, p map[string]json.RawMessage) bool {
	switch kind {
	case protowire.VarintType:
		v, _ := protowire.ConsumeVarint(value)
		return f.readInt(v, p)
	case protowire.Fixed32Type:
		bits, _ := protowire.ConsumeFixed32(value)
		p[f.name] = strconv.AppendFloat(nil, float64(math.Float32frombits(bits)), 'g', -1, 32)
		return f.kind == typeFloat

	case protowire.BytesType:
		inner, _ := protowire.ConsumeBytes(value)
		return f.readBytes(inner, p)
	}

	return false
}

func (f protoField) readInt(v uint64, p map[string]json.RawMessage) bool {
	switch f.kind {
	case typeBool:
		p[f.name] = strconv.AppendBool(nil, v != 0)
	case typeInt:
		p[f.name] = strconv.AppendInt(nil, int64(v), 10) //nolint:gosec // two's complement is protobuf's form
	default:
		return false
	}
	return true
}

func (f protoField) readBytes(b []byte, p map[string]json.RawMessage) bool {
	switch f.kind {
	case typeString:
		p[f.name] = appendQuoted(nil, string(b))
	case typeMessage:
		return f.fields.read(b, p)

	case typeIDs:
		// proto3 packs repeated numbers, so they arrive as bytes.
		var ids []harmony.Token
		for len(b) > 0 {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 || v > math.MaxUint32 {
				return false
			}
			ids, b = append(ids, harmony.Token(v)), b[n:]
		}
		p[f.name] = appendIDs(nil, ids)

	case typeBias:
		return f.readBias(b, p)
	default:
		return false
	}

	return true
}

// readBias adds an entry of a map.
func (f protoField) readBias(b []byte, p map[string]json.RawMessage) bool {
	entry := map[string]json.RawMessage{}
	keys := protoFields{1: {name: "key", kind: typeInt}, 2: {name: "value", kind: typeFloat}}

	// The key of vLLM's map is a number, that of SGLang's a string.
	if number, kind, _ := protowire.ConsumeTag(b); number == 1 && kind == protowire.BytesType {
		keys[1] = protoField{name: "key"}
	}

	bias := map[string]json.RawMessage{}
	if !keys.read(b, entry) || len(p[f.name]) > 0 && json.Unmarshal(p[f.name], &bias) != nil {
		return false
	}

	key := string(entry["key"])
	if text, err := strconv.Unquote(key); err == nil {
		key = text
	}

	bias[key] = entry["value"]
	all, err := json.Marshal(bias)
	p[f.name] = all
	return err == nil
}

func (a grpcAPI) read(s *Sim, _ http.Header, body map[string]json.RawMessage) (*modelRequest, *apiError) {
	p := params(body)
	req := &modelRequest{model: s.options.Models[0], form: formFrames, abortable: a.abortable}
	if err := p.getAll(
		field{"request_id", &req.id}, field{"stream", &req.stream},
		field{"include_stop_token_in_output", &req.returnIDs},
	); err != nil {
		return nil, err
	}

	if req.id == "" {
		req.id = s.nextID()
	}

	limit := s.options.ContextLength
	defaults := a.defaults
	defaults.maxTokens = limit
	var sampling sampling
	var err *apiError
	if req.prompt, err = p.takePrompt("input_ids"); err == nil {
		read := params.readSampling
		if a.lenient {
			read = params.takeSampling
		}
		sampling, err = read(p.unlessZero(a.unset), defaults, a.min, a.max, "seed")
		sampling.n = max(sampling.n, 1)
	}
	if a.check != nil {
		err = a.check(err, p.unlessZero(a.unset), limit, len(req.prompt))
	}
	if err != nil {
		return req, err
	}

	if a.tooLong != nil && len(req.prompt) >= limit-inputReserve {
		return req, a.tooLong(limit-inputReserve, len(req.prompt))
	}
	if len(req.prompt) >= limit {
		return req, promptTooLong(limit, len(req.prompt))
	}

	if req.logprobs, err = a.readLogprobs(p); err != nil {
		return req, err
	}

	req.n, req.seed, req.interval = sampling.n, uint64(sampling.seed), sampling.interval
	req.limits = sampling.limits(limit - len(req.prompt))
	return req, nil
}

func (a grpcAPI) writeError(w http.ResponseWriter, err *apiError, _ bool) {
	message := err.message
	if a.abortable && err.grammar != "" {
		message = err.grammar
	}
	writeGRPCStatus(w, err.status, message)
}

func (a grpcAPI) begin(_ *Sim, req *modelRequest, choices []*choice) reply {
	return &grpcReply{api: a, req: req, choices: choices, chunkStart: make([]int, len(choices))}
}

type grpcReply struct {
	api        grpcAPI
	req        *modelRequest
	choices    []*choice
	chunkStart []int   // index in the output at which a choice's last chunk begins
	message    []byte  // the inner message
	lastEnded  *choice // of choices that end together
}

func (r *grpcReply) event(b []byte, c *choice, from int) []byte {
	ids := r.visibleIDs(c, from)
	// A chunk without ids says nothing. What the stop token would add is in the Complete.
	if len(ids) == 0 && c.maxTokens > 0 {
		return b
	}

	// The Complete of vLLM and SGLang repeats the ids of the last chunk, so its place is kept.
	r.chunkStart[c.index] = from
	r.fill(r.api.chunkFields, c, from, ids)
	return r.wrap(b, r.api.chunk)
}

// visibleIDs returns the ids from an index on. TensorRT-LLM omits the stop token
// unless the request asks for it.
func (r *grpcReply) visibleIDs(c *choice, from int) []harmony.Token {
	ids := c.output[from:]
	if r.api.repeats || r.req.returnIDs || c.finish != "stop" || len(ids) == 0 {
		return ids
	}
	return ids[:len(ids)-1]
}

func (r *grpcReply) ended(c *choice) []*choice {
	if !r.api.together {
		return []*choice{c}
	}

	// An abort ends them all.
	running := func(o *choice) bool { return o.finish == "" }
	if abortStatus(c.finish) == 0 && slices.ContainsFunc(r.choices, running) {
		return nil
	}
	r.lastEnded = c
	return r.choices
}

func (r *grpcReply) last(b []byte, c *choice) []byte {
	from := 0
	if r.api.repeats && r.req.stream {
		// In a stream the Complete repeats the last chunk, otherwise it has the whole output.
		from = r.chunkStart[c.index]
	}

	f := r.api.completeFields
	r.fill(f, c, from, r.visibleIDs(c, from))

	finish := c.finish
	if r.lastEnded != nil && r.lastEnded != c {
		finish = "" // TensorRT-LLM does not say why the others have ended
	}
	if abortStatus(finish) != 0 {
		finish = "abort"
	}
	if finish != "" {
		r.message = protowire.AppendString(protowire.AppendTag(r.message, f.finish, protowire.BytesType), finish)
	}

	// vLLM names its primary end token as the one that matched only if it is told to ignore it.
	named := r.api.namesListed && c.ignoreEOS || r.api.namesEnd
	if n := len(c.output); finish == "stop" && (c.output[n-1] != harmony.TokenReturn || named) {
		r.integer(f.matched, int(c.output[n-1]))
	}

	if transfer := r.req.producedText(); transfer != "" {
		r.message = protowire.AppendTag(r.message, r.api.transfer, protowire.BytesType)
		r.message = protowire.AppendString(r.message, transfer)
	}

	return r.wrap(b, r.api.complete)
}

// fill starts a new inner message with ids, which are the output from an index on.
func (r *grpcReply) fill(f replyFields, c *choice, from int, ids []harmony.Token) {
	r.message = r.message[:0]
	if len(ids) > 0 {
		var packed []byte
		for _, id := range ids {
			packed = protowire.AppendVarint(packed, uint64(id))
		}
		r.message = protowire.AppendBytes(protowire.AppendTag(r.message, f.ids, protowire.BytesType), packed)
	}

	r.integer(f.prompt, len(r.req.prompt))
	if r.api.countsDelta && r.req.stream {
		r.integer(f.completion, len(ids))
	} else {
		r.integer(f.completion, len(c.output))
	}

	r.integer(f.cached, r.req.cached)

	if r.req.logprobs != nil && len(ids) > 0 {
		r.message = r.api.appendLogprobs(r.message, f.logprobs, c, from, len(ids), *r.req.logprobs)
	}
	r.integer(f.index, c.index)
}

// integer adds a field unless it is 0.
func (r *grpcReply) integer(number protowire.Number, v int) {
	if v != 0 {
		r.message = protowire.AppendTag(r.message, number, protowire.VarintType)
		r.message = protowire.AppendVarint(r.message, uint64(v)) //nolint:gosec // a count
	}
}

// wrap appends a GenerateResponse with the inner message.
func (r *grpcReply) wrap(b []byte, number protowire.Number) []byte {
	if r.api.chunk == 2 { // field 1 is the request's id
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), r.req.id)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), r.message)
}

func (r *grpcReply) usage(b []byte) []byte { return b }

// single returns the Complete of the first choice: several choices are always
// streamed.
func (r *grpcReply) single(b []byte) []byte { return r.last(b, r.choices[0]) }

// grpcCodes are the gRPC codes of HTTP statuses.
var grpcCodes = map[int]int{
	http.StatusBadRequest: 3, http.StatusGatewayTimeout: 4, http.StatusNotFound: 5, http.StatusForbidden: 7,
	http.StatusTooManyRequests: 8, http.StatusInternalServerError: 13,
	http.StatusServiceUnavailable: 14, http.StatusUnauthorized: 16,
}

func grpcCode(status int) int {
	if code, ok := grpcCodes[status]; ok {
		return code
	}
	return 2 // UNKNOWN
}

// writeGRPCStatus answers with headers only.
func writeGRPCStatus(w http.ResponseWriter, status int, message string) {
	w.Header().Set("content-type", "application/grpc")
	setGRPCStatus(w.Header(), "", grpcCode(status), message)
	w.WriteHeader(http.StatusOK)
}

func setGRPCStatus(h http.Header, prefix string, code int, message string) {
	h.Set(prefix+"Grpc-Status", strconv.Itoa(code))
	if message != "" {
		h.Set(prefix+"Grpc-Message", url.PathEscape(message))
	}
}
