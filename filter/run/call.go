package run

import (
	"fmt"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

const (
	// MaxErrorBody is how many bytes of an engine's error reply are read.
	MaxErrorBody = 64 << 10
	// maxRetries is how many calls are made to move a failed one to another
	// replica.
	maxRetries = 3
)

// callPhase is how far a model call has come. Who leaves a phase:
//
//	phase     how it is left                                                   for
//	none      begin: a call is made                                            sent
//	sent      answer: the status is 200                                        answered
//	          answer: the status is another one                                rejected
//	answered  use: output of the call is part of the reply                     used
//	rejected  end: the body of the error is there, and the call is lost        as any
//	any       begin: the call is repeated, continued, or the step's is over    sent
//	          reset: the next step has another call                            none
//
// A call can be repeated before it is used, once, where the filter makes it: see Run.lost.
type callPhase uint8

const (
	callNone     callPhase = iota // none is being made
	callSent                      // no answer yet
	callRejected                  // the status is not 200; the error's body is being read
	callAnswered                  // the status is 200
	callUsed                      // output of the call is part of the reply: it cannot be repeated
)

// modelCall is the model call being made. It is fed what comes of the engine, and returns what
// that makes of the call; it knows neither the reply nor what follows. Its output is cut at the
// limit that the engine was told.
type modelCall struct {
	phase   callPhase
	request *engine.Request // nil before the first

	// Of all calls of a run.
	target *Target
	rec    *telemetry.Record
	chunks []engine.Chunk // reused

	// This attempt of several.
	repeated bool // it has been made once more
	retry    Retry
	replica  string // that answers; "": unknown

	// The answer.
	decoder  engine.Decoder // from callAnswered on
	choices  int            // that have not finished
	limit    outputLimit
	prompt   *engine.Usage // counts in place of the answer's own; nil: that one counts
	verifier *verifier     // nil: the answer needs none

	// A rejection.
	status    int
	header    func(string) string
	errorBody []byte
}

// begin takes that a call is made.
func (c *modelCall) begin(req *engine.Request, retry Retry, v *verifier) {
	*c = modelCall{
		phase:    callSent,
		request:  req,
		target:   c.target,
		rec:      c.rec,
		chunks:   c.chunks,
		repeated: c.repeated,
		retry:    retry,
		choices:  req.N,
		verifier: v,
	}
	c.limit.begin(req)
}

// reset forgets the call of the step before.
func (c *modelCall) reset() { *c = modelCall{target: c.target, rec: c.rec, chunks: c.chunks} }

// answer takes the beginning of the engine's answer.
func (c *modelCall) answer(status int, field func(string) string) outcome {
	c.header, c.replica = field, field(header.Upstream)
	c.rec.Tape.Answer(status, field, c.prompt)
	c.rec.Replica(c.replica)
	if c.reachedExcluded() {
		return outcome{over: overElsewhere}
	}

	if status != http.StatusOK {
		c.phase, c.status = callRejected, status
		return outcome{}
	}
	if enc := field("content-encoding"); enc != "" && enc != "identity" {
		return outcome{over: overFailed, err: apierror.New(http.StatusBadGateway, "engine_encoding", "",
			"The engine's reply is compressed (%s) although the request did not accept that. Switch "+
				"compression off between Envoy and the engine.", enc)}
	}

	// An answer of gRPC that fails at once is nothing but trailers.
	c.phase, c.decoder = callAnswered, c.target.Dialect.NewDecoder(c.request)
	if err := c.decoder.Trailers(field); err != nil {
		return c.rejected(record.AtHeaders, err)
	}
	return outcome{}
}

// reachedExcluded reports whether a retry has reached the excluded replica again. The last
// attempt takes that replica: it may be the only one.
func (c *modelCall) reachedExcluded() bool {
	return c.retry.Excluded != "" && c.retry.Excluded == c.replica && c.retry.Number != maxRetries
}

// bytes takes the next bytes of the engine's answer.
func (c *modelCall) bytes(p []byte) outcome {
	if c.decoder == nil {
		c.errorBody = append(c.errorBody, p[:min(len(p), MaxErrorBody-len(c.errorBody))]...)
		return outcome{}
	}

	chunks, err := c.decoder.Feed(p, c.chunks[:0])
	var o outcome
	if err != nil {
		o = lostBy(c.withContentType(err)).shown(record.AtBody, err)
	}
	o.chunks = c.limited(chunks)
	return o
}

// trailers takes the trailers of the engine's answer, before its end.
func (c *modelCall) trailers(field func(string) string) outcome {
	if c.decoder == nil {
		return outcome{}
	}
	if err := c.decoder.Trailers(field); err != nil {
		return lostBy(err).shown(record.AtTrailers, err)
	}
	return outcome{}
}

// end takes the end of the engine's answer.
func (c *modelCall) end() outcome {
	if c.header == nil { // the answer ends before its headers, which Envoy never does
		c.status, c.header = http.StatusBadGateway, func(string) string { return "" }
	}
	if c.decoder == nil {
		return c.rejected(record.AtStatus, c.target.Dialect.ReadError(c.status, c.header, c.errorBody))
	}

	chunks, err := c.decoder.End(c.chunks[:0])
	o := outcome{over: overEnded}
	if err != nil {
		o = outcome{over: overLost, err: c.withContentType(err), remedy: remedyRepeat}.shown(record.AtEnd, err)
	}
	o.chunks = c.limited(chunks)
	return o
}

// limited returns decoded chunks as far as the engine was asked for them.
func (c *modelCall) limited(chunks []engine.Chunk) []engine.Chunk {
	c.chunks = chunks
	c.rec.Tape.Chunks(chunks)
	return c.limit.take(chunks)
}

// withContentType adds the content type to an error about an answer that cannot be
// read: another service may have answered.
func (c *modelCall) withContentType(err *apierror.Error) *apierror.Error {
	if err.Cause != nil {
		return err
	}
	kind := c.header("content-type")
	return err.With(fmt.Errorf("the answer's content type is %q", kind[:min(len(kind), 100)]))
}

// rejected is the outcome of an error that is the whole answer. If no replica was available,
// Envoy has tried the others already, unless the only one that it tried
// disconnected; it does not try other pairs of a disaggregated engine.
func (c *modelCall) rejected(at string, err *apierror.Error) outcome {
	o := lostBy(err)
	triedByEnvoy := c.header(header.Attempts) != "1" && !c.target.Disaggregated
	if err.Status == http.StatusServiceUnavailable && triedByEnvoy {
		o.remedy = remedyContinue
	}
	return o.shown(at, err)
}

// use takes that a chunk becomes a part of the reply. It corrects the chunk's counts, and
// reports whether the chunk ends the last choice.
func (c *modelCall) use(chunk *engine.Chunk) (last bool) {
	c.phase = callUsed

	// Of a disaggregated engine, the part that has computed the prompt knows what was cached.
	switch {
	case chunk.Usage == nil:
	case c.prompt != nil:
		chunk.Usage = c.prompt
	default:
		chunk.Usage.Replica = c.replica
	}
	if chunk.Usage != nil {
		chunk.Usage.Bound(len(c.request.Prompt))
	}

	if chunk.Finish == engine.FinishNone {
		return false
	}
	c.choices--
	return c.choices == 0
}

// deciding reports whether the answer is whole, and a job decides whether it has its form.
func (c *modelCall) deciding() bool { return c.verifier != nil && c.verifier.phase == verifierDeciding }
