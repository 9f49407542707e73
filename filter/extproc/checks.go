package extproc

import (
	"cmp"
	"net/http"
	"slices"

	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// headerCheck is a check of a request of which only the headers have come. passes says that
// the request is not the filter's; an error is the client's answer. With neither the next check
// follows.
type headerCheck func(c *collector, m *extprocv3.ProcessingRequest) (passes bool, err *apierror.Error)

// headerChecks are the ways in which a request ends with its headers. Their order matters: the
// first one that has an answer decides.
var headerChecks = [...]headerCheck{
	// First, because nothing works without it: with other body modes, Envoy would lose bytes
	// of what the filter passes on, of requests for other models too.
	(*collector).checkMode,

	// Before it matters that a GET has no endpoint at such a path: the client is told what to
	// send in place of an upgrade, and not that it has the wrong method.
	(*collector).checkUpgrade,

	// Before the closed paths: a path with a slash at its end lies below that of the API, and
	// the client is told how to write it, and not that there is no such path.
	(*collector).checkSpelling,

	// Before requests without an endpoint pass: these are below a path of the filter.
	(*collector).checkClosed,

	// Before anything is checked that only the filter asks for: what passes is the upstream's
	// alone.
	(*collector).checkOwner,

	// What remains is the filter's. What its headers show to be wrong is said before its body
	// is collected.
	(*collector).checkType,
	(*collector).checkExpected,
}

// requestHeaders takes the headers of the request: it passes through, is answered, or may be
// the filter's, which the body decides.
func (x *exchange) requestHeaders(m *extprocv3.ProcessingRequest) {
	x.beginRequest(m)

	switch passes, err := x.checkHeaders(m); {
	case err != nil:
		x.refuse(err, x.request.bodyless)
		return
	case passes:
		x.passThrough()
		return
	}

	x.phase = phaseCollect
	x.runner.Timers.Set(run.TimerBody, x.now, x.s.o.Config.Limits.BodyTimeout.Duration)
	switch r := &x.request; {
	case r.bodyless:
		x.conclude(x.whole(), true)
	case r.onDemand:
		// Without a loopback listener the upstream's reply may be the engine's. With
		// pacing it is what the filter has sent.
		r.demanded = true
		x.to.add(&extprocv3.ProcessingResponse{ModeOverride: demandedMode(x.s.o.Client == nil || paces(x.ctx))})
	}
}

// beginRequest reads the headers, and opens the request's share of the memory budget.
func (x *exchange) beginRequest(m *extprocv3.ProcessingRequest) {
	h := m.GetRequestHeaders()
	x.request = x.s.readRequest(h.GetHeaders())
	r := &x.request
	r.bodyless = h.GetEndOfStream()

	// Another request calls this, which must not wait for this exchange: it may be waiting for
	// Envoy.
	r.share = x.s.memory.open(x.s.party(r.tenant, m), func(err *apierror.Error) {
		x.driver.Go(func() { x.send(dropped{err}) })
	})

	if r.endpoint != nil && x.telemetry.OTel != nil {
		r.parent = parentOf(x.ctx, h.GetHeaders())
	}
}

// checkHeaders reports whether the request is not the filter's, by its headers; an error is the
// client's answer. With neither the body decides.
func (c *collector) checkHeaders(m *extprocv3.ProcessingRequest) (passes bool, _ *apierror.Error) {
	for _, check := range headerChecks {
		if passes, err := check(c, m); passes || err != nil {
			return passes, err
		}
	}
	return false, nil
}

// checkMode rejects an ext_proc filter whose body modes would break replies, and notes whether
// bodies come only if they are asked for.
func (c *collector) checkMode(m *extprocv3.ProcessingRequest) (passes bool, err *apierror.Error) {
	c.request.onDemand, err = modeOf(m.GetProtocolConfig())
	if err != nil {
		c.s.telemetry.Log.WithError(err).Error("The ext_proc filter is not configured for envoy-harmony")
	}
	return false, err
}

// modeOf reports whether bodies come only if they are asked for. The error is that of modes
// that the filter cannot work with.
func modeOf(m *extprocv3.ProtocolConfiguration) (onDemand bool, _ *apierror.Error) {
	const (
		none = extprocfilterv3.ProcessingMode_NONE
		want = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	)
	if m.GetRequestBodyMode() == none && m.GetResponseBodyMode() == none {
		return true, nil
	}

	for _, body := range []struct {
		key  string
		mode extprocfilterv3.ProcessingMode_BodySendMode
	}{{"request_body_mode", m.GetRequestBodyMode()}, {"response_body_mode", m.GetResponseBodyMode()}} {
		if body.mode != want {
			return false, apierror.New(http.StatusInternalServerError, "ext_proc_mode", "",
				"Envoy's ext_proc filter has processing_mode.%s %s. Set it to %s, and headers and trailers to "+
					"SEND, for envoy-harmony.", body.key, body.mode, want)
		}
	}
	return false, nil
}

// checkUpgrade rejects a request to change the protocol at a path of the filter. It has no end,
// so that nothing may wait for its body.
func (c *collector) checkUpgrade(m *extprocv3.ProcessingRequest) (passes bool, _ *apierror.Error) {
	path := c.request.path
	if headerOf(m.GetRequestHeaders().GetHeaders(), "upgrade") == "" {
		return false, nil
	}
	switch {
	case c.s.ownPath(path):
		return false, apierror.New(http.StatusUpgradeRequired, "", "",
			"%s is served over plain HTTP. Send a POST without Upgrade.", path)
	case c.request.endpoint != nil:
		return false, apierror.New(http.StatusUpgradeRequired, "", "",
			"%s is served over plain HTTP. Send the request without Upgrade.", path)
	}
	return false, nil
}

// ownPath reports whether a path is that of an API that models answer, whatever
// the method.
func (s *Server) ownPath(path string) bool {
	return slices.ContainsFunc(s.o.Endpoints, func(e api.Endpoint) bool { return !e.NoModel && e.Pattern == path })
}

// checkSpelling rejects another spelling of a path of the filter, which an upstream could read
// as that path.
func (c *collector) checkSpelling(*extprocv3.ProcessingRequest) (passes bool, _ *apierror.Error) {
	if c.request.endpoint != nil || !c.s.respelled(&c.request) {
		return false, nil
	}
	return false, apierror.New(http.StatusNotFound, "", "",
		"The path is another spelling of a path of this API. Write it without encoded characters, double "+
			"slashes, dots and a slash at the end.")
}

// checkClosed rejects a request without an endpoint below a path of the filter (closed.go).
func (c *collector) checkClosed(*extprocv3.ProcessingRequest) (passes bool, _ *apierror.Error) {
	r := &c.request
	if r.endpoint != nil || r.override == overrideOff {
		return false, nil
	}

	family, err := c.s.closed(r)
	if err != nil {
		// Its clients read the error.
		r.endpoint = family
	}
	return false, err
}

// checkOwner lets requests pass that are not the filter's.
func (c *collector) checkOwner(*extprocv3.ProcessingRequest) (passes bool, _ *apierror.Error) {
	return c.request.endpoint == nil || c.request.override == overrideOff, nil
}

// checkType rejects a body that is not sent as JSON (bodytype.go).
func (c *collector) checkType(m *extprocv3.ProcessingRequest) (passes bool, _ *apierror.Error) {
	return false, c.request.checkBodyType(headersOf(m.GetRequestHeaders().GetHeaders(), "content-type"))
}

// checkExpected checks what is known of a request before its body comes.
func (c *collector) checkExpected(*extprocv3.ProcessingRequest) (passes bool, _ *apierror.Error) {
	s, r := c.s, &c.request

	// No body can make the request another's. Of others the model is not known yet, and those
	// for models of the upstream need no tenant.
	if r.endpoint.NoModel {
		err := s.checkTenant(r)
		if err != nil {
			return false, err
		}
	}

	if limit := s.o.Config.Limits.MaxBodyBytes; r.length > limit && !s.passesLarge(r) {
		return false, cmp.Or(s.checkTenant(r), bodyTooLarge(limit))
	}
	return false, nil
}
