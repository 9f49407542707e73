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

// sendTooLarge answers with a 413: when the body has its end, unless it is far too large. Nothing of
// it is kept. Any other error is sent at once. end says that the body is complete.
func (x *exchange) sendTooLarge(err *apierror.Error, end bool) {
	r := &x.request
	most := lateFor * x.s.o.Config.Limits.MaxBodyBytes
	r.dropped = int64(r.body.size)

	// A body that comes on demand has not been asked for before its headers are accepted.
	asked := !r.bodyless && (!r.onDemand || r.demanded)
	over := end || r.trailers || !asked
	if err.Status != http.StatusRequestEntityTooLarge || over || r.length > most || r.dropped > most {
		x.SendError(err)
		return
	}

	r.release()
	x.phase, r.late = phaseLate, err
	x.runner.Timers.Set(run.TimerBody, x.now, x.s.o.Config.Limits.BodyTimeout.Duration)
}

// dropBody drops a piece of a body that was refused.
func (x *exchange) dropBody(n int, end bool) {
	r := &x.request
	r.dropped += int64(n)
	if end || r.dropped > lateFor*x.s.o.Config.Limits.MaxBodyBytes {
		x.SendError(r.late)
	}
}
