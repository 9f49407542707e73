package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Variables of the environment that are read here. The exporters, the sampler and
// the resource of the SDK read the others: see docs/telemetry.md.
const (
	envDisabled = "OTEL_SDK_DISABLED"
	envEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envProtocol = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envContent  = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
)

const (
	// flushTimeout bounds how long the end of the process waits for the last spans
	// and metrics to be sent.
	flushTimeout = 5 * time.Second
	// exportNews is the least time between two log lines about exports that fail.
	exportNews = time.Minute
)

// openTelemetry is what sends spans and metrics by OTLP. The zero value sends none.
type openTelemetry struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	content bool // spans may have content
}

// otelSettings returns what the environment asks for: the protocols by which traces
// and metrics are sent, "" if they are not, and whether spans may have content.
func otelSettings() (traces, metrics string, content bool, err error) {
	traces, noTraces := exporterOf("traces")
	metrics, noMetrics := exporterOf("metrics")
	if err := errors.Join(noTraces, noMetrics); err != nil || traces == "" && metrics == "" {
		return "", "", false, err
	}
	content, err = contentAllowed(os.Getenv(envContent))
	return traces, metrics, content, err
}

// startOpenTelemetry starts what the environment asks for.
func startOpenTelemetry(ctx context.Context, log *logrus.Logger) (*openTelemetry, error) {
	traces, metrics, content, err := otelSettings()
	if err != nil {
		return nil, err
	}

	o := &openTelemetry{content: content}
	if traces == "" && metrics == "" {
		return o, nil
	}

	// For the whole process: the SDK has no other way to say that exports fail.
	otel.SetErrorHandler(&exportErrors{log: log})
	from, err := resourceOf(ctx)
	if err != nil {
		return nil, err
	}

	if traces != "" {
		exporter, err := newSpanExporter(ctx, traces)
		if err != nil {
			return nil, fmt.Errorf("traces: %w", err)
		}
		o.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from))
	}

	if metrics != "" {
		exporter, err := newMetricExporter(ctx, metrics)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("metrics: %w", err), o.close())
		}
		o.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)),
			sdkmetric.WithResource(from))
	}

	return o, nil
}

// tracers makes spans; nil: none are wanted.
func (o *openTelemetry) tracers() trace.TracerProvider {
	// A nil pointer in the interface would not be nil.
	if o.traces == nil {
		return nil
	}
	return o.traces
}

// meters makes metrics; nil: none are wanted.
func (o *openTelemetry) meters() metric.MeterProvider {
	if o.metrics == nil {
		return nil
	}
	return o.metrics
}

// close sends what has not been sent yet, within flushTimeout.
func (o *openTelemetry) close() error {
	// Not of the command's context, which has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	var traces, metrics error
	// Side by side: a collector that does not answer takes the time once.
	var both sync.WaitGroup
	if o.traces != nil {
		both.Go(func() { traces = o.traces.Shutdown(ctx) })
	}
	if o.metrics != nil {
		both.Go(func() { metrics = o.metrics.Shutdown(ctx) })
	}
	both.Wait()
	return errors.Join(traces, metrics)
}

// The values of OTEL_EXPORTER_OTLP_PROTOCOL that are supported.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf" // the default of the specification
)

// exporterOf is the protocol by which a signal, traces or metrics, is sent; "" if
// it is not sent. It is sent if its exporter is otlp, or if there is an endpoint
// and no exporter is named.
func exporterOf(signal string) (protocol string, err error) {
	name := strings.ToUpper(signal)
	if disabled, _ := strconv.ParseBool(os.Getenv(envDisabled)); disabled {
		return "", nil
	}

	variable := "OTEL_" + name + "_EXPORTER"
	switch exporter := os.Getenv(variable); exporter {
	case "none":
		return "", nil
	case "otlp":
	case "":
		if os.Getenv(envEndpoint) == "" && os.Getenv("OTEL_EXPORTER_OTLP_"+name+"_ENDPOINT") == "" {
			return "", nil
		}
	default:
		return "", fmt.Errorf(
			"%s is %q: set it to otlp or none (metrics for Prometheus are at the admin address, whatever it is)",
			variable, exporter)
	}

	// The specification has the variable of a signal precede that of all signals.
	variable = "OTEL_EXPORTER_OTLP_" + name + "_PROTOCOL"
	if os.Getenv(variable) == "" {
		variable = envProtocol
	}
	switch protocol = cmp.Or(os.Getenv(variable), protocolHTTP); protocol {
	case protocolGRPC, protocolHTTP:
		return protocol, nil
	}
	return "", fmt.Errorf("%s is %q: set it to %s or %s", variable, protocol, protocolGRPC, protocolHTTP)
}

func newSpanExporter(ctx context.Context, protocol string) (sdktrace.SpanExporter, error) {
	if protocol == protocolGRPC {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

func newMetricExporter(ctx context.Context, protocol string) (sdkmetric.Exporter, error) {
	if protocol == protocolGRPC {
		return otlpmetricgrpc.New(ctx)
	}
	return otlpmetrichttp.New(ctx)
}

// contentAllowed reports whether spans may have content. The values are those of
// OpenTelemetry's own libraries; the filter sends no events.
func contentAllowed(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "", "false", "no_content", "event_only":
		return false, nil
	case "true", "span_only", "span_and_event":
		return true, nil
	}
	return false, fmt.Errorf("%s is %q: set it to true or false", envContent, value)
}

// resourceOf says where the spans and metrics come from. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES override it.
func resourceOf(ctx context.Context) (*resource.Resource, error) {
	host, _ := os.Hostname() // in Kubernetes the name of the pod
	// The environment comes last, so that it overrides.
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName("envoy-harmony"), semconv.ServiceVersion(thisBuild().version),
			semconv.ServiceInstanceID(fmt.Sprintf("%s-%d", host, os.Getpid()))),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return r, nil
}

// exportErrors logs errors of the exporters, not more often than exportNews.
type exportErrors struct {
	log *logrus.Logger

	mu   sync.Mutex
	next time.Time
}

// Handle implements [otel.ErrorHandler].
func (e *exportErrors) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// An exporter reports each batch that it loses: several a minute while a collector is away.
	if now := time.Now(); now.After(e.next) {
		e.next = now.Add(exportNews)
		e.log.WithError(err).Warn("spans or metrics could not be sent by OTLP; see OTEL_EXPORTER_OTLP_ENDPOINT")
	}
}
