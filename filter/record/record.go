package record

import (
	"encoding/json"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Format is the version of the file format. A reader refuses records of a later one.
const Format = 1

// Record is one exchange: a client's request and the reply to it, or the making of a
// response in the background.
type Record struct {
	Format int `json:"format"`
	// Version is that of the program.
	Version string `json:"version"`
	// ID is the request's id, which replies and log lines have too.
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant,omitempty"`
	Started time.Time `json:"started"`
	// Redacted: texts are gone, their lengths are there.
	Redacted bool `json:"redacted,omitempty"`
	// Cut: the record became too long, later events are missing.
	Cut bool `json:"cut,omitempty"`

	Request  Request  `json:"request"`
	Target   Target   `json:"target"`
	Settings Settings `json:"settings"`
	// Config is the effective configuration: YAML, secrets hidden.
	Config string  `json:"config,omitempty"`
	Events []Event `json:"events"`
	Result Result  `json:"result"`
}

// Request is the client's request.
type Request struct {
	Method string            `json:"method"`
	Path   string            `json:"path"` // with the query
	Header map[string]string `json:"header,omitempty"`
	Body   Text              `json:"body,omitzero"`
}

// Settings are those that a request's turns were made with, beside the configuration.
type Settings struct {
	Model turn.Model `json:"model"`
	// Session is the one that a header named.
	Session string `json:"session,omitempty"`
	// Checked: the engine accepts no constraint, so that its output was verified.
	Checked bool `json:"checked,omitempty"`
	// Codex: its compatibility mode was on.
	Codex bool `json:"codex,omitempty"`
	// Connected: the request came over a connection that keeps responses which are not stored.
	Connected bool `json:"connected,omitempty"`
	// Continuations is how many lost model calls others might continue.
	Continuations int `json:"continuations,omitempty"`
}

// Target says who answers.
type Target struct {
	API           string `json:"api"`
	Model         string `json:"model,omitempty"`         // the client's name
	Upstream      string `json:"upstream,omitempty"`      // name at the engine
	Engine        string `json:"engine,omitempty"`        // name in the configuration
	Kind          string `json:"kind,omitempty"`          // the engine's dialect
	Disaggregated bool   `json:"disaggregated,omitempty"` // prefill and decode are two calls
	Direct        bool   `json:"direct,omitempty"`        // Envoy made the one model call
	Replica       string `json:"replica,omitempty"`       // that answered last
	Background    bool   `json:"background,omitempty"`    // nobody waited
}

// Result is how the exchange has ended.
type Result struct {
	// Outcome is as in harmony_requests_total.
	Outcome string `json:"outcome"`
	Status  int    `json:"status"`
	// Code is that of the error.
	Code string `json:"code,omitempty"`
	// Error is the error's text for the client.
	Error    string `json:"error,omitempty"`
	Response string `json:"response,omitempty"`
	// Micros is the time from Started to the end.
	Micros int64 `json:"us"`
	Prompt int   `json:"prompt_tokens,omitempty"`
	// Cached is nil where the engine does not say it.
	Cached    *int `json:"cached_tokens,omitempty"`
	Output    int  `json:"output_tokens,omitempty"`
	Reasoning int  `json:"reasoning_tokens,omitempty"`
	Calls     int  `json:"model_calls,omitempty"`
	Retries   int  `json:"retries,omitempty"`
	// Continuations is how many lost model calls others continued.
	Continuations int            `json:"continuations,omitempty"`
	Repairs       map[string]int `json:"repairs,omitempty"`
	Finish        string         `json:"finish,omitempty"`
}

// The kinds of events. Those of the first group come in from outside, those of the
// second go out.
const (
	KindID        = "id"        // an id was made: Text
	KindClock     = "clock"     // the clock was read: Clock
	KindAnswer    = "answer"    // the engine's answer begins: Answer
	KindTokens    = "tokens"    // the engine's output: Tokens
	KindEnd       = "end"       // the engine's answer ends
	KindBroken    = "broken"    // the engine's answer ends with an error: Text is one of the At constants, Error
	KindFailed    = "failed"    // an error ended the reply from outside: Error
	KindPrefill   = "prefill"   // the prompt is being computed elsewhere
	KindStart     = "start"     // the reply can begin: a paced one waits for its client
	KindJob       = "job"       // a job of the step is done: Job
	KindTimer     = "timer"     // a timer has expired: Text
	KindStore     = "store"     // the store was asked: Store
	KindTool      = "tool"      // a tool was run: Tool
	KindCancel    = "cancel"    // the client has left
	KindInterrupt = "interrupt" // the client has interrupted the reply: Text is why
	KindExhausted = "exhausted" // a token budget is used up: for output, or for the call that was to follow
	KindFound     = "found"     // a prompt was compared with those before: Found

	KindCall    = "call"    // a model call: Call
	KindHeaders = "headers" // the reply's headers: Header
	KindSent    = "sent"    // bytes of the reply: Text
	KindRefused = "refused" // an error in place of the reply: Error
)

// Where an engine's answer broke.
const (
	AtConnection = "connection"
	AtStatus     = "status" // its status is not 200
	AtHeaders    = "headers"
	AtBody       = "body"
	AtTrailers   = "trailers"
	AtEnd        = "end" // it ended too early
)

// Event is something that happened. The fields that its kind names are set.
type Event struct {
	At   int64  `json:"at"` // µs since Record.Started
	Kind string `json:"kind"`

	Text   Text               `json:"text,omitzero"`
	Clock  time.Time          `json:"clock,omitzero"`
	Header map[string]string  `json:"header,omitempty"`
	Job    int                `json:"job,omitempty"`
	Call   *Call              `json:"call,omitempty"`
	Answer *Answer            `json:"answer,omitempty"`
	Tokens *Tokens            `json:"tokens,omitempty"`
	Store  *Access            `json:"store,omitempty"`
	Tool   *ToolRun           `json:"tool,omitempty"`
	Found  *diagnosis.Finding `json:"found,omitempty"`
	Error  *Error             `json:"error,omitempty"`
}

// Call is a model call.
type Call struct {
	ID    string `json:"id"`
	Retry int    `json:"retry,omitempty"`
	// Shared is how many tokens the prompt shares with the exchange's call before. They are left out of
	// Prompt.
	Shared int             `json:"shared,omitempty"`
	Prompt []harmony.Token `json:"prompt"`
	// Count is how many tokens the whole prompt has.
	Count int `json:"count"`
	// Options is the request without its prompt.
	Options json.RawMessage `json:"options,omitempty"`
}

// Answer is the beginning of an engine's answer.
type Answer struct {
	Status   int    `json:"status"`
	Replica  string `json:"replica,omitempty"`
	Type     string `json:"content_type,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	// Attempts is how often Envoy has tried.
	Attempts string `json:"attempts,omitempty"`
	// Cached is how many tokens another call found in its cache, of a disaggregated engine.
	Cached *int `json:"cached,omitempty"`
}

// Tokens is a piece of an engine's output.
type Tokens struct {
	Choice int             `json:"choice,omitempty"`
	IDs    []harmony.Token `json:"ids,omitempty"`
	// Logprobs has one for each of IDs.
	Logprobs []engine.Logprob `json:"logprobs,omitempty"`
	Finish   string           `json:"finish,omitempty"`
	// Usage says that the engine reports its usage.
	Usage bool `json:"usage,omitempty"`
	// Cached is there with Usage: -1 if the engine does not report it.
	Cached      int    `json:"cached,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Count is how many IDs there were, where those are gone.
	Count int `json:"count,omitempty"`
}

// Access is an access to the store.
type Access struct {
	Operation string          `json:"operation"`
	Key       Text            `json:"key,omitzero"` // what was asked for
	Result    json.RawMessage `json:"result,omitempty"`
	Error     string          `json:"error,omitempty"`
	Micros    int64           `json:"us"` // how long it took
}

// ToolRun is a call of a tool, or the listing of a server's tools.
type ToolRun struct {
	Server    string          `json:"server"`
	Tool      string          `json:"tool,omitempty"` // "": the tools were listed
	Arguments Text            `json:"arguments,omitzero"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     string          `json:"error,omitempty"`
	Micros    int64           `json:"us"`
}

// Error is an error as the exchange had it.
type Error struct {
	Status     int                `json:"status"`
	Type       string             `json:"type,omitempty"`
	Code       string             `json:"code,omitempty"`
	Param      string             `json:"param,omitempty"`
	Message    string             `json:"message,omitempty"`
	RetryAfter time.Duration      `json:"retry_after,omitempty"`
	Overflow   *apierror.Overflow `json:"overflow,omitempty"`
	// Grammar says that the engine has refused the grammar of the output. Of the cause it is all.
	Grammar bool `json:"grammar,omitempty"`
	// Plain is set where the error is none of an API, but a broken connection.
	Plain string `json:"plain,omitempty"`
}
