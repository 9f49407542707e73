package main

import (
	"context"
	"flag"
	"time"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const envoyConfigUsage = `
Prints an Envoy bootstrap (YAML, Envoy 1.38 or newer) for "envoy-harmony serve"
with the same configuration.

  envoy-harmony envoy-config --engine vllm=http://vllm-0:8000,http://vllm-1:8000 > envoy.yaml
  envoy -c envoy.yaml`

func envoyConfigCommand(_ context.Context, p program, args []string) error {
	s := newSettings(p, "envoy-config", envoyConfigUsage)
	var o envoy.Options
	envoyFlags(s.flags, &o, "127.0.0.1:9901")
	if err := s.parse(args); err != nil {
		return err
	}
	cfg, _, err := s.load()
	if err != nil {
		return err
	}
	text, err := envoy.Bootstrap(forConfig(o, cfg))
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(text)
	return err
}

// envoyFlags adds the flags for Envoy's options.
func envoyFlags(f *flag.FlagSet, o *envoy.Options, admin string) {
	f.StringVar(&o.Listen, "listen", "127.0.0.1:10000", "`host:port` of the listener for clients; port 0 chooses a free port")
	f.StringVar(&o.Admin, "envoy-admin", admin, "`host:port` of Envoy's admin interface")
	f.StringVar(&o.Upstream, "upstream", "", "`URL` of the service for other models and paths (default: the first engine)")
	f.StringVar((*string)(&o.Balance), "balance", "", "load balancing `policy` of an engine's replicas: prefix, session or least-request (default prefix)")
	f.BoolVar(&o.AccessLog, "access-log", false, "write Envoy's access log to standard error")
}

// forConfig adds the options that follow from the filter's configuration.
func forConfig(o envoy.Options, cfg *config.Config) envoy.Options {
	o.Engines = envoyEngines(cfg)
	o.ExtProc, o.Loopback = cfg.Listen, cfg.Loopback
	o.PrefixHeader, o.SessionHeader, o.SelectionHeader = cfg.Routing.PrefixHeader, cfg.Routing.SessionHeader, cfg.Routing.SelectionHeader
	// Envoy's limit is longer than the filter's, whose errors are more precise.
	o.StreamIdleTimeout = cfg.Limits.TotalTimeout.Duration + time.Minute
	return o
}
