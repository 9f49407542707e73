package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/cmd/internal/enginesim"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter"
)

const runUsage = `
Starts the filter and an Envoy in front of it, with a configuration made for
them, and prints "ready http://host:port/v1" on standard output as soon as an
OpenAI client can use that address. It runs until SIGINT or SIGTERM.

  envoy-harmony run --engine vllm=http://127.0.0.1:8000
  envoy-harmony run --engine sglang=http://10.0.0.1:30000,http://10.0.0.2:30000
  envoy-harmony run --engine sglang=http://10.0.0.1:30000,prefill=http://10.0.0.3:30000#8998
  envoy-harmony run --simulate

Envoy is $ENVOY_BIN, or envoy in PATH, or .bin/envoy ("make envoy" fetches it).`

// runOptions are the flags of run.
type runOptions struct {
	envoy    envoy.Options
	simulate bool
	workers  int
}

func runCommand(ctx context.Context, p program, args []string) error {
	s := newSettings(p, "run", runUsage)
	var o runOptions
	envoyFlags(s.flags, &o.envoy, "127.0.0.1:0")
	s.flags.IntVar(&o.workers, "envoy-workers", 0, "Envoy's worker `threads` (default: one for each processor)")
	s.flags.BoolVar(&o.simulate, "simulate", false, "start a simulated engine; its model says what the last user message asks for")
	s.alias("admin", "admin", "`host:port` of the filter's /metrics, /healthz and /readyz")
	if err := s.parse(args); err != nil {
		return err
	}
	switch {
	case o.workers < 0:
		return s.wrong("--envoy-workers: must be at least 0, not %d", o.workers)
	case o.simulate && len(s.engines) > 0:
		return s.wrong("--simulate and --engine: give one of them")
	case o.simulate:
		address, stop, err := simulate(ctx)
		if err != nil {
			return err
		}
		defer stop()
		s.engines = []filter.Engine{{Kind: "vllm", URLs: []string{"http://" + address}}}
	}
	cfg, log, err := s.load()
	if err != nil {
		return err
	}
	return runTogether(ctx, p, cfg, log, o)
}

// simulate starts the simulated engine on a free port.
func simulate(ctx context.Context) (address string, stop func(), err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("start the simulated engine: %w", err)
	}
	server := &http.Server{Handler: enginesim.New(enginesim.Options{}), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // ends with Close
	}()
	return l.Addr().String(), func() {
		_ = server.Close()
		<-ended
	}, nil
}

// runTogether is the filter on a socket of its own and Envoy before it.
func runTogether(ctx context.Context, p program, cfg *filter.Config, log *logrus.Logger, o runOptions) error {
	binary, err := envoy.Find(p.getenv)
	if err != nil {
		return err
	}
	dir, remove, err := tempDir()
	if err != nil {
		return err
	}
	defer remove()
	cfg.Listen = "unix://" + filepath.Join(dir, "filter.sock")
	cfg.Loopback = cmp.Or(cfg.Loopback, "unix://"+filepath.Join(dir, "loopback.sock"))
	cfg.Admin = cmp.Or(cfg.Admin, "127.0.0.1:0")
	bootstrap, err := envoy.Bootstrap(forConfig(o.envoy, cfg))
	if err != nil {
		return err
	}
	svc, err := startService(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer svc.stop()
	envoyLog := log.WithField("from", "envoy")
	proxy, err := envoy.Launch(ctx, envoy.LaunchOptions{
		Binary: binary, Bootstrap: bootstrap, Concurrency: o.workers,
		Log: func(line string) { envoyLog.Warn(line) },
	})
	if errors.Is(err, envoy.ErrAddressInUse) {
		return fmt.Errorf("%w; choose another with --listen or --envoy-admin", err)
	}
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	defer proxy.Stop(context.WithoutCancel(ctx))
	address, err := proxy.ListenAddress(ctx)
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	log.WithFields(logrus.Fields{
		"listen": address, "admin": svc.admin.address(), "envoy_admin": proxy.AdminAddress(),
	}).Info("started")
	if err := waitUntilUsable(ctx, proxy, address, log.WithFields(probed(o.envoy, cfg))); err != nil {
		return ignoreCancel(ctx, err)
	}
	if err := svc.filter.ReadModels(ctx); err != nil {
		log.WithError(err).Warn("context lengths are gpt-oss's own until all engines have told theirs")
	}
	go svc.filter.FollowModels(ctx)
	if _, err := fmt.Fprintf(p.stdout, "ready http://%s/v1\n", address); err != nil {
		return fmt.Errorf("say that it is ready: %w", err)
	}
	select {
	case <-ctx.Done():
	case <-proxy.Done():
		return fmt.Errorf("envoy: %w", proxy.Err())
	case err := <-svc.ended:
		svc.ended <- err // stop waits for it
		return fmt.Errorf("the filter ended: %w", err)
	}
	log.Info("draining")
	svc.filter.Drain()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout.Duration)
	defer cancel()
	if err := proxy.Drain(drain); err != nil {
		log.WithError(err).Warn("requests are still running and are cut")
	}
	svc.stopWithin(drain)
	return nil
}

// ignoreCancel drops the error of what a signal has interrupted.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	probeInterval = 100 * time.Millisecond
	probeNews     = 10 * time.Second // between two lines about an engine that is not there yet
)

// probed tells who answers a probe: whoever takes requests for other models and
// paths.
func probed(o envoy.Options, cfg *filter.Config) logrus.Fields {
	if o.Upstream != "" {
		return logrus.Fields{"upstream": o.Upstream}
	}
	for _, e := range envoyEngines(cfg) {
		if !e.GRPC {
			return logrus.Fields{"engine": e.Name, "urls": strings.Join(e.URLs, ",")}
		}
	}
	return nil
}

// waitUntilUsable probes the whole way: a GET on the chat path goes through
// Envoy and the filter, which passes it on, to the engine. Any answer of the
// engine will do; where one of the three is missing, Envoy says 5xx.
func waitUntilUsable(ctx context.Context, proxy *envoy.Process, address string, log *logrus.Entry) error {
	news := time.Now().Add(probeInterval * 5)
	for {
		status, err := probe(ctx, "http://"+address+"/v1/chat/completions")
		if err == nil && status < http.StatusInternalServerError {
			return nil
		}
		if time.Now().After(news) {
			line := log.WithField("status", status)
			if err != nil {
				line = log.WithError(err)
			}
			line.Warn("waiting for the engine to answer")
			news = time.Now().Add(probeNews)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-proxy.Done():
			return fmt.Errorf("envoy: %w", proxy.Err())
		case <-time.After(probeInterval):
		}
	}
}

func probe(ctx context.Context, url string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}
