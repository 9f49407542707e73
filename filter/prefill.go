package filter

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// PrefillHeader is the request header by which the filter tells Envoy which of
// an engine's prefill endpoints gets a call, as host:port. Only the loopback
// listener heeds it.
const PrefillHeader = "x-harmony-prefill"

// maxPrefillAnswer bounds what an engine may answer to a prefill leg: a token,
// and where the prompt's keys and values are.
const maxPrefillAnswer = 8 << 20

// prefill is the side of a disaggregated engine that computes prompts.
type prefill struct {
	engine    string // as Envoy's route knows it
	dialect   engine.Disaggregator
	endpoints []prefillEndpoint
	keyHeader string // of a call, with the key by which an endpoint is chosen
	random    func() uint64
}

// prefillEndpoint is one process that computes prompts.
type prefillEndpoint struct {
	address       string // host:port
	host          string
	bootstrapPort int
}

// newPrefills makes the prefill sides of the configuration's engines, by the
// engines' names.
func newPrefills(cfg *Config, dialects map[string]engine.Dialect, random func() uint64) (map[string]*prefill, error) {
	prefills := map[string]*prefill{}
	for _, e := range cfg.Engines {
		if len(e.Prefill) == 0 {
			continue
		}
		if cfg.Loopback == "" {
			return nil, fmt.Errorf("engine %s has prefill endpoints: the filter reaches them through Envoy's loopback listener; say in loopback where that is, or leave prefill out", e.Name)
		}
		d, ok := dialects[e.Name].(engine.Disaggregator)
		if !ok {
			return nil, fmt.Errorf("engine %s: kind %s takes no prefill endpoints", e.Name, e.Kind)
		}
		p := &prefill{engine: e.PrefillName(), dialect: d, keyHeader: cfg.Routing.PrefixHeader, random: random}
		for _, endpoint := range e.Prefill {
			u, err := url.Parse(endpoint.URL)
			if err != nil {
				return nil, fmt.Errorf("engine %s: prefill: %w", e.Name, err)
			}
			port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
			p.endpoints = append(p.endpoints, prefillEndpoint{
				address: net.JoinHostPort(u.Hostname(), port), host: u.Hostname(),
				bootstrapPort: cmp.Or(endpoint.BootstrapPort, DefaultBootstrapPort),
			})
		}
		prefills[e.Name] = p
	}
	return prefills, nil
}

// disaggregated tells whether a target's engine is.
func (s *Server) disaggregated(t *target) bool {
	return s.loopback != nil && s.loopback.prefills[t.model.Engine] != nil
}

// choose gives the endpoint of a key: always the same while the endpoints are,
// and for few keys another one when one comes or goes (rendezvous hashing). Where
// the call is made again it is the second best.
func (p *prefill) choose(key string, again bool) *prefillEndpoint {
	if key == "" {
		key = strconv.FormatUint(p.random(), 10)
	}
	var best, next *prefillEndpoint
	var most, second uint64
	for i := range p.endpoints {
		e := &p.endpoints[i]
		switch weight := rendezvous(e.address, key); {
		case best == nil || weight > most:
			best, next, most, second = e, best, weight, most
		case next == nil || weight > second:
			next, second = e, weight
		}
	}
	if again && next != nil {
		return next
	}
	return best
}

// legs are the two model calls of a disaggregated request.
type legs struct {
	l       *loopback
	prefill *prefill
	request *engine.Request
	header  http.Header // of the decode leg

	prefillHeader http.Header
	prefillLeg    *engine.Request
	prefillWire   *engine.HTTPRequest
	decodeWire    *engine.HTTPRequest // nil until the prefill leg is answered, where the legs do not meet in a room
}

// newLegs writes the legs of a request as far as they are known.
func newLegs(c *loopbackCall, p *prefill, r *engine.Request, d detour) (*legs, *apierror.Error) {
	g := &legs{l: c.l, prefill: p, request: r, header: c.toEngine(c.target.model.Engine, d), prefillHeader: c.toEngine(p.engine, detour{number: d.number})}
	var at *engine.Bootstrap
	if p.dialect.MeetsInRoom() {
		e := p.choose(c.header.Get(p.keyHeader), d.number > 0)
		at = &engine.Bootstrap{Host: e.host, Port: e.bootstrapPort, Room: int32(p.random() >> 33)} //nolint:gosec // 31 bits
		g.prefillHeader.Set(PrefillHeader, e.address)
	}
	var err *apierror.Error
	if g.prefillLeg, err = p.dialect.PrefillLeg(r, at); err != nil {
		return nil, err
	}
	if g.prefillWire, err = p.dialect.Encode(g.prefillLeg); err != nil || at == nil {
		return g, err
	}
	g.decodeWire, err = p.dialect.Encode(p.dialect.DecodeLeg(r, at, nil))
	return g, err
}

// make makes the legs until ctx ends. What is told is the news of one call: of the
// decode leg's answer, or that one of the two has failed. Whoever hears that hangs
// up, which ends the other leg.
func (g *legs) make(ctx context.Context, tell func(engineEvent) bool) {
	if wire := g.decodeWire; wire != nil {
		g.decodeWire = nil
		go g.decode(ctx, wire, nil, tell)
		go func() {
			if _, err := g.compute(ctx); err != nil && ctx.Err() == nil {
				tell(engineEvent{err: err})
			}
		}()
		return
	}
	go func() {
		if tell(engineEvent{waiting: true}) {
			g.handOver(ctx, tell)
		}
	}()
}

// compute makes the prefill leg and reads its answer to the end.
func (g *legs) compute(ctx context.Context) (*engine.Transfer, error) {
	a := prefillAnswer{dialect: g.prefill.dialect, leg: g.prefillLeg}
	wire := g.prefillWire
	g.prefillWire, g.prefillLeg = nil, nil
	if err := g.l.read(ctx, g.prefillHeader, wire, a.take); err != nil {
		return nil, err
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.transfer, nil
}

// handOver makes the decode leg once the prefill leg is answered.
func (g *legs) handOver(ctx context.Context, tell func(engineEvent) bool) {
	told, err := g.compute(ctx)
	var wire *engine.HTTPRequest
	if err == nil {
		var refused *apierror.Error
		if wire, refused = g.prefill.dialect.Encode(g.prefill.dialect.DecodeLeg(g.request, nil, told)); refused != nil {
			err = refused
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			tell(engineEvent{err: err})
		}
		return
	}
	g.request = nil
	g.decode(ctx, wire, &told.Usage, tell)
}

// decode makes the decode leg. An answer that is no 200 is told as an error, as
// that of a prefill leg is. A prompt is what is told of it in place of what the
// engine tells.
func (g *legs) decode(ctx context.Context, wire *engine.HTTPRequest, prompt *engine.Usage, tell func(engineEvent) bool) {
	var refused refusedAnswer
	g.l.make(ctx, g.header, wire, func(e engineEvent) bool {
		switch {
		case e.err != nil:
		case e.header != nil && e.status != http.StatusOK:
			refused.status, refused.header = e.status, e.header
			return true
		case e.header != nil:
			e.prompt = prompt
		case refused.status != 0 && e.end:
			e = engineEvent{err: refused.read(g.prefill.dialect)}
		case refused.status != 0:
			refused.take(e.body)
			return true
		}
		return tell(e)
	})
}

// refusedAnswer is an answer that is no 200.
type refusedAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a *refusedAnswer) take(p []byte) {
	a.body = append(a.body, p[:min(len(p), maxErrorBody-len(a.body))]...)
}

func (a *refusedAnswer) read(d engine.Dialect) *apierror.Error {
	return d.ReadError(a.status, a.header.Get, a.body)
}

// prefillAnswer reads the answer to a prefill leg.
type prefillAnswer struct {
	dialect engine.Disaggregator
	leg     *engine.Request

	refusedAnswer
	reader   engine.PrefillReader // nil where the status is no 200
	size     int                  // of the body
	transfer *engine.Transfer
	err      *apierror.Error
}

// take takes the next news; false tells that nothing more is to be read.
func (a *prefillAnswer) take(e engineEvent) bool {
	switch {
	case e.header != nil:
		if a.status, a.header = e.status, e.header; e.status == http.StatusOK {
			a.reader = a.dialect.NewPrefillReader(a.leg)
		}
	case e.end:
		a.ended(e.trailer)
	case a.reader == nil:
		a.refusedAnswer.take(e.body)
	default:
		if a.size += len(e.body); a.size > maxPrefillAnswer {
			a.err = apierror.New(http.StatusBadGateway, "", "", "The engine's answer to the prompt is longer than %d bytes.", maxPrefillAnswer)
		} else {
			a.err = a.reader.Feed(e.body)
		}
	}
	return a.err == nil
}

func (a *prefillAnswer) ended(trailer http.Header) {
	if a.reader == nil {
		a.err = a.read(a.dialect)
		return
	}
	a.transfer, a.err = a.reader.End(func(name string) string { return cmp.Or(trailer.Get(name), a.header.Get(name)) })
}
