package telemetry

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// callSpan is the span of a model call, with all its retries.
type callSpan struct {
	// span is nil where no call is being made.
	span    trace.Span
	ctx     context.Context //nolint:containedctx // holds the span, and nothing else
	prompt  []harmony.Token
	retries int
	replica string

	// When the call began, when its first output came (zero: there is none), and its latest.
	started, first, last time.Time

	// tokens is how many the output has, begin how many of these came first, and cached how many
	// of the prompt's the engine had.
	tokens, begin, cached int
	// finish has the reasons of the choices that have finished.
	finish []string
	// output is by choice; nil: spans have no content.
	output map[int][]harmony.Token
}

func (c *callSpan) open() bool { return c.span != nil }

// beginCall begins the span of a model call. One that is open has been complete.
func (s *requestSpan) beginCall(req *engine.Request, now time.Time) {
	if s.call.open() {
		s.endCall(now, nil, "")
	}

	ctx, span := s.otel.tracer.Start(
		s.ctx, operation+" "+valid(req.Model), trace.WithSpanKind(trace.SpanKindClient), at(now),
	)
	s.call = callSpan{span: span, ctx: ctx, started: now, prompt: req.Prompt, cached: engine.Unknown}

	// The call is measured all the same; only what is written to the span is left out.
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(s.start.model()...)
	span.SetAttributes(semconv.GenAIRequestStream(true), semconv.GenAIRequestMaxTokens(req.MaxTokens))
	if req.N != 1 {
		span.SetAttributes(semconv.GenAIRequestChoiceCount(req.N))
	}
	if req.Temperature != nil {
		span.SetAttributes(semconv.GenAIRequestTemperature(*req.Temperature))
	}
	if req.TopP != nil {
		span.SetAttributes(semconv.GenAIRequestTopP(*req.TopP))
	}
	if req.Seed != nil {
		span.SetAttributes(semconv.GenAIRequestSeedKey.Int64(*req.Seed))
	}
	if s.otel.content {
		s.call.output = map[int][]harmony.Token{}
	}
}

// chunk notes output of the model call.
func (c *callSpan) chunk(chunk *engine.Chunk, now time.Time) {
	if c.first.IsZero() {
		c.first, c.begin = now, len(chunk.Tokens)
	}

	// The tokens of the first output are left out of the time per token: they came at its beginning.
	c.last = now
	c.tokens += len(chunk.Tokens)
	if chunk.Finish != engine.FinishNone {
		c.finish = append(c.finish, string(chunk.Finish))
	}
	if chunk.Usage != nil {
		c.cached = chunk.Usage.CachedTokens
	}
	if c.output != nil {
		c.output[chunk.Index] = append(c.output[chunk.Index], chunk.Tokens...)
	}
}

// endCall ends the span of the model call and measures it. failure is error.type,
// "" if there was no error.
func (s *requestSpan) endCall(now time.Time, err *apierror.Error, failure string) {
	c := &s.call
	if err != nil {
		failure = errorType(err)
	}
	if c.span.IsRecording() {
		c.describe(failure)
		if err != nil {
			c.span.SetStatus(codes.Error, failure)
		}
	}

	c.span.End(at(now))
	s.measureCall(now, failure)
	s.call = callSpan{}
}

// describe sets the attributes that are known at the end.
func (c *callSpan) describe(failure string) {
	c.span.SetAttributes(semconv.GenAIUsageInputTokens(len(c.prompt)), semconv.GenAIUsageOutputTokens(c.tokens))
	if c.cached != engine.Unknown {
		c.span.SetAttributes(semconv.GenAIUsageCacheReadInputTokens(c.cached))
	}
	if len(c.finish) > 0 {
		c.span.SetAttributes(semconv.GenAIResponseFinishReasons(c.finish...))
	}
	if !c.first.IsZero() {
		c.span.SetAttributes(semconv.GenAIResponseTimeToFirstChunk(c.first.Sub(c.started).Seconds()))
	}
	if c.retries > 0 {
		c.span.SetAttributes(keyRetries.Int(c.retries))
	}
	if failure != "" {
		c.span.SetAttributes(semconv.ErrorTypeKey.String(failure))
	}

	// Replicas are addresses as Envoy has them; others are no server of the conventions.
	if host, port, err := net.SplitHostPort(c.replica); err == nil {
		n, _ := strconv.Atoi(port)
		c.span.SetAttributes(semconv.ServerAddress(host), semconv.ServerPort(n))
	}
	if c.output != nil {
		c.span.SetAttributes(
			semconv.GenAIInputMessagesKey.String(inputMessages(c.prompt)),
			semconv.GenAIOutputMessagesKey.String(outputMessages(c.output)),
		)
	}
}

// measureCall measures the model call.
func (s *requestSpan) measureCall(now time.Time, failure string) {
	c := &s.call
	// Without output nothing is known of the model: its name must not become a label.
	names := s.metricAttributes(!c.first.IsZero())
	if !c.first.IsZero() {
		input := semconv.GenAITokenTypeKey.String(string(genaiconv.TokenTypeInput))
		output := semconv.GenAITokenTypeKey.String(string(genaiconv.TokenTypeOutput))
		with := metric.WithAttributes(names...)
		s.otel.tokens.Record(c.ctx, int64(len(c.prompt)), with, metric.WithAttributes(input))
		s.otel.tokens.Record(c.ctx, int64(c.tokens), with, metric.WithAttributes(output))
		if more := c.tokens - c.begin; more > 0 && failure == "" {
			s.otel.perToken.Record(c.ctx, c.last.Sub(c.first).Seconds()/float64(more), with)
		}
	}
	if failure != "" {
		names = append(names, semconv.ErrorTypeKey.String(failure))
	}
	s.otel.callDuration.Record(c.ctx, now.Sub(c.started).Seconds(), metric.WithAttributes(names...))
}

// CallEnded notes that the model call being made is over; err is why it failed,
// nil if it is complete.
func (r *Record) CallEnded(err *apierror.Error, now time.Time) {
	if r.request != nil && r.request.call.open() {
		r.request.endCall(now, err, "")
	}
}

// Replica notes which replica answers the model call.
func (r *Record) Replica(address string) {
	if r.request != nil {
		r.request.call.replica = address
	}
}

// Propagate writes the fields traceparent and tracestate into the headers of the
// model call being made, so that the spans of Envoy and of the engine belong to
// the call. Without a span the client's own fields stay.
func (r *Record) Propagate(h http.Header) {
	if h == nil || !r.traced() {
		return
	}
	// Only traceparent is always written: the client's tracestate must not stay beside it.
	h.Del("tracestate")
	w3c.Inject(r.request.call.ctx, writer(h.Set))
}

// TraceFields returns the fields that [Record.Propagate] writes.
func (r *Record) TraceFields() []engine.Header {
	if !r.traced() {
		return nil
	}

	// An empty value removes the client's, which belongs to another parent.
	list := []engine.Header{{Name: "tracestate"}}
	w3c.Inject(r.request.call.ctx, writer(func(name, value string) {
		if name == "tracestate" {
			list[0].Value = value
			return
		}
		list = append(list, engine.Header{Name: name, Value: value})
	}))

	return list
}

// traced reports whether there is a model call with a span.
func (r *Record) traced() bool {
	return r.request != nil && r.request.call.open() && r.request.call.span.SpanContext().IsValid()
}

// Retried counts a model call that is repeated. reason is the code of the error
// that the attempt before has ended with.
func (t *Telemetry) Retried(r *Record, reason string, now time.Time) {
	r.retries++
	t.Metrics.retries.Inc()
	if r.request != nil && r.request.call.open() {
		c := &r.request.call
		c.retries++
		c.span.AddEvent("retry", at(now), trace.WithAttributes(semconv.ErrorTypeKey.String(cmp.Or(reason, unknown))))
	}
}

// Interrupted counts a model call that the filter ended, and that another call continues:
// reason is why.
func (t *Telemetry) Interrupted(r *Record, reason string, now time.Time) {
	r.interrupted = reason
	t.continued(r, reason, now)
}

// Loss is how a model call was lost that another call continues.
type Loss struct {
	RequestID string
	// Engine is its name in the configuration, Replica its address; "": not known.
	Engine  string
	Replica string
	// Kept is how many tokens of output the reply keeps: nobody makes them anew.
	Kept int
	// Err is the error that the call has ended with.
	Err *apierror.Error
}

// Continued counts a lost model call that another call continues, and logs it.
func (t *Telemetry) Continued(r *Record, loss *Loss, now time.Time) {
	r.continuations++
	t.continued(r, loss.Err.Code, now)

	// One line for each loss: limits.max_continuations bounds those of a reply. The line of the
	// request comes only at its end, and the client sees nothing at all.
	if !t.Log.IsLevelEnabled(logrus.WarnLevel) {
		return
	}
	fields := logrus.Fields{
		"request_id": loss.RequestID, "kept_tokens": loss.Kept, "status": loss.Err.Status, "error": loss.Err.Message,
	}
	more := map[string]string{
		"engine": loss.Engine, "replica": loss.Replica, "code": loss.Err.Code,
	}
	if loss.Err.Cause != nil {
		more["cause"] = loss.Err.Cause.Error()
	}
	for name, value := range more {
		if value != "" {
			fields[name] = value
		}
	}
	t.log(logrus.WarnLevel, "a lost model call is continued", fields)
}

func (t *Telemetry) continued(r *Record, reason string, now time.Time) {
	// Errors that are a status only have no code.
	reason = cmp.Or(reason, unknown)
	t.Metrics.continuations.WithLabelValues(reason).Inc()
	if r.request != nil && r.request.call.open() {
		r.request.call.span.AddEvent("continue", at(now), trace.WithAttributes(semconv.ErrorTypeKey.String(reason)))
	}
}
