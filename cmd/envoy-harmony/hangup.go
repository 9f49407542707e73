package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// hangups decides what SIGHUP means to serve and run. With a configuration file it is the
// request to read that again, and reload receives it. Else it ends the context, and so it does
// if it came because the terminal was closed: nobody could stop the process with Ctrl-C any more.
type hangups struct {
	reload chan os.Signal
	stop   func()
}

// takeHangups takes the signals until stop is called. The context ends with ctx, or by a signal.
func (s *settings) takeHangups(ctx context.Context) (context.Context, *hangups) {
	ctx, end := context.WithCancel(ctx)
	h := &hangups{reload: make(chan os.Signal, 1), stop: end}
	// Under nohup the process is to outlive its terminal.
	if s.file == "" && signal.Ignored(syscall.SIGHUP) {
		return ctx, h
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	h.stop = func() {
		end()
		signal.Stop(signals)
	}

	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-signals:
				if s.file == "" || s.program.hasLostTerminal() {
					// A second signal ends the process at once, as after the others: but not another
					// SIGHUP, since a terminal that closes sends two, by the kernel and by the shell.
					signal.Reset(os.Interrupt, syscall.SIGTERM)
					end()
					return
				}

				// One that waits is enough.
				select {
				case h.reload <- sig:
				default:
				}
			}
		}
	}()
	return ctx, h
}

// hasLostTerminal reports whether the terminal that the process writes to has been closed.
func (p program) hasLostTerminal() bool {
	f, ok := p.stderr.(*os.File)
	if !ok || !p.terminal {
		return false
	}
	// Writing nothing is an error (EIO) at a terminal that has hung up, and else has no effect.
	_, err := f.Write(nil)
	return err != nil
}
