package write

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// prepareOnly begins the one model call of a request that wants no output (generate: false). The
// engine computes the prompt, so that it is in its cache when the next request extends it.
func prepareOnly(e *encoder, t *turn.Turn) {
	e.starts(t)
	// No engine computes a prompt without writing a token after it.
	t.Engine.MaxTokens, t.Engine.MinTokens = 1, 0

	e.reply.BeginAside(t,
		func(dst []byte, _ turn.Event) []byte { return dst },
		func(dst []byte) ([]byte, reply.Step, *apierror.Error) { return dst, reply.Step{}, nil })
}
