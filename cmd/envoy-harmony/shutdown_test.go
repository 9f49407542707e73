package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// TestShutdownDoesNotWaitForWhatHangs shows that a request which heeds nothing, not
// even the end of its stream, does not keep the process alive.
func TestShutdownDoesNotWaitForWhatHangs(t *testing.T) {
	log, logged := logtest.NewNullLogger()
	s := &service{log: log, ready: newReadiness(), ended: make(chan error, 2), graces: graces{time.Millisecond, time.Millisecond, time.Minute}}
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{{Kind: "vllm", URLs: []string{"http://127.0.0.1:1"}}}
	cfg.DrainTimeout.Duration = time.Millisecond
	var err error
	if err = cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if s.filter, err = filter.New(cfg, filter.Options{Log: log}); err != nil {
		t.Fatal(err)
	}
	if s.otel, err = startOpenTelemetry(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if s.admin, err = listenAdmin(t.Context(), "127.0.0.1:0", prometheus.NewRegistry(), s.ready, nil); err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}), make(chan struct{})
	s.grpc = grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		close(begun)
		<-release
		return nil
	}))
	if s.listener, err = listenAt(t.Context(), "listen", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.grpc.Serve(s.listener) }()
	go func() { s.ended <- s.admin.serve() }()
	hang(t, s.listener.Addr())
	<-begun
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.drain()
		s.stop()
	}()
	select {
	case <-drained:
	case <-time.After(time.Minute):
		t.Error("the shutdown waits for a request that hangs")
	}
	close(release)
	<-drained
	for range cap(s.ended) {
		<-s.ended //nolint:errcheck // both end because they were closed
	}
	said := false
	for _, e := range logged.AllEntries() {
		said = said || strings.Contains(e.Message, "requests hang")
	}
	if !said {
		t.Errorf("the log does not say that a request hangs: %v", logged.AllEntries())
	}
}

// hang makes a request of any service.
func hang(t *testing.T, address net.Addr) {
	t.Helper()
	conn, err := grpc.NewClient(address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/any/Thing")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}
