package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// Which signals are sent, by the environment. A wrong value is an error that names
// the variable.
func TestOpenTelemetryEnvironment(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	for name, c := range map[string]struct {
		environ         string
		traces, metrics string
		wrong           string // variable
	}{
		"nothing":               {"", "", "", ""},
		"an endpoint":           {"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "http/protobuf", "http/protobuf", ""},
		"an endpoint of traces": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + endpoint, "http/protobuf", "", ""},
		"an exporter":           {"OTEL_METRICS_EXPORTER=otlp", "", "http/protobuf", ""},
		"one is off":            {"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint + " OTEL_METRICS_EXPORTER=none OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "grpc", "", ""},
		"two protocols":         {"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint + " OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc", "grpc", "http/protobuf", ""},
		"disabled":              {"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint + " OTEL_SDK_DISABLED=true", "", "", ""},
		"another exporter":      {"OTEL_TRACES_EXPORTER=zipkin", "", "", "OTEL_TRACES_EXPORTER"},
		"another protocol":      {"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint + " OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/json", "http/protobuf", "", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range strings.Fields(c.environ) {
				key, value, _ := strings.Cut(variable, "=")
				t.Setenv(key, value)
			}
			traces, tracesErr := exporterOf("traces")
			metrics, metricsErr := exporterOf("metrics")
			err := errors.Join(tracesErr, metricsErr)
			if traces != c.traces || metrics != c.metrics || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong+" is ") {
				t.Errorf("traces %q, metrics %q, %v", traces, metrics, err)
			}
		})
	}
}

func TestContentAllowed(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"": false, "false": false, "NO_CONTENT": false, "EVENT_ONLY": false, "true": true, "True": true, "SPAN_ONLY": true, "span_and_event": true} {
		if got, err := contentAllowed(value); got != want || err != nil {
			t.Errorf("%q: %t, %v", value, got, err)
		}
	}
	if _, err := contentAllowed("yes"); err == nil || !strings.Contains(err.Error(), envContent) {
		t.Errorf("yes: %v", err)
	}
}

// The environment overrides what the resource says by itself.
func TestResource(t *testing.T) {
	for environ, want := range map[string]string{"": "envoy-harmony", "gateway": "gateway"} {
		t.Setenv("OTEL_SERVICE_NAME", environ)
		r, err := resourceOf(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if name, _ := r.Set().Value(semconv.ServiceNameKey); name.AsString() != want {
			t.Errorf("%q: service.name %q", environ, name.AsString())
		}
		if id, ok := r.Set().Value(semconv.ServiceInstanceIDKey); !ok || id.AsString() == "" {
			t.Error("no service.instance.id")
		}
	}
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no pair")
	if _, err := resourceOf(t.Context()); err == nil || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES") {
		t.Errorf("a wrong attribute: %v", err)
	}
}

// A process without OpenTelemetry has nothing of it, and one whose collector is away
// starts, and says so once.
func TestOpenTelemetryStarts(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	off, err := startOpenTelemetry(t.Context(), log)
	if err != nil || off.tracers() != nil || off.meters() != nil || off.close() != nil {
		t.Fatalf("%+v, %v", off, err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	on, err := startOpenTelemetry(t.Context(), log)
	if err != nil || on.tracers() == nil || on.meters() == nil || on.content {
		t.Fatalf("%+v, %v", on, err)
	}
	_ = on.close() // there is nothing to send, or nobody takes it
	logged := test.NewLocal(log)
	handler := &exportErrors{log: log}
	for range 3 {
		handler.Handle(errors.New("refused"))
	}
	if n := len(logged.AllEntries()); n != 1 {
		t.Errorf("%d lines", n)
	}
}
