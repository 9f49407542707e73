package extproc

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// storedReply is the reply of an exchange that sends a stored stream, or a large JSON
// object in the same way. All its methods run on the exchange's goroutine.
type storedReply struct {
	*followed
	x      *exchange
	object bool               // it is a JSON object, which has no place for a comment or an error
	giveUp context.CancelFunc // ends the goroutine; nil: it has not begun
}

// replyFrom answers with what a follower returns. Where Envoy can hold back the reply to
// the pace of its client, it begins when the reply's headers can be sent.
func (x *exchange) replyFrom(f api.Follower) {
	x.phase = phaseFollow
	x.stored = &storedReply{followed: newFollowed(f, x.request.share), x: x}
	x.runner.Timers.ClearAll()
	if x.local = !x.canPace(); x.local {
		x.stored.begin()
		return
	}

	x.beginPaced()
}

// begin sends the headers and lets the stream be read.
func (r *storedReply) begin() {
	x := r.x
	x.runner.Timers.ClearAll()
	r.resetKeepAlive()
	_, r.object = r.stream.(*wholeAnswer)
	x.SendHeaders(run.ReplyHeaders(!r.object, x.request.id))
	var ctx context.Context
	ctx, r.giveUp = context.WithCancel(x.ctx)
	go x.s.follow(ctx, r.followed, func(e storedEvents) bool { return x.send(&e) })
}

// take takes the next events of the stream.
func (r *storedReply) take(e *storedEvents) {
	x := r.x
	if e.err != nil {
		x.runner.Record.Failed(e.err)
	}

	r.waits, r.cut = true, e.more
	over := e.end || e.err != nil
	if len(e.sse) == 0 && !over {
		// Nothing new within one wait: the next one begins.
		x.keepPace()
		return
	}

	r.resetKeepAlive()
	if over {
		x.runner.Timers.ClearAll()
	}
	x.SendBody(e.sse, over)
}

func (r *storedReply) resetKeepAlive() {
	r.x.runner.Timers.Set(run.TimerKeepAlive, r.x.now, r.x.s.o.Config.Limits.KeepAlive.Duration)
}

// keepAlive sends a comment line, unless the client has not read what was sent before.
func (r *storedReply) keepAlive() {
	if !r.cut && !r.object && !r.x.pace.behind() {
		r.x.SendBody([]byte(api.KeepAliveComment), false)
	}
	r.resetKeepAlive()
}

// giveWay ends the reply for other requests that need its memory. An error ends the
// stream from Envoy: the client has a part of an event, or of an object.
func (r *storedReply) giveWay(err *apierror.Error) error {
	x := r.x
	if r.giveUp != nil {
		r.giveUp()
	}
	x.runner.Timers.ClearAll()

	switch {
	case !x.headersSent:
		x.SendError(err)
		return nil
	case r.cut || r.object:
		x.runner.Record.Failed(err)
		x.phase = phaseEnded
		return errGaveWay
	}
	x.runner.Record.Failed(err)
	x.SendBody(r.stream.Fail(err.InStream()), true)
	return nil
}

// largeAnswer is the size of a JSON object, in bytes, beyond which it is paced.
const largeAnswer = 1 << 20

// wholeAnswer is a JSON object that is sent as a stored stream is. It is an
// api.Follower. Its bytes are taken of the memory budget already.
type wholeAnswer struct{ body []byte }

// Next returns the whole object.
func (a *wholeAnswer) Next(
	context.Context, func(bytes int) *apierror.Error,
) (sse []byte, end bool, err *apierror.Error) {
	return a.body, true, nil
}

// Fail returns nothing: an object has no error in its middle.
func (a *wholeAnswer) Fail(*apierror.Error) []byte { return nil }
