package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// StackOptions say which processes a stack has.
type StackOptions struct {
	// Binaries is the folder of envoy-harmony and engine-sim.
	Binaries string
	// Workers are Envoy's worker threads; 0: one per CPU.
	Workers int

	// Engine is the kind of engine, Engines are more flags of engine-sim.
	Engine  string
	Engines []string
	// Set has keys of the filter's configuration, KEY=VALUE.
	Set []string
}

// harmony returns the path of the program.
func (o StackOptions) harmony() string { return filepath.Join(o.Binaries, "envoy-harmony") }

// Stack is Envoy, the filter and the simulated engine, each a process of its own.
type Stack struct {
	Dir string
	// SimURL is the engine's, URL Envoy's.
	SimURL string
	URL    string

	Engine Process
	filter Process
	envoy  Process
	stop   []func()
}

// startTime is how long the processes may take to start.
const startTime = 30 * time.Second

// Start starts a stack and waits until it answers.
func Start(ctx context.Context, o StackOptions) (*Stack, error) {
	s, err := newStack()
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, o); err != nil {
		return nil, s.failed("filter", err)
	}
	return s, nil
}

// newStack returns a stack without processes.
func newStack() (*Stack, error) {
	dir, err := os.MkdirTemp("", "load-")
	if err != nil {
		return nil, err
	}
	return &Stack{Dir: dir, stop: []func(){func() { _ = os.RemoveAll(dir) }}}, nil
}

// failed stops a stack that could not start, and adds the log of a process to the error.
func (s *Stack) failed(name string, err error) error {
	// Before Stop, which removes the folder.
	text, _ := os.ReadFile(filepath.Join(s.Dir, name+".log"))
	s.Stop()
	return fmt.Errorf("%w; the log of %s:\n%s", err, name, text)
}

// Stop ends the processes.
func (s *Stack) Stop() {
	// Backwards: Envoy ends before what it calls, and the folder with the logs goes last.
	for i := len(s.stop) - 1; i >= 0; i-- {
		s.stop[i]()
	}
	s.stop = nil
}

// Targets returns the filter, and Envoy alone, which passes the engine's stream
// through.
func (s *Stack) Targets() (filtered, through *Target) {
	// All processes for both targets: what the filter does beside a passed stream counts as well.
	processes := []Process{s.filter, s.envoy, s.Engine}
	filtered = &Target{Name: "filter", URL: s.URL + chatPath, Body: chatBody, Key: contentKey, Procs: processes}
	through = &Target{Name: aloneName, URL: s.URL + "/v1/completions", Body: rawBody, Key: `"text":"`, Procs: processes}
	return filtered, through
}

func (s *Stack) start(ctx context.Context, o StackOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := s.startEngine(ctx, o); err != nil {
		return err
	}
	if err := s.startFilter(ctx, o); err != nil {
		return err
	}
	filtered, through := s.Targets()
	if strings.HasSuffix(o.Engine, "-grpc") { // which Envoy does not let clients reach
		return awaitTarget(ctx, filtered)
	}
	return errors.Join(awaitTarget(ctx, filtered), awaitTarget(ctx, through))
}

// startFilter starts the filter and Envoy for the engine.
func (s *Stack) startFilter(ctx context.Context, o StackOptions) error {
	var err error
	serve := append([]string{
		"serve", "--listen", "unix://" + s.filterSocket(), "--admin", "127.0.0.1:0",
	}, s.config(o)...)
	if s.filter, err = s.run("filter", o.harmony(), serve...); err != nil {
		return err
	}

	// Envoy connects as soon as it starts, so the filter must listen before.
	for os.Chmod(s.filterSocket(), 0o600) != nil {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the filter does not listen: %w", err)
		}
	}

	bootstrap, err := s.bootstrap(ctx, o)
	if err != nil {
		return err
	}
	return s.startEnvoy(ctx, bootstrap, o)
}

// bootstrap returns Envoy's. The program writes it, so that the Envoy of the load is the
// one that users get.
func (s *Stack) bootstrap(ctx context.Context, o StackOptions) ([]byte, error) {
	flags := append([]string{
		"envoy-config", "--listen", "127.0.0.1:0", "--envoy-admin", "127.0.0.1:0", "--filter",
		"unix://" + s.filterSocket(),
	}, s.config(o)...)

	text, err := exec.CommandContext(ctx, o.harmony(), flags...).Output()
	if err != nil {
		return nil, fmt.Errorf("envoy-config: %w", err)
	}
	return text, nil
}

// config returns the flags of the filter's configuration.
func (s *Stack) config(o StackOptions) []string {
	flags := []string{ //nolint:prealloc // it is short
		"--engine", o.Engine + "=" + s.SimURL,
		"--set", "loopback=unix://" + filepath.Join(s.Dir, "loopback.sock"),
		"--set", `routing.open_paths=["/v1/completions"]`, // Envoy alone
	}
	for _, set := range o.Set {
		flags = append(flags, "--set", set)
	}
	return flags
}

func (s *Stack) filterSocket() string { return filepath.Join(s.Dir, "filter.sock") }

func (s *Stack) startEngine(ctx context.Context, o StackOptions) error {
	log := filepath.Join(s.Dir, "engine.log")
	// The simulator must not remember requests: its memory would grow with the load. The context is
	// longer than the model's, for prompts of 200k tokens.
	flags := append([]string{"--listen", "127.0.0.1:0", "--records", "-1", "--context-length", "1000000"}, o.Engines...)
	var err error
	if s.Engine, err = s.run("engine", filepath.Join(o.Binaries, "engine-sim"), flags...); err != nil {
		return err
	}
	for {
		if text, err := os.ReadFile(log); err == nil {
			// The line may be written in two pieces.
			if line, _, whole := strings.Cut(string(text), "\n"); whole {
				_, s.SimURL, _ = strings.Cut(line, "listening on ")
				return nil
			}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the simulated engine does not start: %w", err)
		}
	}
}

func (s *Stack) startEnvoy(ctx context.Context, bootstrap []byte, o StackOptions) error {
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		return err
	}
	proxy, err := envoy.Launch(ctx, envoy.LaunchOptions{Binary: binary, Bootstrap: bootstrap, Concurrency: o.Workers})
	if err != nil {
		return err
	}

	// The context is that of the start, or has ended by an interrupt: Envoy is stopped in any case.
	s.stop = append(s.stop, func() { proxy.Stop(context.Background()) })
	s.envoy = Process{"Envoy", proxy.PID()}
	address, err := proxy.ListenAddress(ctx)
	if err != nil {
		return err
	}
	s.URL = "http://" + address
	return nil
}

// run starts a process that writes to a log file of the stack's folder.
func (s *Stack) run(name, binary string, args ...string) (Process, error) {
	log, err := os.Create(filepath.Join(s.Dir, name+".log"))
	if err != nil {
		return Process{}, err
	}
	defer log.Close()
	// Without ctx, which would kill at the end of startTime.
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return Process{}, fmt.Errorf("start %s (make builds it): %w", binary, err)
	}
	s.stop = append(s.stop, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		// A process under load may not end in good order.
		kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
	})
	return Process{name, cmd.Process.Pid}, nil
}

// awaitTarget waits until a target answers.
func awaitTarget(ctx context.Context, t *Target) error {
	c := NewClient()
	defer c.Close()
	for {
		// A whole stream: Envoy answers before its clusters and the filter are healthy.
		err := c.Stream(ctx, t, t.Body([]string{t.words(1)}), func(time.Time, int) {})
		if err == nil {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("%s does not answer: %w", t.Name, err)
		}
	}
}

// pause waits, or returns the reason why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// machine describes the machine and what else it does.
func machine() string {
	cpu := "an unknown CPU"
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}

	// A busy machine explains figures that are not those of other runs.
	load, _ := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(load), " ")
	return cpu + ", " + strconv.Itoa(cpus()) + " CPUs, load average before the run " + average
}
