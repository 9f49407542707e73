package extproc

import (
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// lateFor is up to how many times limits.max_body_bytes a body is read to its end that is refused because it is
// too large. Most clients (Python's http.client, httpx) write the whole body before they read the reply. Envoy
// ends a connection of HTTP/1 on which it has answered and does not read on: such clients see a reset, and
// never the error. For much more, reading on would cost more than the error is worth.
const lateFor = 2

// refuse answers with an error: a 413 when the body has its end, unless it is far too large, any
// other error at once. end says that the body is complete.
func (x *exchange) refuse(err *apierror.Error, end bool) {
	if !x.readsOn(err, end) {
		x.SendError(err)
		return
	}
	x.phase = phaseLate
	x.runner.Timers.Set(run.TimerBody, x.now, x.s.o.Config.Limits.BodyTimeout.Duration)
}

// readsOn reports whether an error is sent only at the end of the body, of which nothing is kept
// then.
func (c *collector) readsOn(err *apierror.Error, end bool) bool {
	r := &c.request
	most := lateFor * c.s.o.Config.Limits.MaxBodyBytes
	r.dropped = int64(r.body.size)

	// A body that comes on demand has not been asked for before its headers are accepted.
	asked := !r.bodyless && (!r.onDemand || r.demanded)
	over := end || r.trailers || !asked
	if err.Status != http.StatusRequestEntityTooLarge || over || r.length > most || r.dropped > most {
		return false
	}

	r.release()
	r.late = err
	return true
}

// drop drops a piece of a body that was refused, and reports whether it is far too large.
func (c *collector) drop(n int) (far bool) {
	c.request.dropped += int64(n)
	return c.request.dropped > lateFor*c.s.o.Config.Limits.MaxBodyBytes
}
