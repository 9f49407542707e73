package messages

import (
	"context"
	"net/http"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/read"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The paths of the API.
const (
	Path       = "/v1/messages"
	CountPath  = Path + "/count_tokens" // counts the tokens of the prompt that the model would get
	RenderPath = Path + "/render"       // shows the prompt that the model would get
)

// Endpoints returns the endpoints of the API.
func (a *API) Endpoints() []api.Endpoint {
	endpoint := func(pattern string, handle func(context.Context, *api.HTTPRequest) api.Outcome) api.Endpoint {
		return api.Endpoint{
			API: "messages", Method: http.MethodPost, Pattern: pattern, Handle: handle,
			Errors: (*apierror.Error).Anthropic, LimitHeaders: limitHeaders, IDHeader: "request-id",
			OptionsHeader: "anthropic-beta",
		}
	}
	count, render := endpoint(CountPath, a.handleCount), endpoint(RenderPath, a.handleRender)
	count.NoCall, render.NoCall = true, true
	return []api.Endpoint{endpoint(Path, a.handleMessage), count, render}
}

func (a *API) handleMessage(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	q, err := a.Decode(ctx, r.Body, r.Context, r.Options...)
	if err != nil {
		return api.Refused(err)
	}
	return api.Decoded(q)
}

func (a *API) handleCount(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	object, err := a.CountTokens(ctx, r.Body, r.Context, r.Options...)
	return api.Answered(object, err)
}

func (a *API) handleRender(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	object, err := a.Render(ctx, r.Body, r.Context, r.Options...)
	return api.Answered(object, err)
}

// CountTokens answers a request of [CountPath] with {"input_tokens":…}, the exact
// length of the prompt. The body is as for [API.Decode]. No model is called, and the
// prompt may be longer than the model's context.
func (a *API) CountTokens(
	ctx context.Context, body []byte, rc *turn.RequestContext, betas ...string,
) ([]byte, *apierror.Error) {
	q, err := a.readUnbounded(ctx, body, rc, read.Purpose{Counts: true, Betas: betas})
	if err != nil {
		return nil, err
	}
	dst := []byte(`{"input_tokens":`)
	return append(strconv.AppendInt(dst, int64(len(q.Engine().Prompt)), 10), '}'), nil
}

// Render answers a request of [RenderPath] with what [turn.Turn.AppendRendered]
// shows. The body is as for [API.Decode]. No model is called, and the prompt may be
// longer than the model's context.
func (a *API) Render(
	ctx context.Context, body []byte, rc *turn.RequestContext, betas ...string,
) ([]byte, *apierror.Error) {
	q, err := a.readUnbounded(ctx, body, rc, read.Purpose{Betas: betas})
	if err != nil {
		return nil, err
	}
	return q.Turn.AppendRendered(nil, "message.render", q.Model, q.IgnoredFields)
}

// readUnbounded reads a request whose prompt no model gets, so that it may be longer than the
// model's context.
func (a *API) readUnbounded(
	ctx context.Context, body []byte, rc *turn.RequestContext, purpose read.Purpose,
) (*request.Request, *apierror.Error) {
	unbounded := *rc
	unbounded.Unbounded = true
	return a.read(ctx, body, &unbounded, purpose)
}
