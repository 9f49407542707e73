package extproc

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// Driver is all that an exchange needs of the world: Envoy's messages, the time, and a place
// for work that may wait. An exchange opens no socket, reads no clock and waits for nothing;
// who implements this interface can run it. [Server.Process] drives exchanges by streams of
// gRPC (grpcDriver), and package websocket by the events of a socket; a module inside Envoy
// would be another. The tests drive exchanges by a fake of Envoy that has a fake clock, and the
// benchmarks without any stream or loop.
//
// Two ways to drive an exchange:
//
//   - [Server.Drive] has a goroutine for each exchange, which waits for whatever comes next:
//     a message, an event of the engine, the result of a job, the next deadline.
//   - Who is called back by something else drives it step by step, on one goroutine at a time:
//     Begin with the time; then Handle with one event of the inbox, or Expire for a timer of
//     the runner whose deadline has come, or the method of the run for an event of the model
//     call or for a job; then the messages of x.to.out go to Envoy. Begin, for the next event,
//     takes the memory of these messages back. At the end, close.
//
// What the driver promises:
//
//  1. Messages come in the order in which Envoy has sent them, one at a time.
//  2. What an event has left is sent before the next event is handed over. So a slow reader
//     holds the sender back, and nothing is queued.
//  3. The exchange is closed once, after the last event. Nothing is sent after it.
type Driver interface {
	// Context is that of Envoy's stream. It ends when the client leaves, when Envoy resets
	// the stream, and when it is closed.
	Context() context.Context
	// Recv waits for the next message of Envoy. An error is the end of the stream: io.EOF if
	// Envoy has closed it in good order. Another goroutine than that of the exchange calls it.
	Recv() (*extprocv3.ProcessingRequest, error)
	// Send gives a message to Envoy, and may wait. The message is written when it returns.
	Send(m *extprocv3.ProcessingResponse) error

	// Now is the time.
	Now() time.Time
	// Go executes work that may wait, such as an endpoint that reads the store, on another
	// goroutine. What comes of it is sent to the exchange's inbox. The process ends when all
	// such work is done.
	Go(work func())
}

// Interruptible is a [Driver] whose client can interrupt the reply and go on to read it. It is no Envoy:
// what is sent to it comes in pieces of any size.
type Interruptible interface {
	Driver
	// Interruptible gets the function that interrupts the reply, before the first message. It
	// may be called at any time, from other goroutines than the exchange's.
	Interruptible(interrupt func(why api.Interruption))
}

// grpcDriver drives an exchange by a stream of gRPC: one of Envoy's HTTP requests.
type grpcDriver struct {
	extprocv3.ExternalProcessor_ProcessServer

	env *run.Env
}

// Now implements [Driver].
func (d *grpcDriver) Now() time.Time { return d.env.Now() }

// Go implements [Driver].
func (d *grpcDriver) Go(work func()) { d.env.Workers.Go(work) }

// Process runs one exchange. It implements Envoy's ExternalProcessor service.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	return s.Drive(&grpcDriver{stream, s.o.Env})
}

// Drive runs one exchange, on a goroutine that waits for each of its events.
//
// An error resets the client's stream; Envoy would continue without the filter after a clean
// end, so none is returned before Envoy ends the stream.
func (s *Server) Drive(d Driver) (err error) {
	stackToServe(false)
	x := newExchange(d, s)
	if client, ok := d.(Interruptible); ok {
		// No Envoy reads its messages: cut into pieces, an event would have to be copied together again.
		x.to.most = math.MaxInt
		client.Interruptible(func(why api.Interruption) { x.send(&interrupted{why}) })
	}
	defer s.telemetry.Metrics.StreamBegins()()
	defer s.drain.add(x)()

	// A panic ends this exchange, and no other one. Closing it may panic by the same broken
	// reply: then it is closed without that.
	ok := x.runner.Protect(&x.request.id, func() { err = s.serve(x) })
	if !ok {
		x.abandon()
	}
	if !x.runner.Protect(&x.request.id, func() { x.close(d.Now()) }) {
		ok = false
		x.abandon()
		x.runner.Protect(&x.request.id, func() { x.close(d.Now()) })
	}

	if !ok {
		return status.Error(codes.Internal, "envoy-harmony: internal error")
	}
	return err
}

// serve feeds an exchange until Envoy ends the stream, and returns how the stream ends for
// Envoy.
func (s *Server) serve(x *exchange) error {
	go x.receiveAll()
	err := run.Serve(x.ctx, x.runner, x.in, sending{x})

	switch {
	case errors.Is(err, errStreamEnded):
		return x.ended
	case errors.Is(err, errGaveWay):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, errRequestHeaders), errors.Is(err, errResponseHeaders):
		s.telemetry.Log.WithError(err).Error("The ext_proc filter is not configured for envoy-harmony")
		x.runner.Record.Failed(apierror.New(http.StatusInternalServerError, "ext_proc_mode", "", "%s", err))
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, errRequestHeadersAgain), errors.Is(err, errRequestHeadersLate),
		errors.Is(err, errResponseHeadersAgain):
		s.telemetry.Log.WithError(err).Error("The ext_proc messages are in an order that Envoy does not send")
		x.runner.Record.Failed(apierror.New(http.StatusInternalServerError, "ext_proc_order", "", "%s", err))
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// sending is an exchange whose messages go to its driver after each event.
type sending struct{ *exchange }

// Flush implements [run.Owner].
func (x sending) Flush() error {
	for _, m := range x.to.out {
		if err := x.driver.Send(m); err != nil {
			return endOf(err)
		}
	}
	return nil
}

// receiveAll hands the messages of Envoy to the exchange, until the stream ends. It has a
// goroutine of its own: the exchange waits for other events at the same time.
func (x *exchange) receiveAll() {
	stackToServe(false)
	for {
		m, err := x.driver.Recv()
		if err != nil {
			x.send(streamEnded{err})
			return
		}
		if !x.send(envoyMessage{m}) {
			return
		}
	}
}
