package turn

import (
	"context"
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

// Within returns rc for a part of the work that has a context of its own, such as a job:
// that of who decodes the request has ended then.
func (rc *RequestContext) Within(ctx context.Context) *RequestContext {
	within := *rc
	within.Work = rc.Work.Within(ctx)

	return &within
}

// Work returns the request's account, for work behind its decoding. A nil Turn has none.
func (t *Turn) Work() *work.Account {
	if t == nil {
		return nil
	}

	return t.rc.Work.Within(context.Background())
}

// workRefused returns the error of work that was refused and whose error was dropped:
// what is only enforced where it can be counts as not enforceable then.
func (rc *RequestContext) workRefused() *apierror.Error { return WorkError("", rc.Work.Err()) }

// maxInline bounds what one check of a text takes on the goroutine of an exchange, which
// answers to Envoy meanwhile: about 20 ms.
const maxInline = 400_000

// inline makes a check of a text on the goroutine of an exchange. What takes more than
// [maxInline], or more than the request may still take, is accepted unchecked.
func (rc *RequestContext) inline(check func(account *work.Account) (bool, error)) bool {
	account := rc.Work.Part(context.Background(), maxInline)
	if account == nil {
		return true
	}
	ok, err := check(account)

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
	refusal := apierror.New(http.StatusServiceUnavailable, "overloaded", param, "The request could not be read in time. Send it again.").With(err)
	refusal.RetryAfter = time.Second

	return refusal
}
