// Command engine-sim is a simulated gpt-oss engine. It serves the token-id APIs
// (HTTP and gRPC) of SGLang, vLLM, TensorRT-LLM and llama.cpp on one port. The last
// user message determines the reply:
//
//	engine-sim --listen 127.0.0.1:8000
//	engine-sim --tokens-per-event 8 --delay 5ms --output-ids cumulative
//	curl http://127.0.0.1:8000/sim/requests    # the requests so far
//
// Package enginesim documents the lines of a message and the directives. A request's
// header x-engine-sim accepts the same directives as --behavior.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/envoy-harmony/envoy-harmony/cmd/internal/enginesim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "engine-sim:", err)
		os.Exit(1)
	}
}

// run parses the command line and serves the engine until ctx ends.
func run(ctx context.Context, args []string) error {
	var o enginesim.Options
	var set []string // directives in the order of the flags
	directive := func(key string) func(string) error {
		return func(value string) error {
			set = append(set, key+"="+value)
			return nil
		}
	}
	flags := flag.NewFlagSet("engine-sim", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8000", "`address` to listen on; port 0 chooses a free port")
	models := flags.String("models", "", "served model `names`, separated by commas (default gpt-oss-20b and -120b, with and without openai/)")
	flags.IntVar(&o.ContextLength, "context-length", 131072, "context length in `tokens`")
	flags.IntVar(&o.Records, "records", 1000, "number of `requests` that are recorded; -1 for none")
	flags.StringVar(&o.Role, "role", "", "`role` as a disaggregated engine: prefill or decode (default both)")
	flags.Func("tokens-per-event", "`tokens` per event, or random:MAX", directive("tokens-per-event"))
	flags.Func("delay", "`time` before each token", directive("delay"))
	flags.Func("first", "`time` before the first token", directive("first"))
	flags.Func("cut", "`bytes` of the body per write, or random:MAX", directive("cut"))
	flags.Func("output-ids", "`form` of SGLang's output_ids: incremental or cumulative", directive("output-ids"))
	flags.Func("behavior", "`directives` for every request, such as \"fault=cut@5 seed=1\"", func(value string) error {
		set = append(set, value)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.Role != "" && o.Role != enginesim.RolePrefill && o.Role != enginesim.RoleDecode {
		return fmt.Errorf("role %q: use %s or %s", o.Role, enginesim.RolePrefill, enginesim.RoleDecode)
	}
	var err error
	if o.Behavior, err = o.Behavior.With(strings.Join(set, " ")); err != nil {
		return err
	}
	if *models != "" {
		o.Models = strings.Split(*models, ",")
	}
	return serve(ctx, *listen, enginesim.New(o))
}

// serve serves the engine until ctx ends. Running requests then have one second to
// end.
func serve(ctx context.Context, address string, engine http.Handler) error {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{Handler: engine, ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1 << 20} // gRPC servers of engines have no limit
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // gRPC
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Printf("engine-sim listening on http://%s\n", listener.Addr())
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
