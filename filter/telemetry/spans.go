package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// operation is gen_ai.operation.name of requests and model calls.
const operation = "chat"

// canceled is error.type of what ended because nobody wanted it any more.
const canceled = "canceled"

// Start is what is known of a request when its span begins.
type Start struct {
	Parent    Parent
	Kind      Kind
	API       string
	RequestID string
	Method    string // HTTP method; "" in the background
	Route     string // pattern of the path; "" in the background
	Model     string // name at the engine; "": the request is for no model
	Engine    string // name in the configuration
	Provider  string // kind of the engine
}

// requestSpan is the span of a request, with that of the model call being made.
type requestSpan struct {
	otel  *OTel
	start Start
	span  trace.Span
	ctx   context.Context //nolint:containedctx // holds the span, and nothing else
	call  callSpan
}

// Begin begins the span of a record, for a request or for a response in the
// background. Only the first call has an effect. Without OpenTelemetry there is
// none.
func (t *Telemetry) Begin(r *Record, s Start) {
	if t.OTel == nil || r.request != nil {
		return
	}

	// OTLP is protobuf: a string that is not UTF-8 would lose the whole batch.
	s.RequestID, s.Model = valid(s.RequestID), valid(s.Model)
	kind := trace.SpanKindServer
	attributes := make([]attribute.KeyValue, 0, 16)
	attributes = append(attributes, keyRequestID.String(s.RequestID))
	if s.API != "" {
		attributes = append(attributes, keyAPI.String(s.API))
	}
	if s.Kind == Background {
		kind = trace.SpanKindInternal
		attributes = append(attributes, keyBackground.Bool(true))
	} else if s.Method != "" {
		attributes = append(attributes, semconv.HTTPRequestMethodKey.String(s.Method), semconv.HTTPRoute(s.Route))
	}

	name := s.Method + " " + s.Route
	if s.Engine != "" {
		name = operation + " " + s.Model
		attributes = append(attributes, s.model()...)
	}

	ctx, span := t.OTel.tracer.Start(
		s.Parent.context(), name, trace.WithSpanKind(kind), at(r.Started), trace.WithAttributes(attributes...),
	)
	r.request = &requestSpan{otel: t.OTel, start: s, span: span, ctx: ctx}
}

// model names the model and who serves it.
func (s *Start) model() []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.GenAIOperationNameKey.String(operation), semconv.GenAIProviderNameKey.String(s.Provider),
		semconv.GenAIRequestModel(s.Model), keyEngine.String(s.Engine),
	}
}

// Context returns ctx with the span of the record, if it has one: spans that begin
// with it belong to that span.
func (r *Record) Context(ctx context.Context) context.Context {
	if r.Tape != nil {
		ctx = record.With(ctx, r.Tape)
	}
	if r.request == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, r.request.span)
}

// Parent is the record's span as the parent of another one.
func (r *Record) Parent() Parent {
	if r.request == nil {
		return Parent{}
	}
	return Parent{r.request.ctx}
}

// end ends the span of a request and measures it. label is the outcome.
func (s *requestSpan) end(r *Record, o *Outcome, label string) {
	// Its client has left during a model call: spans of calls must not outlive the request's.
	if s.call.open() {
		s.endCall(o.Now, nil, canceled)
	}

	failure := ""
	switch {
	case r.err != nil:
		failure = errorType(r.err)
	case label == outcomeCanceled:
		failure = canceled
	}

	if s.span.IsRecording() {
		s.span.SetAttributes(s.attributes(r, o, label, failure)...)
		// A rejected request is not an error of the server.
		if label == outcomeFailed || label == outcomeDrain {
			s.span.SetStatus(codes.Error, failure)
		}
	}

	s.span.End(at(o.Now))
	// As with Prometheus, what is queued is measured when it has been made.
	if o.Kind != Queued && s.start.Engine != "" {
		s.measure(r, o, failure)
	}
}

// attributes are those that are known at the end.
func (s *requestSpan) attributes(r *Record, o *Outcome, label, failure string) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, 16)
	list = append(list, keyOutcome.String(label))
	if r.Response != "" {
		list = append(list, semconv.GenAIResponseID(r.Response))
	}
	if failure != "" {
		list = append(list, semconv.ErrorTypeKey.String(failure))
	}

	switch {
	case o.Kind == Background, r.err != nil && o.Answered:
		// The error may be in the reply, or in its place.
	case r.err != nil:
		list = append(list, semconv.HTTPResponseStatusCode(r.err.Status))
	case label != outcomeCanceled:
		list = append(list, semconv.HTTPResponseStatusCode(http.StatusOK))
	}

	if r.modelCalls > 0 {
		list = append(list, keyModelCalls.Int(r.modelCalls), semconv.GenAIUsageInputTokens(r.promptTokens))
	}
	if o.ToolCalls > 0 {
		list = append(list, keyToolCalls.Int(o.ToolCalls))
	}
	if !o.Answered {
		return list
	}

	summary := &o.Summary
	list = append(list,
		semconv.GenAIResponseModel(o.Model),
		semconv.GenAIUsageOutputTokens(summary.Counts.Output),
		semconv.GenAIUsageReasoningOutputTokens(summary.Counts.Reasoning))

	if summary.Cached != engine.Unknown {
		list = append(list, semconv.GenAIUsageCacheReadInputTokens(summary.Cached))
	}
	if summary.Finish != "" {
		list = append(list, semconv.GenAIResponseFinishReasons(string(summary.Finish)))
	}
	if r.firstToken > 0 {
		list = append(list, semconv.GenAIResponseTimeToFirstChunk(r.firstToken.Seconds()))
	}

	repairs := 0
	for _, n := range summary.Repairs {
		repairs += n
	}

	if repairs > 0 {
		list = append(list, keyRepairs.Int(repairs))
	}
	return list
}

// measure measures a request for a model.
func (s *requestSpan) measure(r *Record, o *Outcome, failure string) {
	names := s.metricAttributes(o.Answered)
	if r.firstToken > 0 {
		s.otel.firstToken.Record(s.ctx, r.firstToken.Seconds(), metric.WithAttributes(names...))
	}
	if failure != "" {
		names = append(names, semconv.ErrorTypeKey.String(failure))
	}
	s.otel.requestDuration.Record(s.ctx, o.Now.Sub(r.Started).Seconds(), metric.WithAttributes(names...))
}

// metricAttributes are those of all metrics of models. The number of models is
// bounded as in the label model.
func (s *requestSpan) metricAttributes(answered bool) []attribute.KeyValue {
	list := s.start.model()
	list[2] = semconv.GenAIRequestModel(s.otel.labels.model(s.start.Model, answered))
	return list
}

// errorType is error.type of an error for the client: its code, else its status.
// Codes come from the filter and from engines' own errors, which have no code.
func errorType(err *apierror.Error) string {
	if err.Code != "" {
		return err.Code
	}
	return strconv.Itoa(err.Status)
}

// exemplar names the trace of a record for the metrics of Prometheus; nil if there
// is none that is kept.
func (r *Record) exemplar() prometheus.Labels {
	if r.request == nil {
		return nil
	}
	span := r.request.span.SpanContext()
	if !span.IsSampled() {
		return nil
	}
	return prometheus.Labels{"trace_id": span.TraceID().String(), "span_id": span.SpanID().String()}
}

// observe observes a value, with an example if there is one.
func observe(o prometheus.Observer, value time.Duration, exemplar prometheus.Labels) {
	if e, ok := o.(prometheus.ExemplarObserver); ok && exemplar != nil {
		e.ObserveWithExemplar(value.Seconds(), exemplar)
		return
	}
	o.Observe(value.Seconds())
}
