package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const runUsage = `
Starts the filter and an Envoy with a generated configuration. When OpenAI
clients can use it, it prints "ready http://host:port/v1" on standard output.
It runs until SIGINT or SIGTERM. A change of the configuration file is taken over,
but for keys that Envoy's configuration is made from; at once on SIGHUP. Without a
file, or when its terminal is closed, it drains on SIGHUP.

  envoy-harmony run --engine vllm=http://127.0.0.1:8000
  envoy-harmony run --engine sglang=http://10.0.0.1:30000,http://10.0.0.2:30000
  envoy-harmony run --engine sglang=http://10.0.0.1:30000,prefill=http://10.0.0.3:30000#8998
  envoy-harmony run --simulate

A simulated engine is the program engine-sim, beside this one or in PATH.
The Envoy binary is $ENVOY_BIN, .bin/envoy ("make envoy" downloads it) here or
beside the folder of this program, or envoy in PATH.`

// runOptions are the flags of the run command.
type runOptions struct {
	envoy   envoy.Options
	workers int

	simulate  bool
	simulator *simulation // nil: the engines are real
}

func runCommand(ctx context.Context, p program, args []string) error {
	s := newSettings(p, "run", runUsage)
	s.memory = s.memory.half() // Envoy has the rest
	var o runOptions
	envoyFlags(s.flags, &o.envoy, "127.0.0.1:0")
	s.openPaths()
	s.flags.IntVar(&o.workers, "envoy-workers", 0, "Envoy's worker `threads` (default: one per CPU)")
	s.flags.BoolVar(&o.simulate, "simulate", false,
		"start a simulated engine, whose replies are written in the last user message")
	s.alias("admin", "admin", "`host:port` of the filter's /metrics, /healthz and /readyz")

	if err := s.parse(args); err != nil {
		return err
	}
	if o.workers < 0 {
		return s.wrong("--envoy-workers: must be at least 0, not %d", o.workers)
	}
	if o.simulate && len(s.engines) > 0 {
		return s.wrong("--simulate and --engine cannot be combined: leave one out")
	}

	// First of all: what is started from here on is stopped in order.
	ctx, hangups := s.takeHangups(ctx)
	defer hangups.stop()

	// The simulator comes before the configuration, which names its port.
	if o.simulate {
		var err error
		if o.simulator, err = simulate(); err != nil {
			return err
		}
		defer o.simulator.stop()
		s.engines = []config.Engine{{Kind: "vllm", URLs: []string{"http://" + o.simulator.address}}}
	}

	cfg, log, err := s.load()
	if err != nil {
		return err
	}
	s.memory.apply(log, cfg.Limits.MaxInflightBytes)
	return runTogether(ctx, s, cfg, log, o, hangups.reload)
}

// runTogether runs the filter on a socket in a temporary directory, and an Envoy in
// front of it, until ctx ends. It reads the configuration file when reload receives.
func runTogether(ctx context.Context, s *settings, cfg *config.Config, log *logrus.Logger, o runOptions,
	reload <-chan os.Signal,
) error {
	// Before anything is started: a missing Envoy is the most likely error of a first run.
	binary, err := findEnvoy(ctx, s.program, log, o.envoy)
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	dir, remove, err := tempDir()
	if err != nil {
		return err
	}
	defer remove()

	// A reload makes the same adjustments, because adjust is kept with the settings.
	s.adjust = func(c *config.Config) {
		// only this machine reaches the socket
		c.Listen, c.TLS = "unix://"+filepath.Join(dir, "filter.sock"), config.TLS{}
		c.Loopback = cmp.Or(c.Loopback, "unix://"+filepath.Join(dir, "loopback.sock"))
		// A rate limit service would not see the tokens of WebSocket responses.
		if o.envoy.RateLimitService == "" {
			c.WebSocket.Listen = cmp.Or(c.WebSocket.Listen, "unix://"+filepath.Join(dir, "websocket.sock"))
		}
		c.Admin = cmp.Or(c.Admin, "127.0.0.1:0")
		// What is not stored here may be there.
		c.Responses.RelayUnknown = c.Responses.RelayUnknown || o.envoy.Upstream != ""
	}
	s.adjust(cfg)

	o.envoy.Instance = rand.Text()
	bootstrap, err := o.bootstrap(cfg)
	if err != nil {
		return err
	}

	// The filter comes first: an Envoy without it answers requests with errors.
	svc, err := startService(ctx, cfg, log, true)
	if err != nil {
		return err
	}
	defer svc.stop()

	proxy, err := envoy.Launch(ctx, envoy.LaunchOptions{
		Binary: binary, Bootstrap: bootstrap, Concurrency: o.workers,
		Log: logOfEnvoy(log),
	})
	if errors.Is(err, envoy.ErrAddressInUse) {
		return fmt.Errorf("%w: stop that process, or choose another address with %s", err, o.addressOf(cfg, err))
	}
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	// ctx has ended by then. Stop has a bound of its own.
	defer proxy.Stop(context.WithoutCancel(ctx))

	address, err := proxy.ListenAddress(ctx)
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	log.WithFields(thisBuild().fields()).WithFields(logrus.Fields{
		"listen": address, "admin": svc.admin.address(), "envoy_admin": proxy.AdminAddress(),
	}).Info("started")

	p := newProbe(address, o.envoy, cfg, log)
	if err := p.wait(ctx, proxy.Done(), proxy.Err); err != nil {
		return ignoreCancel(ctx, err)
	}

	// Clients that wait for the ready line can rely on the context lengths. The probe has asked one
	// engine: of the others, this is the first that is seen. The error names them.
	if err := svc.filter.ReadModels(ctx); err != nil {
		log.WithError(err).Warn("not every engine answers: requests for one that is down fail, and until it returns " +
			"its models the context length of gpt-oss applies")
	}
	go svc.filter.FollowModels(ctx)
	defer svc.followFile(ctx, s, reload)()

	if _, err := fmt.Fprintf(s.program.stdout, "ready http://%s/v1\n", address); err != nil {
		return fmt.Errorf("write the ready line: %w", err)
	}
	// Standard output has the one line that programs wait for.
	if s.program.terminal {
		_, _ = io.WriteString(s.program.stderr,
			s.program.nextSteps(cfg, address, svc.admin.address(), proxy.AdminAddress()))
	}
	if err := awaitEnd(ctx, proxy, svc, o.simulator); err != nil {
		return err
	}
	drainTogether(ctx, proxy, svc)
	return nil
}

// findEnvoy returns the path of the Envoy binary. One that is too old is an error, and one
// that is unsafe is logged.
func findEnvoy(ctx context.Context, p program, log *logrus.Logger, o envoy.Options) (string, error) {
	binary, err := envoy.Find(p.getenv)
	if err != nil {
		return "", err
	}
	entry := log.WithField("binary", binary)

	// A build of one's own may say another thing than a version. If it is no Envoy at all, its
	// start fails and says more.
	version, err := envoy.ReadVersion(ctx, binary)
	if err != nil {
		entry.WithError(err).Warn("the version of Envoy is not known")
		return binary, ctx.Err()
	}

	unsafe, err := version.Check(o)
	if err != nil {
		return "", fmt.Errorf("%s: %w", binary, err)
	}
	if unsafe != "" {
		entry.Warn(unsafe)
	}
	entry.WithField("version", version.String()).Info("starting Envoy")
	return binary, nil
}

// bootstrap makes the configuration of the Envoy.
func (o runOptions) bootstrap(cfg *config.Config) ([]byte, error) {
	if _, secured := cfg.LoopbackAddress(); secured {
		return nil, errors.New(
			"loopback: the loopback listener of run is on this machine and has no TLS: leave loopback out")
	}
	options := forConfig(o.envoy, cfg)
	if err := checkListeners(options); err != nil {
		return nil, err
	}
	return envoy.Bootstrap(options)
}

// addressOf returns what sets the address that an error of [envoy.ErrAddressInUse] names.
func (o runOptions) addressOf(cfg *config.Config, err error) string {
	loopback, _ := cfg.LoopbackAddress()
	for _, flag := range []struct{ name, address string }{
		{"--envoy-admin", o.envoy.Admin},
		{"loopback in the configuration", loopback},
	} {
		if _, port, ok := net.SplitHostPort(flag.address); ok == nil && strings.Contains(err.Error(), ":"+port+"'") {
			return flag.name
		}
	}
	return "--listen"
}

// drainTogether closes the clients' listener, waits until running requests end, at
// most for DrainTimeout, and ends the service. After that time they end with an
// error.
func drainTogether(ctx context.Context, proxy *envoy.Process, svc *service) {
	svc.log.Info("draining")
	// Streams that are followed wait for others: Envoy would count them as running until its time is over.
	svc.filter.Drain()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), svc.filter.Config().DrainTimeout.Duration)
	defer cancel()

	if err := proxy.Drain(ctx); err != nil {
		// The filter ends the requests itself, so that clients get an error and no reset.
		svc.log.WithError(err).Warn("running requests end with an error")
		svc.filter.Abort()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), svc.graces.abort)
		defer cancel()
		if err := proxy.Drain(grace); err != nil {
			svc.log.WithError(err).Warn("requests are still running and are reset")
		}
	}
	svc.stopWithin(ctx)
}

// awaitEnd waits for the end of ctx. It returns an error if Envoy, the filter or the
// simulator ends before.
func awaitEnd(ctx context.Context, proxy *envoy.Process, svc *service, simulator *simulation) error {
	select {
	case <-ctx.Done():
		return nil
	case <-proxy.Done():
		return fmt.Errorf("envoy: %w", proxy.Err())
	case <-simulator.done():
		return fmt.Errorf("the simulated engine stopped: %w", simulator.err)
	case err := <-svc.ended:
		svc.ended <- err // stop receives it again
		return fmt.Errorf("the filter stopped: %w", err)
	}
}

// ignoreCancel drops an error that is caused by a signal.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
