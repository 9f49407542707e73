// Package enginesim simulates engines that serve gpt-oss. It implements the token-id
// APIs of SGLang (POST /generate, gRPC), vLLM (POST /v1/completions, POST
// /inference/v1/generate, gRPC), TensorRT-LLM (gRPC) and llama.cpp (POST /completion)
// over a scripted model. The demo, tests and load tests use it in place of GPUs.
//
// # The model
//
// The model parses the prompt's tokens and follows the lines of the last user message,
// of which [Reference] is the list. A prompt that is not a Harmony conversation gets
// filler words until max_tokens.
//
// The supported grammars are xgrammar's structural tags, without EBNF and with special
// tokens as tokens. If a grammar does not accept the scripted output, the model writes
// the shortest text that it accepts, if possible with the same reasoning and header.
//
// # The engine
//
// The engine stops at stop ids and limits, counts cached prefixes, notices when a
// client disconnects, and records requests: GET /sim/requests. A [Behavior] is its
// timing and its faults. As SGLang it aborts a request, also one whose client has left,
// with all whose ids begin with its id. With Options.Role it is the prefill or the decode engine of a
// disaggregated SGLang or vLLM; its bootstrap server is on its own port. gRPC requires
// a server with unencrypted HTTP/2. Further paths of engines are /health, /v1/models,
// /get_model_info and /abort_request; gRPC
// has GetModelInfo, HealthCheck and GetServerInfo. /v1/embeddings,
// /v1/chat/completions and /sim/echo are for requests that the filter passes through.
package enginesim

import (
	"context"
	_ "embed" // for Reference
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Reference is the text that explains the lines of a message, the directives and the
// records. "engine-sim -help" and docs/simulator.md show it.
//
//go:embed script.txt
var Reference string

// Options configure a Sim. Zero values stand for the defaults.
type Options struct {
	// served model names; default: gpt-oss-20b and gpt-oss-120b, with and without "openai/"
	Models        []string
	ContextLength int   // tokens; default 131072
	BlockSize     int   // block size of the prefix cache in tokens; default 16
	MaxBody       int64 // largest body of a token request in bytes; default 64 MiB
	Records       int   // number of records kept; default 1000; none if below 0
	// [RolePrefill] or [RoleDecode]; default: SGLang does both, vLLM what each request asks for
	Role     string
	Behavior Behavior         // of all requests; their own directives override it
	Now      func() time.Time // default: time.Now
}

// Sim is a simulated engine, an [http.Handler]. It is safe for concurrent use.
type Sim struct {
	options Options
	mux     *http.ServeMux
	cache   *prefixCache
	*recorder
	abortable *abortable
	transfers *transfers
	// planning has an element for each plan that is being made: see serve.
	planning chan struct{}

	mu      sync.Mutex
	number  int             // the last generated request id
	prompts map[string]bool // prompts whose reply differs when they are repeated
}

// New returns an engine.
func New(o Options) *Sim {
	if len(o.Models) == 0 {
		o.Models = []string{"openai/gpt-oss-20b", "openai/gpt-oss-120b", "gpt-oss-20b", "gpt-oss-120b"}
	}
	o.ContextLength = defaulted(o.ContextLength, 131072)
	o.BlockSize = defaulted(o.BlockSize, 16)
	o.MaxBody = defaulted(o.MaxBody, 64<<20)
	o.Records = defaulted(o.Records, 1000)
	if o.Now == nil {
		o.Now = time.Now
	}

	s := &Sim{
		options:   o,
		mux:       http.NewServeMux(),
		cache:     newPrefixCache(o.BlockSize),
		recorder:  newRecorder(o.Records, o.Now),
		abortable: &abortable{aborts: map[string]context.CancelCauseFunc{}},
		prompts:   map[string]bool{},
		transfers: newTransfers(),
		planning:  make(chan struct{}, runtime.GOMAXPROCS(0)),
	}

	s.routes()
	return s
}

// defaulted returns v, or the default if v is 0.
func defaulted[T int | int64 | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return v
}

func (s *Sim) routes() {
	for path, a := range map[string]api{
		"/generate": sglangAPI{}, "/v1/completions": vllmAPI{}, "/inference/v1/generate": vllmGenerateAPI{},
	} {
		s.mux.HandleFunc("POST "+path, s.handle(a))
		s.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
		})
	}
	s.mux.HandleFunc("POST /completion", s.handle(llamacppAPI{}))

	for _, a := range grpcAPIs {
		s.mux.HandleFunc("POST "+a.path, s.handle(a))
		for call, answer := range a.calls(s) {
			s.mux.HandleFunc("POST "+strings.TrimSuffix(a.path, "Generate")+call, answer)
		}
	}

	s.mux.HandleFunc("POST /abort_request", s.abortable.serveAbort)
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /get_model_info", s.modelInfo)
	s.mux.HandleFunc("GET /model_info", s.modelInfo)

	s.mux.HandleFunc("POST /sim/room", s.serveRoom)
	s.mux.HandleFunc("POST /sim/kv", s.serveKV)
	s.mux.HandleFunc("GET /sim/requests", s.serveRecords)
	s.mux.HandleFunc("GET /sim/ids", s.serveIDs)
	s.mux.HandleFunc("DELETE /sim/requests", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	})

	s.mux.HandleFunc("POST /sim/echo", s.recorded(s.echo))
	s.mux.HandleFunc("POST /v1/embeddings", s.recorded(s.embeddings))
	s.mux.HandleFunc("POST /v1/chat/completions", s.recorded(s.otherModelChat))
	s.mux.HandleFunc("/", s.recorded(func(w http.ResponseWriter, r *http.Request, _ *Record) {
		if unknownGRPC(w, r) {
			return
		}
		writeJSON(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
	}))
}

// ServeHTTP implements [http.Handler].
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests returns the kept records, oldest first.
func (s *Sim) Requests() []Record { return s.list() }

// Reset deletes the records.
func (s *Sim) Reset() { s.reset() }

// Await waits for a record for which wanted returns true, and returns the oldest
// one. It returns an error when ctx ends.
func (s *Sim) Await(ctx context.Context, wanted func(Record) bool) (Record, error) {
	return s.await(ctx, wanted)
}

// api is the API of an engine.
type api interface {
	// read parses a request. With an error it may also return the request, as far as it
	// is parsed.
	read(s *Sim, header http.Header, params map[string]json.RawMessage) (req *modelRequest, err *apiError)
	// writeError answers with an error, in the stream if the API does so.
	writeError(w http.ResponseWriter, err *apiError, stream bool)
	// begin returns the encoder of a response.
	begin(s *Sim, req *modelRequest, choices []*choice) reply
}

// reply encodes a response in JSON.
type reply interface {
	// event encodes an update of a choice: the ids from output[from] on.
	event(b []byte, c *choice, from int) []byte
	// usage encodes the last event before [DONE], nothing if the API has none.
	usage(b []byte) []byte
	// single encodes a response that is not streamed.
	single(b []byte) []byte
}

// closer is a reply that ends each choice with a message of its own.
type closer interface {
	last(b []byte, c *choice) []byte
}

// gatherer is a closer that may keep back the ends of choices.
type gatherer interface {
	// ended returns the choices whose ends are due when c has ended.
	ended(c *choice) []*choice
}

// parser is an API whose requests are not JSON. It converts them to JSON members.
type parser interface {
	parse(body []byte) (map[string]json.RawMessage, *apiError)
}

// modelRequest is a request to the model, independent of the API.
type modelRequest struct {
	keepsEnd bool // the end token has a text
	id       string
	model    string
	prompt   []harmony.Token
	n        int
	limits   limits
	seed     uint64
	stream   bool
	interval int // stream_interval; 0 if not set
	salt     string

	form form

	logprobs    *int // number of top log probabilities per token; nil: no log probabilities at all
	tokensAsIDs bool // return_tokens_as_token_ids

	includeUsage, continuousUsage, returnIDs bool // vLLM, llama.cpp and TensorRT-LLM

	late *apiError // SGLang: why the grammar does not compile, which it says after everything else

	abortable bool // by its id, and with every id that begins with it (SGLang)

	behavior Behavior
	part     *requestPart // nil: the request is not disaggregated
	cached   int
	created  int64
}

func (s *Sim) handle(a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := s.begin(r)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxBody))
		if err != nil {
			s.end(rec, StateFailed, http.StatusRequestEntityTooLarge)
			writeJSON(w, http.StatusRequestEntityTooLarge, []byte(`{"detail":"Request Entity Too Large"}`))
			return
		}
		s.change(rec, func(rec *Record) { rec.BodyBytes = int64(len(body)) })
		s.serve(w, r, a, body, rec)
	}
}

func (s *Sim) serve(w http.ResponseWriter, r *http.Request, a api, body []byte, rec *Record) {
	params, failed := parse(a, body)
	if failed != nil {
		s.reject(w, a, failed, false, rec)
		return
	}

	req, failed := a.read(s, r.Header, params)
	role := ""
	if l, ok := a.(partReader); ok && failed == nil {
		if req.part, failed = l.readPart(s, params); req.part != nil {
			role = req.part.role
		}
	}

	// The record is written before a failure is answered: a test reads it after the answer.
	rest, err := json.Marshal(params) // without the prompt, which read has removed
	if err != nil {
		rest = nil
	}
	s.change(rec, func(rec *Record) {
		rec.Params, rec.Role = rest, role
		if req != nil {
			rec.RequestID, rec.PromptIDs = req.id, req.prompt
		}
	})

	if failed != nil {
		s.reject(w, a, failed, req != nil && req.stream, rec)
		return
	}

	// A plan takes a core, and all of a long script's tokens. The clients of a flood leave sooner
	// than their plans can be made: theirs would pile up to gigabytes.
	select {
	case s.planning <- struct{}{}:
	case <-r.Context().Done():
		s.end(rec, StateCancelled, 0)
		return
	}
	seq, err := s.plan(req, r.Header.Get("x-engine-sim"), role)
	<-s.planning
	if err != nil {
		var refused *apiError
		if !errors.As(err, &refused) {
			refused = badRequest("", err.Error())
		}
		s.reject(w, a, refused, req.stream, rec)
		return
	}

	s.answer(w, r, a, req, seq, rec)
}

// plan makes what the engine is going to say to a prompt. The header is that of the request
// with directives. An error is the client's.
func (s *Sim) plan(req *modelRequest, header, role string) (seq sequence, err error) {
	p := readPrompt(req.prompt)
	user := ""
	if i := p.last(); i >= 0 {
		user = p.messages[i].body
	}
	// Only a line "AGAIN …" asks whether the prompt was seen before, so only prompts with one are kept.
	p.repeated = strings.Contains(user, repeatedMark) && s.isRepeated(req.prompt)

	req.behavior, err = s.options.Behavior.With(header + " " + directives(user, role))
	if err != nil {
		return seq, fmt.Errorf("x-engine-sim: %w", err)
	}
	if refused := req.refuse(); refused != nil {
		return seq, refused
	}
	p.form = req.behavior.Headers.index(req.behavior.Seed, len(p.messages))
	seq = p.plan()

	// The plan is checked last: whether it is constrained depends on the directives.
	if g := req.limits.grammar; g != nil && !req.behavior.Ungrammatical {
		return g.choose(planCandidates(p))
	}
	return seq, nil
}

// isRepeated reports whether a prompt was seen before, and stores it.
func (s *Sim) isRepeated(ids []harmony.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := show(ids)
	before := s.prompts[key]
	s.prompts[key] = true
	return before
}

func parse(a api, body []byte) (map[string]json.RawMessage, *apiError) {
	if p, ok := a.(parser); ok {
		return p.parse(body)
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(body, &params) != nil {
		return nil, bodyFault(body)
	}
	return params, nil
}

func (s *Sim) reject(w http.ResponseWriter, a api, err *apiError, stream bool, rec *Record) {
	s.end(rec, StateFailed, err.status)
	a.writeError(w, err, stream)
}

func (s *Sim) answer(w http.ResponseWriter, r *http.Request, a api, req *modelRequest, seq sequence, rec *Record) {
	ctx, abort := context.WithCancelCause(r.Context())
	defer abort(nil)

	if req.abortable {
		id := req.id
		// Each of several choices is a request with an id of its own.
		if req.n > 1 {
			id = s.nextID()
		}
		if !s.abortable.register(id, abort) {
			// Over gRPC SGLang takes it, and mixes both up.
			s.reject(w, a, refusal("Duplicate request ID detected: %s", req.id), req.stream, rec)
			// What SGLang does after every stream ends the first request too.
			if req.stream {
				s.abortable.abortLater(req.id, nil)
			}
			return
		}
		defer func() { s.abortable.ended(id, r.Context().Err() != nil) }()
	}

	if req.behavior.Status != 0 {
		sleep(ctx.Done(), req.behavior.First)
		s.end(rec, StateFailed, req.behavior.Status)
		if req.form == formFrames {
			writeGRPCStatus(w, req.behavior.Status, http.StatusText(req.behavior.Status))
			return
		}
		writeStatus(w, req.behavior)
		return
	}

	req.cached = s.cache.add(req.prompt, req.salt)
	req.created = s.now().Unix()

	// A prefill engine computes the prompt, whatever number of tokens is asked for.
	if req.part != nil && req.part.role == RolePrefill {
		req.limits.minTokens, req.limits.maxTokens = 0, 1
	}

	choices := make([]*choice, req.n)
	for i := range choices {
		choices[i] = newChoice(i, seq, req.limits, req.seed)
	}

	run := run{
		ctx: ctx, wire: newWire(w, req.form, req.behavior), req: req, choices: choices,
		reply:    a.begin(s, req, choices),
		computed: func(ids []harmony.Token) { s.cache.add(ids, req.salt) },
	}
	if req.part != nil {
		local, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
		run.awaitPeer = func() *apiError { return s.awaitPeer(ctx, req, local) }
	}

	state := run.stream(w)
	// The decode request gets the result only now, when the prompt is computed.
	s.finishPrefill(req, state)
	s.change(rec, func(rec *Record) {
		rec.Cached = req.cached
		for _, c := range choices {
			rec.OutputIDs = append(rec.OutputIDs, c.output)
		}
	})
	// After the outputs: a test that waits for the state finds them in the record.
	s.end(rec, state, http.StatusOK)

	if state == StateFailed && req.behavior.Fault == "cut" {
		panic(http.ErrAbortHandler) // net/http then closes the connection without the last chunk
	}
}

// nextID returns an id for a request without one.
func (s *Sim) nextID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	return "sim-" + strconv.Itoa(s.number)
}

func (s *Sim) models(w http.ResponseWriter, _ *http.Request) {
	b := []byte(`{"object":"list","data":[`)
	for i, m := range s.options.Models {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"id":`...), m)
		b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"engine-sim","max_model_len":%d}`,
			s.now().Unix(), s.options.ContextLength)
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

func (s *Sim) modelInfo(w http.ResponseWriter, _ *http.Request) {
	b := []byte(`{"is_generation":true,"preferred_sampling_params":null,"reasoning_parser":null,` +
		`"tool_call_parser":null,"has_image_understanding":false,"has_audio_understanding":false,` +
		`"model_type":"gpt_oss","architectures":["GptOssForCausalLM"],"load_format":"auto",` +
		`"disaggregation_mode":"null"`)
	for _, name := range []string{"model_path", "tokenizer_path", "served_model_name"} {
		b = appendQuoted(append(appendQuoted(append(b, ','), name), ':'), s.options.Models[0])
	}
	b = fmt.Appendf(b, `,"weight_version":%q}`, weightVersion)
	writeJSON(w, http.StatusOK, b)
}

func (s *Sim) serveRecords(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(s.Requests())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

// serveIDs answers with the ids of the kept records, which have whole prompts.
func (s *Sim) serveIDs(w http.ResponseWriter, _ *http.Request) {
	b := []byte{'['}
	for _, r := range s.Requests() {
		if r.RequestID == "" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendQuoted(b, r.RequestID)
	}
	writeJSON(w, http.StatusOK, append(b, ']'))
}

func (s *Sim) serves(model string) bool { return slices.Contains(s.options.Models, model) }
