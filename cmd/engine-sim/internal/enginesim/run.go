package enginesim

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// run is a response that is being generated.
type run struct {
	ctx       context.Context
	wire      *wire
	req       *modelRequest
	choices   []*choice
	reply     reply
	begun     time.Time                 // when the schedule of a rate starts
	awaitPeer func() *apiError          // waits for the other request of a disaggregated pair; nil: none
	computed  func(ids []harmony.Token) // stores what the engine has computed in its cache
}

// stream generates the choices in turn, sends them, and returns the state for the
// record.
func (r *run) stream(w http.ResponseWriter) string {
	if !r.req.stream {
		return r.single(w)
	}
	// Engines send the headers before the first token, so a failure after this is in the stream.
	if r.wire.begin() != nil {
		return StateCancelled
	}

	if failed := r.peerError(); failed != nil {
		if r.ctx.Err() != nil || r.wire.sendError(failed) != nil {
			return StateCancelled
		}
		return StateFailed
	}

	sleep(r.ctx.Done(), r.req.behavior.First)
	for step := 0; ; step++ {
		// One event of each choice in turn, so that the indexes interleave as those of real engines do.
		running := false
		for _, c := range r.choices {
			if c.finish != "" {
				continue
			}
			running = true
			if r.advance(c, r.eventSize(step)) != nil {
				return StateCancelled
			}
			if r.faultDue(c) {
				return r.sendFault(c)
			}
		}

		if !running {
			break
		}
		if r.ctx.Err() != nil {
			return r.endCancelled()
		}
	}

	usage := r.reply.usage(nil)
	sendUsage := func(b []byte) []byte { return append(b, usage...) }
	if len(usage) > 0 && r.wire.event(sendUsage) != nil || r.wire.done() != nil {
		return StateCancelled
	}
	return StateFinished
}

// peerError waits for the other request of a disaggregated pair, if there is one.
func (r *run) peerError() *apiError {
	if r.awaitPeer == nil {
		return nil
	}
	return r.awaitPeer()
}

// single sends the response as one JSON object.
func (r *run) single(w http.ResponseWriter) string {
	// Nothing is sent yet, so the failure has a status.
	if failed := r.peerError(); failed != nil {
		if r.req.form == formFrames {
			writeGRPCStatus(w, failed.status, failed.message)
		} else {
			writeJSON(w, failed.status, appendError(nil, failed))
		}
		return StateFailed
	}

	sleep(r.ctx.Done(), r.req.behavior.First)
	for _, c := range r.choices {
		for c.finish == "" && r.ctx.Err() == nil {
			r.tokens(c, 64)
		}
	}
	if r.ctx.Err() != nil && !r.aborted() {
		return StateCancelled
	}
	for _, c := range r.choices {
		r.cutShort(c)
	}
	if r.req.form == formFrames {
		if r.wire.begin() != nil || r.wire.event(r.reply.single) != nil || r.wire.done() != nil {
			return StateCancelled
		}
		return StateFinished
	}

	write := writeJSON
	if r.req.form == formOpenEvents {
		write = writeLlamacpp
	}
	write(w, http.StatusOK, r.reply.single(nil))
	return StateFinished
}

// eventSize returns the number of ids in the next event: the number of the
// directive, or one in the first event and the stream_interval of the request in
// later ones.
func (r *run) eventSize(step int) int {
	// llama.cpp sends each token in an event.
	if r.req.form == formOpenEvents {
		return 1
	}

	// The directive is stronger than the request: tests set it for
	// requests that they do not write themselves.
	if r.req.behavior.TokensPerEvent.N > 0 {
		return r.req.behavior.TokensPerEvent.next(r.wire.random)
	}

	// vLLM sends the first token at once, whatever the interval is.
	if step == 0 {
		return 1
	}
	return max(r.req.interval, 1)
}

// advance generates up to n tokens of a choice and sends them.
func (r *run) advance(c *choice, n int) error {
	// An event must end where the fault is due, so that the client has received exactly so many tokens.
	if b := r.req.behavior; b.Fault != "" && len(c.output) < b.FaultAt {
		n = min(n, b.FaultAt-len(c.output))
	}

	from := len(c.output)
	if !r.faultDue(c) {
		r.tokens(c, n)
	}

	if len(c.output) == from && c.finish == "" {
		return nil
	}
	return r.send(c, from)
}

// send sends an update of a choice, and its end if that is a separate message.
func (r *run) send(c *choice, from int) error {
	if err := r.wire.event(func(b []byte) []byte { return r.reply.event(b, c, from) }); err != nil {
		return err
	}
	closing, ok := r.reply.(closer)
	if !ok || c.finish == "" {
		return nil
	}

	due := []*choice{c}
	if gathering, ok := r.reply.(gatherer); ok {
		due = gathering.ended(c)
	}
	for _, ended := range due {
		if err := r.wire.event(func(b []byte) []byte { return closing.last(b, ended) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) tokens(c *choice, n int) {
	// SGLang takes a limit of no token.
	if c.maxTokens == 0 {
		c.finish = "length"
	}
	for i := 0; i < n && c.finish == "" && r.ctx.Err() == nil; i++ {
		sleep(r.ctx.Done(), max(r.req.behavior.Delay, c.pause()))
		r.awaitDue(len(c.output))
		c.step()
	}

	// Before the client knows of the end, because its next request may come at once. After an answer no
	// prompt goes on with the output as it is, and load runs need not hash their prompts twice.
	if n := len(c.output); c.finish == "stop" && c.output[n-1] == harmony.TokenCall {
		r.computed(slices.Concat(r.req.prompt, c.output[:n-1]))
	}
}

// awaitDue waits until token i of a choice is due, if the behavior has a rate. The
// schedule is absolute, so a late token does not delay those after it.
func (r *run) awaitDue(i int) {
	b := r.req.behavior
	if b.Rate == 0 {
		return
	}

	// The schedule of all choices begins at the first token of the first one.
	if r.begun.IsZero() {
		r.begun = b.Start
		if b.Start.IsZero() {
			r.begun = time.Now()
		}
	}

	sleep(r.ctx.Done(), time.Until(r.begun.Add(time.Duration(float64(i)/b.Rate*float64(time.Second)))))
}

// endCancelled ends a response whose client has disconnected or aborted it.
func (r *run) endCancelled() string {
	if !r.aborted() {
		return StateCancelled
	}
	if r.waits() && r.req.form == formFrames {
		_ = r.wire.sendError(badRequest("", abortedByID)) // the client may have disconnected
		return StateCancelled
	}
	// After an abort SGLang ends each choice with a finish reason, which a client may still read.
	for _, c := range r.choices {
		from := len(c.output)
		if r.cutShort(c) && r.send(c, from) != nil {
			break
		}
	}
	_ = r.wire.done() // the client may have disconnected
	return StateCancelled
}

// aborted reports whether the request was aborted by its id.
func (r *run) aborted() bool { return errors.Is(context.Cause(r.ctx), errAborted) }

// waits reports whether the request waits for its grammar.
func (r *run) waits() bool { return r.req.limits.grammar != nil && len(r.choices[0].output) == 0 }

// cutShort ends a choice that is aborted, unless it has ended: with the token that is being computed.
func (r *run) cutShort(c *choice) bool {
	if c.finish != "" {
		return false
	}
	if r.waits() {
		c.finish = abortedInQueue
		return true
	}
	c.step()
	c.finish = "abort"
	return true
}

func (r *run) sendFinish(c *choice, finish string) error {
	c.finish = finish
	return r.send(c, len(c.output))
}

func (r *run) faultDue(c *choice) bool {
	b := r.req.behavior
	return b.Fault != "" && len(c.output) >= b.FaultAt && c.finish == ""
}

// sendFault simulates a fault. The caller breaks the connection if the fault asks
// for it.
func (r *run) sendFault(c *choice) string {
	// Faults "cut" and "end" send nothing: what follows is up to the caller.
	fault := r.req.behavior.Fault
	var err error
	switch {
	case fault == "error":
		err = r.wire.sendError(&apiError{
			status:  http.StatusInternalServerError,
			message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
			kind:    "InternalServerError",
		})
	case fault == "garbage":
		err = r.wire.event(func(b []byte) []byte { return append(b, `{"choices":[{"ind`...) })
	case fault == "hang":
		<-r.ctx.Done()
		return r.endCancelled()
	case strings.HasPrefix(fault, "abort"):
		err = r.sendFinish(c, fault)
	}

	if err == nil && (fault == "done" || strings.HasPrefix(fault, "abort")) {
		err = r.wire.done()
	}

	if err != nil {
		return StateCancelled
	}
	return StateFailed
}

// abortStatus returns the status of finish reason "abort503", 0 for a plain
// "abort".
func abortStatus(finish string) int {
	status, err := strconv.Atoi(strings.TrimPrefix(finish, "abort"))
	if err != nil {
		return 0
	}
	return status
}
