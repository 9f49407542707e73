package loopback

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// maxPrefillAnswer bounds an engine's answer to a prefill request: a token, and
// where the prompt's keys and values are.
const maxPrefillAnswer = 8 << 20

// prefill is the part of a disaggregated engine that computes prompts.
type prefill struct {
	engine    string // name in Envoy's route
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

// newPrefills makes the prefill parts of the configuration's engines, by name of
// the engine.
func newPrefills(
	cfg *config.Config, dialects map[string]engine.Dialect, random func() uint64,
) (map[string]*prefill, error) {
	prefills := map[string]*prefill{}
	for _, e := range cfg.Engines {
		if len(e.Prefill) == 0 {
			continue
		}
		var d engine.Disaggregator
		if dialect := dialects[e.Name]; dialect != nil {
			d = dialect.Traits().Disaggregation
		}
		if d == nil {
			return nil, fmt.Errorf("engine %s: kind %s takes no prefill endpoints", e.Name, e.Kind)
		}

		p := &prefill{engine: e.PrefillName(), dialect: d, keyHeader: cfg.Routing.PrefixHeader, random: random}
		for _, endpoint := range e.Prefill {
			u, err := url.Parse(endpoint.URL)
			if err != nil {
				return nil, fmt.Errorf("engine %s: prefill: %w", e.Name, err)
			}
			// As the bootstrap names the endpoint: Envoy looks for it by host and port.
			port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
			p.endpoints = append(p.endpoints, prefillEndpoint{
				address: net.JoinHostPort(u.Hostname(), port), host: u.Hostname(),
				bootstrapPort: cmp.Or(endpoint.BootstrapPort, config.DefaultBootstrapPort),
			})
		}

		prefills[e.Name] = p
	}
	return prefills, nil
}

// choose returns the endpoint of a key: always the same one while the endpoints
// are the same (rendezvous hashing). other asks for the second best.
func (p *prefill) choose(key string, other bool) *prefillEndpoint {
	// Without a key the choice is random, so that calls spread over the endpoints.
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
	if other && next != nil {
		return next
	}
	return best
}

// disaggregated is the two requests of a model call: prefill and decode.
type disaggregated struct {
	client  *Client
	prefill *prefill
	request *engine.Request

	prefillHeader  http.Header
	prefillRequest *engine.Request
	prefillWire    *engine.HTTPRequest
	decodeHeader   http.Header
	decodeWire     *engine.HTTPRequest // nil until the prefill request is answered, where there is no bootstrap room
}

// newDisaggregated writes the requests of a call as far as they are known.
func newDisaggregated(c *Calls, p *prefill, r *engine.Request, retry run.Retry) (*disaggregated, *apierror.Error) {
	d := &disaggregated{
		client:        c.client,
		prefill:       p,
		request:       r,
		decodeHeader:  c.headerFor(c.target.Engine, retry),
		prefillHeader: c.headerFor(p.engine, run.Retry{Number: retry.Number}),
	}
	d.prefillHeader.Set(header.PromptTokens, strconv.Itoa(len(r.Prompt))) // once for both requests

	// A retry goes to another prefill endpoint, unless the decode part is what has failed.
	var at *engine.Bootstrap
	if p.dialect.UsesBootstrapRoom() {
		e := p.choose(c.header.Get(p.keyHeader), retry.Number > 0 && !retry.SamePrefill)
		room := int32(p.random() >> 33) //nolint:gosec // 31 bits
		at = &engine.Bootstrap{Host: e.host, Port: e.bootstrapPort, Room: room}
		d.prefillHeader.Set(header.Prefill, e.address)
	}

	var err *apierror.Error
	if d.prefillRequest, err = p.dialect.PrefillRequest(r, at); err != nil {
		return nil, err
	}
	if d.prefillWire, err = p.dialect.Encode(d.prefillRequest); err != nil || at == nil {
		return d, err
	}
	d.decodeWire, err = p.dialect.Encode(p.dialect.DecodeRequest(r, at, nil))
	return d, err
}

// make makes both requests until ctx ends. The events are those of one call: of
// the decode request's answer, or the error of either request. The receiver of
// the error cancels ctx, which ends the other request.
func (d *disaggregated) make(ctx context.Context, send func(run.Event) bool) {
	// With a bootstrap room both requests are sent at once, and find each other.
	if wire := d.decodeWire; wire != nil {
		d.decodeWire = nil
		go d.decode(ctx, wire, nil, send)
		go func() {
			if _, err := d.compute(ctx); err != nil && ctx.Err() == nil {
				send(run.Broken(err))
			}
		}()
		return
	}
	go func() {
		if send(run.Prefilling()) {
			d.transfer(ctx, send)
		}
	}()
}

// compute makes the prefill request and reads its answer to the end.
func (d *disaggregated) compute(ctx context.Context) (*engine.KVTransfer, error) {
	a := prefillAnswer{dialect: d.prefill.dialect, request: d.prefillRequest}

	// The prompt is large, and the reply may take long: nothing keeps it that has been sent.
	wire := d.prefillWire
	d.prefillWire, d.prefillRequest = nil, nil
	// A rejection is read to its end: its body says what was wrong.
	if err := d.client.exchange(ctx, d.prefillHeader, wire, a.take); err != nil {
		return nil, err
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.transfer, nil
}

// transfer makes the decode request once the prefill request is answered.
func (d *disaggregated) transfer(ctx context.Context, send func(run.Event) bool) {
	kv, err := d.compute(ctx)
	var wire *engine.HTTPRequest
	if err == nil {
		var rejected *apierror.Error
		decode := d.prefill.dialect.DecodeRequest(d.request, nil, kv)
		if wire, rejected = d.prefill.dialect.Encode(decode); rejected != nil {
			err = rejected
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			send(run.Broken(err))
		}
		return
	}
	// The prompt is large, and is not needed while the reply lasts.
	d.request = nil
	d.decode(ctx, wire, &kv.Usage, send)
}

// decode makes the decode request. An answer whose status is not 200 becomes an
// error event, as that of a prefill request does. prompt counts in place of the
// usage that the engine reports; nil: the engine's counts.
func (d *disaggregated) decode(
	ctx context.Context, wire *engine.HTTPRequest, prompt *engine.Usage, send func(run.Event) bool,
) {
	var rejection rejection
	d.client.make(ctx, d.decodeHeader, wire, func(e run.Event) bool {
		rejected := rejection.status != 0
		switch {
		case e.Kind == run.EventAnswered && e.Status != http.StatusOK:
			rejection.status, rejection.header = e.Status, e.Header
			return true
		case e.Kind == run.EventAnswered:
			e.Prompt = prompt
		case e.Kind == run.EventEnded && rejected:
			e = run.Broken(rejection.read(d.prefill.dialect))
		case e.Kind == run.EventBytes && rejected:
			rejection.take(e.Body)
			return true
		}
		return send(e)
	})
}

// rejection is an answer whose status is not 200.
type rejection struct {
	status int
	header http.Header
	body   []byte
}

func (a *rejection) take(p []byte) {
	a.body = append(a.body, p[:min(len(p), run.MaxErrorBody-len(a.body))]...)
}

func (a *rejection) read(d engine.Dialect) *apierror.Error {
	return d.ReadError(a.status, a.header.Get, a.body)
}

// prefillAnswer reads the answer to a prefill request.
type prefillAnswer struct {
	dialect engine.Disaggregator
	request *engine.Request

	rejection
	reader   engine.PrefillReader // nil where the status is not 200
	size     int                  // of the body
	transfer *engine.KVTransfer
	err      *apierror.Error
}

// take takes the next event, and reports whether more is to be read.
func (a *prefillAnswer) take(e run.Event) bool {
	switch e.Kind {
	case run.EventAnswered:
		if a.status, a.header = e.Status, e.Header; e.Status == http.StatusOK {
			a.reader = a.dialect.NewPrefillReader(a.request)
		}
	case run.EventEnded:
		a.ended(e.Header)
	case run.EventBytes:
		if a.reader == nil {
			a.rejection.take(e.Body)
			break
		}

		// The reader keeps the answer as a whole: its size is bounded here.
		if a.size += len(e.Body); a.size > maxPrefillAnswer {
			a.err = apierror.New(http.StatusBadGateway, "", "",
				"The engine's answer to the prefill request is longer than %d bytes. Send the request again.",
				maxPrefillAnswer)
		} else {
			a.err = a.reader.Feed(e.Body)
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
