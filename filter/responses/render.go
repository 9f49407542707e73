package responses

import (
	"context"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// The paths below [Path] whose body is as for [API.Decode], and names a model.
// No model is asked, and the prompt may be longer than the model's context.
const (
	InputTokensPath = Path + "/input_tokens" // counts the prompt's tokens
	RenderPath      = Path + "/render"       // shows what the model would get
)

// countInput counts the tokens of the prompt that a request would have.
func (a *API) countInput(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	call, err := a.decodeUnbounded(ctx, r)
	if err != nil {
		return nil, err
	}
	dst := []byte(`{"object":"response.input_tokens","input_tokens":`)
	return append(strconv.AppendInt(dst, int64(len(call.Engine().Prompt)), 10), '}'), nil
}

// render shows what the model would get.
func (a *API) render(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	call, err := a.decodeUnbounded(ctx, r)
	if err != nil {
		return nil, err
	}
	return call.turn.AppendRendered(nil, "response.render", call.model, call.ignored)
}

// decodeUnbounded decodes a request that no model will get.
func (a *API) decodeUnbounded(ctx context.Context, r *request) (*Call, *apierror.Error) {
	scope := *r.scope
	scope.Unbounded = true
	return a.Decode(ctx, r.body, &scope)
}
