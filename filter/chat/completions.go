package chat

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// CompletionsPath is the path of OpenAI's older API of plain prompts, by which engines
// also take token ids.
const CompletionsPath = "/v1/completions"

// CompletionsEndpoints keeps requests for Harmony models from an engine's own
// completions, where they would have no tenant, no limits and no log: they are
// rejected. Requests for other models pass through. If the path is open, there are no
// such endpoints.
func CompletionsEndpoints(open bool) []api.Endpoint {
	if open {
		return nil
	}

	return []api.Endpoint{{
		API: "completions", Method: http.MethodPost, Pattern: CompletionsPath, Handle: rejectCompletion,
	}}
}

func rejectCompletion(_ context.Context, r *api.HTTPRequest) api.Outcome {
	return api.Outcome{Err: apierror.New(http.StatusNotFound, "", "model",
		"There is no such model in %s, or the request names none. "+
			"Send requests for gpt-oss models to %s, /v1/responses or /v1/messages.", r.Path, Path)}
}
