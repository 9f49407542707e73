package extproc

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/background"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

const (
	// handleTimeout bounds what an endpoint takes to decode a request and to
	// read the store. handleGrace is how much later the exchange answers for an
	// endpoint that does not respect the end of its context.
	handleTimeout = 15 * time.Second
	handleGrace   = time.Second
	// unlockTimeout bounds how long the lock of a dropped request is released.
	unlockTimeout = 5 * time.Second
)

// handled is what an endpoint has made of a request.
type handled struct {
	outcome api.Outcome
	share   *memoryShare // of the request, or of the response in the background
	take    func(bytes int) *apierror.Error
	quota   *budget.Account // what the reply takes of token quotas; nil: none bounds it

	// queued says that the response is made in the background. Then the request
	// is its maker's; answer is what the client gets, metadata what Envoy gets.
	queued   bool
	answer   []byte
	metadata metadataFields
}

// handle lets the endpoint handle the request, on a goroutine of its own: it reads
// the store and may take long, and meanwhile the exchange receives from Envoy.
func (x *exchange) handle(body []byte) {
	r, err := x.httpRequest(body)
	if x.s.drain.over() {
		err = shutDown()
	}
	if err != nil {
		x.SendError(err)
		return
	}

	// The record comes first: it sees the ids and times of everything that follows.
	x.phase = phaseHandle
	x.s.beginRecord(x, r)
	x.s.beginSpan(x)
	x.runner.Timers.Set(run.TimerHandle, x.now, handleTimeout+handleGrace)

	// Memory is taken of the share at the time: a response in the background gets one of its own.
	h := &handled{share: x.request.share, quota: x.s.quota(x.request.party, &x.target)}
	h.take = func(bytes int) *apierror.Error { return h.share.takeBytes(bytes) }
	r.Context.Reserve = h.take

	queue := background.Response{
		API:       x.request.endpoint.API,
		RequestID: x.request.id,
		Tenant:    x.request.tenant,
		Target:    x.target,
		Header:    x.request.forward,
		Started:   x.runner.Record.Started,
		Parent:    x.runner.Record.Parent(),
		Tape:      x.runner.Record.Tape,
	}

	ctx, cancel := context.WithTimeout(x.runner.Record.Context(x.ctx), handleTimeout)
	r.Context.Work = work.New(ctx, work.PerRequest)
	ctx = r.Context.Work.Context()

	// From here on the goroutine uses nothing of the exchange, which goes on, except its inbox.
	s, requestID, in := x.s, x.request.id, x.inbox
	handle := s.whereStored(&x.request.rollout, s.whereServed(x.request.endpoint, &x.model))
	x.driver.Go(func() {
		stackToHandle(false)
		defer cancel()
		s.protect(requestID, h, func() {
			h.outcome = handle(ctx, r)
			// The reply is made after this context has ended. Its jobs have others.
			r.Context.Work = r.Context.Work.After()
			s.reserveTokens(ctx, h, queue.Tape)
			s.queueIfBackground(ctx, h, &queue)
		})
		if !in.send(h) {
			s.drop(h)
		}
	})
}

// whereServed is an endpoint's handler, for a request that no engine gets: it gets the error that
// the engine would have for its model.
func (s *Server) whereServed(e *api.Endpoint, model *config.Model) handler {
	if !e.NoCall {
		return e.Handle
	}

	// The exchange, whose model it is, may end before the handler.
	m := *model
	return func(ctx context.Context, r *api.HTTPRequest) api.Outcome {
		if !s.o.Models.Serves(ctx, &m) {
			return api.Refused(engine.NotServed())
		}
		return e.Handle(ctx, r)
	}
}

// protect calls do. A panic in it fails the request.
func (s *Server) protect(requestID string, h *handled, do func()) {
	defer func() {
		if p := recover(); p != nil {
			s.logPanic(requestID, p)
			if !h.queued {
				s.returnTokens(h.quota)
			}
			h.outcome = api.Refused(panicked())
		}
	}()
	do()
}

// panicked is the error of a request whose work has panicked.
func panicked() *apierror.Error {
	return apierror.New(http.StatusInternalServerError, "panic", "", "Internal error.")
}

// queueIfBackground queues and starts a response that is to be made in the
// background.
func (s *Server) queueIfBackground(ctx context.Context, h *handled, r *background.Response) {
	request := h.outcome.Request
	if request == nil || request.Info().Background == nil || r.Target.Engine == "" {
		return
	}
	if err := s.queue(ctx, h, r, request); err != nil {
		s.drop(h)
		h.outcome = api.Refused(err)
	}
}

func (s *Server) queue(
	ctx context.Context, h *handled, r *background.Response, request api.Request,
) *apierror.Error {
	// What the engine's kind cannot do is said now: nobody waits for an error of a response that
	// is made later.
	if call := request.Engine(); call != nil && s.o.Client != nil {
		if _, err := r.Target.Dialect.Encode(call); err != nil {
			return err
		}
	}
	r.Request, r.Quota = request, h.quota
	answer, err := s.o.Background.Queue(ctx, r)
	if err != nil {
		return err
	}

	// The response outlives this request, and so does the memory that it takes.
	h.share = h.share.move()
	_ = h.share.keep(int64(request.Bytes())) // the body is not needed any more
	r.Reserve, r.Release = h.share.takeBytes, h.share.close
	h.queued, h.answer, h.metadata = true, answer, requestMetadata(r.API, request, &r.Target)
	s.o.Background.Start(r)
	return nil
}

// drop gives up what an endpoint has made of a request whose client has left.
func (s *Server) drop(h *handled) {
	if h.outcome.Request != nil && !h.queued {
		s.unlock(h.outcome.Request.Info().Lock)
		s.returnTokens(h.quota)
	}
}

// unlock releases the lock of a request from which nothing is made; nil: it has none.
func (s *Server) unlock(lock api.Lock) {
	if lock == nil {
		return
	}
	s.o.Env.Workers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
		defer cancel()
		// A lock that is not released expires.
		_ = lock.Unlock(ctx)
	})
}

// notHandled is the answer to a request that could not be handled in time.
func notHandled() *apierror.Error {
	return apierror.New(http.StatusServiceUnavailable, "overloaded", "",
		"The request could not be handled within %s. Send it again.", handleTimeout)
}

// takeOutcome takes what the endpoint has made of the request.
func (x *exchange) takeOutcome(h *handled) {
	// A deadline, the drain or Envoy itself has answered since. What the endpoint has locked and
	// reserved is returned.
	if x.phase != phaseHandle {
		x.s.drop(h)
		return
	}

	x.runner.Timers.Clear(run.TimerHandle)

	// A request that continues what is stored here belongs to the filter, whatever the rest of
	// its session does.
	outcome := &h.outcome
	if x.request.rollout.undecided {
		x.request.rollout.decide(outcome.Kind != api.OutcomeElsewhere)
	}

	switch outcome.Kind {
	case api.OutcomeRequest:
		x.takeRequest(h)
	case api.OutcomeAnswer:
		x.answer(outcome.Answer)
	case api.OutcomeStream:
		x.request.release()
		x.replyFrom(outcome.Stream)
	case api.OutcomeRefused:
		x.SendError(outcome.Err)
	case api.OutcomeElsewhere:
		if !x.s.relays(&x.request) {
			x.SendError(outcome.Elsewhere)
			return
		}
		x.elsewhere = outcome.Elsewhere
		x.passCollected(!x.request.trailers)
	default: // an endpoint that returns the zero Outcome
		x.SendError(apierror.New(http.StatusInternalServerError, "", "", "Internal error."))
	}
}

// relays reports whether a request for something that is not stored here is passed on
// to the upstream. Lists are: the upstream adds to them.
func (s *Server) relays(r *clientRequest) bool {
	e, cfg := r.endpoint, s.o.Config
	return r.rollout.entry != nil || e.NoModel && (e.Public || cfg.Responses.RelayUnknown || len(cfg.Rollout) > 0)
}

// takeRequest makes the reply to a decoded request.
func (x *exchange) takeRequest(h *handled) {
	request := h.outcome.Request
	// The exchange has looked for the model. An endpoint may not miss it.
	if x.target.Engine == "" {
		x.s.drop(h)
		x.SendError(apierror.Invalid("model", "The field \"model\" is missing. Name the model."))
		return
	}

	info := request.Info()
	if info.Continues {
		x.telemetry.Log.WithField("request_id", x.request.id).
			Infof("Response %s (compatibility mode): continuing from previous response", info.ID)
	}
	x.runner.Record.Response = info.ID
	x.metadata.request = func() metadataFields { return requestMetadata(x.request.endpoint.API, request, &x.target) }

	switch {
	case h.queued:
		x.takeQueued(h)
	case x.s.o.Client == nil:
		x.beginDirect(h)
	default:
		x.beginLocal(h)
	}
}

// takeQueued answers a request whose response is made in the background: with the response as
// it is queued, or with its stream.
func (x *exchange) takeQueued(h *handled) {
	x.kind = telemetry.Queued
	// The request is its maker's now.
	x.metadata.request = func() metadataFields { return h.metadata }
	if b := h.outcome.Request.Info().Background; b.Follows() {
		x.request.release()
		x.replyFrom(b.Follow())
		return
	}
	x.answer(h.answer)
}

// beginLocal makes the reply by a run whose model calls go through the loopback
// listener. If Envoy can hold back the reply to the pace of its client, the run starts
// when the reply's headers can be sent.
func (x *exchange) beginLocal(h *handled) {
	request := h.outcome.Request
	x.local = !request.Info().Stream || !x.canPace()
	r := x.beginRun(h, api.Loop, x.s.o.Client.Dial(x.ctx, x.request.forward, x.target))
	if x.local {
		r.Start()
	} else {
		x.beginPaced()
	}
}

// beginDirect makes the reply from the engine's answer to the client's own request,
// which Envoy sends on to the engine.
func (x *exchange) beginDirect(h *handled) {
	request := h.outcome.Request
	call := request.Engine()
	wire, err := x.target.Dialect.Encode(call)
	if err != nil {
		x.s.drop(h)
		x.SendError(err)
		return
	}

	x.beginRun(h, api.SingleCall, nil).Await(call)

	// After Await, which begins the span whose trace the call carries.
	keys := slices.Concat(x.s.o.Env.Keys.Headers(request), x.runner.Record.TraceFields(),
		[]engine.Header{{Name: header.PromptTokens, Value: strconv.Itoa(len(call.Prompt))}})
	head := sentToEngine(x.target.Engine, wire, keys)
	x.metadata.begin(head)
	x.to.add(head)
	x.to.requestBody(wire.Body, !x.request.trailers)
	if x.request.trailers { // of the client's request, which Envoy waits to send on
		x.to.add(requestTrailersReply())
	}
}

// beginRun makes the run of a request. One that has no model call yet needs the
// body of the client's request until it has.
func (x *exchange) beginRun(h *handled, mode api.Mode, upstream run.Upstream) *run.Run {
	request := h.outcome.Request
	prepared := func() { _ = x.request.keep(int64(request.Bytes())) }
	if request.Engine() != nil {
		prepared()
	}

	x.phase = phaseRun
	o := run.Options{
		Request:    request,
		Mode:       mode,
		Target:     x.target,
		RequestID:  x.request.id,
		Header:     x.request.forward,
		Downstream: x,
		Prepared:   prepared,
		Reserve:    h.take,
	}
	if h.quota != nil {
		o.Quota, o.Limits = h.quota, x.request.endpoint.Limits
	}
	return x.runner.Begin(o, upstream, x.now)
}

// answer answers with a JSON body, whose endpoint has taken its bytes of the memory budget
// before it made it. A large one is held to the pace of its client, where Envoy can do
// that, and makes room for other requests if its client does not read.
func (x *exchange) answer(body []byte) {
	if missing := x.request.keep(int64(len(body))); missing > largeAnswer { // by an endpoint that takes too little
		if err := x.request.share.take(missing); err != nil {
			x.SendError(err)
			return
		}
	}
	if x.kind != telemetry.Queued { // the answer is not the reply of a response in the background
		x.runner.Record.Tape.Sent(body)
	}

	// Envoy takes a local reply as a whole, however slowly its client reads.
	if len(body) > largeAnswer && x.canPace() {
		x.replyFrom(&wholeAnswer{body: body})
		return
	}

	x.phase = phaseAnswered
	x.runner.Timers.ClearAll()
	m, o := immediateResponse(http.StatusOK, body, "answer", 0, x.request.idHeader()...), x.outcome()
	x.metadata.end(m, &x.runner.Record, &o)
	x.to.add(m)
}

// sentToEngine is the header reply that turns the client's request into the model call:
// Envoy sends it on to the engine.
func sentToEngine(name string, wire *engine.HTTPRequest, keys []engine.Header) *extprocv3.ProcessingResponse {
	set := []engine.Header{
		{Name: ":path", Value: wire.Path},
		{Name: "content-type", Value: "application/json"},
		{Name: "content-length", Value: strconv.Itoa(len(wire.Body))},
		{Name: header.Engine, Value: name},
	}
	return sentOn(slices.Concat(set, wire.Header, keys), removedForCall)
}

// The headers that are removed from a client's request that is sent on to another
// upstream than the client asks for: of the filter's own ones all except those that the
// filter sets.
var (
	removedForCall   = removedBut(header.Engine, header.PromptTokens)
	removedForPacing = append([]string{"content-length"}, removedBut(header.Engine)...)
)

func removedBut(keep ...string) []string {
	own := slices.DeleteFunc(header.Own(), func(name string) bool { return slices.Contains(keep, name) })
	return slices.Concat(engineControlHeaders, []string{"accept-encoding", "content-encoding"}, own)
}

// sentOn is the header reply for a client's request that is sent on to another upstream:
// with the headers set, where an empty value removes what the client sent, and without
// those removed. It takes set over.
func sentOn(set []engine.Header, removed []string) *extprocv3.ProcessingResponse {
	var m mutation
	// Shared by all requests: what is appended is copied.
	m.m.RemoveHeaders = slices.Clip(removed)
	for _, h := range set {
		if h.Value == "" {
			m.remove(h.Name)
		}
	}
	m.set(slices.DeleteFunc(set, func(h engine.Header) bool { return h.Value == "" })...)
	return requestHeadersReply(&m, true)
}
