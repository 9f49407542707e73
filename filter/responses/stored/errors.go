package stored

import (
	"errors"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// CodeItemNotFound is the code of an error that says that an item is missing.
const CodeItemNotFound = "item_not_found"

// Unavailable is the answer where a request needs the store and the store fails, is full, or
// has more to read for it than a request may, or than there is room for.
func Unavailable(cause error) *apierror.Error {
	if errors.Is(cause, work.ErrExceeded) {
		return turn.WorkError("", cause)
	}
	if refused := new(apierror.Error); errors.As(cause, &refused) {
		return refused
	}

	// The store works, and would say the same again: no 5xx, which clients repeat.
	if errors.Is(cause, store.ErrTooLarge) {
		return apierror.New(http.StatusRequestEntityTooLarge, "response_too_large", "",
			"The store has no room for the response with its stream. Delete responses and conversations that are "+
				"not needed, or ask for less. (The operator can raise responses.store_bytes.)").With(cause)
	}

	return apierror.New(http.StatusServiceUnavailable, "store_unavailable", "",
		"The store of responses does not answer. Try again.").With(cause)
}

// responseError is the answer for an error of the store about a response; nil if
// there is none.
func responseError(id string, err error) *apierror.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return responseNotFound(id)
	}
	return Unavailable(err)
}

func responseNotFound(id string) *apierror.Error {
	return apierror.New(http.StatusNotFound, "response_not_found", "response_id",
		"The response %q is not stored (any more).", item.Clip(id))
}

// ConversationError is the answer for an error of the store about a conversation.
func ConversationError(id string, err error) *apierror.Error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return conversationNotFound(id)
	case errors.Is(err, store.ErrConflict):
		return conversationLocked(id)
	case errors.Is(err, store.ErrTooLarge):
		return apierror.New(http.StatusRequestEntityTooLarge, CodeTooLarge, "",
			"The store has no room for the items. Send less, or begin another conversation. (The operator can "+
				"raise responses.store_bytes.)")
	}
	return Unavailable(err)
}

func conversationNotFound(id string) *apierror.Error {
	return apierror.New(http.StatusNotFound, "conversation_not_found", "conversation_id",
		"The conversation %q is not stored (any more).", item.Clip(id))
}

// conversationLocked is the answer while a response is being made in the
// conversation. OpenAI's status is 400; its own clients retry a 409 by themselves.
func conversationLocked(id string) *apierror.Error {
	err := apierror.New(http.StatusConflict, "conversation_locked", "conversation",
		"A response is being made in the conversation %q. Try again when it has ended.", item.Clip(id))
	err.RetryAfter = time.Second
	return err
}

// DuplicateItems is the answer where two items of a conversation would have one
// id, for each of ids.
func DuplicateItems(param string, ids []string) *apierror.Error {
	return apierror.Invalid(param, "%s Send none that the conversation has already, or leave the id out.",
		apierror.One(ids, "Two items of the conversation would have the id %s.",
			"Two items of the conversation would have each of the ids %s."))
}
