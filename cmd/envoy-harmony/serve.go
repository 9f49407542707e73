package main

import (
	"context"
	"fmt"
)

const serveUsage = `
The filter alone: an ext_proc server for an Envoy that you configure yourself
(envoy-config prints a bootstrap to start from). It runs until SIGINT or
SIGTERM, then drains.

  envoy-harmony serve --engine vllm
  envoy-harmony serve --config harmony.yaml --listen unix:///run/harmony.sock`

// defaultServeAdmin is where serve has metrics and health.
const defaultServeAdmin = "127.0.0.1:9003"

func serveCommand(ctx context.Context, p program, args []string) error {
	s := newSettings(p, "serve", serveUsage)
	s.alias("listen", "listen", "where Envoy finds the filter: `host:port` or unix:///path")
	s.alias("admin", "admin", "`host:port` of /metrics, /healthz and /readyz")
	if err := s.parse(args); err != nil {
		return err
	}
	cfg, err := s.load()
	if err != nil {
		return err
	}
	log, err := newLog(p, cfg)
	if err != nil {
		return err
	}
	adminAddress := cfg.Admin
	if adminAddress == "" {
		adminAddress = defaultServeAdmin
	}
	svc, err := startService(ctx, cfg, log, cfg.Listen, adminAddress)
	if err != nil {
		return err
	}
	defer svc.stop()
	if cfg.Loopback != "" {
		go svc.filter.FollowModels(ctx)
	} else {
		log.Warn("loopback is not set: an engine that breaks off in mid-stream resets its client, and background responses are refused (see docs/operations.md)")
	}
	log.WithField("admin", svc.admin.address()).WithField("listen", svc.listener.Addr().String()).Info("serving")
	select {
	case <-ctx.Done():
	case err := <-svc.ended:
		svc.ended <- err // stop waits for it
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("draining")
	svc.drain()
	return nil
}
