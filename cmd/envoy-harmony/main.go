// Command envoy-harmony serves gpt-oss models behind Envoy. It runs the filter,
// runs or configures Envoy, and has tools for Harmony tokens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal starts an orderly shutdown. After it the default handling is
	// restored, so that a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	p := program{
		name: os.Args[0], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, terminal: isTerminal(os.Stderr),
		environ: os.Environ(), system: os.DirFS("/"),
	}
	os.Exit(p.main(ctx, os.Args[1:]))
}

// program is one execution of the command. Its streams and environment are
// parameters for tests.
type program struct {
	// name is the command as it was called, for commands that are proposed.
	name string

	stdin          io.Reader
	stdout, stderr io.Writer
	// terminal says that people read stderr.
	terminal bool

	// environ is in the format of os.Environ.
	environ []string
	// system is the file system from / on, of which /proc and /sys are read; nil: nothing is.
	system fs.FS
}

// getenv returns the value of an environment variable, like os.Getenv.
func (p program) getenv(name string) string {
	for _, entry := range slices.Backward(p.environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// errUsage is the error of a wrong command line that has already been reported.
var errUsage = errors.New("wrong usage")

// command is a subcommand.
type command struct {
	name, summary string
	run           func(ctx context.Context, p program, args []string) error
}

// commands returns the subcommands in the order of the usage text.
func commands() []command {
	return []command{
		{"run", "start the filter and an Envoy with a generated configuration", runCommand},
		{"serve", "start the filter for an Envoy that you run", serveCommand},
		{"check", "check the configuration of serve, and print what is in effect", checkCommand},
		{"envoy-config", "print an Envoy bootstrap for serve", envoyConfigCommand},
		{"render", "serve what turns requests into tokens and tokens into replies", renderCommand},
		{"ask", "ask a model one question, to see that everything works", askCommand},
		{"inspect", "show recorded exchanges", inspectCommand},
		{"replay", "make recorded exchanges again, and compare", replayCommand},
		{"tokens", "encode and decode Harmony tokens", tokensCommand},
		{"version", "print the version and what it was built from", versionCommand},
	}
}

// main runs the subcommand in args and returns the exit status: 0 for success, 1
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
	case "-version", "--version":
		return p.status(versionCommand(ctx, p, nil))
	default:
		var names []string
		for _, c := range commands() {
			if c.name == name {
				return p.status(c.run(ctx, p, args[1:]))
			}
			names = append(names, c.name)
		}

		fmt.Fprintf(p.stderr, "envoy-harmony: unknown command %q%s\n\n", name, config.DidYouMean(name, names))
		p.usage(p.stderr)
		return 2
	}
}

// status reports an error on standard error and returns the exit status.
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
	fmt.Fprint(w, "envoy-harmony serves gpt-oss models behind Envoy with the OpenAI APIs.\n\nUsage: envoy-harmony "+
		"COMMAND [flags]\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-13s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-13s %s\n", "help", "print this text")
	fmt.Fprint(w, "\nExample: envoy-harmony run --simulate\nFlags:   envoy-harmony COMMAND --help\n")
}
