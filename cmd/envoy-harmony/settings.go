package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// settings are the flags of every command that has a configuration. Flags override
// the environment, and the environment overrides the file.
type settings struct {
	program program
	flags   *flag.FlagSet
	file    string
	set     []string // KEY=VALUE
	engines []config.Engine
}

func newSettings(p program, name, usage string) *settings {
	s := &settings{program: p, flags: flag.NewFlagSet(name, flag.ContinueOnError)}
	s.flags.SetOutput(p.stderr)
	s.flags.Usage = func() {
		fmt.Fprintf(s.flags.Output(), "Usage: envoy-harmony %s\n\n%s\n\nFlags:\n", name, strings.TrimSpace(usage))
		s.flags.PrintDefaults()
	}
	s.flags.StringVar(&s.file, "config", "", "the configuration `file` (YAML, see docs/configuration.md)")
	s.flags.Func("set", "set a key of the configuration, such as limits.header_hold=5s (`KEY=VALUE`, repeatable)", func(v string) error {
		if !strings.Contains(v, "=") {
			return errors.New("write KEY=VALUE")
		}
		s.set = append(s.set, v)
		return nil
	})
	s.flags.Func("engine", "an engine and the addresses of its replicas, `KIND=URL[,URL]`, repeatable. NAME:KIND instead of KIND sets a name. prefill=URL, or for SGLang prefill=URL#BOOTSTRAP_PORT, adds a prefill endpoint", func(v string) error {
		e, err := parseEngine(v)
		s.engines = append(s.engines, e)
		return err
	})
	s.alias("log-level", "log.level", "error, warning, info, debug or trace (`level`)")
	s.alias("log-format", "log.format", "json or text (`format`)")
	return s
}

// alias adds a flag that sets one key of the configuration.
func (s *settings) alias(name, key, usage string) {
	s.flags.Func(name, usage+"; sets "+key, func(v string) error {
		s.set = append(s.set, key+"="+v)
		return nil
	})
}

// parse parses the command line.
func (s *settings) parse(args []string) error {
	for _, arg := range args {
		if arg == "-h" || arg == "-help" || arg == "--help" {
			s.flags.SetOutput(s.program.stdout)
		}
	}
	if err := s.flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage // reported by package flag
	}
	if s.flags.NArg() > 0 {
		return s.wrong("unexpected argument %q", s.flags.Arg(0))
	}
	return nil
}

// wrong reports a wrong command line on standard error and returns errUsage.
func (s *settings) wrong(format string, args ...any) error {
	fmt.Fprintf(s.flags.Output(), format+"\n", args...)
	fmt.Fprintf(s.flags.Output(), "Flags: envoy-harmony %s --help\n", s.flags.Name())
	return errUsage
}

// load builds the configuration from the file, the environment and the flags, and
// returns it with its logger.
func (s *settings) load() (*config.Config, *logrus.Logger, error) {
	c := config.Defaults()
	if s.file != "" {
		var err error
		if c, err = config.Load(s.file); err != nil {
			return nil, nil, err
		}
	}
	unknown, err := c.ApplyEnv(s.program.environ)
	if err != nil {
		return nil, nil, err
	}
	for _, pair := range s.set {
		key, value, _ := strings.Cut(pair, "=")
		if err := c.Set(key, value); err != nil {
			return nil, nil, fmt.Errorf("flag: %w", err)
		}
	}
	if len(s.engines) > 0 {
		c.Engines = s.engines
	}
	if err := c.Validate(); err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	log, err := newLog(s.program, c)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range unknown {
		log.Warnf("the environment variable %s has no effect, because there is no such key: docs/configuration.md lists the keys", name)
	}
	return c, log, nil
}

// parseEngine parses [NAME:]KIND[=ADDRESS[,ADDRESS]], where an address is URL or
// prefill=URL[#BOOTSTRAP_PORT].
func parseEngine(v string) (config.Engine, error) {
	var e config.Engine
	kind, urls, _ := strings.Cut(v, "=")
	if name, rest, ok := strings.Cut(kind, ":"); ok {
		e.Name, kind = name, rest
	}
	e.Kind = kind
	for u := range strings.SplitSeq(urls, ",") {
		u = strings.TrimSpace(u)
		if prefill, ok := strings.CutPrefix(u, "prefill="); ok {
			p, err := parsePrefill(prefill)
			if err != nil {
				return e, err
			}
			e.Prefill = append(e.Prefill, p)
		} else if u != "" {
			e.URLs = append(e.URLs, u)
		}
	}
	if e.Kind == "" {
		return e, errors.New("write KIND=URL, such as vllm=http://127.0.0.1:8000")
	}
	return e, nil
}

// parsePrefill parses URL[#BOOTSTRAP_PORT].
func parsePrefill(v string) (config.Prefill, error) {
	u, text, given := strings.Cut(v, "#")
	p := config.Prefill{URL: u}
	if !given {
		return p, nil
	}
	var err error
	if p.BootstrapPort, err = strconv.Atoi(text); err != nil || p.BootstrapPort < 1 {
		return p, fmt.Errorf("%q is not a bootstrap port: write prefill=URL#PORT, such as prefill=http://10.0.0.3:30000#8998", text)
	}
	return p, nil
}

// envoyEngines converts the configured engines to those of the Envoy bootstrap.
func envoyEngines(c *config.Config) []envoy.Engine {
	engines := make([]envoy.Engine, len(c.Engines))
	for i, e := range c.Engines {
		bootstrapRoom, _ := engine.Disaggregates(e.Kind)
		engines[i] = envoy.Engine{Name: e.Name, URLs: e.URLs, GRPC: engine.IsGRPC(e.Kind), OneCall: engine.ClosesConnections(e.Kind), HealthPath: e.HealthPath, Prefill: e.PrefillURLs(), PinPrefill: bootstrapRoom, EndpointPicker: e.EndpointPicker}
	}
	return engines
}

// newLog returns the configured logger, which writes to standard error.
func newLog(p program, c *config.Config) (*logrus.Logger, error) {
	level, err := logrus.ParseLevel(c.Log.Level)
	if err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	log := logrus.New()
	log.SetOutput(p.stderr)
	log.SetLevel(level)
	if c.Log.Format == config.LogFormatJSON {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	}
	return log, nil
}

// tempDir makes a directory whose path is short enough for Unix sockets.
func tempDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "envoy-harmony-")
	if err != nil {
		return "", nil, fmt.Errorf("make a directory for the socket: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
