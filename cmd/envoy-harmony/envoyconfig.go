package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const envoyConfigUsage = `
Prints an Envoy bootstrap (YAML, Envoy 1.38.4, 1.39.1, 1.40 or newer) for
"envoy-harmony serve" with the same configuration.

  envoy-harmony envoy-config --engine vllm=http://vllm-0:8000,http://vllm-1:8000 --output envoy.yaml
  envoy -c envoy.yaml`

func envoyConfigCommand(_ context.Context, p program, args []string) error {
	s := newSettings(p, "envoy-config", envoyConfigUsage)
	var o envoy.Options
	envoyFlags(s.flags, &o, "127.0.0.1:9901")
	s.openPaths()
	var filter filterFlags
	filter.add(s.flags)
	var loopback loopbackFlags
	loopback.add(s.flags)
	s.flags.StringVar(&o.ListenSDS, "listen-sds", "", "`file`, at Envoy, with the certificate of the clients' "+
		"listener, as an SDS secret with the name listener (default: no TLS)")
	output := s.flags.String("output", "", "the `file` to write, in place of standard output")

	if err := s.parse(args); err != nil {
		return err
	}

	cfg, _, err := s.load()
	if err != nil {
		return err
	}
	// The flags come last. They say how Envoy reaches, from where it runs, what the configuration names.
	o = forConfig(o, cfg)
	if err := errors.Join(filter.apply(&o, cfg.TLS), loopback.apply(&o, cfg)); err != nil {
		return err
	}
	if err := checkListeners(o); err != nil {
		return err
	}

	text, err := envoy.Bootstrap(o)
	if err != nil {
		return err
	}

	if *output == "" {
		_, err = p.stdout.Write(text)
		return err
	}
	// Envoy may be another user, and the configuration has no secrets.
	if err := os.WriteFile(*output, text, 0o644); err != nil { //nolint:gosec // see above
		return fmt.Errorf("write the bootstrap: %w", err)
	}
	return nil
}

// envoyFlags adds the flags for Envoy's options.
func envoyFlags(f *flag.FlagSet, o *envoy.Options, admin string) {
	f.StringVar(&o.Listen, "listen", "127.0.0.1:10000",
		"`host:port` of the listener for clients; port 0 chooses a free port")
	f.StringVar(&o.Admin, "envoy-admin", admin, "`host:port` of Envoy's admin interface")
	f.StringVar(&o.Upstream, "upstream", "",
		"`URL` of the service for other models and paths (default: the first engine)")
	f.StringVar((*string)(&o.Balance), "balance", "", "load balancing `policy` of an engine's replicas: prefix, "+
		"session or least-request (default prefix)")
	f.Func("cors-origins", "`origins` from which browsers may send requests, comma-separated: "+
		"https://app.example.com, http://localhost:* or * (default: none)", func(v string) error {
		for origin := range strings.SplitSeq(v, ",") {
			o.CORSOrigins = append(o.CORSOrigins, strings.TrimSpace(origin))
		}
		return nil
	})

	f.BoolVar(&o.ModeOverride, "mode-override", false,
		"let the filter ask for the bodies that it needs (Envoy 1.40 or newer)")
	f.StringVar(&o.RateLimitService, "rate-limit-service", "",
		"`URL` of a rate limit service that counts each tenant's tokens")
	f.IntVar(&o.PromptTokensPerMinute, "prompt-tokens-per-minute", 0, "`tokens` that the prompts of a tenant may "+
		"have in a minute, by this Envoy's count (default: no limit)")
	f.BoolVar(&o.AccessLog, "access-log", false, "write Envoy's access log to standard error")
}

// openPaths adds the flag for paths of the upstream.
func (s *settings) openPaths() {
	s.flags.Func("open-paths", "`paths` of the upstream that clients may use beside the default ones, "+
		"comma-separated: /v1/batches, /v1/assistants/* or /* for all; sets routing.open_paths", func(v string) error {
		// A list in JSON is one in YAML, in which keys are set.
		list, err := json.Marshal(strings.Split(strings.ReplaceAll(v, " ", ""), ","))
		s.set = append(s.set, "routing.open_paths="+string(list))
		return err
	})
}

// filterFlags are the flags for Envoy's connections to the filter.
type filterFlags struct{ address, ca, cert, key string }

func (f *filterFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&f.address, "filter", "",
		"`address` at which Envoy finds the filter, if it is not listen: host:port or unix:///path")
	flags.StringVar(&f.ca, "filter-ca", "", "PEM `file`, at Envoy, of the CA that has signed the filter's "+
		"certificate; needed if tls.cert_file is set")
	flags.StringVar(&f.cert, "filter-cert", "", "PEM `file`, at Envoy, of the certificate that it presents to the "+
		"filter; needed if tls.client_ca_file is set")
	flags.StringVar(&f.key, "filter-key", "", "PEM `file`, at Envoy, of that certificate's private key")
}

// apply sets the options for the filter, whose listener has the settings t.
func (f *filterFlags) apply(o *envoy.Options, t config.TLS) error {
	o.ExtProc = cmp.Or(f.address, o.ExtProc)

	switch {
	// A flag without an effect is refused: the connection would be in plain text, and nobody would see it.
	case !t.Enabled() && f.ca+f.cert+f.key != "":
		return errors.New("--filter-ca, --filter-cert and --filter-key are for TLS, but the filter listens without " +
			"it: set tls.cert_file and tls.key_file in the configuration, or leave the flags out")
	case !t.Enabled():
		return nil
	case f.ca == "":
		return errors.New("tls.cert_file is set: name the CA by which Envoy checks that certificate, --filter-ca FILE")
	case t.ClientCAFile != "" && (f.cert == "" || f.key == ""):
		return errors.New(
			"tls.client_ca_file is set: name the certificate that Envoy presents, --filter-cert FILE --filter-key FILE")
	}

	o.ExtProcTLS = &envoy.FilterTLS{CAFile: f.ca, CertFile: f.cert, KeyFile: f.key}
	return nil
}

// loopbackFlags are the flags for Envoy's loopback listener.
type loopbackFlags struct{ listen, cert, key, clientCA string }

func (f *loopbackFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&f.listen, "loopback-listen", "", "`address` at which Envoy listens for the filter's model "+
		"calls, if it is not loopback: IP:port")
	flags.StringVar(&f.cert, "loopback-cert", "", "PEM `file`, at Envoy, of the loopback listener's certificate; "+
		"needed if loopback is https://host:port")
	flags.StringVar(&f.key, "loopback-key", "", "PEM `file`, at Envoy, of that certificate's private key")
	flags.StringVar(&f.clientCA, "loopback-client-ca", "", "PEM `file`, at Envoy, of the CA by which the filter's "+
		"certificate is checked; needed if loopback_tls.cert_file is set")
}

// apply sets the options for the loopback listener.
func (f *loopbackFlags) apply(o *envoy.Options, cfg *config.Config) error {
	_, secured := cfg.LoopbackAddress()
	switch {
	case cfg.Loopback == "" && *f != loopbackFlags{}:
		return errors.New("--loopback-listen, --loopback-cert, --loopback-key and --loopback-client-ca are for the " +
			"loopback listener: set loopback, or leave the flags out")
	case !secured && f.cert+f.key+f.clientCA != "":
		return errors.New("--loopback-cert, --loopback-key and --loopback-client-ca are for TLS, but the filter " +
			"connects without it: write loopback as https://host:port, or leave the flags out")
	case secured && (f.cert == "" || f.key == ""):
		return errors.New("loopback is https: name the certificate of Envoy's loopback listener, --loopback-cert " +
			"FILE --loopback-key FILE")
	case cfg.LoopbackTLS.CertFile != "" && f.clientCA == "":
		return errors.New("loopback_tls.cert_file is set: name the CA by which Envoy checks that certificate, " +
			"--loopback-client-ca FILE")
	case cfg.LoopbackTLS.CertFile == "" && f.clientCA != "":
		return errors.New("--loopback-client-ca: the filter presents no certificate: set loopback_tls.cert_file and " +
			"loopback_tls.key_file, or leave the flag out")
	}

	// The filter may reach the listener by a name, such as a service's: Envoy binds to an address.
	o.Loopback = cmp.Or(f.listen, o.Loopback)
	if host, _, err := net.SplitHostPort(o.Loopback); err == nil && net.ParseIP(host) == nil &&
		!strings.HasPrefix(o.Loopback, "unix://") {
		return fmt.Errorf(
			"loopback: Envoy listens at an IP address, and %s is a name: set --loopback-listen, such as 0.0.0.0:10001",
			host)
	}

	if secured {
		o.LoopbackTLS = &envoy.ListenerTLS{CertFile: f.cert, KeyFile: f.key, ClientCAFile: f.clientCA}
	}
	return nil
}

// forConfig adds the options that follow from the filter's configuration.
func forConfig(o envoy.Options, cfg *config.Config) envoy.Options {
	o.Engines = envoyEngines(cfg)
	o.TenantHeader = cfg.TenantHeader
	o.OpenPaths = cfg.Routing.OpenPaths
	o.ExtProc = cfg.Listen
	o.Loopback, _ = cfg.LoopbackAddress()
	o.WebSocket = cfg.WebSocket.Listen
	o.PrefixHeader, o.SessionHeader, o.SelectionHeader = cfg.Routing.PrefixHeader, cfg.Routing.SessionHeader,
		cfg.Routing.SelectionHeader
	// Envoy's limit is longer than the filter's, whose errors are more precise.
	o.StreamIdleTimeout = cfg.Limits.TotalTimeout.Duration + time.Minute
	return o
}

// checkListeners returns an error if Envoy would listen at one address twice, or at one of the
// filter's.
func checkListeners(o envoy.Options) error {
	return config.CheckListeners(
		config.Listener{Key: "--listen", Address: o.Listen},
		config.Listener{Key: "--envoy-admin", Address: o.Admin},
		config.Listener{Key: "loopback", Address: o.Loopback},
		// Envoy connects to these, maybe on another machine.
		config.Listener{Key: "listen", Address: o.ExtProc, Elsewhere: true},
		config.Listener{Key: "websocket.listen", Address: o.WebSocket, Elsewhere: true},
	)
}
