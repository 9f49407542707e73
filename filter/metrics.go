package filter

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// messageKind names an ext_proc message in the metrics.
type messageKind int

const (
	messageRequestHeaders messageKind = iota
	messageRequestBody
	messageResponseHeaders
	messageResponseBody
	messageTrailers
	messageTick
	messageEngine
	messageKinds
)

var messageNames = [messageKinds]string{"request_headers", "request_body", "response_headers", "response_body", "trailers", "tick", "engine"}

// maxModels bounds the values of the model label; more become "other".
const maxModels = 100

// metrics is everything the filter counts. docs/operations.md lists them.
type metrics struct {
	inflight prometheus.Gauge
	requests *prometheus.CounterVec // api, model, outcome
	relayed  prometheus.Counter
	reissued prometheus.Counter
	parsing  *prometheus.CounterVec   // kind
	tokens   *prometheus.CounterVec   // model, channel
	prompt   *prometheus.CounterVec   // model
	cached   *prometheus.CounterVec   // model
	first    *prometheus.HistogramVec // api, model
	duration *prometheus.HistogramVec // api, model
	perMsg   *prometheus.HistogramVec // message
	perKind  [messageKinds]prometheus.Observer

	mu     sync.Mutex
	models map[string]bool
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	seconds := []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	m := &metrics{
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "harmony_streams_inflight", Help: "ext_proc streams being served."}),
		requests: counter("harmony_requests_total", "Requests for Harmony models, by how they ended.", "api", "model", "outcome"),
		relayed:  prometheus.NewCounter(prometheus.CounterOpts{Name: "harmony_relayed_total", Help: "Requests that were not the filter's and passed through."}),
		reissued: prometheus.NewCounter(prometheus.CounterOpts{Name: "harmony_reissued_total", Help: "Model calls made once more because the engine's connection broke before its first token."}),
		parsing:  counter("harmony_parsing_errors_total", "Replies whose tokens needed a repair, or failed for it, by kind.", "kind"),
		tokens:   counter("harmony_output_tokens_total", "Tokens the model produced, by channel; other holds headers, calls' headers and control tokens.", "model", "channel"),
		prompt:   counter("harmony_prompt_tokens_total", "Tokens of rendered prompts.", "model"),
		cached:   counter("harmony_cached_tokens_total", "Prompt tokens the engine found in its cache, where it tells.", "model"),
		first:    histogram("harmony_time_to_first_token_seconds", "From the request's headers to the engine's first tokens.", seconds, "api", "model"),
		duration: histogram("harmony_request_duration_seconds", "From the request's headers to the end of the reply.", seconds, "api", "model"),
		perMsg: histogram("harmony_message_seconds", "Time the filter itself takes for one ext_proc message.",
			[]float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}, "message"),
		models: map[string]bool{},
	}
	for kind, name := range messageNames {
		m.perKind[kind] = m.perMsg.WithLabelValues(name)
	}
	for _, c := range []prometheus.Collector{m.inflight, m.requests, m.relayed, m.reissued, m.parsing, m.tokens, m.prompt, m.cached, m.first, m.duration, m.perMsg} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// message counts the time one message took.
func (m *metrics) message(kind messageKind, took time.Duration) {
	m.perKind[kind].Observe(took.Seconds())
}

// model is the label of a model. Only served ones add to the label's values.
func (m *metrics) model(name string, served bool) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models[name] {
		return name
	}
	if !served || len(m.models) >= maxModels {
		return "other"
	}
	m.models[name] = true
	return name
}
