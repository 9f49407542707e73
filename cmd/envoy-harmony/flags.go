package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// newFlags makes the flags of a command. arguments follow its name in the usage.
func newFlags(p program, name, arguments, usage string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: envoy-harmony %s%s\n\n%s\n\nFlags:\n", name, arguments,
			strings.TrimSpace(usage))
		flags.PrintDefaults()
	}
	return flags
}

// parseFlags parses the flags before the first argument. A wrong one is reported on
// standard error, in two lines: the whole usage would hide them.
func parseFlags(p program, flags *flag.FlagSet, args []string) error {
	usage := flags.Usage
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	err := flags.Parse(args)
	flags.SetOutput(p.stderr)
	flags.Usage = usage

	switch {
	case errors.Is(err, flag.ErrHelp):
		// Help that was asked for is output, and no error.
		flags.SetOutput(p.stdout)
		flags.Usage()
		return err
	case err != nil:
		fmt.Fprintf(p.stderr, "%v%s\nFlags: envoy-harmony %s --help\n", err, similarFlag(flags, err), flags.Name())
		return errUsage
	}
	return nil
}

// parseMixed is parseFlags for a command whose flags may stand among its arguments, which
// it returns. All that follows "--" is an argument.
func parseMixed(p program, flags *flag.FlagSet, args []string) (arguments []string, err error) {
	for {
		if err := parseFlags(p, flags, args); err != nil {
			return nil, err
		}

		rest := flags.Args()
		end := len(args) - len(rest)
		// Package flag passes the "--", and does not say so.
		if len(rest) == 0 || end > 0 && args[end-1] == "--" {
			return append(arguments, rest...), nil
		}
		arguments, args = append(arguments, rest[0]), rest[1:]
	}
}

// similarFlag says which flag was meant by one that err says does not exist.
func similarFlag(flags *flag.FlagSet, err error) string {
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return ""
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, "--"+f.Name) })
	return config.DidYouMean("--"+name, names)
}
