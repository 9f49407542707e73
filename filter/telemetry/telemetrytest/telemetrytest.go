// Package telemetrytest records the spans and metrics of OpenTelemetry that a test
// causes, and writes them as text.
package telemetrytest

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// Parent is a traceparent of a client, and the id of its trace.
const (
	Parent  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	TraceID = "4bf92f3577b34da6a3ce929d0e0e4736"
)

// Recorder keeps spans and metrics. It is safe for concurrent use.
type Recorder struct {
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	spans   *tracetest.SpanRecorder
	reader  *sdkmetric.ManualReader
}

// New makes a recorder of all spans, except for those whose parent is not sampled.
func New() *Recorder {
	r := &Recorder{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	r.Tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	r.Meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	return r
}

// Spans are the spans that have ended, in the order in which they have begun.
func (r *Recorder) Spans() []sdktrace.ReadOnlySpan {
	var ended []sdktrace.ReadOnlySpan
	// By their beginning: parents end after their children, and stand before them.
	for _, s := range r.spans.Started() {
		if !s.EndTime().IsZero() {
			ended = append(ended, s)
		}
	}
	return ended
}

// Open are the names of the spans that have begun and not ended.
func (r *Recorder) Open() []string {
	var names []string
	for _, s := range r.spans.Started() {
		if s.EndTime().IsZero() {
			names = append(names, s.Name())
		}
	}
	return names
}

// Tree is the spans that have ended, a line each, children below their parents. A
// line has the kind, the name, the status, the attributes and the events. Spans
// whose parent was not recorded are at the left; the id of their parent is not
// shown.
func (r *Recorder) Tree() string {
	spans := r.Spans()
	known := map[trace.SpanID]bool{}
	for _, s := range spans {
		known[s.SpanContext().SpanID()] = true
	}

	var b strings.Builder
	var write func(parent trace.SpanID, indent string)
	write = func(parent trace.SpanID, indent string) {
		for _, s := range spans {
			of := s.Parent().SpanID()
			if !known[of] {
				of = trace.SpanID{}
			}
			if of == parent {
				fmt.Fprintf(&b, "%s%s\n", indent, line(s))
				write(s.SpanContext().SpanID(), indent+"  ")
			}
		}
	}
	write(trace.SpanID{}, "")
	return b.String()
}

func line(s sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.SpanKind(), s.Name())
	if status := s.Status(); status.Code != codes.Unset {
		fmt.Fprintf(&b, " %s(%s)", status.Code, status.Description)
	}
	b.WriteString(attributes(s.Attributes()))
	for _, e := range s.Events() {
		fmt.Fprintf(&b, " [%s%s]", e.Name, attributes(e.Attributes))
	}
	return b.String()
}

func attributes(list []attribute.KeyValue) string {
	list = slices.Clone(list)
	// Instrumentation may add attributes in any order.
	slices.SortFunc(list, func(a, b attribute.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value)
	}
	return b.String()
}

// Metrics are the points of all histograms: the count and the sum, by name and
// attributes.
func (r *Recorder) Metrics(t testing.TB) map[string]string {
	t.Helper()
	points := map[string]string{}
	for _, m := range r.collect(t) {
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				// Shortened: the last digits of a sum depend on the order of its parts.
				points[m.Name+attributes(p.Attributes.ToSlice())] = fmt.Sprintf("%d: %.3g", p.Count, p.Sum)
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				points[m.Name+attributes(p.Attributes.ToSlice())] = fmt.Sprintf("%d: %d", p.Count, p.Sum)
			}
		default:
			// The conventions have histograms only. Another kind would be compared with nothing.
			t.Errorf("%s is no histogram", m.Name)
		}
	}

	return points
}

// Exemplars are the ids of the traces that a metric has examples of.
func (r *Recorder) Exemplars(t testing.TB, name string) []string {
	t.Helper()
	var ids []string
	for _, m := range r.collect(t) {
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == name {
			for _, p := range data.DataPoints {
				// A bucket keeps one example: not every trace has one.
				for _, e := range p.Exemplars {
					ids = append(ids, hex.EncodeToString(e.TraceID))
				}
			}
		}
	}

	return ids
}

func (r *Recorder) collect(t testing.TB) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var list []metricdata.Metrics
	for _, scope := range all.ScopeMetrics {
		list = append(list, scope.Metrics...)
	}
	return list
}
