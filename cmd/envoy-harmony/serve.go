package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const serveUsage = `
Starts the filter, an ext_proc server, for an Envoy that you run and configure
(envoy-config prints a bootstrap for it). It drains and exits on SIGINT or
SIGTERM. A change of the configuration file is taken over while it runs, within
reload_interval or at once on SIGHUP; a file with errors is not. Without a file,
or when its terminal is closed, it drains on SIGHUP.

  envoy-harmony serve --engine vllm
  envoy-harmony serve --config harmony.yaml --listen unix:///run/harmony.sock`

// defaultServeAdmin is the default admin address of serve.
const defaultServeAdmin = "127.0.0.1:9003"

// newServeSettings are the settings of serve, and of commands about its
// configuration.
func newServeSettings(p program, name, usage string) *settings {
	s := newSettings(p, name, usage)
	s.alias("listen", "listen", "`address` of the filter for Envoy: host:port or unix:///path")
	s.alias("admin", "admin", "`host:port` of /metrics, /healthz and /readyz")
	s.adjust = func(c *config.Config) { c.Admin = cmp.Or(c.Admin, defaultServeAdmin) }
	return s
}

func serveCommand(ctx context.Context, p program, args []string) error {
	s := newServeSettings(p, "serve", serveUsage)
	drainEnvoy := s.flags.String("drain-envoy", "", "the `URL` of the admin interface of the Envoy beside it: "+
		"when a shutdown begins, Envoy's clients are told to close their connections")
	if err := s.parse(args); err != nil {
		return err
	}

	cfg, log, err := s.load()
	if err != nil {
		return err
	}
	s.memory.apply(log, cfg.Limits.MaxInflightBytes)

	ctx, hangups := s.takeHangups(ctx)
	defer hangups.stop()

	svc, err := startService(ctx, cfg, log, false)
	if err != nil {
		return err
	}
	defer svc.stop()

	if svc.tls != nil {
		go svc.tls.follow(ctx)
	}
	if cfg.Loopback != "" {
		go svc.filter.FollowModels(ctx)
	} else {
		warnOfLoopback(cfg, log)
	}
	logSealing(cfg, log)
	defer svc.followFile(ctx, s, hangups.reload)()
	log.WithFields(thisBuild().fields()).
		WithFields(logrus.Fields{"admin": svc.admin.address(), "listen": svc.listener.Addr().String()}).Info("serving")

	select {
	case <-ctx.Done():
	case err := <-svc.ended:
		svc.ended <- err // stop receives it again
		return fmt.Errorf("serve: %w", err)
	}

	// Envoy first: its health checks fail before the filter's, while both still serve.
	log.Info("draining")
	if *drainEnvoy != "" {
		if err := closeConnections(*drainEnvoy); err != nil {
			log.WithError(err).Warn("Envoy does not close its clients' connections: check --drain-envoy")
		}
	}
	svc.drain()
	return nil
}

// closeConnections has an Envoy fail its health checks. From then on every response
// asks its client to close the connection, so that the next request goes elsewhere.
func closeConnections(admin string) error {
	// Not longer: the drain of the filter itself waits for this, and Kubernetes for both.
	const timeout = 2 * time.Second

	url := strings.TrimSuffix(admin, "/") + "/healthcheck/fail"
	status, err := statusOf(context.Background(), http.MethodPost, url, timeout)
	switch {
	case err != nil:
		return fmt.Errorf("drain Envoy: %w", err)
	case status != http.StatusOK:
		return fmt.Errorf("drain Envoy: status %d", status)
	}
	return nil
}

// logSealing logs what a random seal key means.
func logSealing(cfg *config.Config, log *logrus.Logger) {
	if len(cfg.Responses.SealKeys) == 0 {
		log.Info("responses.seal_keys is not set: encrypted reasoning and compactions are sealed with a random key, " +
			"which no other replica has, and which is gone after a restart (see " +
			"docs/responses.md#reasoning-without-a-store)")
	}
}

// warnOfLoopback logs which features are off because there is no loopback listener.
func warnOfLoopback(cfg *config.Config, log *logrus.Logger) {
	const see = "(see docs/operations.md#the-loopback-listener)"
	log.Warn("loopback is not set (run makes its own): if an engine disconnects in mid-stream, the client's stream " +
		"is reset; background responses are rejected; context lengths are not read from engines, so set " +
		"context_length where it differs from gpt-oss " + see)
	if len(cfg.Tools.Servers)+len(cfg.Tools.AllowedHosts) > 0 {
		log.Warn("tools are configured, but loopback is not set: requests with MCP servers are rejected, and " +
			"built-in tools are not offered " + see)
	}
}
