package chat

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The paths of the API.
const (
	Path       = "/v1/chat/completions"
	RenderPath = Path + "/render" // shows the prompt that the model would get
)

// Endpoints returns the endpoints of the API.
func Endpoints() []api.Endpoint {
	return []api.Endpoint{
		{API: "chat", Method: http.MethodPost, Pattern: Path, Handle: handleCompletion},
		{API: "chat", Method: http.MethodPost, Pattern: RenderPath, NoCall: true, Handle: handleRender},
	}
}

func handleCompletion(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	request, err := Decode(ctx, r.Body, r.Context)
	if err != nil {
		return api.Refused(err)
	}
	return api.Decoded(request)
}

func handleRender(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	object, err := Render(ctx, r.Body, r.Context)
	return api.Answered(object, err)
}

// Render answers a request of [RenderPath] with what [turn.Turn.AppendRendered]
// shows. The body is as for [Decode]. No model is called, and the prompt may be
// longer than the model's context.
func Render(ctx context.Context, body []byte, rc *turn.RequestContext) ([]byte, *apierror.Error) {
	unbounded := *rc
	unbounded.Unbounded = true
	request, err := Decode(ctx, body, &unbounded)
	if err != nil {
		return nil, err
	}
	return request.turn.AppendRendered(nil, "chat.completion.render", request.model, request.ignored)
}
