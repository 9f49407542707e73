package extproc

import (
	"cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// collector collects the request of an exchange, and says what it is. It is fed the headers and
// the pieces of the body, and knows neither the reply nor the clock. What follows on what:
//
//	fed by        what has come                             verdict
//	checkHeaders  the headers                               pass, refuse, or the body decides
//	collect       a piece of the body                       none, pass, refuse, or as whole
//	whole         the body's end                            pass, refuse, inflate, handle
//	decoded       the body as it was before compression     pass, refuse, handle
//	incomplete    nothing more, for a reason from outside   pass, refuse
type collector struct {
	s       *Server
	request clientRequest
	model   config.Model // settings of the model
	target  run.Target   // engine of the model; Engine is "" until the model is known
}

// verdict is what a collector has found.
type verdict struct {
	kind verdictKind
	err  *apierror.Error // refuse: for the client
	body []byte          // handle: the whole body, decoded
}

type verdictKind uint8

const (
	verdictNone    verdictKind = iota // more of the body has to come
	verdictPass                       // the request is not the filter's
	verdictRefuse                     // it has an error
	verdictInflate                    // its whole body is there, and is compressed
	verdictHandle                     // it is for its endpoint
)

func refused(err *apierror.Error) verdict { return verdict{kind: verdictRefuse, err: err} }

// collect keeps a piece of a body that may be the filter's.
func (c *collector) collect(p []byte, end bool) verdict {
	r, limit := &c.request, c.s.o.Config.Limits.MaxBodyBytes
	r.body.add(p)

	// The model of an encoded body is known at its end only.
	if r.encoding == "" {
		if v := c.scan(p); v.kind != verdictNone {
			return v
		}

		// The request is the filter's. What is wrong with it is said without waiting for the
		// rest of its body.
		if c.target.Engine != "" && !r.rollout.undecided {
			if err := c.s.checkTenant(r); err != nil {
				return refused(err)
			}
			if r.length > limit {
				return refused(bodyTooLarge(limit))
			}
		}
	}

	if int64(r.body.size) > limit {
		return c.incomplete(bodyTooLarge(limit))
	}
	switch err := r.share.arrive(int64(len(p))); {
	case err != nil:
		return c.incomplete(err)
	case end:
		return c.whole()
	}
	return verdict{}
}

// scan reads on in a body for its model: a request for another model passes.
func (c *collector) scan(p []byte) verdict {
	r := &c.request
	r.scan.feed(p)
	if err := r.scan.ambiguous(); err != nil {
		return refused(cmp.Or(c.s.checkTenant(r), err))
	}

	c.noteModel()
	if r.foreign() {
		return c.pass()
	}
	return verdict{}
}

// noteModel notes the model that the body so far names, once it is known: that it is none of
// Harmony, or its settings, its engine and the request's side of its rollout.
func (c *collector) noteModel() {
	r := &c.request
	if c.target.Engine != "" || !r.scan.done || r.scan.other {
		return
	}

	m, harmony := c.s.o.Config.Model(r.scan.model)
	if !harmony && r.override != overrideOn {
		r.other = true
		return
	}

	c.model = m
	c.target = run.Target{
		Engine:        m.Engine,
		Model:         m.UpstreamModel,
		Dialect:       c.s.o.Dialects[m.Engine],
		Disaggregated: c.s.o.Client != nil && c.s.o.Client.Disaggregated(m.Engine),
		Prices:        m.BudgetPrices(),
	}
	r.rollOut(c.s.o.Config)
}

// foreign reports whether the request is for a model that is not Harmony's, or for one that is
// not rolled out to it.
func (r *clientRequest) foreign() bool { return r.other || r.rollout.side == telemetry.RolloutUpstream }

// whole has the whole body, as it came.
func (c *collector) whole() verdict {
	r := &c.request
	if err := r.share.complete(); err != nil {
		return c.incomplete(err)
	}
	if r.encoding != "" && r.encoding != "identity" {
		return verdict{kind: verdictInflate}
	}

	// What is going to be made of the body is taken before any of it is made.
	if err := r.share.take((madeOf - 1) * int64(r.body.size)); err != nil {
		return c.incomplete(err)
	}
	return c.decide(r.body.bytes(), false)
}

// decoded has the whole body as it was before it was compressed.
func (c *collector) decoded(d *inflated) verdict {
	if d.err != nil {
		return refused(d.err)
	}
	return c.decide(d.body, true)
}

// decide has the whole body, decoded: it passes on, or the endpoint handles it. compressed says
// that it came otherwise.
func (c *collector) decide(body []byte, compressed bool) verdict {
	r := &c.request

	// The model of an encoded body is known only now. It passes on as it came.
	if r.encoding != "" {
		if v := c.scan(body); v.kind != verdictNone {
			return v
		}
	}
	if r.decideByBody(body) {
		return c.pass()
	}

	// Only now it is known that more is going to be made of a body that came encoded, and
	// that its pieces are not passed on.
	if compressed {
		pieces := int64(r.body.size)
		r.body = collectedBody{}
		if err := r.share.take((madeOf-inflatedOf)*int64(len(body)) - pieces); err != nil {
			return refused(err)
		}
	}

	if err := c.s.check(r, &c.target); err != nil {
		return refused(err)
	}
	return verdict{kind: verdictHandle, body: body}
}

// incomplete is the verdict on a body that is not collected to its end, by an error, unless the
// request may be the upstream's: then what has come so far is passed on.
func (c *collector) incomplete(err *apierror.Error) verdict {
	if !c.request.rollout.undecided {
		return refused(err)
	}
	c.request.rollout.decide(false)
	return c.pass()
}

// httpRequest is the request as its endpoint gets it.
func (c *collector) httpRequest(body []byte) (*api.HTTPRequest, *apierror.Error) {
	r := &c.request

	// An upstream would read a malformed query in its own way. Of requests for a model nobody
	// reads it.
	query, err := api.QueryOf(r.method, r.query)
	if err != nil && r.endpoint.NoModel {
		return nil, apierror.Invalid("", "The query of the path is malformed.")
	}

	head := r.forward
	if len(r.strip) > 0 {
		head = head.Clone()
		for _, name := range r.strip {
			head.Del(name)
		}
	}

	return &api.HTTPRequest{
		IDs:     r.ids,
		Path:    r.path,
		Query:   query,
		Header:  head,
		Options: r.options,
		Body:    body,
		Context: c.requestContext(),
		Codex:   r.codex,
	}, nil
}

// requestContext is the circumstances of the request's turn.
func (c *collector) requestContext() *turn.RequestContext {
	s, m := c.s, &c.model
	return &turn.RequestContext{
		Env:       s.o.Turns,
		Tenant:    c.request.tenant,
		RequestID: c.request.id,
		Session:   c.request.session,
		Checked:   c.target.Dialect != nil && !c.target.Dialect.Traits().Constrains,
		KVHints:   s.o.Config.KVHinted(m.Engine),
		Model: s.o.Config.TurnModel(m, s.o.Models.ContextLength(m), config.Client{
			Tenant: c.request.tenant, Key: c.request.key,
		}),
	}
}
