// Package engine speaks the wire formats of the engines that serve gpt-oss:
// a token request becomes the bytes of one engine's HTTP request, and the bytes
// of its streamed reply become chunks of token ids, however they are cut.
// One file holds one dialect, and one more what a vendor's dialects share to
// disaggregate; nothing here knows an OpenAI API or a socket. The example shows
// a whole call.
package engine

import (
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Request is one model call in tokens. Pointers that are nil and numbers that
// are zero where zero has no meaning are left to the dialect's documented
// neutral value, never to an engine's own default.
type Request struct {
	ID        string // becomes the engine's request id
	Model     string // as the engine knows it
	Prompt    []harmony.Token
	N         int // choices, at least 1
	MaxTokens int // most output tokens of a choice, at least 1: the caller has resolved "absent" to the context left
	MinTokens int

	Temperature       *float64
	TopP              *float64
	TopK              *int // -1 or 0: all
	MinP              *float64
	FrequencyPenalty  *float64
	PresencePenalty   *float64
	RepetitionPenalty *float64
	Seed              *int64
	LogitBias         map[harmony.Token]float64
	StopTokens        []harmony.Token // beyond <|return|> and <|call|>, which are always sent; an engine with a Constraint does not get them
	CacheSalt         string
	Priority          *int
	Constraint        constraint.Format // of all that the model says; nil: none
	Whole             bool              // the client wants one JSON object: the engine may send few, large chunks
	Leg               *Leg              // which part of a disaggregated request it is; nil: all of it
	Logprobs          bool              // tell how likely every token was
	TopLogprobs       int               // and how likely so many of the likeliest tokens at its place were, up to [MaxTopLogprobs]
}

// HTTPRequest is what goes to the engine. The method is always POST.
type HTTPRequest struct {
	Path   string
	Header []Header
	Body   []byte
}

// Header is one header field, its name in lower case.
type Header struct{ Name, Value string }

// Finish is why the engine ended a choice.
type Finish string

// The reasons, in the words of the engines.
const (
	FinishNone   Finish = ""       // not finished
	FinishStop   Finish = "stop"   // a stop token (the last of the choice's ids) or the model's end
	FinishLength Finish = "length" // MaxTokens or the context is used up
	FinishAbort  Finish = "abort"  // the engine gave the request up
)

// Unknown is the value of a count that the engine has not told.
const Unknown = -1

// Usage is what only the engine can count of a request; Unknown where it told
// nothing.
type Usage struct {
	CachedTokens int // of the prompt, from its prefix cache
}

// Chunk is news of one choice.
type Chunk struct {
	Index       int             // which of the N choices
	Tokens      []harmony.Token // new ids, the stop token among them; valid until the next call of the decoder
	Logprobs    []Logprob       // of Tokens, one each, where the request asks for them, else nil; valid as they are
	Finish      Finish
	Usage       *Usage // where the engine has just told it; of the whole request; valid as Tokens are
	Fingerprint string // the engine's weight version or build, where it tells one
}

// Refusal is the error of news that no reply to a call of n choices can go on
// with; nil if one can.
func (c *Chunk) Refusal(n int) *apierror.Error {
	switch {
	case c.Index < 0 || c.Index >= n:
		return apierror.New(http.StatusBadGateway, "engine_error", "", "The engine answered with a choice that was not asked for.")
	case c.Finish == FinishAbort:
		return apierror.New(http.StatusBadGateway, "engine_aborted", "", "The engine gave the request up. Try again.")
	}
	return nil
}

// Clone is c with memory of its own.
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

// Dialect is one engine's wire format. It is safe for concurrent use.
type Dialect interface {
	// Kind is the name used in configuration, such as "sglang".
	Kind() string
	// Constrains tells whether the engine can keep a reply to a Constraint.
	// Where it cannot, Encode refuses one, and the caller has to check replies.
	Constrains() bool
	// Ignores names the fields of r, by their OpenAI parameter name, that
	// this engine cannot take and that do not change what an answer means
	// (such as seed).
	Ignores(r *Request) []string
	// Encode writes r. It refuses what the engine cannot do.
	Encode(r *Request) (*HTTPRequest, *apierror.Error)
	// NewDecoder reads the body of a 200 reply to r.
	NewDecoder(r *Request) Decoder
	// ReadError turns a reply that is not a 200 into an error that keeps
	// its meaning (400, 404, 429 with retry-after, 503, 504 …) and shows
	// neither prompt nor token ids.
	ReadError(status int, header func(name string) string, body []byte) *apierror.Error
}

// Decoder turns the bytes of one reply into chunks. It is total: bytes that
// are no reply of the dialect end in an error, never in a panic or in
// unbounded memory.
type Decoder interface {
	// Feed takes the next piece of the body, cut anywhere, and appends what
	// it completes to chunks. After an error the decoder is done.
	Feed(p []byte, chunks []Chunk) ([]Chunk, *apierror.Error)
	// End tells that the body has ended. It is an error if a choice has not
	// finished; what may be missing after that, such as the usage, is not.
	End(chunks []Chunk) ([]Chunk, *apierror.Error)
}

// TrailerReader is implemented by decoders of protocols that tell in trailers
// how a reply ended, as gRPC does.
type TrailerReader interface {
	// Trailers takes the fields behind the body, before End, or the headers
	// of a reply that has nothing else. It returns the engine's failure, nil
	// if they tell none. After an error the decoder is done.
	Trailers(trailer func(name string) string) *apierror.Error
}

// Advisor is implemented by decoders that can notice an engine set up in a way
// that costs more than it must.
type Advisor interface {
	// Advice is one sentence for the operator's log, "" if there is nothing
	// to say. It is the same for all replies of one cause and may be asked
	// at any time.
	Advice() string
}

// dialects are the engines, in the order of documentation.
var dialects = []Dialect{sglang{}, sglangGRPC, vllm{}, vllmGenerate{}, vllmGRPC, trtllmGRPC, llamacpp{}}

// IsGRPC says whether a kind is a gRPC service, which Envoy has to reach by
// HTTP/2.
func IsGRPC(kind string) bool {
	d, _ := ByKind(kind)
	_, ok := d.(interface{ isGRPC() })
	return ok
}

// ClosesConnections says whether a kind's server closes a connection behind a
// reply without saying so: Envoy must not use it for a second call.
func ClosesConnections(kind string) bool {
	d, _ := ByKind(kind)
	_, ok := d.(interface{ closesConnections() })
	return ok
}

// ByKind gives the dialect of a kind ("sglang", "vllm"), false if there is
// none.
func ByKind(kind string) (Dialect, bool) {
	for _, d := range dialects {
		if d.Kind() == kind {
			return d, true
		}
	}
	return nil, false
}

// Kinds lists the dialects' kinds in the order of documentation.
func Kinds() []string {
	kinds := make([]string, len(dialects))
	for i, d := range dialects {
		kinds[i] = d.Kind()
	}
	return kinds
}
