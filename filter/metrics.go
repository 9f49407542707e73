package filter

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
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
	messageTool
	messageKinds
)

var messageNames = [messageKinds]string{"request_headers", "request_body", "response_headers", "response_body", "trailers", "tick", "engine", "tool"}

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
	calls    *prometheus.HistogramVec // api
	perMsg   *prometheus.HistogramVec // message

	toolCalls    *prometheus.CounterVec   // server, tool, outcome
	toolSeconds  *prometheus.HistogramVec // server, tool
	toolSessions prometheus.Gauge
	storeErrors  *prometheus.CounterVec // operation

	perKind [messageKinds]prometheus.Observer

	mu     sync.Mutex
	models map[string]bool
	tools  map[string]bool // server and tool
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
		reissued: prometheus.NewCounter(prometheus.CounterOpts{Name: "harmony_reissued_total", Help: "Model calls made once more because the engine's connection broke before its first token, or because the answer was not of the form that was asked for and the engine takes no grammar."}),
		parsing:  counter("harmony_parsing_errors_total", "Replies whose tokens needed a repair, or failed for it, by kind.", "kind"),
		tokens:   counter("harmony_output_tokens_total", "Tokens the model produced, by channel; other holds headers, calls' headers and control tokens.", "model", "channel"),
		prompt:   counter("harmony_prompt_tokens_total", "Tokens of rendered prompts.", "model"),
		cached:   counter("harmony_cached_tokens_total", "Prompt tokens the engine found in its cache, where it tells.", "model"),
		first:    histogram("harmony_time_to_first_token_seconds", "From the request's headers to the engine's first tokens.", seconds, "api", "model"),
		duration: histogram("harmony_request_duration_seconds", "From the request's headers to the end of the reply.", seconds, "api", "model"),
		perMsg: histogram("harmony_message_seconds", "Time the filter itself takes for one ext_proc message.",
			[]float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}, "message"),
		calls: histogram("harmony_mcp_iterations", "Model calls of a response.", []float64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64}, "api"),

		toolCalls:    counter("harmony_tool_calls_total", "Calls of tools that the filter made, by how they ended. The server of a request's own address is request; a listing is the tool list.", "server", "tool", "outcome"),
		toolSeconds:  histogram("harmony_tool_call_seconds", "Time that calls of tools took.", seconds, "server", "tool"),
		toolSessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "harmony_mcp_sessions", Help: "Sessions with MCP servers."}),

		storeErrors: counter("harmony_store_errors_total", "Accesses to the store that it did not answer, by operation.", "operation"),

		models: map[string]bool{},
		tools:  map[string]bool{},
	}
	for kind, name := range messageNames {
		m.perKind[kind] = m.perMsg.WithLabelValues(name)
	}
	for _, c := range []prometheus.Collector{m.inflight, m.requests, m.relayed, m.reissued, m.parsing, m.tokens, m.prompt, m.cached, m.first, m.duration, m.perMsg, m.calls, m.toolCalls, m.toolSeconds, m.toolSessions, m.storeErrors} {
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

// maxTools bounds the values of the tool label; more become "other".
const maxTools = 1000

// toolDone counts a job of a tool.
func (m *metrics) toolDone(j tools.Job, took time.Duration, r tools.Result) {
	server, tool, outcome := "request", "call", outcomeOK // names come from requests and models
	if j.Server.Trusted {
		server, tool = j.Server.Label, m.tool(j.Server.Label, j.Tool, r.Answered)
	}
	if j.Tool == "" {
		tool = "list"
	}
	if r.Error != "" {
		outcome = outcomeFailed
	}
	m.toolCalls.WithLabelValues(server, tool, outcome).Inc()
	m.toolSeconds.WithLabelValues(server, tool).Observe(took.Seconds())
}

// tool is the label of a configured server's tool. Only ones that have answered,
// be it that they fail, add to the label's values: models make names up.
func (m *metrics) tool(server, name string, answered bool) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := server + "." + name
	if m.tools[key] {
		return name
	}
	if !answered || len(m.tools) >= maxTools {
		return "other"
	}
	m.tools[key] = true
	return name
}

// storeFailed counts an access to the store that it did not answer.
func (m *metrics) storeFailed(operation string) { m.storeErrors.WithLabelValues(operation).Inc() }
