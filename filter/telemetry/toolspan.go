package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Values of error.type of tool calls.
const (
	toolError  = "tool_error" // the tool reports it
	toolFailed = "failed"     // the server has not answered, or not with a result
)

// Tools returns what traces tool calls and listings of tools; the zero value if t
// is nil.
func (t *OTel) Tools() tools.Trace {
	if t == nil {
		return tools.Trace{}
	}
	return tools.Trace{Begin: t.beginTool, Inject: t.inject}
}

// inject writes the fields that make the spans of a server part of the trace.
func (t *OTel) inject(ctx context.Context, set func(name, value string)) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		w3c.Inject(ctx, writer(set))
	}
}

// beginTool begins the span of a job. It returns the job's context, and what ends
// the span.
func (t *OTel) beginTool(ctx context.Context, j tools.Job) (
	within context.Context, end func(took time.Duration, r tools.Result),
) {
	// A job without a tool lists those of its server.
	name, attributes := "tools/list", []attribute.KeyValue{semconv.McpMethodNameToolsList}
	if j.Tool != "" {
		name = string(genaiconv.OperationNameExecuteTool)
		attributes = []attribute.KeyValue{
			semconv.McpMethodNameToolsCall, semconv.GenAIOperationNameExecuteTool,
			semconv.GenAIToolName(valid(j.Tool)),
		}
	}
	if j.Server != nil {
		attributes = append(attributes, keyServer.String(j.Server.Label))
	}

	ctx, span := t.tracer.Start(
		ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...),
	)
	return ctx, func(took time.Duration, r tools.Result) {
		failure := ""
		switch {
		case r.Error != "" && r.Answered:
			failure = toolError
		case r.Error != "":
			failure = toolFailed
		}
		// The name of the span is bounded as labels are: models invent names of tools.
		server, tool := t.labels.toolLabels(j, r)
		if j.Tool != "" {
			span.SetName(name + " " + tool)
		}
		if failure != "" {
			span.SetStatus(codes.Error, failure)
			span.SetAttributes(semconv.ErrorTypeKey.String(failure))
		}
		if t.content && j.Tool != "" && span.IsRecording() {
			span.SetAttributes(
				semconv.GenAIToolCallArgumentsKey.String(cut(j.Arguments)),
				semconv.GenAIToolCallResultKey.String(cut(r.Text+r.Error)),
			)
		}
		t.measureTool(ctx, j, took, server, tool, failure)
		span.End()
	}
}

func (t *OTel) measureTool(ctx context.Context, j tools.Job, took time.Duration, server, tool, failure string) {
	names := []attribute.KeyValue{semconv.McpMethodNameToolsList, keyServer.String(server)}
	if j.Tool != "" {
		names = []attribute.KeyValue{
			semconv.McpMethodNameToolsCall, keyServer.String(server), semconv.GenAIOperationNameExecuteTool,
			semconv.GenAIToolName(tool),
		}
	}
	if failure != "" {
		names = append(names, semconv.ErrorTypeKey.String(failure))
	}
	t.toolDuration.Record(ctx, took.Seconds(), metric.WithAttributes(names...))
}

// cut is at most maxContent bytes of a text.
func cut(text string) string { return valid(text[:min(len(text), maxContent)]) }
