package filter

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
)

// What becomes of a request whose body is there: a model call, the making of a
// response in the background, or an answer of our own.

// check refuses what no API can answer.
func (x *exchange) check() *apierror.Error {
	switch {
	case x.scan.twice:
		return apierror.Invalid("model", `"model" stands twice in the request: send it once`)
	case !x.target.known && !x.api.modelless:
		return nil // the decoder says what is wrong: no object, no model, not a string
	case x.s.cfg.TenantHeader != "" && x.tenant == "" && !x.api.open:
		return apierror.New(http.StatusUnauthorized, "tenant_missing", "", "the request does not say whose it is: header %s is missing", x.s.cfg.TenantHeader)
	case x.target.dialect == nil && !x.api.modelless:
		return apierror.New(http.StatusServiceUnavailable, "engine_missing", "model", "no engine is configured for this model")
	}
	return nil
}

// serve answers a request that needs no engine.
func (x *exchange) serve(body []byte, trailers bool) {
	ctx, cancel := context.WithTimeout(x.ctx, decodeTimeout)
	defer cancel()
	out, stream, err := x.served(ctx, body)
	switch {
	case err == nil && stream != nil:
		x.follow(stream)
	case err == nil:
		x.answer(out)
	case x.api.modelless && responses.Elsewhere(err):
		x.giveAway(!trailers, trailers)
	default:
		x.refuse(err)
	}
}

// served is the answer to such a request: a JSON body or a stored stream.
func (x *exchange) served(ctx context.Context, body []byte) ([]byte, follower, *apierror.Error) {
	if x.api.stream != nil {
		if f, err := x.api.stream(ctx, x, body); f != nil || err != nil {
			return nil, f, err
		}
	}
	out, err := x.api.serve(ctx, x, body)
	return out, nil, err
}

// answer answers with a JSON body.
func (x *exchange) answer(body []byte) {
	x.release()
	x.phase = phaseAnswered
	x.timers.clearAll()
	x.lead(immediateResponse(http.StatusOK, body, "answer", 0))
}

// dispatch makes a model call of the client's request.
func (x *exchange) dispatch(body []byte, trailers bool) *apierror.Error {
	ctx, cancel := context.WithTimeout(x.ctx, decodeTimeout)
	defer cancel()
	call, err := x.api.decode(ctx, body, x.s.scope(x))
	if err != nil {
		return err
	}
	defer func() {
		if x.run == nil && !x.queued {
			x.s.hold(call)() // nothing is made of it
		}
	}()
	if !x.target.known {
		return apierror.Invalid("model", "the request names no model")
	}
	if c, ok := call.(codexCall); ok {
		if object, stream, answered := c.Again(); answered {
			x.repeat(object, stream)
			return nil
		}
		if c.Continues() {
			x.s.log.WithField("request_id", x.id).Infof("Response %s (compatibility mode): continuing from previous response", c.ID())
		}
	}
	x.untold, x.rec.response = call, call.ID()
	if b, ok := call.(backgroundCall); ok && b.Background() {
		return x.detach(b)
	}
	if x.s.loopback == nil {
		wire, err := x.target.dialect.Encode(call.Engine())
		if err != nil {
			return err
		}
		x.begins(call)
		x.rec.dispatched(call.Engine(), x.s.logsContent())
		x.run.await(call.Engine())
		x.sendOn(wire, x.s.affinity(call), trailers)
		return nil
	}
	x.begins(call)
	x.local = true
	x.remote = x.s.loopback.dial(x.ctx, x.headers, x.target)
	x.jobs = newJobs(x.ctx, x.s.tools)
	x.run.start(errands{&x.remote, &x.jobs}, x.headers)
	return nil
}

// begins makes the run of a call. One that cannot be made yet needs the
// request's body.
func (x *exchange) begins(call call) {
	if call.Engine() != nil {
		x.release()
	}
	x.phase = phaseEngine
	x.run = newRun(x.s, x, call, x.target, &x.rec, &x.timers, x.id, x.now)
	x.run.prepared = x.release
}

// repeat gives the answer to a request that has been answered before.
func (x *exchange) repeat(object []byte, stream follower) {
	if stream != nil {
		x.follow(stream)
		return
	}
	x.answer(object)
}

// detach queues a call whose response is made in the background, and answers
// with the response as it stands or with its stream.
func (x *exchange) detach(call backgroundCall) *apierror.Error {
	b := x.s.background
	if x.s.loopback == nil {
		return apierror.Invalid("background", "Background responses need Envoy's loopback listener, which is not configured here (the operator sets loopback). Leave background out.")
	}
	if request := call.Engine(); request != nil {
		if _, err := x.target.dialect.Encode(request); err != nil {
			return err
		}
	}
	if err := b.admit(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.ctx, storeTimeout)
	defer cancel()
	key, object, err := call.Queue(ctx, b.owner, leaseTime)
	if err != nil {
		b.leave()
		return err
	}
	r := &backgroundRun{
		subject: subject{s: x.s, api: x.api, id: x.id, tenant: x.tenant, target: x.target, background: true},
		header:  x.s.withoutCredentials(x.headers),
		share:   x.share,
		call:    call,
		journal: journal{store: x.s.store, key: key, owner: b.owner},
	}
	r.rec.started, r.rec.response = x.now, x.rec.response
	x.queued, x.share = true, &share{of: &x.s.budget} // the run gives the other back
	b.start(r)
	if call.Follows() {
		x.follow(call.Follow())
		return nil
	}
	x.answer(object)
	return nil
}

// sendOn turns the client's request into the model call: Envoy sends it on.
func (x *exchange) sendOn(wire *engine.HTTPRequest, affinity []engine.Header, trailers bool) {
	var m mutation
	m.set(":path", wire.Path)
	m.set("content-type", "application/json")
	m.set("content-length", strconv.Itoa(len(wire.Body)))
	m.set(EngineHeader, x.target.model.Engine)
	for _, h := range slices.Concat(wire.Header, affinity) {
		if h.Value == "" { // in place of what a client sent
			m.remove(h.Name)
			continue
		}
		m.set(h.Name, h.Value)
	}
	m.remove(meddling...)
	m.remove("accept-encoding", "content-encoding", PrefillHeader, UpstreamHeader, destinationHeader, overrideHeader, codexHeader)
	x.lead(requestHeadersReply(&m, true))
	x.sendRequestBody(wire.Body, !trailers)
	if trailers {
		x.out = append(x.out, requestTrailersReply())
	}
}
