package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter"
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
	cfg, log, err := s.load()
	if err != nil {
		return err
	}
	cfg.Admin = cmp.Or(cfg.Admin, defaultServeAdmin)
	svc, err := startService(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer svc.stop()
	if cfg.Loopback != "" {
		go svc.filter.FollowModels(ctx)
	} else {
		warnOfLoopback(cfg, log)
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

// warnOfLoopback tells what does not work without the loopback listener.
func warnOfLoopback(cfg *filter.Config, log *logrus.Logger) {
	const see = "(see docs/operations.md#the-loopback-listener)"
	log.Warn("loopback is not set: an engine that breaks off in mid-stream resets its client, background responses are refused, and engines are not asked for their context lengths: where one is not gpt-oss's own, set context_length " + see)
	if len(cfg.Tools.Servers)+len(cfg.Tools.AllowedHosts) > 0 {
		log.Warn("tools are configured and loopback is not set: requests with MCP servers are refused, and built-in tools are not offered " + see)
	}
}
