// Package apierror holds the one error type that reaches clients: an HTTP
// status with the fields of an OpenAI error object. Decoders, dialects and the
// filter return it; the filter turns it into an immediate response before the
// reply's headers and into an in-band event after them.
package apierror

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// The values of an error object's "type" that clients tell apart.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeAuthentication = "authentication_error"
	TypePermission     = "permission_error"
	TypeNotFound       = "not_found_error"
	TypeRateLimit      = "rate_limit_error"
	TypeServer         = "server_error"
)

// Error is an error for a client. Message never holds prompts, token ids or
// anything of the inside of the mesh. It is immutable once returned.
type Error struct {
	Status     int           // HTTP status, used where headers have not been sent
	Type       string        // OpenAI error type
	Code       string        // OpenAI error code; "" is null
	Param      string        // the request field at fault; "" is null
	Message    string        // what is wrong and what to change
	RetryAfter time.Duration // sent as retry-after in seconds, where > 0
	Cause      error         // for logs only, never shown
}

// Error tells the status, code and message.
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, e.Type, e.Message)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of any status; its type follows from the status.
func New(status int, code, param, format string, args ...any) *Error {
	return &Error{Status: status, Type: typeOf(status), Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Invalid is a 400 that names the request field at fault.
func Invalid(param, format string, args ...any) *Error {
	return New(http.StatusBadRequest, "", param, format, args...)
}

// With returns a copy that carries the cause for the log.
func (e *Error) With(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

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

// JSON is the OpenAI error object {"error":{"message","type","param","code"}}.
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
