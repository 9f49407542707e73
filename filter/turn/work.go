package turn

import (
	"errors"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// CodeTooCostly is the error code of a request that asks for too much work.
const CodeTooCostly = "request_too_costly"

// Spend takes steps of the request's work, see [RequestContext].Work. The error names the
// field that asks for them: a 400, or a 503 where the request's time is up.
func (rc *RequestContext) Spend(param string, steps int) *apierror.Error {
	return WorkError(param, rc.Work.Spend(steps))
}

// WorkError returns the error of a [work.Account] as the client gets it; nil for nil.
func WorkError(param string, err error) *apierror.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, work.ErrExceeded):
		return apierror.New(http.StatusBadRequest, CodeTooCostly, param, "The request %s.", work.ErrExceeded)
	}
	refusal := apierror.New(http.StatusServiceUnavailable, "overloaded", param, "The request could not be read in time. Send it again.").With(err)
	refusal.RetryAfter = time.Second

	return refusal
}
