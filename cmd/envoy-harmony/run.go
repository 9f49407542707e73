package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
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
	s.flags.StringVar(&o.envoy.Listen, "listen", "127.0.0.1:10000", "`host:port` that clients use; port 0 takes a free one")
	s.flags.StringVar(&o.envoy.Admin, "envoy-admin", "127.0.0.1:0", "`host:port` of Envoy's admin interface")
	s.flags.StringVar(&o.envoy.Upstream, "upstream", "", "`URL` that takes requests for other models and paths (default: the first engine)")
	s.flags.StringVar((*string)(&o.envoy.Balance), "balance", "", "how requests spread over an engine's replicas: prefix, session or least-request (`way`; default prefix)")
	s.flags.BoolVar(&o.envoy.AccessLog, "access-log", false, "have Envoy log every request")
	s.flags.IntVar(&o.workers, "envoy-workers", 0, "Envoy's worker `threads` (default: one for each processor)")
	s.flags.BoolVar(&o.simulate, "simulate", false, "start a simulated engine; its model says what the last user message asks for")
	s.alias("admin", "admin", "`host:port` of the filter's /metrics, /healthz and /readyz")
	if err := s.parse(args); err != nil {
		return err
	}
	if o.simulate {
		address, stop, err := simulate(ctx)
		if err != nil {
			return err
		}
		defer stop()
		s.engines = []filter.Engine{{Kind: "vllm", URLs: []string{"http://" + address}}}
	}
	cfg, err := s.load()
	if err != nil {
		return err
	}
	log, err := newLog(p, cfg)
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
	o.envoy.ExtProc = "unix://" + filepath.Join(dir, "filter.sock")
	if cfg.Loopback == "" {
		cfg.Loopback = "unix://" + filepath.Join(dir, "loopback.sock")
	}
	bootstrap, err := envoy.Bootstrap(forConfig(o.envoy, cfg))
	if err != nil {
		return err
	}
	adminAddress := cfg.Admin
	if adminAddress == "" {
		adminAddress = "127.0.0.1:0"
	}
	svc, err := startService(ctx, cfg, log, o.envoy.ExtProc, adminAddress)
	if err != nil {
		return err
	}
	defer svc.stop()
	envoyLog := log.WithField("from", "envoy")
	proxy, err := envoy.Launch(ctx, envoy.LaunchOptions{
		Binary: binary, Bootstrap: bootstrap, Concurrency: o.workers,
		Log: func(line string) { envoyLog.Warn(line) },
	})
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
	if err := waitUntilUsable(ctx, proxy, address, log); err != nil {
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
		return envoyEnded(proxy)
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

func envoyEnded(proxy *envoy.Process) error {
	return fmt.Errorf("envoy ended by itself; the end of its log:\n%s", proxy.LogTail())
}

const (
	probeInterval = 100 * time.Millisecond
	probeNews     = 10 * time.Second // between two lines about an engine that is not there yet
)

// waitUntilUsable probes the whole way: a GET on the chat path goes through
// Envoy and the filter, which passes it on, to the engine. Any answer of the
// engine will do; where one of the three is missing, Envoy says 5xx.
func waitUntilUsable(ctx context.Context, proxy *envoy.Process, address string, log *logrus.Logger) error {
	news := time.Now().Add(probeInterval * 5)
	for {
		status, err := probe(ctx, "http://"+address+"/v1/chat/completions")
		if err == nil && status < http.StatusInternalServerError {
			return nil
		}
		if time.Now().After(news) {
			log.WithError(err).WithField("status", status).Warn("waiting for the engine to answer")
			news = time.Now().Add(probeNews)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-proxy.Done():
			return envoyEnded(proxy)
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
