package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// settings are the flags of every command that has a configuration. Flags override
// the environment, and the environment overrides the file.
type settings struct {
	program program
	flags   *flag.FlagSet
	file    string
	set     []string // KEY=VALUE
	engines []config.Engine
	adjust  func(*config.Config) // what the command adds to the configuration; may be nil
	// engineless says that the command calls no engine, so that none has to be named.
	engineless bool
	// memory is what the process may take, by which the defaults of limits are chosen.
	memory memory

	// What the last reading of the configuration has found.
	content [sha256.Size]byte // hash of the file
	unknown []string          // variables of the environment that belong to no key
	origins map[string]string // of values that are not the default, by key
}

func newSettings(p program, name, usage string) *settings {
	s := &settings{program: p, flags: newFlags(p, name, "", usage), memory: memoryOf(p)}
	s.flags.StringVar(&s.file, "config", "", "the configuration `file` (YAML, see docs/configuration.md)")
	s.flags.Func("set",
		"set a key of the configuration, such as limits.header_hold=5s (`KEY=VALUE`, repeatable)",
		func(v string) error {
			if !strings.Contains(v, "=") {
				return errors.New("write KEY=VALUE")
			}
			s.set = append(s.set, v)
			return nil
		})

	// An engine's address is in several keys, so that no alias can set it.
	s.flags.Func("engine", "an engine and the addresses of its replicas, `KIND=URL[,URL]`, repeatable. NAME:KIND "+
		"instead of KIND sets a name. prefill=URL, or for SGLang prefill=URL#BOOTSTRAP_PORT, adds a prefill "+
		"endpoint", func(v string) error {
		e, err := parseEngine(v)
		s.engines = append(s.engines, e)
		return err
	})

	s.alias("log-level", "log.level", "error, warning, info, debug or trace (`level`)")
	s.alias("log-format", "log.format", "auto, json or text (`format`)")
	return s
}

// alias adds a flag that sets one key of the configuration.
func (s *settings) alias(name, key, usage string) {
	s.flags.Func(name, usage+"; sets "+key, func(v string) error {
		s.set = append(s.set, key+"="+v)
		return nil
	})
}

// parse parses the command line of a command without arguments.
func (s *settings) parse(args []string) error {
	if err := parseFlags(s.program, s.flags, args); err != nil {
		return err
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

// load builds the configuration, and returns it with its logger.
func (s *settings) load() (*config.Config, *logrus.Logger, error) {
	c, err := s.read()
	if err != nil {
		return nil, nil, err
	}
	log, err := s.newLog(c)
	return c, log, err
}

// newLog returns the logger of a configuration that has been read, with first warnings about
// what has no effect, or another one than was meant.
func (s *settings) newLog(c *config.Config) (*logrus.Logger, error) {
	log, err := newLog(s.program, c)
	if err != nil {
		return nil, err
	}
	for _, name := range s.unknown {
		log.Warnf("the environment variable %s has no effect, because there is no such key: docs/configuration.md "+
			"lists the keys", name)
	}
	warnOf(c, log)
	return log, nil
}

// warnOf logs the warnings of a configuration.
func warnOf(c *config.Config, log *logrus.Logger) {
	for _, text := range c.Warnings() {
		log.Warn(text)
	}
	warnOfForgottenCounts(c, log)
}

// warnOfForgottenCounts says that a restart gives every subject its token budgets anew.
func warnOfForgottenCounts(c *config.Config, log *logrus.Logger) {
	// An entry without a bound only exempts its requests from the others of its name.
	bounds := func(b config.TokenBudget) bool { return b.Tokens > 0 }
	inMemory := c.StoreURL == "" || c.StoreURL == "memory:"
	if inMemory && slices.ContainsFunc(c.TokenBudgets, bounds) {
		log.Warn("store_url is memory: what token_budgets have counted is forgotten at a restart, and each replica " +
			"counts for itself. Set another store_url for bounds that matter (see " +
			"docs/token-budgets.md#what-is-counted)")
	}
}

// read builds the configuration from the file, the environment and the flags. The
// error names everything that is wrong.
func (s *settings) read() (*config.Config, error) {
	if s.file == "" {
		return s.over(config.DefaultsIn(s.memory.limit), nil, nil)
	}
	return s.readText(s.fileText())
}

// reread builds the configuration from what the file has become.
func (s *settings) reread(file fileText) (*config.Config, error) {
	if file.err == nil && setsNothing(file.text) {
		return nil, errEmpty
	}
	return s.readText(file)
}

// fileText reads the file.
func (s *settings) fileText() fileText {
	text, err := os.ReadFile(s.file)
	return fileText{text, err}
}

// readText builds the configuration with a text as that of the file. There is none if the
// file could not be read at all.
func (s *settings) readText(file fileText) (*config.Config, error) {
	s.content = file.hash()
	if file.err != nil {
		return nil, fmt.Errorf("read the configuration: %w", file.err)
	}
	c, err := config.DefaultsIn(s.memory.limit).Parse(s.file, file.text)

	// The text is no YAML. Nothing of it could be put under the environment.
	if c == nil {
		return nil, err
	}
	return s.over(c, file.text, err)
}

// defaults returns what the keys of a configuration are that nothing sets.
func (s *settings) defaults(of *config.Config) *config.Config {
	c := config.DefaultsIn(s.memory.limit)
	c.StoreURL = of.StoreURL
	c.FitStore(s.memory.limit)

	return c
}

// over puts the environment and the flags over what the file says. text is the file, and
// err what is wrong with it.
func (s *settings) over(c *config.Config, text []byte, err error) (*config.Config, error) {
	// After each step the configuration is compared with the one before it, so that what wins is what
	// is named as the origin.
	errs := []error{err}
	s.origins = map[string]string{}
	defaults := config.DefaultsIn(s.memory.limit)
	s.origin(s.memory.origin(), config.Defaults(), defaults)
	s.origin("the file", defaults, c)

	before := *c
	s.unknown, err = c.ApplyEnv(s.program.environ)
	errs = append(errs, err)
	s.origin("the environment", &before, c)

	before = *c
	for _, pair := range s.set {
		key, value, _ := strings.Cut(pair, "=")
		if err := c.Set(key, value); err != nil {
			errs = append(errs, fmt.Errorf("flag: %w", err))
		}
	}
	if len(s.engines) > 0 {
		c.Engines = slices.Clone(s.engines)
	}
	s.origin("a flag", &before, c)

	// Only now it is known where the store is.
	c.FitStore(s.memory.limit)
	// Validate wants an engine. Nothing asks this one.
	if s.engineless && len(c.Engines) == 0 {
		c.Engines = []config.Engine{{Kind: engine.Kinds()[0]}}
	}

	if err := c.Validate(); err != nil {
		errs = append(errs, config.Locate(s.file, text, err, s.inFile))
	}

	// What a command adds is its own and needs no check.
	if s.adjust != nil {
		s.adjust(c)
	}
	return c, errors.Join(errs...)
}

// origin notes where keys got the values that they have after a step of reading.
func (s *settings) origin(source string, before, after *config.Config) {
	for _, key := range before.Changed(after) {
		s.origins[key] = source
	}
}

// inFile reports whether the value at a path, such as engines[0].urls, comes from the file.
func (s *settings) inFile(path string) bool {
	for key, source := range s.origins {
		rest, ok := strings.CutPrefix(path, key)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return source == "the file"
		}
	}
	return false
}

// parseEngine parses [NAME:]KIND[=ADDRESS[,ADDRESS]], where an address is URL or
// prefill=URL[#BOOTSTRAP_PORT].
func parseEngine(v string) (config.Engine, error) {
	var e config.Engine
	kind, urls, _ := strings.Cut(v, "=")
	// Only before the =, after which addresses have colons.
	if name, rest, ok := strings.Cut(kind, ":"); ok {
		e.Name, kind = name, rest
	}

	e.Kind = kind

	if address := addressAlone(v); address != "" {
		return e, fmt.Errorf("write which kind of engine it is: KIND=URL, such as vllm=%s; KIND is one of %s",
			address, strings.Join(engine.Kinds(), ", "))
	}

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

// addressAlone returns the URL of an engine that is named without its kind; "": it has one.
func addressAlone(v string) string {
	// Its scheme stands where the name would be, and its port where nothing is.
	if strings.HasPrefix(v, "http://") || strings.HasPrefix(v, "https://") {
		return v
	}

	// A host is taken for the name, and its port for the kind, which is no number.
	first, _, _ := strings.Cut(v, ",")
	address, _, _ := strings.Cut(first, "/")
	if _, port, err := net.SplitHostPort(address); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return "http://" + first
		}
	}
	return ""
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
		return p, fmt.Errorf("%q is not a bootstrap port: write prefill=URL#PORT, such as "+
			"prefill=http://10.0.0.3:30000#8998", text)
	}
	return p, nil
}

// envoyEngines converts the configured engines to those of the Envoy bootstrap.
func envoyEngines(c *config.Config) []envoy.Engine {
	engines := make([]envoy.Engine, len(c.Engines))
	for i, e := range c.Engines {
		bootstrapRoom, _ := engine.Disaggregates(e.Kind)
		engines[i] = envoy.Engine{
			Name: e.Name, URLs: e.URLs, GRPC: engine.IsGRPC(e.Kind),
			OneCall: engine.ClosesConnections(e.Kind), HealthPath: e.HealthPath, Prefill: e.PrefillURLs(),
			PinPrefill: bootstrapRoom, EndpointPicker: e.EndpointPicker,
		}
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
	switch {
	case c.Log.Format == config.LogFormatText:
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	case c.Log.Format == config.LogFormatAuto && p.terminal:
		log.SetFormatter(rows{newPainter(p.stderr)})
	default:
		log.SetFormatter(telemetry.JSONLines{})
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
