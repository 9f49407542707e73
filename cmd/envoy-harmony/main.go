// Command envoy-harmony serves gpt-oss models behind Envoy: the filter, an
// Envoy with the configuration that goes with it, and tools for both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal begins an orderly end; after it the signals have their
	// own effect again, so that the second one ends the process at once.
	context.AfterFunc(ctx, stop)
	p := program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	os.Exit(p.main(ctx, os.Args[1:]))
}

// program is one call of the command. What it touches of the process comes
// from outside, so that tests can call it.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string // as os.Environ gives it
}

// getenv is a variable of the environment, as os.Getenv gives it.
func (p program) getenv(name string) string {
	for _, entry := range slices.Backward(p.environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// errUsage says that a command line is wrong and that its user has been told.
var errUsage = errors.New("wrong usage")

// command is a subcommand.
type command struct {
	name, summary string
	run           func(ctx context.Context, p program, args []string) error
}

func commands() []command {
	return []command{
		{"run", "start Envoy and the filter together: the one-command way in", runCommand},
		{"serve", "start the filter alone, for an Envoy of your own", serveCommand},
		{"envoy-config", "print the Envoy bootstrap that goes with serve", envoyConfigCommand},
		{"tokens", "encode and decode Harmony tokens", tokensCommand},
		{"version", "print the version", func(_ context.Context, p program, _ []string) error {
			_, err := fmt.Fprintln(p.stdout, "envoy-harmony", version())
			return err
		}},
	}
}

// main runs the subcommand of args and gives the exit status: 0 for success, 1
// for a failure, 2 for a wrong command line.
func (p program) main(ctx context.Context, args []string) int {
	if len(args) == 0 {
		p.usage(p.stderr)
		return 2
	}
	switch name := args[0]; name {
	case "help", "-h", "-help", "--help":
		p.usage(p.stdout)
		return 0
	default:
		for _, c := range commands() {
			if c.name == name {
				return p.status(c.run(ctx, p, args[1:]))
			}
		}
		fmt.Fprintf(p.stderr, "envoy-harmony: there is no command %q\n\n", name)
		p.usage(p.stderr)
		return 2
	}
}

func (p program) status(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	fmt.Fprintln(p.stderr, "envoy-harmony:", err)
	return 1
}

func (p program) usage(w io.Writer) {
	fmt.Fprint(w, "envoy-harmony serves gpt-oss models behind Envoy with the OpenAI APIs.\n\nUsage: envoy-harmony COMMAND [flags]\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-13s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-13s %s\n", "help", "print this text")
	fmt.Fprint(w, "\nTry it:  envoy-harmony run --simulate\nFlags:   envoy-harmony COMMAND --help\n")
}

// version is the module's version, or the commit the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
