package request

import (
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// OfInput names this API's field for the conversation in an error of package turn.
func OfInput(err *apierror.Error) *apierror.Error {
	if err.Param != "messages" {
		return err
	}
	e := *err
	e.Param = "input"
	return &e
}

// PreviousNotFound is the answer to a request that continues a response which is not
// stored. It is a 400, as OpenAI's: only an id in a path is a 404.
func PreviousNotFound(format string, args ...any) *apierror.Error {
	return apierror.New(http.StatusBadRequest, "previous_response_not_found", "previous_response_id", format, args...)
}

// TurnConflict is the answer to a request that differs from the one that has
// continued the turn.
func TurnConflict(id string) *apierror.Error {
	return apierror.New(http.StatusConflict, "response_conflict", "previous_response_id",
		"The response %q was continued with other tool outputs. Read it to see its state.", item.Clip(id))
}

// TurnGone is the answer to a request that continues a turn that is not stored any
// more when the reply ends.
func TurnGone(id string) *apierror.Error {
	return PreviousNotFound("The response %q was deleted, or has aged, while it was continued. Send the whole "+
		"conversation as input.",
		item.Clip(id))
}
