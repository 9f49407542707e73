// Package telemetry is what the filter logs, counts and traces: a log line and
// metrics for each exchange, the time of each ext_proc message, calls of tools,
// errors of the store, and spans of all that for OpenTelemetry.
//
// A [Record] gathers during an exchange what its log entry, its metrics and its spans need
// (it is not the exchange's record: that is package record's). [Telemetry.Close] writes it with
// the exchange's [Outcome]. docs/operations.md lists all fields and metrics,
// docs/telemetry.md all spans and the metrics of OpenTelemetry ([OTel]).
//
// Names that clients and models choose become values of labels only when somebody has served
// them, and are bounded in number and length. Prompts and replies are in none of it, unless the
// operator asks for content; secrets never are.
package telemetry

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// MessageKind names an ext_proc message in the metrics.
type MessageKind int

// The kinds: messages of Envoy, the clock, events of a model call, results of
// jobs and of endpoints, and events of a stored stream.
const (
	MessageRequestHeaders MessageKind = iota
	MessageRequestBody
	MessageResponseHeaders
	MessageResponseBody
	MessageTrailers
	MessageTick
	MessageEngine
	MessageJob
	MessageStream
	messageKinds
)

var messageNames = [messageKinds]string{
	"request_headers", "request_body", "response_headers", "response_body", "trailers", "tick", "engine", "job",
	"stream",
}

// maxModels bounds the values of the model label; more become "other".
const maxModels = 100

// Metrics is everything that the filter counts. It is safe for concurrent use.
type Metrics struct {
	inflight      prometheus.Gauge
	requests      *prometheus.CounterVec // api, model, outcome
	passedThrough prometheus.Counter
	retries       prometheus.Counter
	continuations *prometheus.CounterVec   // reason
	parsing       *prometheus.CounterVec   // kind
	first         *prometheus.HistogramVec // api, model
	duration      *prometheus.HistogramVec // api, model
	calls         *prometheus.HistogramVec // api
	perMsg        *prometheus.HistogramVec // message

	toolCalls    *prometheus.CounterVec   // server, tool, outcome
	toolSeconds  *prometheus.HistogramVec // server, tool
	toolSessions prometheus.Gauge
	unopened     prometheus.Counter
	rollout      *prometheus.CounterVec // match, tenant, side

	socketMetrics
	tokenMetrics
	storeMetrics
	perKind [messageKinds]prometheus.Observer
	labelValues
}

// tokenMetrics is what is counted of tokens.
type tokenMetrics struct {
	prompt        *prometheus.CounterVec // model
	cached        *prometheus.CounterVec // model
	prefixBroken  *prometheus.CounterVec // cause
	tokens        *prometheus.CounterVec // model, channel
	budgetRefused *prometheus.CounterVec // budget
	budgetDropped *prometheus.CounterVec // budget
	cost          *prometheus.CounterVec // model
}

// storeMetrics is what is counted of the store, and of records.
type storeMetrics struct {
	records     *prometheus.CounterVec // outcome
	storeErrors *prometheus.CounterVec // operation
	storeHangs  prometheus.Gauge
}

// socketMetrics is what is counted of WebSocket connections.
type socketMetrics struct {
	connections prometheus.Gauge
	closed      *prometheus.CounterVec // reason
}

// labelValues are the values of labels so far, as far as they come from requests.
type labelValues struct {
	mu     sync.Mutex
	models map[string]bool
	tools  map[string]bool // server and tool
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	// Each is registered where it is made: one that is forgotten would count and never be seen.
	var errs []error
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		errs = append(errs, r.Register(c))
		return c
	}
	counter := func(name, help string) prometheus.Counter { return counters(name, help).WithLabelValues() }
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		errs = append(errs, r.Register(g))
		return g
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		errs = append(errs, r.Register(h))
		return h
	}

	m := &Metrics{
		inflight: gauge("harmony_streams_inflight", "ext_proc streams being served."),
		requests: counters(
			"harmony_requests_total", "Requests for Harmony models, by how they ended.", "api", "model", "outcome",
		),
		passedThrough: counter("harmony_passthrough_total", "Requests that were not the filter's and passed through."),
		retries: counter(
			"harmony_retries_total",
			"Model calls repeated because the engine failed before its first token, or because the output "+
				"was not of the form that was asked for and the engine takes no grammar.",
		),
		continuations: counters(
			"harmony_continuations_total",
			"Model calls that another call continued behind their output, by why they did not go on.", "reason",
		),
		parsing: counters(
			"harmony_parsing_errors_total", "Replies whose tokens needed a repair, or failed for it, by kind.", "kind",
		),
		first: histogram(
			"harmony_time_to_first_token_seconds", "From the request's headers to the engine's first tokens.",
			replySeconds, "api", "model",
		),
		duration: histogram(
			"harmony_request_duration_seconds", "From the request's headers to the end of the reply.",
			replySeconds, "api", "model",
		),
		perMsg: histogram(
			"harmony_message_seconds", "Time the filter itself takes for one ext_proc message.",
			messageSeconds, "message",
		),
		calls: histogram(
			"harmony_mcp_iterations", "Model calls of a response.",
			[]float64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64}, "api",
		),

		toolCalls: counters(
			"harmony_tool_calls_total",
			"Calls of tools that the filter made, by how they ended. The server of a request's own address "+
				"is request; a listing is the tool list.",
			"server", "tool", "outcome",
		),
		toolSeconds: histogram(
			"harmony_tool_call_seconds", "Time that calls of tools took.", replySeconds, "server", "tool",
		),
		toolSessions: gauge("harmony_mcp_sessions", "Sessions with MCP servers."),
		unopened: counter(
			"harmony_unopened_content_total",
			"Sealed texts that clients sent back and that no key of this process opens.",
		),
		rollout: counters(
			"harmony_rollout_total",
			"Requests for Harmony models that an entry of rollout is for, by that entry and by who handles them.",
			"match", "tenant", "side",
		),

		tokenMetrics: tokenMetrics{
			prompt: counters("harmony_prompt_tokens_total", "Tokens of rendered prompts.", "model"),
			cached: counters(
				"harmony_cached_tokens_total",
				"Prompt tokens the engine found in its cache, where it reports them.", "model",
			),
			prefixBroken: counters(
				"harmony_prefix_broken_total",
				"Prompts that do not continue those of their session, or that the engine did not have in "+
					"its cache any more, by cause.",
				"cause",
			),
			budgetRefused: counters(
				"harmony_budget_refusals_total",
				"Requests, and model calls of replies, for which a token budget had no room, by its name.", "budget",
			),
			budgetDropped: counters(
				"harmony_budget_counts_dropped_total",
				"Counts of a token budget that made room for others in the memory of the process, by its name.",
				"budget",
			),
			cost: counters(
				"harmony_cost_total", "What the tokens of replies cost by the configured prices.", "model",
			),
			tokens: counters(
				"harmony_output_tokens_total",
				"Tokens the model produced, by channel; other holds headers, calls' headers and control tokens.",
				"model", "channel",
			),
		},
		storeMetrics: storeMetrics{
			records: counters(
				"harmony_records_total",
				"Records of exchanges, by what became of them: kept whole, kept without what was beyond a "+
					"bound (cut), or lost to a folder that is full or slow, or for want of memory (dropped).",
				"outcome",
			),
			storeErrors: counters(
				"harmony_store_errors_total", "Accesses to the store that failed, by operation.", "operation",
			),
			storeHangs: gauge(
				"harmony_store_hangs", "1 while no accesses to the store are made because it does not answer.",
			),
		},
		socketMetrics: socketMetrics{
			connections: gauge("harmony_websocket_connections", "Open WebSocket connections."),
			closed: counters(
				"harmony_websocket_closed_total",
				"WebSocket connections that have ended, and upgrades that were refused, by why.", "reason",
			),
		},
		labelValues: labelValues{models: map[string]bool{}, tools: map[string]bool{}},
	}

	// Found once here, and not by name for each message: a token is a message.
	for kind, name := range messageNames {
		m.perKind[kind] = m.perMsg.WithLabelValues(name)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// The buckets of times, in seconds: what a client waits for goes on for minutes, what the filter
// takes for a message is microseconds.
var (
	replySeconds   = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	messageSeconds = []float64{
		.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1,
	}
)

// Recorded counts a record by what became of it.
func (m *Metrics) Recorded(outcome string) { m.records.WithLabelValues(outcome).Inc() }

// ConnectionOpens counts a WebSocket connection. What it returns counts its end.
func (m *Metrics) ConnectionOpens() (closed func(reason string)) {
	m.connections.Inc()
	return func(reason string) {
		m.connections.Dec()
		m.closed.WithLabelValues(reason).Inc()
	}
}

// Message observes the time that one message took.
func (m *Metrics) Message(kind MessageKind, took time.Duration) {
	m.perKind[kind].Observe(took.Seconds())
}

// A label that is empty is none for Prometheus: queries cannot tell its series from those
// without the label. These stand in place of what is not there.
const (
	noModel = "none"    // the request is for no model, such as that for a stored response
	unknown = "unknown" // the engine, or the way to it, did not say
)

// model is the label of a model. Only served models become values of the label.
func (m *Metrics) model(name string, served bool) string {
	if name == "" {
		return noModel
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.models[name] {
		return name
	}
	// A name that was never served is what a client wrote.
	if !served || len(m.models) >= maxModels {
		return "other"
	}
	m.models[name] = true
	return name
}

// maxTools bounds the values of the tool label; more become "other".
const maxTools = 1000

// ToolDone counts a tool call, or the listing of a server's tools.
func (m *Metrics) ToolDone(j tools.Job, took time.Duration, r tools.Result) {
	outcome := outcomeOK
	server, tool := m.toolLabels(j, r)
	if r.Error != "" {
		outcome = outcomeFailed
	}
	m.toolCalls.WithLabelValues(server, tool, outcome).Inc()
	m.toolSeconds.WithLabelValues(server, tool).Observe(took.Seconds())
}

// toolLabels are the labels of a job: names come from requests and models.
func (m *Metrics) toolLabels(j tools.Job, r tools.Result) (server, tool string) {
	// Servers of requests have any label, and any tools.
	server, tool = "request", "call"
	if j.Server != nil && j.Server.Trusted {
		server, tool = j.Server.Label, m.tool(j.Server.Label, valid(j.Tool), r.Answered)
	}
	if j.Tool == "" {
		tool = "list"
	}
	return server, tool
}

// tool is the label of a configured server's tool. Only tools that have answered,
// with a result or an error, become values of the label: models invent names.
func (m *Metrics) tool(server, name string, answered bool) string {
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

// ContentUnopened counts a sealed text that no key opens.
func (m *Metrics) ContentUnopened() { m.unopened.Inc() }

// CountDropped counts a count of a token budget that had to make room for another one.
func (m *Metrics) CountDropped(budget string) { m.budgetDropped.WithLabelValues(budget).Inc() }

// StoreFailed counts an access to the store that failed.
func (m *Metrics) StoreFailed(operation string) { m.storeErrors.WithLabelValues(operation).Inc() }

// StoreHangs sets whether accesses to the store are not made because it hangs.
func (m *Metrics) StoreHangs(hangs bool) {
	m.storeHangs.Set(0)
	if hangs {
		m.storeHangs.Set(1)
	}
}

// The sides of a rollout.
const (
	RolloutFilter   = "filter"   // the filter handles the request
	RolloutUpstream = "upstream" // the request passes through
)

// RolledOut counts a request that an entry of the configuration's rollout is for.
func (m *Metrics) RolledOut(match, tenant, side string) {
	m.rollout.WithLabelValues(match, tenant, side).Inc()
}

// ToolSessions sets the number of sessions with MCP servers.
func (m *Metrics) ToolSessions(open int) { m.toolSessions.Set(float64(open)) }

// StreamBegins counts an ext_proc stream as being served until the function that
// it returns is called.
func (m *Metrics) StreamBegins() (ends func()) {
	m.inflight.Inc()
	return m.inflight.Dec
}
