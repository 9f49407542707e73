package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const checkUsage = `
Checks the configuration of "envoy-harmony serve" with the same flags and
environment, and prints what is in effect (YAML, with secrets hidden). It opens
no port and no store. All errors are reported at once; then the exit status is 1.

  envoy-harmony check --config harmony.yaml`

func checkCommand(_ context.Context, p program, args []string) error {
	s := newServeSettings(p, "check", checkUsage)
	if err := s.parse(args); err != nil {
		return err
	}
	cfg, err := s.read()
	// The file is no YAML, or cannot be read: of what it would have set nothing can be checked.
	if cfg == nil {
		return err
	}
	if err := errors.Join(err, filter.Check(cfg), checkCertificates(cfg), checkOpenTelemetry()); err != nil {
		return err
	}
	log, err := s.newLog(cfg) // which warns
	if err != nil {
		return err
	}
	if cfg.Loopback == "" {
		warnOfLoopback(cfg, log)
	}
	return printEffective(p, s, cfg)
}

// checkCertificates returns an error if the files of TLS and LoopbackTLS cannot be
// used.
func checkCertificates(cfg *config.Config) error {
	_, loopback := cfg.LoopbackTLS.Read()
	if !cfg.TLS.Enabled() {
		return loopback
	}
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	_, err := newCertificates(cfg.TLS, silent, prometheus.NewRegistry())
	return errors.Join(err, loopback)
}

// checkOpenTelemetry returns an error if the environment asks for what serve does not
// send.
func checkOpenTelemetry() error {
	if _, _, _, err := otelSettings(); err != nil {
		return fmt.Errorf("OpenTelemetry: %w", err)
	}
	return nil
}

// printEffective prints a configuration, and before it which keys do not have their
// defaults.
func printEffective(p program, s *settings, cfg *config.Config) error {
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	hash, err := shownHash(cfg)
	if err != nil {
		return err
	}

	// What is not the configuration itself is a comment: the output can be used as a file.
	var out strings.Builder
	fmt.Fprintf(&out, "# harmony_config_hash %d\n", hash)
	if s.memory.limit == 0 {
		out.WriteString(
			"# limits: the fixed defaults, because neither GOMEMLIMIT nor a cgroup limits the memory of this process\n")
	}
	for _, key := range config.Defaults().Changed(cfg) {
		if source, known := s.origins[key]; known {
			fmt.Fprintf(&out, "# %s: set by %s\n", key, source)
		}
	}

	_, err = fmt.Fprintf(p.stdout, "%s%s", out.String(), text)
	return err
}
