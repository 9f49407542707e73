package apierror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// StatusOverloaded is the HTTP status with which Anthropic's API says that it has no
// room for a request at the moment.
const StatusOverloaded = 529

// The values of an error object's "type" that only Anthropic's API has.
const (
	TypeBilling    = "billing_error"
	TypeTooLarge   = "request_too_large"
	TypeAPI        = "api_error"
	TypeTimeout    = "timeout_error"
	TypeOverloaded = "overloaded_error"
)

// anthropicTypes has the types of errors by status. Other statuses below 500 are
// [TypeInvalidRequest], others from 500 on [TypeAPI].
var anthropicTypes = map[int]string{
	http.StatusUnauthorized:          TypeAuthentication,
	http.StatusPaymentRequired:       TypeBilling,
	http.StatusForbidden:             TypePermission,
	http.StatusNotFound:              TypeNotFound,
	http.StatusRequestEntityTooLarge: TypeTooLarge,
	http.StatusTooManyRequests:       TypeRateLimit,
	http.StatusGatewayTimeout:        TypeTimeout,
	StatusOverloaded:                 TypeOverloaded,
}

// Anthropic returns the error as Anthropic's API writes it:
// {"type":"error","error":{"type","message","details":{"error_code"}},"request_id"}, and
// its HTTP status, which is [StatusOverloaded] in place of a 503 that means overload.
// requestID is the request's; "" is left out, and so are details without a code. The
// message names the field at fault.
func (e *Error) Anthropic(requestID string) (status int, object []byte) {
	status = e.Status
	overloaded := e.Code == "" || e.Code == codeOverloaded || e.Code == CodeShutdown
	if status == http.StatusServiceUnavailable && overloaded {
		status = StatusOverloaded
	}

	kind, ok := anthropicTypes[status]
	switch {
	case ok:
	case status < http.StatusInternalServerError:
		kind = TypeInvalidRequest
	default:
		kind = TypeAPI
	}

	// The text of a prompt that is too long has a >, by which clients know it.
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	w.SetEscapeHTML(false)
	fields := anthropicFields{kind, e.anthropicMessage(), e.anthropicDetails()}
	if err := w.Encode(anthropicObject{"error", fields, requestID}); err != nil { // strings always marshal
		const internal = `{"type":"error","error":{"type":"api_error","message":"Internal error."}}`
		return http.StatusInternalServerError, []byte(internal)
	}
	return status, bytes.TrimSpace(b.Bytes())
}

// The codes of the 503s that mean overload. A 503 of an engine has no code.
const (
	codeOverloaded = "overloaded"
	// CodeShutdown is the code of an error because the process ends.
	CodeShutdown = "shutdown"
)

// anthropicMessage is the message in Anthropic's form: clients decide by the words of
// a prompt that is too long, and there is no other place for the name of a field.
func (e *Error) anthropicMessage() string {
	switch {
	case e.Overflow != nil:
		return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", e.Overflow.Tokens, e.Overflow.Max)
	case e.Param != "" && e.Status == http.StatusBadRequest:
		return e.Param + ": " + e.Message
	}
	return e.Message
}

func (e *Error) anthropicDetails() *anthropicDetails {
	if e.Code == "" {
		return nil
	}
	return &anthropicDetails{e.Code}
}

type anthropicObject struct {
	Type      string          `json:"type"`
	Error     anthropicFields `json:"error"`
	RequestID string          `json:"request_id,omitempty"`
}

type anthropicFields struct {
	Type    string `json:"type"`
	Message string `json:"message"`

	Details *anthropicDetails `json:"details,omitempty"`
}

type anthropicDetails struct {
	Code string `json:"error_code"`
}
