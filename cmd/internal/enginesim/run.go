package enginesim

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// run is one answer on its way.
type run struct {
	ctx     context.Context
	wire    *wire
	req     *modelRequest
	choices []*choice
	reply   reply
	meet    func() *refusal // waits for the other leg of the request; nil: there is none
}

// play says the choices, side by side, and returns the record's state.
func (r *run) play(w http.ResponseWriter) string {
	if !r.req.stream {
		return r.whole(w)
	}
	if r.wire.begin() != nil {
		return StateCancelled
	}
	if refused := r.meets(); refused != nil {
		if r.ctx.Err() != nil || r.wire.fail(refused) != nil {
			return StateCancelled
		}
		return StateFailed
	}
	sleep(r.ctx.Done(), r.req.behavior.First)
	for step := 0; ; step++ {
		open := false
		for _, c := range r.choices {
			if c.finish != "" {
				continue
			}
			open = true
			if r.say(c, r.size(step)) != nil {
				return StateCancelled
			}
			if r.faulty(c) {
				return r.fail(c)
			}
		}
		if !open {
			break
		}
		if r.ctx.Err() != nil {
			return r.cancelled()
		}
	}
	usage := r.reply.usage(nil)
	if len(usage) > 0 && r.wire.event(func(b []byte) []byte { return append(b, usage...) }) != nil || r.wire.done() != nil {
		return StateCancelled
	}
	return StateFinished
}

func (r *run) meets() *refusal {
	if r.meet == nil {
		return nil
	}
	return r.meet()
}

// whole answers with one JSON object.
func (r *run) whole(w http.ResponseWriter) string {
	if refused := r.meets(); refused != nil {
		if r.req.form == formFrames {
			writeGRPCStatus(w, refused.status, refused.message)
		} else {
			writeJSON(w, refused.status, appendError(nil, refused))
		}
		return StateFailed
	}
	sleep(r.ctx.Done(), r.req.behavior.First)
	for _, c := range r.choices {
		for c.finish == "" && r.ctx.Err() == nil {
			r.tokens(c, 64)
		}
	}
	if r.ctx.Err() != nil {
		return StateCancelled
	}
	if r.req.form == formFrames {
		if r.wire.begin() != nil || r.wire.event(r.reply.whole) != nil || r.wire.done() != nil {
			return StateCancelled
		}
		return StateFinished
	}
	writeJSON(w, http.StatusOK, r.reply.whole(nil))
	return StateFinished
}

// size is how many ids the next event holds: what a directive says, else one
// first and then what the request asks.
func (r *run) size(step int) int {
	if r.req.form == formOpenEvents { // llama.cpp sends every token by itself
		return 1
	}
	if r.req.behavior.TokensPerEvent.N > 0 {
		return r.req.behavior.TokensPerEvent.next(r.wire.random)
	}
	if step == 0 {
		return 1
	}
	return max(r.req.interval, 1)
}

// say lets a choice go on by n tokens and sends them.
func (r *run) say(c *choice, n int) error {
	if b := r.req.behavior; b.Fault != "" && len(c.output) < b.FaultAt {
		n = min(n, b.FaultAt-len(c.output))
	}
	from := len(c.output)
	if !r.faulty(c) {
		r.tokens(c, n)
	}
	if len(c.output) == from {
		return nil
	}
	return r.send(c, from)
}

// send sends the news of a choice, and its end where that is a message of its
// own.
func (r *run) send(c *choice, from int) error {
	if err := r.wire.event(func(b []byte) []byte { return r.reply.event(b, c, from) }); err != nil {
		return err
	}
	if closing, ok := r.reply.(closer); ok && c.finish != "" {
		return r.wire.event(func(b []byte) []byte { return closing.last(b, c) })
	}
	return nil
}

func (r *run) tokens(c *choice, n int) {
	for i := 0; i < n && c.finish == "" && r.ctx.Err() == nil; i++ {
		sleep(r.ctx.Done(), max(r.req.behavior.Delay, c.pause()))
		c.step()
	}
}

// cancelled ends an answer that nobody waits for, or that was asked to end.
func (r *run) cancelled() string {
	if !errors.Is(context.Cause(r.ctx), errAborted) {
		return StateCancelled
	}
	for _, c := range r.choices {
		if c.finish == "" && r.aborted(c, "abort") != nil {
			break
		}
	}
	_ = r.wire.done() // there may be nobody left to tell
	return StateCancelled
}

func (r *run) aborted(c *choice, finish string) error {
	c.finish = finish
	return r.send(c, len(c.output))
}

func (r *run) faulty(c *choice) bool {
	b := r.req.behavior
	return b.Fault != "" && len(c.output) >= b.FaultAt && c.finish == ""
}

// fail does what the fault says. A broken connection is the caller's to make.
func (r *run) fail(c *choice) string {
	fault := r.req.behavior.Fault
	var err error
	switch {
	case fault == "error":
		err = r.wire.fail(&refusal{http.StatusInternalServerError, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "InternalServerError", ""})
	case fault == "garbage":
		err = r.wire.event(func(b []byte) []byte { return append(b, `{"choices":[{"ind`...) })
	case fault == "hang":
		<-r.ctx.Done()
		return r.cancelled()
	case strings.HasPrefix(fault, "abort"):
		err = r.aborted(c, fault)
	}
	if err == nil && (fault == "done" || strings.HasPrefix(fault, "abort")) {
		err = r.wire.done()
	}
	if err != nil {
		return StateCancelled
	}
	return StateFailed
}

// abortStatus is the status of finish "abort503", 0 of a plain "abort".
func abortStatus(finish string) int {
	status, err := strconv.Atoi(strings.TrimPrefix(finish, "abort"))
	if err != nil {
		return 0
	}
	return status
}
