package prompt

import (
	"context"
	"errors"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// rendering renders prompts, and stops soon after one has more than limit tokens.
type rendering struct {
	rc    *request.Context
	limit int
}

// append appends the tokens of msgs to a prompt. It stops when ctx ends.
func (r rendering) append(
	ctx context.Context, prompt []harmony.Token, msgs []harmony.Message,
) ([]harmony.Token, *apierror.Error) {
	prompt, err := r.rc.Renderer.AppendLimited(ctx, prompt, msgs, r.limit)
	if err == nil {
		return prompt, nil
	}
	var long *harmony.LimitError
	switch {
	case errors.As(err, &long):
		return nil, TooLong(r.rc, long.AtLeast, "at least ")
	case ctx.Err() != nil:
		return nil, apierror.New(http.StatusServiceUnavailable, "overloaded", "",
			"The conversation could not be read in time. Try again, or shorten it.").With(err)
	}
	return nil, notRenderable(err)
}

// appendCompletion appends the start of the message that the model writes.
func appendCompletion(rc *request.Context, prompt []harmony.Token) ([]harmony.Token, *apierror.Error) {
	prompt, err := rc.Renderer.AppendCompletion(prompt, nil, harmony.RoleAssistant)
	if err != nil {
		return nil, notRenderable(err)
	}
	return prompt, nil
}

func notRenderable(err error) *apierror.Error {
	return apierror.Invalid("", "The conversation cannot be written in the model's format: %s.", err).With(err)
}

const codeTooLong = "context_length_exceeded"

// tooLong reports whether an error says that a prompt is too long.
func tooLong(err *apierror.Error) bool { return err != nil && err.Code == codeTooLong }

// TooLong returns the error of a prompt with so many tokens; atLeast is "at
// least " if it was not rendered to its end, else "". Clients parse the message.
func TooLong(rc *request.Context, tokens int, atLeast string) *apierror.Error {
	if rc.Unbounded {
		return apierror.New(http.StatusBadRequest, codeTooLong, "",
			"The prompt has %s%d tokens; those of more than %d are not shown or counted. Shorten it.",
			atLeast, tokens, rc.RenderLimit())
	}

	// Clients find the number in OpenAI's own words, and drop as many messages as is too much.
	err := apierror.New(http.StatusBadRequest, codeTooLong, "messages",
		"This model's maximum context length is %d tokens. However, your messages resulted in %s%d tokens. "+
			"Please reduce the length of the messages. (context_length_exceeded: prompt is too long)",
		rc.ContextLength(), atLeast, tokens)
	err.Overflow = &apierror.Overflow{Tokens: tokens, Max: rc.ContextLength()}
	return err
}
