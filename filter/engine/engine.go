// Package engine encodes requests for the engines that serve gpt-oss and
// decodes their replies. A [Request] in tokens becomes the bytes of one
// engine's HTTP request. The bytes of the streamed reply, in pieces of any
// size, become chunks of token ids.
//
// [Dialect] is the wire format of one kind of engine, [Traits] what such an engine
// can and cannot do, and [Decoder] reads one reply. Each dialect has a file of its
// own; the files *_prefill.go contain what the dialects of one vendor share for
// disaggregated serving. Decoders of server-sent events share stream.go and sse.go,
// those of gRPC share grpc.go, and all share the choices and buffers of progress.go.
//
// The package knows engines: their parameters, the shape of their events, their
// errors, and what they do differently from what they document, which is said where
// the code depends on it. It contains nothing specific to OpenAI's APIs, reads no
// Harmony, and opens no sockets. The example shows a complete call.
package engine

import (
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/retention"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Request is one model call in tokens. For nil pointers, and for zeros where
// zero is no valid value, a dialect sends its documented neutral value, so that
// the engine's own defaults never apply.
//
// It is large because every field is a parameter of the engines' own requests.
type Request struct {
	ID    CallID
	Model string // the engine's name of the model

	// What is to be generated.
	Prompt []harmony.Token
	N      int // number of choices, at least 1
	// MaxTokens is the most output tokens of a choice, at least 1; the caller has replaced
	// "absent" by what is left of the context.
	MaxTokens int
	MinTokens int
	// Unlimited says that the request has named no limit: MaxTokens is what is left of the
	// context, or of a token quota. No engine is told.
	Unlimited bool
	// StopTokens are those in addition to <|return|> and <|call|>, which are always sent; not
	// sent together with a Constraint.
	StopTokens []harmony.Token
	Constraint constraint.Format // the grammar of the whole output; nil: none
	// Advised says that only the operator asks for the Constraint: the output is valid without it.
	Advised bool

	// Sampling.
	Temperature       *float64
	TopP              *float64
	TopK              *int // -1 or 0: no limit
	MinP              *float64
	FrequencyPenalty  *float64
	PresencePenalty   *float64
	RepetitionPenalty *float64
	Seed              *int64
	LogitBias         map[harmony.Token]float64

	// What is returned beside the tokens.
	Logprobs    bool // the log probability of every output token
	TopLogprobs int  // number of most likely tokens per position, at most [MaxTopLogprobs]

	// How it is served.
	CacheSalt string
	Priority  *int
	// Retention is what the engine is asked to keep in its cache, which it is free not to do; nil: nothing.
	// Engines that take no hints are not told, see [Traits].
	Retention *retention.Hints
	// Whole says that the client waits for one JSON object, so the engine may send few, large
	// chunks.
	Whole bool
	// Disaggregation is the role in a disaggregated request; nil: the request is not
	// disaggregated.
	Disaggregation *Disaggregation
}

// HTTPRequest is a request for an engine. Its method is always POST.
type HTTPRequest struct {
	Path   string
	Header []Header
	Body   []byte
}

// Header is one header field. The name is in lower case.
type Header struct{ Name, Value string }

// Finish is the reason why the engine ended a choice.
type Finish string

// The finish reasons, with the engines' names.
const (
	FinishNone Finish = "" // not finished
	// A stop token, which is the last of the choice's ids, or another end chosen by the model
	FinishStop   Finish = "stop"
	FinishLength Finish = "length" // MaxTokens or the context is used up
	FinishAbort  Finish = "abort"  // the engine aborted the request
)

// Unknown is the value of a count that the engine did not report.
const Unknown = -1

// Usage contains the counts that only the engine knows. A count is Unknown if
// the engine did not report it.
type Usage struct {
	// CachedTokens are those of the prompt that were in the engine's prefix cache.
	CachedTokens int
	// Replica is IP:port of the replica that has answered, which decoders do not set; "": unknown.
	Replica string
}

// Bound replaces counts that cannot be true of a prompt with so many tokens. Clients are
// billed by them, and may add them up.
func (u *Usage) Bound(prompt int) {
	u.CachedTokens = max(min(u.CachedTokens, prompt), Unknown)
}

// Chunk is a piece of the output of one choice.
type Chunk struct {
	Index int // index of the choice, less than the request's N

	// Tokens are the new ids, including the stop token; valid until the next call of the
	// decoder.
	Tokens []harmony.Token
	// Logprobs has one for each token if the request asks for them, else it is nil; valid as
	// long as Tokens.
	Logprobs []Logprob
	// Inserted says that the tokens end the model's reasoning: the model has not generated them.
	Inserted bool
	Finish   Finish

	// Usage is of the whole request, in the chunk where the engine reports it; valid as long as
	// Tokens.
	Usage       *Usage
	Fingerprint string // the engine's weight version or build, if it reports one
}

// Refusal returns an error if the reply to a call with n choices cannot
// continue after this chunk: a 502 if the chunk belongs to none of the choices
// or if the engine aborted the request.
func (c *Chunk) Refusal(n int) *apierror.Error {
	switch {
	case c.Index < 0 || c.Index >= n:
		return apierror.New(http.StatusBadGateway, "engine_error", "",
			"The engine returned a choice that was not requested. Send the request again.")
	case c.Finish == FinishAbort:
		return aborted()
	}
	return nil
}

// aborted is the error of a request that the engine has given up.
func aborted() *apierror.Error {
	return apierror.New(http.StatusBadGateway, "engine_aborted", "",
		"The engine aborted the request. Send the request again.")
}

// Clone returns a deep copy of c, which stays valid.
func (c *Chunk) Clone() Chunk {
	clone := *c
	clone.Tokens = slices.Clone(c.Tokens)
	clone.Logprobs = slices.Clone(c.Logprobs)
	for i := range clone.Logprobs {
		clone.Logprobs[i].Top = slices.Clone(clone.Logprobs[i].Top)
	}
	if c.Usage != nil {
		usage := *c.Usage
		clone.Usage = &usage
	}
	return clone
}

// Dialect is the wire format of one engine. It is safe for concurrent use.
type Dialect interface {
	// Kind returns the name used in configuration, such as "sglang".
	Kind() string
	// Traits returns what the engine can and cannot do.
	Traits() Traits
	// Ignores returns the OpenAI names of the parameters of r that this engine
	// does not support and that may be ignored, since they do not change the
	// meaning of an answer (such as seed).
	Ignores(r *Request) []string
	// Encode returns the HTTP request for r, or an error with status 400 if the
	// engine does not support what r asks for.
	Encode(r *Request) (*HTTPRequest, *apierror.Error)
	// NewDecoder returns a decoder for the body of a 200 reply to r.
	NewDecoder(r *Request) Decoder
	// ReadError translates a reply with a status other than 200. The error
	// keeps the meaning of the status (400, 404, 429 with retry-after, 503, 504
	// …) and contains neither prompt nor token ids.
	ReadError(status int, header func(name string) string, body []byte) *apierror.Error
}

// Decoder decodes the bytes of one reply into chunks. Input that is not a reply
// of the dialect results in an error, never in a panic or in unbounded memory.
type Decoder interface {
	// Feed decodes the next piece of the body, which may be cut anywhere, and
	// appends the completed chunks to chunks. After an error, later calls do
	// nothing.
	Feed(p []byte, chunks []Chunk) ([]Chunk, *apierror.Error)
	// End must be called at the end of the body. It returns an error if a
	// choice has not finished. Anything else that is missing, such as the
	// usage, is no error.
	End(chunks []Chunk) ([]Chunk, *apierror.Error)
	// Trailers is called before End. trailer returns a trailer of the reply by
	// name, or a header if the reply consists of headers only. Trailers returns
	// the engine's error, or nil if the trailers report none: only protocols
	// such as gRPC report the outcome of a reply there. After an error, later
	// calls do nothing.
	Trailers(trailer func(name string) string) *apierror.Error
	// Advice returns one sentence for the operator's log if the reply shows that
	// the engine is configured inefficiently, else "". All replies with the same
	// problem return the same sentence. Advice may be called at any time.
	Advice() string
}

// dialects are listed in the order of the documentation.
var dialects = []Dialect{sglang{}, sglangGRPC, vllm{}, vllmGenerate{}, vllmGRPC, trtllmGRPC, llamacpp{}}

// ByKind returns the dialect of a kind, such as "sglang", or false if there is
// none.
func ByKind(kind string) (Dialect, bool) {
	for _, d := range dialects {
		if d.Kind() == kind {
			return d, true
		}
	}
	return nil, false
}

// Kinds returns the kinds of all dialects in the order of the documentation.
func Kinds() []string {
	kinds := make([]string, len(dialects))
	for i, d := range dialects {
		kinds[i] = d.Kind()
	}
	return kinds
}
