package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/inspect"
)

// maxMessage is the largest gRPC message accepted from Envoy, in bytes. Envoy sends
// a body in chunks of at most its buffer size, which operators can raise.
const maxMessage = 64 << 20

// streamWindow is how many bytes of a stream may have arrived without being read.
const streamWindow = 256 << 10

// service is the filter with its ext_proc and admin listeners.
type service struct {
	log    *logrus.Logger
	filter *filter.Server

	// The ext_proc port. tls is nil if Envoy connects without TLS.
	listener net.Listener
	grpc     *grpc.Server
	ready    *readiness
	tls      *certificates

	// The port of WebSocket connections; nil: there is none.
	sockets *sockets

	// The admin port, and what is reported there and by OTLP.
	admin   *admin
	reloads *reloads
	otel    *openTelemetry

	// The end. ended receives the results of the servers.
	stopped sync.Once
	graces  graces
	ended   chan error
}

// startService starts serving at Config.Listen and Config.Admin. ownEnvoy says that
// the command has made Envoy's configuration from cfg.
func startService(ctx context.Context, cfg *config.Config, log *logrus.Logger, ownEnvoy bool) (*service, error) {
	// Not the global one, to which any package that is imported can add.
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), thisBuild().metric())
	spans, err := startOpenTelemetry(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("start OpenTelemetry: %w", err)
	}

	ready := newReadiness()
	server, err := filter.New(cfg, filter.Options{
		Log: log, StoreReached: ready.storeReached, OwnEnvoy: ownEnvoy, Version: thisBuild().version,
		Metrics: registry, Tracers: spans.tracers(), Meters: spans.meters(), Content: spans.content,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the filter: %w", err), spans.close())
	}
	s := &service{
		log: log, filter: server, ready: ready, reloads: newReloads(registry, cfg), otel: spans,
		// Room for all servers: they end even if nobody receives.
		ended: make(chan error, serversOf(cfg)), graces: shutdownGraces,
	}

	// Each step closes what the ones before have opened.
	if err := s.newGRPC(cfg, registry); err != nil {
		return nil, errors.Join(err, server.Close(ctx), spans.close())
	}
	if s.listener, err = listenAt(ctx, "listen", cfg.Listen); err != nil {
		return nil, errors.Join(err, server.Close(ctx), spans.close())
	}
	if s.sockets, err = listenSockets(ctx, cfg.WebSocket.Listen, server.Sockets()); err != nil {
		return nil, errors.Join(err, s.listener.Close(), server.Close(ctx), spans.close())
	}
	if s.admin, err = listenAdmin(ctx, cfg.Admin, registry, ready, inspectorOf(cfg, server)); err != nil {
		return nil, errors.Join(err, s.sockets.close(), s.listener.Close(), server.Close(ctx), spans.close())
	}

	if s.sockets != nil {
		go func() { s.ended <- s.sockets.serve() }()
	}
	go func() { s.ended <- s.grpc.Serve(s.listener) }()
	go func() { s.ended <- s.admin.serve() }()
	return s, nil
}

// serversOf is how many servers a service has.
func serversOf(cfg *config.Config) int {
	if cfg.WebSocket.Listen == "" {
		return 2
	}
	return 3
}

// inspectorOf serves the records of a server, where the configuration says so; else nil.
func inspectorOf(cfg *config.Config, s *filter.Server) http.Handler {
	if !cfg.Inspector.Enabled {
		return nil
	}
	return inspect.Handler(s, cfg.Inspector.Token)
}

// newGRPC makes the gRPC server of the ext_proc port.
func (s *service) newGRPC(cfg *config.Config, metrics prometheus.Registerer) (err error) {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ForceServerCodecV2(filter.Codec()),
		// What the handlers use is closed after the server has stopped.
		grpc.WaitForHandlers(true),
		// What has come of a body and has not been counted yet: without this bound the
		// window of a fast stream grows to 16 MiB.
		grpc.StaticStreamWindowSize(streamWindow),
		// A connection of HTTP/2 never ends by itself, and a new replica would get no streams.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: cfg.MaxConnectionAge.Duration}),
		// An Envoy may ping more often than gRPC's own clients do.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             5 * time.Second,
			PermitWithoutStream: true,
		}),
	}

	if cfg.TLS.Enabled() {
		if s.tls, err = newCertificates(cfg.TLS, s.log, metrics); err != nil {
			return err
		}
		options = append(options, grpc.Creds(s.tls.credentials()))
	}

	s.grpc = grpc.NewServer(options...)
	s.filter.Register(s.grpc)
	healthv1.RegisterHealthServer(s.grpc, s.ready.envoy)
	return nil
}
