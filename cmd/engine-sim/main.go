// Command engine-sim is a simulated gpt-oss engine. It serves the token-id APIs
// (HTTP and gRPC) of SGLang, vLLM, TensorRT-LLM and llama.cpp on one port. The last
// user message determines the reply:
//
//	engine-sim --listen 127.0.0.1:8000
//	engine-sim --tokens-per-event 8 --delay 5ms --output-ids cumulative
//	curl http://127.0.0.1:8000/sim/requests    # the requests so far
//
// "envoy-harmony run --simulate" starts it, and holds its standard input open for as
// long as it needs it (--until-stdin-ends).
//
// "engine-sim -help" explains the lines of a message and the directives, as
// docs/simulator.md does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/envoy-harmony/envoy-harmony/cmd/engine-sim/internal/enginesim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "engine-sim:", err)
		os.Exit(1)
	}
}

// command is what the command line asks for.
type command struct {
	listen        string
	untilStdinEnd bool
	engine        enginesim.Options
}

// parse reads the command line. Help that is asked for goes to help.
func parse(args []string, help io.Writer) (*command, error) {
	c := &command{}
	flags := flag.NewFlagSet("engine-sim", flag.ContinueOnError)
	// A mistake is told in one line, by the error: package flag would print the whole text.
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8000", "`address` to listen on; port 0 chooses a free port")
	flags.BoolVar(&c.untilStdinEnd, "until-stdin-ends", false,
		"end when standard input ends, which the program that started this one holds open")
	models := flags.String("models", "",
		"served model `names`, separated by commas (default gpt-oss-20b and -120b, with and without openai/)")
	flags.IntVar(&c.engine.ContextLength, "context-length", 131072, "context length in `tokens`")
	flags.IntVar(&c.engine.Records, "records", 1000, "number of `requests` that are recorded; -1 for none")
	flags.StringVar(&c.engine.Role, "role", "", "`role` as a disaggregated engine: prefill or decode (default both)")
	directives := behaviorFlags(flags)

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage(flags, help)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (engine-sim -help lists the flags)", err)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	if role := c.engine.Role; role != "" && role != enginesim.RolePrefill && role != enginesim.RoleDecode {
		return nil, fmt.Errorf("role %q: use %s or %s", role, enginesim.RolePrefill, enginesim.RoleDecode)
	}
	var err error
	if c.engine.Behavior, err = c.engine.Behavior.With(strings.Join(*directives, " ")); err != nil {
		return nil, err
	}
	if *models != "" {
		c.engine.Models = strings.Split(*models, ",")
	}
	return c, nil
}

// usage writes the flags, and what messages and directives can say.
func usage(flags *flag.FlagSet, to io.Writer) {
	fmt.Fprint(to, "engine-sim is a simulated gpt-oss engine: "+
		"SGLang, vLLM, TensorRT-LLM and llama.cpp on one port.\n\nUsage: engine-sim [flags]\n\nFlags:\n")
	flags.SetOutput(to)
	flags.PrintDefaults()
	fmt.Fprint(to, "\n", enginesim.Reference)
}

// behaviorFlags adds the flags that are directives. It returns the directives in the
// order of the flags, because a later one overrides an earlier one.
func behaviorFlags(flags *flag.FlagSet) *[]string {
	directives := &[]string{}
	directive := func(name, usage string) {
		flags.Func(name, usage, func(value string) error {
			*directives = append(*directives, name+"="+value)
			return nil
		})
	}

	directive("tokens-per-event", "`tokens` per event, or random:MAX")
	directive("delay", "`time` before each token")
	directive("first", "`time` before the first token")
	directive("cut", "`bytes` of the body per write, or random:MAX")
	directive("output-ids", "`form` of SGLang's output_ids: incremental or cumulative")
	flags.Func("behavior", "`directives` for every request, such as \"fault=cut@5 seed=1\"", func(value string) error {
		*directives = append(*directives, value)
		return nil
	})
	return directives
}

// run parses the command line and serves the engine until ctx ends.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	c, err := parse(args, stdout)
	if err != nil {
		return err
	}
	if c.untilStdinEnd {
		// The operating system closes the other end of the pipe when the parent ends,
		// however it ends, so that no engine stays behind a parent that was killed.
		parent, ended := context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			ended()
		}()
		ctx = parent
	}
	return serve(ctx, c.listen, enginesim.New(c.engine), stdout)
}

// serve serves the engine until ctx ends. Running requests then have one second to
// end.
func serve(ctx context.Context, address string, engine http.Handler, stdout io.Writer) error {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listening: %w: stop the process that listens there (ss -ltnp names it), or choose another "+
			"port with --listen", err)
	}
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}

	server := &http.Server{Handler: engine, ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	// gRPC, whose servers in engines have no limit of streams.
	server.Protocols.SetUnencryptedHTTP2(true)
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1 << 20}

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	// Programs that start this one read the port from this line.
	fmt.Fprintf(stdout, "engine-sim listening on http://%s\n", listener.Addr())

	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close() // aborts running requests
	}
	return nil
}
