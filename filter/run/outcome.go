package run

import (
	"errors"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// outcome is what something that has happened to a model call makes of it. The zero value is
// that of a call that goes on, without output. What follows, the run decides (Run.follow).
type outcome struct {
	// chunks are output, before the end of the call: the client gets it whatever follows.
	chunks []engine.Chunk
	over   over

	// err is the error of the reply that fails, or by which the call is lost, and remedy the
	// most that is done about a loss.
	err    *apierror.Error
	remedy remedy

	// Where the loss has shown, of record's places, and by what; "": not in the answer.
	at    string
	cause error
}

// over is why a model call is over.
type over uint8

const (
	overNot         over = iota // the engine goes on
	overEnded                   // the engine has ended its answer
	overComplete                // the engine owes nothing except the end of its answer
	overLimit                   // it goes on although it was not asked for more
	overEnough                  // the reply needs no more of the step
	overInterrupted             // the model is interrupted in all choices that are not complete
	overUnkept                  // the answer is not of the form that the request asks for
	overElsewhere               // a retry has reached the replica again that has failed
	overLost                    // the engine, or the connection to it, has failed
	overFailed                  // the reply fails
)

// waits reports whether what follows waits for a decision about the whole answer.
func (o over) waits() bool {
	return o == overEnded || o == overComplete || o == overEnough || o == overLost
}

// remedy is the most that is done about a lost call. Each includes the ones before.
type remedy uint8

const (
	remedyNone     remedy = iota // every replica would say the same
	remedyContinue               // another call continues its output
	remedyRepeat                 // it is made once more, if none of its output is part of the reply
)

// shown is the outcome of a loss that has shown at a place of the answer, by an error.
func (o outcome) shown(at string, cause error) outcome {
	o.at, o.cause = at, cause
	return o
}

// lostBy is the outcome of an error of the engine, a broken connection to it, or the failure of a
// part of the call.
func lostBy(cause error) outcome {
	o := outcome{over: overLost}
	if !errors.As(cause, &o.err) {
		o.err = apierror.New(http.StatusBadGateway, "engine_disconnected", "",
			"The engine was cut off before its reply was complete. Send the request again.").With(cause)
	}

	// Another replica can do better if it is the replica that has failed. A 400 or a 429 would
	// be the same there, or hurts more if it is ignored.
	switch o.err.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		o.remedy = remedyRepeat
	// The engine's own word that it was too slow is what the filter's deadlines say. Output is
	// continued. A call without any is not repeated: the client has waited for one deadline, and
	// a load that makes engines slow would be doubled.
	case http.StatusGatewayTimeout:
		o.remedy = remedyContinue
	}
	return o
}
