package filter

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// received is what one Recv gave.
type received struct {
	message *extprocv3.ProcessingRequest
	err     error
}

// Process runs one exchange. It implements Envoy's ExternalProcessor service.
//
// Messages are taken one at a time and their replies are sent before the next
// is looked at, so that a slow reader holds back the sender and nothing is
// queued. An error resets the client's stream; Envoy would continue without
// the filter after a clean end, so none is reported before Envoy ends.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) (err error) {
	x := newExchange(stream.Context(), s, s.now())
	s.metrics.inflight.Inc()
	defer s.metrics.inflight.Dec()
	sound := s.safely(&x.rec, &x.id, func() { err = s.run(stream, x) })
	if !sound {
		x.abandon()
	}
	if !s.safely(&x.rec, &x.id, func() { x.close(s.now()) }) {
		sound = false
		x.abandon() // what has failed in it is not asked again
		s.safely(&x.rec, &x.id, func() { x.close(s.now()) })
	}
	if !sound {
		err = status.Error(codes.Internal, "envoy-harmony: internal error")
	}
	return err
}

// safely does a part of what becomes of a request. A panic in it fails the
// request, not the process; false tells of one. The id is read when it is needed.
func (s *Server) safely(rec *record, id *string, part func()) (sound bool) {
	defer func() {
		if p := recover(); p != nil {
			s.log.WithField("request_id", *id).Errorf("panic: %v\n%s", p, debug.Stack())
			rec.failed(apierror.New(http.StatusInternalServerError, "panic", "", "internal error"))
		}
	}()
	part()
	return true
}

func (s *Server) run(stream extprocv3.ExternalProcessor_ProcessServer, x *exchange) error {
	ctx := stream.Context()
	in := make(chan received, 1)
	go receive(ctx, stream, in)
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		kind := messageTick
		var begun time.Time
		select {
		case r := <-in:
			if r.err != nil {
				return endOf(r.err)
			}
			kind, begun = kindOf(r.message), s.now()
			if err := x.receive(r.message, begun); err != nil {
				s.log.WithError(err).Error("ext_proc filter is not configured for envoy-harmony")
				x.rec.failed(apierror.New(http.StatusInternalServerError, "ext_proc_mode", "", "%s", err))
				return status.Error(codes.FailedPrecondition, err.Error())
			}
		case e := <-x.remote.events:
			kind, begun = messageEngine, s.now()
			x.step(begun)
			if x.phase == phaseEngine {
				x.run.news(e)
			}
		case d := <-x.jobs.done:
			kind, begun = messageTool, s.now()
			x.step(begun)
			if x.phase == phaseEngine {
				x.run.did(d)
			}
		case e := <-x.feed:
			kind, begun = messageEngine, s.now()
			x.step(begun)
			x.fed(e)
		case <-alarm.C:
			begun = s.now()
			x.tick(begun)
		case <-ctx.Done(): // Envoy has reset the stream
			return nil
		}
		s.metrics.message(kind, s.now().Sub(begun))
		for _, m := range x.out {
			if err := stream.Send(m); err != nil {
				return endOf(err)
			}
		}
		if next := x.timers.next(); next.IsZero() {
			alarm.Stop()
		} else {
			alarm.Reset(next.Sub(s.now()))
		}
	}
}

// receive reads the stream until it ends.
func receive(ctx context.Context, stream extprocv3.ExternalProcessor_ProcessServer, in chan<- received) {
	for {
		m, err := stream.Recv()
		select {
		case in <- received{m, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// endOf makes the handler's result of how the stream ended. Envoy ends streams
// by cancelling them as often as by closing them.
func endOf(err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// kindOf names a message for the metrics.
func kindOf(m *extprocv3.ProcessingRequest) messageKind {
	switch m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return messageRequestHeaders
	case *extprocv3.ProcessingRequest_RequestBody:
		return messageRequestBody
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return messageResponseHeaders
	case *extprocv3.ProcessingRequest_ResponseBody:
		return messageResponseBody
	}
	return messageTrailers
}
