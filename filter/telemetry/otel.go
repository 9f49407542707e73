package telemetry

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	nometrics "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/semconv/v1.41.0/mcpconv"
	"go.opentelemetry.io/otel/trace"
	nospans "go.opentelemetry.io/otel/trace/noop"
)

// scope names what makes the spans and metrics.
const scope = "github.com/envoy-harmony/envoy-harmony/filter"

// The attributes that are the filter's own. All others are those of the semantic
// conventions of OpenTelemetry. docs/telemetry.md lists both.
const (
	keyAPI        = attribute.Key("harmony.api")         // as in the log
	keyRequestID  = attribute.Key("harmony.request_id")  // of the log line
	keyOutcome    = attribute.Key("harmony.outcome")     // as in harmony_requests_total
	keyEngine     = attribute.Key("harmony.engine")      // name in the configuration
	keyModelCalls = attribute.Key("harmony.model_calls") // for the reply
	keyToolCalls  = attribute.Key("harmony.tool_calls")  // for the reply
	keyRepairs    = attribute.Key("harmony.repairs")     // of malformed output
	keyRetries    = attribute.Key("harmony.retries")     // of a model call
	keyBackground = attribute.Key("harmony.background")  // the client does not wait
	keyServer     = attribute.Key("harmony.tool_server") // label of an MCP server
)

// The buckets that the conventions ask for, in seconds and in tokens.
var (
	durationBuckets   = []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	perTokenBuckets   = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}
	tokenBuckets      = []float64{
		1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
	}
	toolBuckets = []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300}
)

// OTel makes spans and metrics for OpenTelemetry, in the words of its semantic
// conventions for generative AI and for MCP, version 1.41. A nil OTel makes none.
// It is safe for concurrent use.
type OTel struct {
	tracer  trace.Tracer
	content bool     // spans may have prompts, replies, and arguments and results of tools
	labels  *Metrics // bounds the names that become attributes of metrics

	requestDuration metric.Float64Histogram
	firstToken      metric.Float64Histogram
	perToken        metric.Float64Histogram
	callDuration    metric.Float64Histogram
	toolDuration    metric.Float64Histogram
	tokens          metric.Int64Histogram
}

// OTelOptions are what an [OTel] is made of.
type OTelOptions struct {
	// Tracers makes the spans; nil: none are made.
	Tracers trace.TracerProvider
	// Meters makes the metrics; nil: none are made.
	Meters metric.MeterProvider
	// Content says that spans may have prompts, replies, and arguments and results of tools.
	Content bool
	// Labels bounds the names that become attributes of metrics.
	Labels *Metrics
}

// NewOTel makes an OTel; nil if there is nothing to make.
func NewOTel(o OTelOptions) (*OTel, error) {
	if o.Tracers == nil && o.Meters == nil {
		return nil, nil //nolint:nilnil // a nil OTel is one that makes nothing
	}
	if o.Tracers == nil {
		o.Tracers = nospans.NewTracerProvider()
	}
	if o.Meters == nil {
		o.Meters = nometrics.NewMeterProvider()
	}

	t := &OTel{content: o.Content, labels: o.Labels}
	t.tracer = o.Tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	meter := o.Meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))

	// All errors at once: the operator sees each metric that cannot be made.
	var errs []error
	seconds := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(
			name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...),
		)
		errs = append(errs, err)
		return h
	}

	// Only for their names and units: these types take no options for buckets.
	var (
		request genaiconv.ServerRequestDuration
		first   genaiconv.ServerTimeToFirstToken
		per     genaiconv.ServerTimePerOutputToken
		call    genaiconv.ClientOperationDuration
		tool    mcpconv.ClientOperationDuration
		usage   genaiconv.ClientTokenUsage
	)

	t.requestDuration = seconds(request.Name(), "From the request's headers to the end of the reply.", durationBuckets)
	t.firstToken = seconds(first.Name(), "From the request's headers to the engine's first tokens.", firstTokenBuckets)
	t.perToken = seconds(per.Name(), "Time per token of a model call after its first tokens.", perTokenBuckets)
	t.callDuration = seconds(call.Name(), "Duration of a model call with its retries.", durationBuckets)
	t.toolDuration = seconds(tool.Name(), "Duration of a request to an MCP server.", toolBuckets)
	tokens, err := meter.Int64Histogram(
		usage.Name(), metric.WithUnit(usage.Unit()), metric.WithDescription("Tokens of a model call."),
		metric.WithExplicitBucketBoundaries(tokenBuckets...),
	)
	t.tokens = tokens
	return t, errors.Join(append(errs, err)...)
}

// w3c writes and reads the fields traceparent and tracestate.
var w3c propagation.TraceContext

// Parent is the span that the span of a request belongs to. The zero Parent is
// none: the request begins a trace.
type Parent struct {
	ctx context.Context //nolint:containedctx // holds the span, and nothing else; nil: there is none
}

// ParentOf returns the span that the fields traceparent and tracestate name. Each
// of the functions returns a field by its name, "" if there is none; the first one
// with a valid traceparent counts.
func ParentOf(fields ...func(name string) string) Parent {
	for _, field := range fields {
		ctx := w3c.Extract(context.Background(), reader(field))
		if trace.SpanContextFromContext(ctx).IsValid() {
			return Parent{ctx}
		}
	}
	return Parent{}
}

// context is where the span of a request begins.
func (p Parent) context() context.Context {
	if p.ctx == nil {
		return context.Background()
	}
	return p.ctx
}

// reader is a set of fields that can be read.
type reader func(name string) string

// Get implements [propagation.TextMapCarrier].
func (r reader) Get(name string) string { return r(name) }

// Set implements [propagation.TextMapCarrier]. It is not called.
func (reader) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier]. It is not called.
func (reader) Keys() []string { return nil }

// writer is a set of fields that can be written.
type writer func(name, value string)

// Get implements [propagation.TextMapCarrier]. It is not called.
func (writer) Get(string) string { return "" }

// Set implements [propagation.TextMapCarrier].
func (w writer) Set(name, value string) { w(name, value) }

// Keys implements [propagation.TextMapCarrier]. It is not called.
func (writer) Keys() []string { return nil }

// valid is a text of a client, a model or a tool for a span or an attribute, in
// UTF-8: exporters drop all spans of a batch for one text that is not.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// at is the timestamp of a span's begin, end or event.
func at(now time.Time) trace.SpanEventOption { return trace.WithTimestamp(now) }
