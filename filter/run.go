package filter

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

const (
	// maxErrorBody is how much of an engine's error reply is read.
	maxErrorBody = 64 << 10
	// maxDetours is how many calls are made to get one that has failed to another
	// replica.
	maxDetours = 3
	// closingGrace is how long the engine may take from its last choice's
	// end to its closing usage event.
	closingGrace = 2 * time.Second
)

const keepAliveComment = ": keep-alive\n\n"

// run is a reply and the model calls that it is made of, with the work of tools
// between them: a state machine that takes the engine's answers, what tools have
// done, and ticks of the clock, and tells its client what to send. It knows
// neither how a call reaches the engine nor who the client is. It is used by one
// goroutine.
type run struct {
	s        *Server
	client   client
	call     call
	target   target
	id       string // for x-request-id
	rec      *record
	timers   *timers
	letGo    func() // of what the call holds
	prepared func() // is called when the first call's request is there
	caller   caller // nil: Envoy sends the client's own request on to the engine, and no call can follow

	headers  http.Header     // that go along with the calls
	request  *engine.Request // of the call being made; nil before the first
	prompt   *engine.Usage   // that counts in place of the answer's own, nil: that one does
	replica  string          // that answers it, "" where Envoy does not tell
	callID   string          // the id that it had at first
	repeated bool            // it has been made once more
	detour   detour          // that it is on
	trial    *trial          // of its answer; nil where nothing is held back

	reply   reply
	decoder engine.Decoder // nil while the engine has not answered 200
	chunks  []engine.Chunk
	running int // choices that have not finished
	now     time.Time

	status    int // of an engine reply that is no 200
	header    func(string) string
	errorBody []byte

	jobs     int    // of tools that are not done
	answered bool   // an engine has begun to answer
	spoken   bool   // something that the engine has said of the call is the reply's
	begun    bool   // reply headers have been sent
	over     bool   // the reply has ended
	pending  outbox // bytes for the client, not yet sent
}

// client is who gets the reply of a run: headers once and then bytes, or an
// error in their place.
type client interface {
	begin(header []engine.Header) // of a reply with status 200
	write(p []byte, end bool)     // p is valid until the run's next step
	refuse(err *apierror.Error)
}

// caller makes the model calls of a run, and has tools do their jobs.
type caller interface {
	// call makes a model call, in place of the one being made.
	call(r *engine.Request, d detour) *apierror.Error
	// work has jobs done, each of which is news when it is. The model call
	// that was being made is over.
	work(list []tools.Job)
}

// newRun begins a run.
func newRun(s *Server, c client, k call, t target, rec *record, timers *timers, id string, now time.Time) *run {
	r := &run{s: s, client: c, call: k, target: t, id: id, rec: rec, timers: timers, now: now}
	r.reply = k.NewReply()
	r.letGo = s.hold(k)
	r.prepared = func() {}
	r.timers.set(timerTotal, rec.started, s.cfg.Limits.TotalTimeout.Duration)
	return r
}

// start begins the reply's first step. Its model calls go through c, with
// headers.
func (r *run) start(c caller, headers http.Header) {
	r.caller, r.headers = c, headers
	r.advance()
}

// advance begins the reply's next step, or ends the reply.
func (r *run) advance() {
	if r.caller == nil {
		r.complete()
		return
	}
	var step responses.Step
	var err *apierror.Error
	r.pending.buf, step, err = r.reply.Step(r.pending.buf)
	switch {
	case err != nil:
		r.fail(err)
	case step.Call != nil:
		r.make(step.Call)
	case len(step.Jobs) > 0:
		r.work(step.Jobs)
	default:
		r.complete()
	}
}

// make makes a call.
func (r *run) make(req *engine.Request) {
	if r.request == nil {
		setHeaders(r.headers, r.s.affinity(r.call))
		r.prepared()
	}
	r.repeated, r.spoken, r.callID = false, false, req.ID
	r.rec.dispatched(req, r.s.logsContent())
	r.send(req, detour{})
}

func (r *run) send(req *engine.Request, d detour) {
	r.detour = d
	if err := r.caller.call(req, d); err != nil {
		r.fail(err)
		return
	}
	r.await(req)
	if r.begun {
		r.flush(false)
	}
}

// await waits for the engine's answer to a call.
func (r *run) await(req *engine.Request) {
	r.request, r.running = req, req.N
	r.decoder, r.status, r.errorBody, r.replica = nil, 0, nil, ""
	r.trial = r.newTrial()
	r.timers.clear(timerIdle)
	r.timers.clear(timerGrace)
	r.timers.set(timerFirst, r.now, r.s.cfg.Limits.FirstTokenTimeout.Duration)
}

// work has tools do their jobs. What is told of them waits for the reply's
// headers as what the engine says does.
func (r *run) work(list []tools.Job) {
	r.timers.clear(timerFirst)
	r.timers.clear(timerIdle)
	r.timers.clear(timerGrace)
	r.jobs = len(list)
	r.rec.works(list)
	r.caller.work(list)
	if r.begun {
		r.flush(false)
	}
	r.hold()
}

// did takes what came of one of the jobs.
func (r *run) did(d jobDone) {
	r.rec.worked(&d.result)
	r.pending.buf = r.reply.Did(r.pending.buf, d.index, d.result)
	r.jobs--
	if r.jobs == 0 {
		r.advance()
		return
	}
	if r.begun {
		r.flush(false)
	}
}

// step begins the next step: what the last one gave to the client has been
// sent.
func (r *run) step(now time.Time) {
	r.now = now
	r.pending.reuse()
}

// engineHeaders takes the beginning of the engine's answer.
func (r *run) engineHeaders(status int, header func(string) string, end bool) {
	r.header, r.replica = header, header(UpstreamHeader)
	if r.astray() {
		return
	}
	if status != http.StatusOK {
		r.status = status
		if end {
			r.engineRefused()
		}
		return
	}
	if enc := header("content-encoding"); enc != "" && enc != "identity" {
		r.fail(apierror.New(http.StatusBadGateway, "engine_encoding", "", "the engine's reply is compressed (%s) although that was not accepted: switch compression off between Envoy and the engine", enc))
		return
	}
	r.answered = true
	r.decoder = r.target.dialect.NewDecoder(r.request)
	if t, ok := r.decoder.(engine.TrailerReader); ok {
		if err := t.Trailers(header); err != nil { // there is nothing but trailers
			r.refused(err)
			return
		}
	}
	if end {
		r.engineEnded()
		return
	}
	r.hold()
}

// hold lets a stream's headers wait for the engine's first event, for a while.
func (r *run) hold() {
	if r.call.Stream() && !r.begun && r.timers[timerHold].IsZero() {
		r.timers.set(timerHold, r.now, r.s.cfg.Limits.HeaderHold.Duration)
	}
}

// engineBytes takes the next piece of the engine's answer, which may be its
// last.
func (r *run) engineBytes(p []byte, end bool) {
	if r.decoder == nil {
		r.errorBody = append(r.errorBody, p[:min(len(p), maxErrorBody-len(r.errorBody))]...)
		if end {
			r.engineRefused()
		}
		return
	}
	chunks, err := r.decoder.Feed(p, r.chunks[:0])
	r.chunks = chunks
	if r.push(chunks) {
		return
	}
	switch {
	case err != nil:
		r.engineFailed(r.blame(err))
	case end:
		r.engineEnded()
	case len(chunks) > 0 && r.trial == nil:
		r.flush(false)
	}
}

// engineTrailers takes the end of the engine's answer with what stands behind
// its body.
func (r *run) engineTrailers(trailer func(string) string) {
	t, ok := r.decoder.(engine.TrailerReader)
	if !ok {
		r.engineEnded()
		return
	}
	if err := t.Trailers(trailer); err != nil {
		r.engineFailed(err)
		return
	}
	r.engineEnded()
}

// engineEnded takes the end of the engine's answer.
func (r *run) engineEnded() {
	if r.decoder == nil {
		r.engineRefused()
		return
	}
	chunks, err := r.decoder.End(r.chunks[:0])
	r.chunks = chunks
	if r.push(chunks) {
		return
	}
	if err != nil {
		r.broken(r.blame(err))
		return
	}
	r.advance()
}

// blame tells the log of what kind an answer is that cannot be read: another service
// may have given it.
func (r *run) blame(err *apierror.Error) *apierror.Error {
	if err.Cause != nil {
		return err
	}
	kind := r.header("content-type")
	return err.With(fmt.Errorf("the answer's content type is %q", kind[:min(len(kind), 100)]))
}

// engineFailed takes the news that the engine has told an error, that the
// connection to it broke, or that a leg of the call failed.
func (r *run) engineFailed(cause error) {
	var told *apierror.Error
	switch {
	case !errors.As(cause, &told):
		r.broken(apierror.New(http.StatusBadGateway, "engine_disconnected", "", "the connection to the engine broke before the reply was complete: try again").With(cause))
	case told.Status == http.StatusBadGateway, told.Status == http.StatusServiceUnavailable: // another may do better
		r.broken(told)
	default:
		r.fail(told)
	}
}

// news takes news of a call through the loopback listener.
func (r *run) news(e engineEvent) {
	switch {
	case e.err != nil:
		r.engineFailed(e.err)
	case e.waiting:
		r.hold()
	case e.header != nil:
		r.prompt = e.prompt
		r.engineHeaders(e.status, e.header.Get, false)
	case e.end:
		r.engineTrailers(e.trailer.Get)
	default:
		r.engineBytes(e.body, false)
	}
}

// broken makes the call once more if the engine has said nothing yet; else the
// reply fails.
func (r *run) broken(err *apierror.Error) {
	if r.caller == nil || r.repeated || r.spoken {
		r.fail(err)
		return
	}
	r.again(*r.request, detour{number: 1, avoid: r.replica})
}

// again makes a call once more.
func (r *run) again(req engine.Request, d detour) {
	r.repeated = true
	r.timers.clear(timerHold) // the headers wait for the new answer as they did for the first
	r.s.metrics.reissued.Inc()
	r.resend(req, d)
}

// resend makes a call under another id: the engine may not have noticed yet that
// the one before it is gone.
func (r *run) resend(req engine.Request, d detour) {
	req.ID = fmt.Sprintf("%s-%d", r.callID, max(d.number, 1)+1)
	r.send(&req, d)
}

// astray tells that a detour has led to the replica that is to be avoided, and
// another one is taken. What that replica answers is not looked at, but for the
// last time: it may be the only one.
func (r *run) astray() bool {
	d := r.detour
	if d.avoid == "" || d.avoid != r.replica || d.number == maxDetours {
		return false
	}
	d.number++
	r.resend(*r.request, d)
	return true
}

// engineRefused answers for an engine reply that is no 200, be it the engine's
// or one that Envoy made itself.
func (r *run) engineRefused() {
	r.refused(r.target.dialect.ReadError(r.status, r.header, r.errorBody))
}

// refused takes an error that is the whole answer. Where nobody was available Envoy
// has asked other replicas already, but not if the only one that it asked broke off,
// and not another pair of a disaggregated engine.
func (r *run) refused(err *apierror.Error) {
	if err.Status == http.StatusServiceUnavailable && r.header(attemptsHeader) != "1" && !r.s.disaggregated(&r.target) {
		r.fail(err)
		return
	}
	r.engineFailed(err)
}

// push hands chunks to the API's reply; true tells that the model call is over.
func (r *run) push(chunks []engine.Chunk) bool {
	if r.trial != nil {
		var again bool
		if chunks, again = r.try(chunks); again {
			return true
		}
	}
	for i := range chunks {
		c := &chunks[i]
		r.spoken = true
		if r.prompt != nil && c.Usage != nil {
			c.Usage = r.prompt
		}
		r.rec.chunk(c, r.now)
		r.heard()
		var err *apierror.Error
		if r.pending.buf, err = r.reply.Push(r.pending.buf, c); err != nil {
			r.fail(err)
			return true
		}
		if r.reply.Done() {
			r.advance()
			return true
		}
		if c.Finish != engine.FinishNone {
			r.running--
			if r.running == 0 {
				r.timers.set(timerGrace, r.now, closingGrace)
			}
		}
	}
	return false
}

// heard notes that the engine goes on.
func (r *run) heard() {
	r.timers.clear(timerFirst)
	r.timers.set(timerIdle, r.now, r.s.cfg.Limits.IdleTimeout.Duration)
}

// complete ends the client's reply. Before the engine's own end this makes Envoy
// cancel the engine's request.
func (r *run) complete() {
	r.pending.buf = r.reply.End(r.pending.buf)
	if whole, ok := r.reply.(refusable); ok && !r.begun && whole.Refusal() != nil {
		r.end()
		r.client.refuse(whole.Refusal())
		return
	}
	r.flush(true)
}

// fail ends the reply with an error: as an HTTP error while the headers are
// still held back, else in band.
func (r *run) fail(err *apierror.Error) {
	if !r.begun {
		r.end()
		r.client.refuse(err)
		return
	}
	r.rec.failed(err)
	r.pending.buf = r.reply.Fail(r.pending.buf, err)
	r.flush(true)
}

func (r *run) end() {
	r.letGo()
	r.over = true
	r.timers.clearAll()
}

// abandon ends the run without a word: another has ended its reply.
func (r *run) abandon() {
	r.over = true
	r.letGo()
}

// cancel ends the run because its client has gone.
func (r *run) cancel() {
	if c, ok := r.reply.(canceller); ok && !r.over {
		c.Cancel()
	}
	r.abandon()
}

// flush gives the client what it may have now. A whole reply is given at its
// end only.
func (r *run) flush(end bool) {
	if !end && !r.call.Stream() {
		return
	}
	r.begin()
	if end {
		r.end()
		r.client.write(r.pending.take(), true)
	} else if p := r.pending.take(); len(p) > 0 {
		r.client.write(p, false)
		r.timers.set(timerKeepAlive, r.now, r.s.cfg.Limits.KeepAlive.Duration)
	}
}

// begin lets the reply's headers go, once.
func (r *run) begin() {
	if r.begun {
		return
	}
	r.begun = true
	r.timers.clear(timerHold)
	r.timers.set(timerKeepAlive, r.now, r.s.cfg.Limits.KeepAlive.Duration)
	header := replyHeaders(r.call.Stream(), r.id)
	ignored := r.call.Ignored()
	if r.request != nil { // else tools are at work before the first call
		ignored = slices.Concat(ignored, r.target.dialect.Ignores(r.request))
	}
	if len(ignored) > 0 {
		header = append(header, engine.Header{Name: IgnoredHeader, Value: strings.Join(ignored, ", ")})
	}
	r.client.begin(header)
}

// replyHeaders are the headers of every reply with status 200.
func replyHeaders(stream bool, id string) []engine.Header {
	if stream {
		return []engine.Header{{Name: "content-type", Value: "text/event-stream; charset=utf-8"}, {Name: "cache-control", Value: "no-cache"}, {Name: "x-request-id", Value: id}}
	}
	return []engine.Header{{Name: "content-type", Value: "application/json"}, {Name: "x-request-id", Value: id}}
}

// expired does what a timer of the run asks for.
func (r *run) expired(name timer) {
	limits := &r.s.cfg.Limits
	switch name {
	case timerFirst:
		r.fail(apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", "the engine did not begin to answer within %s", limits.FirstTokenTimeout))
	case timerIdle:
		r.fail(apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", "the engine was silent for %s", limits.IdleTimeout))
	case timerTotal:
		r.fail(apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", "the reply was not complete within %s", limits.TotalTimeout))
	case timerGrace:
		r.advance()
	case timerHold:
		r.flush(false)
	case timerKeepAlive:
		r.pending.buf = append(r.pending.buf, keepAliveComment...)
		r.flush(false)
	}
}
