// Package enginesim is a stand-in for an engine that serves gpt-oss: it speaks
// the wire formats of SGLang (POST /generate, gRPC), vLLM (POST /v1/completions,
// POST /inference/v1/generate, gRPC), TensorRT-LLM (gRPC) and llama.cpp (POST
// /completion) with token ids in and out, over a scripted model. Demo, tests and load runs
// use it where no GPU is.
//
// # The model
//
// It reads the prompt's tokens and does what the lines of the last user
// message say:
//
//	THINK text        the analysis (else "The user wants a reply.")
//	NOTHINK           no analysis
//	COMMENTARY text   a preamble before the first call
//	CALL name args    call functions.name (a dotted name is the recipient as it stands,
//	                  and python that built-in tool, where the prompt has it);
//	                  one call a turn: after j tool results the line j+1; ${x} in args
//	                  is the member x of the last JSON that a tool has answered
//	SAY text          the final answer, once all calls are answered
//	JSON text         the same
//	WORDS n [ms]      the final answer w1 w2 … wn, ms before each word
//	RECALL            RECALL: and the X of every "REMEMBER X" in all user messages
//	AGAIN line        the line, where the same prompt has come before
//	LAST_ASSISTANT    LAST: and the last final text before this message
//	ECHO_SYSTEM       SYSTEM: and the instructions in the prompt
//	ECHO_TOOLS        TOOLS: and the names of the tools in the prompt, sorted
//	@@script@@        exactly these tokens: <start> <end> <message> <channel>
//	                  <constrain> <return> <call>, <#12345> a raw id, <rand N> words,
//	                  <loop> words for ever, all else text; several scripts are
//	                  one a turn, as in @@one@@two@@
//
// Without such a line it answers tool results with "RESULT: " and the last one,
// a question about weather or temperature with a call of a tool with weather in
// its name, a "# Response Formats" section with the smallest instance, anything
// else with "Hello there friend.". A prompt that is no Harmony conversation
// gets words until max_tokens.
//
// Of constraint grammars it knows xgrammar's structural tags without EBNF and
// with special tokens as tokens. Where what it would say is not of the grammar, it says the
// smallest text that is, behind the same reasoning and header if it can.
//
// # The engine
//
// It stops at stop ids and limits, counts cached prefixes, notices when a
// client leaves, and records what it was asked: GET /sim/requests. Behavior
// says how it sends and what goes wrong. As SGLang or vLLM it can be one side of
// a disaggregated engine: see Options.Role. Its bootstrap server is on its own port. gRPC needs HTTP/2, which the server that
// it is the handler of has to speak without TLS. Beside the engines' APIs it serves /health,
// /v1/models, /get_model_info (gRPC: GetModelInfo) and /abort_request, and, to stand for what the
// filter lets pass, /v1/embeddings, /v1/chat/completions and /sim/echo.
package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Options of a Sim. The zero value is a useful engine.
type Options struct {
	Models        []string         // served names; none: gpt-oss-20b and -120b with and without "openai/"
	ContextLength int              // in tokens; 0: 131072
	BlockSize     int              // of the prefix cache, in tokens; 0: 16
	MaxBody       int64            // of a token request, in bytes; 0: 64 MiB
	Records       int              // how many records are kept; 0: 1000, below 0: none
	Role          string           // [RolePrefill] or [RoleDecode]; none: an SGLang that does both, a vLLM that does as each request says
	Behavior      Behavior         // of every request, before its own directives
	Now           func() time.Time // nil: time.Now
}

// Sim is a simulated engine. It is safe for concurrent use.
type Sim struct {
	options Options
	mux     *http.ServeMux
	cache   *prefixCache
	*recorder
	meetings *meetings

	mu      sync.Mutex
	number  int                                // of requests without an id
	prompts map[string]bool                    // that ask for something else when they come again
	aborts  map[string]context.CancelCauseFunc // by request id
}

// New makes an engine.
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
		options:  o,
		mux:      http.NewServeMux(),
		cache:    newPrefixCache(o.BlockSize),
		recorder: newRecorder(o.Records, o.Now),
		aborts:   map[string]context.CancelCauseFunc{},
		prompts:  map[string]bool{},
		meetings: newMeetings(),
	}
	s.routes()
	return s
}

func defaulted[T int | int64 | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return v
}

func (s *Sim) routes() {
	s.mux.HandleFunc("POST /generate", s.handle(sglangAPI{}))
	s.mux.HandleFunc("POST /v1/completions", s.handle(vllmAPI{}))
	s.mux.HandleFunc("POST /inference/v1/generate", s.handle(vllmGenerateAPI{}))
	s.mux.HandleFunc("POST /completion", s.handle(llamacppAPI{}))
	for _, a := range grpcAPIs {
		s.mux.HandleFunc("POST "+a.path, s.handle(a))
		s.mux.HandleFunc("POST "+strings.TrimSuffix(a.path, "Generate")+"GetModelInfo", a.modelInfo(s))
	}
	s.mux.HandleFunc("POST /abort_request", s.abort)
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /get_model_info", s.modelInfo)
	s.mux.HandleFunc("GET /model_info", s.modelInfo)
	s.mux.HandleFunc("POST /sim/room", s.serveRoom)
	s.mux.HandleFunc("POST /sim/kv", s.serveKV)
	s.mux.HandleFunc("GET /sim/requests", s.serveRecords)
	s.mux.HandleFunc("DELETE /sim/requests", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	s.mux.HandleFunc("POST /sim/echo", s.recorded(s.echo))
	s.mux.HandleFunc("POST /v1/embeddings", s.recorded(s.embeddings))
	s.mux.HandleFunc("POST /v1/chat/completions", s.recorded(s.foreignChat))
	s.mux.HandleFunc("/", s.recorded(func(w http.ResponseWriter, _ *http.Request, _ *Record) {
		writeJSON(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
	}))
}

// ServeHTTP answers one request.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests returns the records that are kept, oldest first.
func (s *Sim) Requests() []Record { return s.list() }

// Reset forgets the records.
func (s *Sim) Reset() { s.reset() }

// Await returns the oldest record that is wanted, once there is one. It fails
// when ctx ends.
func (s *Sim) Await(ctx context.Context, wanted func(Record) bool) (Record, error) {
	return s.await(ctx, wanted)
}

// api is one engine's way to ask and answer.
type api interface {
	// read reads a request. A refusal of a streaming SGLang request is an
	// event of a 200, which it tells by inStream.
	read(s *Sim, header http.Header, params map[string]json.RawMessage) (req *modelRequest, err *refusal)
	// refuse answers a refusal.
	refuse(w http.ResponseWriter, err *refusal, stream bool)
	// begin gives the form of one reply.
	begin(s *Sim, req *modelRequest, choices []*choice) reply
}

// reply writes one reply's JSON.
type reply interface {
	// event is news of a choice: the ids from its output[from] on.
	event(b []byte, c *choice, from int) []byte
	// usage is the last event before [DONE], nothing if the API has none.
	usage(b []byte) []byte
	// whole is the reply to a request that wants no stream.
	whole(b []byte) []byte
}

// closer is a reply that tells in a message of its own that a choice has
// ended.
type closer interface {
	last(b []byte, c *choice) []byte
}

// parser is an API whose requests are no JSON: it gives them JSON's form.
type parser interface {
	parse(body []byte) (map[string]json.RawMessage, *refusal)
}

// modelRequest is a request to the model in the words of no engine.
type modelRequest struct {
	id       string
	model    string
	prompt   []harmony.Token
	n        int
	limits   limits
	seed     uint64
	stream   bool
	interval int // stream_interval, 0 if not asked
	salt     string

	form form

	logprobs *int // how many of the likeliest tokens to tell at each place; nil: not even the token's own likelihood
	namesIDs bool // return_tokens_as_token_ids

	includeUsage, continuousUsage, returnIDs bool // vLLM, llama.cpp and TensorRT-LLM

	abortable bool // by its id, which no other running request may have (SGLang)

	behavior Behavior
	leg      *leg // nil: all of it is this engine's
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
	params, refused := parse(a, body)
	if refused != nil {
		s.refuse(w, a, refused, false, rec)
		return
	}
	req, refused := a.read(s, r.Header, params)
	role := ""
	if l, ok := a.(legReader); ok && refused == nil {
		if req.leg, refused = l.readLeg(s, params); req.leg != nil {
			role = req.leg.role
		}
	}
	rest, err := json.Marshal(params) // read has taken the prompt out
	if err != nil {
		rest = nil
	}
	s.change(rec, func(rec *Record) {
		rec.Params, rec.Role = rest, role
		if req != nil {
			rec.RequestID, rec.PromptIDs = req.id, req.prompt
		}
	})
	if refused != nil {
		s.refuse(w, a, refused, req != nil && req.stream, rec)
		return
	}
	p := readPrompt(req.prompt)
	user := ""
	if i := p.last(); i >= 0 {
		user = p.messages[i].body
	}
	p.again = strings.Contains(user, againMark) && s.cameBefore(req.prompt)
	seq := p.plan()
	req.behavior, err = s.options.Behavior.With(r.Header.Get("x-engine-sim") + " " + directives(user, role))
	if err != nil {
		s.refuse(w, a, badRequest("", "x-engine-sim: "+err.Error()), false, rec)
		return
	}
	if g := req.limits.grammar; g != nil && !req.behavior.Ungrammatical {
		if seq, err = g.obey(makePlans(req.prompt)); err != nil {
			s.refuse(w, a, badRequest("", err.Error()), req.stream, rec)
			return
		}
	}
	s.answer(w, r, a, req, seq, rec)
}

// cameBefore tells whether a prompt has come before, and remembers it.
func (s *Sim) cameBefore(ids []harmony.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := show(ids)
	before := s.prompts[key]
	s.prompts[key] = true
	return before
}

func parse(a api, body []byte) (map[string]json.RawMessage, *refusal) {
	if p, ok := a.(parser); ok {
		return p.parse(body)
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(body, &params) != nil {
		return nil, badJSON()
	}
	return params, nil
}

func (s *Sim) refuse(w http.ResponseWriter, a api, refused *refusal, stream bool, rec *Record) {
	s.end(rec, StateFailed, refused.status)
	a.refuse(w, refused, stream)
}

var errAborted = errors.New("aborted")

func (s *Sim) answer(w http.ResponseWriter, r *http.Request, a api, req *modelRequest, seq sequence, rec *Record) {
	ctx, abort := context.WithCancelCause(r.Context())
	defer abort(nil)
	if req.abortable {
		if !s.register(req.id, abort) {
			s.refuse(w, a, badRequest("", "Duplicate request ID detected: "+req.id), false, rec)
			return
		}
		defer s.unregister(req.id)
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
	if req.leg != nil && req.leg.role == RolePrefill {
		req.limits.minTokens, req.limits.maxTokens = 0, 1
	}
	choices := make([]*choice, req.n)
	for i := range choices {
		choices[i] = newChoice(i, seq, req.limits, req.seed)
	}
	run := run{ctx: ctx, wire: newWire(w, req.form, req.behavior), req: req, choices: choices, reply: a.begin(s, req, choices)}
	if req.leg != nil {
		local, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
		run.meet = func() *refusal { return s.meet(ctx, req, local) }
	}
	state := run.play(w)
	s.part(req, state)
	s.change(rec, func(rec *Record) {
		rec.Cached = req.cached
		for _, c := range choices {
			rec.OutputIDs = append(rec.OutputIDs, c.output)
		}
	})
	s.end(rec, state, http.StatusOK)
	if state == StateFailed && req.behavior.Fault == "cut" {
		panic(http.ErrAbortHandler) // net/http then closes the connection without the last chunk
	}
}

func (s *Sim) register(id string, abort context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.aborts[id]; taken {
		return false
	}
	s.aborts[id] = abort
	return true
}

func (s *Sim) unregister(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.aborts, id)
}

// nextID numbers the requests that bring no id.
func (s *Sim) nextID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	return "sim-" + strconv.Itoa(s.number)
}

// abort is SGLang's POST /abort_request.
func (s *Sim) abort(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID  string `json:"rid"`
		All bool   `json:"abort_all"`
	}
	if json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&body) != nil {
		writeJSON(w, http.StatusBadRequest, appendError(nil, badJSON()))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, abort := range s.aborts {
		if body.All || id == body.ID {
			abort(errAborted)
		}
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Sim) models(w http.ResponseWriter, _ *http.Request) {
	b := []byte(`{"object":"list","data":[`)
	for i, m := range s.options.Models {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"id":`...), m)
		b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"engine-sim","max_model_len":%d}`, s.now().Unix(), s.options.ContextLength)
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

func (s *Sim) modelInfo(w http.ResponseWriter, _ *http.Request) {
	b := appendQuoted([]byte(`{"model_path":`), s.options.Models[0])
	b = appendQuoted(append(b, `,"tokenizer_path":`...), s.options.Models[0])
	b = fmt.Appendf(b, `,"is_generation":true,"preferred_sampling_params":null,"weight_version":%q,"max_context_length":%d}`, weightVersion, s.options.ContextLength)
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

func (s *Sim) serves(model string) bool { return slices.Contains(s.options.Models, model) }
