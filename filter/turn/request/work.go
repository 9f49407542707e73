package request

import (
	"context"
	"errors"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// CodeTooCostly is the error code of a request that asks for too much work.
const CodeTooCostly = "request_too_costly"

// Spend takes steps of the request's work, see [Context].Work. The error names the
// field that asks for them: a 400, or a 503 where the request's time is up.
func (rc *Context) Spend(param string, steps int) *apierror.Error {
	return WorkError(param, rc.Work.Spend(steps))
}

// Within returns rc for a part of the work that has a context of its own, such as a job:
// that of who decodes the request has ended then.
func (rc *Context) Within(ctx context.Context) *Context {
	account := rc.Work.Within(ctx)
	if account == rc.Work {
		return rc
	}

	within := *rc
	within.Work = account

	return &within
}

// WorkRefused returns the error of work that was refused, also if its own error was dropped
// because something else can be done without the work; nil if nothing was refused.
func (rc *Context) WorkRefused(param string) *apierror.Error {
	return WorkError(param, rc.Work.Err())
}

// MaxInline bounds what the checks of texts take together on the goroutine of an exchange, while
// it handles one event: about 20 ms. It does not see meanwhile that its client has left, and
// one event can have hundreds of calls.
const MaxInline = 400_000

// Inline makes a check of a text on the goroutine of an exchange. What takes more than is left
// of the event's [MaxInline], or more than the request may still take, is accepted unchecked.
func (rc *Context) Inline(check func(account *work.Account) (bool, error)) bool {
	if rc.event == nil {
		rc.event = rc.Work.Part(context.Background(), MaxInline)
	}
	if rc.event == nil || rc.event.Err() != nil {
		return true
	}

	ok, err := check(rc.event)

	return ok || err != nil
}

// WorkError returns the error of a [work.Account] as the client gets it; nil for nil.
func WorkError(param string, err error) *apierror.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, work.ErrExceeded):
		return apierror.New(http.StatusBadRequest, CodeTooCostly, param, "The request %s.", work.ErrExceeded)
	}
	return apierror.New(http.StatusServiceUnavailable, "overloaded", param,
		"The request could not be read in time. Send it again.").With(err)
}

// BeginEvent says that the handling of another event of the reply begins: the checks of texts may
// take as much again.
func (rc *Context) BeginEvent() { rc.event = nil }
