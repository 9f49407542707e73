package chat

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The paths of the API.
const (
	Path       = "/v1/chat/completions"
	RenderPath = Path + "/render" // shows what the model would get
)

// Render answers a request of [RenderPath], whose body is as for [Decode], with
// what [turn.Turn.AppendRendered] shows. No model is asked, and the prompt may
// be longer than the model's context.
func Render(ctx context.Context, body []byte, scope *turn.Scope) ([]byte, *apierror.Error) {
	unbounded := *scope
	unbounded.Unbounded = true
	call, err := Decode(ctx, body, &unbounded)
	if err != nil {
		return nil, err
	}
	return call.turn.AppendRendered(nil, "chat.completion.render", call.model, call.ignored)
}
