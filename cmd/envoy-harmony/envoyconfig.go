package main

import (
	"context"
	"flag"
	"time"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter"
)

const envoyConfigUsage = `
Prints an Envoy bootstrap (YAML, Envoy 1.38 or newer) for a filter that runs as
"envoy-harmony serve" with the same configuration.

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

// envoyFlags adds the flags that are about Envoy.
func envoyFlags(f *flag.FlagSet, o *envoy.Options, admin string) {
	f.StringVar(&o.Listen, "listen", "127.0.0.1:10000", "`host:port` that clients use; port 0 takes a free one")
	f.StringVar(&o.Admin, "envoy-admin", admin, "`host:port` of Envoy's admin interface")
	f.StringVar(&o.Upstream, "upstream", "", "`URL` that takes requests for other models and paths (default: the first engine)")
	f.StringVar((*string)(&o.Balance), "balance", "", "how requests spread over an engine's replicas: prefix, session or least-request (`way`; default prefix)")
	f.BoolVar(&o.AccessLog, "access-log", false, "have Envoy log every request")
}

// forConfig fills in what follows from the filter's configuration.
func forConfig(o envoy.Options, cfg *filter.Config) envoy.Options {
	o.Engines = envoyEngines(cfg)
	o.ExtProc, o.Loopback = cfg.Listen, cfg.Loopback
	o.PrefixHeader, o.SessionHeader, o.SelectionHeader = cfg.Routing.PrefixHeader, cfg.Routing.SessionHeader, cfg.Routing.SelectionHeader
	// Envoy's limit lies behind the filter's, whose errors say more.
	o.StreamIdleTimeout = cfg.Limits.TotalTimeout.Duration + time.Minute
	return o
}
