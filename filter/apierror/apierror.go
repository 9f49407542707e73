// Package apierror defines the error type that is sent to clients: an HTTP
// status with the fields of an OpenAI error object. Decoders, dialects and the
// filter return it. Before the reply's headers have been sent, the filter sends
// it as an immediate response; afterwards, as an event in the stream.
package apierror

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The values of an error object's "type", as OpenAI's API uses them.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeAuthentication = "authentication_error"
	TypePermission     = "permission_error"
	TypeNotFound       = "not_found_error"
	TypeRateLimit      = "rate_limit_error"
	TypeTokens         = "tokens" // the rate limit of tokens
	TypeServer         = "server_error"
)

// Error is an error for a client. Message never contains prompts, token ids or
// details of the network behind Envoy. An Error does not change once it has
// been returned.
type Error struct {
	Status int // HTTP status of an immediate response

	// The error object.
	Type    string // OpenAI error type
	Code    string // OpenAI error code; "" is sent as null
	Param   string // the request field at fault; "" is sent as null
	Message string // what is wrong and what to change

	// What headers say.
	RetryAfter time.Duration // sent as retry-after in whole seconds if greater than 0
	Allow      []string      // methods of the path, of a 405; sent as allow

	// What some errors have beside.
	Overflow *Overflow   // of a prompt that is too long; nil if its length is not known
	Limit    *TokenLimit // the token quota that has no room; nil: the error is another
	Cause    error       // for logs only, never sent
}

// Overflow is by how much a prompt is too long, in tokens.
type Overflow struct {
	Tokens int // of the prompt, or a lower bound
	Max    int // that the model's context has
}

// TokenLimit is what is left of a token quota.
type TokenLimit struct {
	Budget    string        // its name
	Limit     int64         // tokens of a window
	Remaining int64         // of these
	Reset     time.Duration // until the next window begins
	Never     bool          // the request is larger than Limit
}

// Error returns the status, type and message.
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, e.Type, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New returns an error with the given HTTP status, from which its type follows, and for
// 429 and 503 when to try again.
func New(status int, code, param, format string, args ...any) *Error {
	err := &Error{Status: status, Type: typeOf(status), Code: code, Param: param, Message: fmt.Sprintf(format, args...)}

	// Some clients, such as Codex after a 429, send a request again only if they are told
	// when.
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		err.RetryAfter = time.Second
	}
	return err
}

// Invalid returns a 400 that names the request field at fault.
func Invalid(param, format string, args ...any) *Error {
	return New(http.StatusBadRequest, "", param, format, args...)
}

// With returns a copy of e with a cause for the log.
func (e *Error) With(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// InStream returns the error as it ends a stream whose reply has begun: an error of the
// server has the words by which clients decide to send the request again. They have
// no status to decide by.
func (e *Error) InStream() *Error {
	// An error of the request stays as it is: to send it again would not help.
	if e.Status < http.StatusInternalServerError || strings.HasSuffix(e.Message, inStream) {
		return e
	}
	c := *e
	c.Message += inStream
	return &c
}

const inStream = " (server error: the connection ended before the reply was complete)"

func typeOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return TypeAuthentication
	case status == http.StatusForbidden:
		return TypePermission
	case status == http.StatusNotFound:
		return TypeNotFound
	case status == http.StatusTooManyRequests:
		return TypeRateLimit
	case status >= 400 && status < 500:
		return TypeInvalidRequest
	}
	return TypeServer
}

type object struct {
	Error fields `json:"error"`
}

type fields struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// JSON returns the OpenAI error object
// {"error":{"message","type","param","code"}}.
func (e *Error) JSON() []byte {
	b, err := json.Marshal(object{fields{e.Message, e.Type, orNull(e.Param), orNull(e.Code)}})
	if err != nil { // strings always marshal
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	return b
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
