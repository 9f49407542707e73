package stored

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// StoppedAt is the first member of a stored object that is incomplete: when it
// ended, which completed_at does not say. Clients do not get it.
const StoppedAt = "stopped_at"

// newObject makes the object of a stored response, once there is room for it.
func newObject(rc *turn.RequestContext, r *store.Response) ([]byte, *apierror.Error) {
	size := len(r.Object) + ItemBytes(r.Output...) + len(r.Output) + len(`,"output":[]`)
	if err := rc.Room(size); err != nil {
		return nil, err
	}
	return AppendObject(make([]byte, 0, size), r), nil
}

// AppendObject appends a stored response as clients get it: the object with its
// output.
func AppendObject(dst []byte, r *store.Response) []byte {
	dst = append(append(append(dst, '{'), shownMembers(r.Object)...), `,"output":[`...)
	for i, it := range r.Output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item.Shown(it)...)
	}
	return append(dst, `]}`...)
}

// shownMembers are the members of a stored object that clients get.
func shownMembers(object []byte) []byte {
	members := object[1 : len(object)-1]
	if bytes.HasPrefix(members, []byte(`"`+StoppedAt+`":`)) {
		_, members, _ = bytes.Cut(members, []byte{','})
	}
	return members
}

// AppendError appends why a response failed, with one of the codes that clients
// know. From the message they read when to try again.
func AppendError(dst []byte, err *apierror.Error) []byte {
	code, message := "server_error", err.Message
	switch {
	case err.Code == "context_length_exceeded":
		code = err.Code
	case err.Status == http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
		// Codex reads the time from these words, as OpenAI's message has them.
		if err.RetryAfter > 0 {
			message += " Please try again in " + strconv.FormatFloat(
				err.RetryAfter.Round(time.Millisecond).Seconds(), 'f', -1, 64) + "s."
		}
	case err.Status == http.StatusBadRequest:
		code = "invalid_prompt"
	}

	dst = append(append(append(dst, `{"code":"`...), code...), `","message":`...)

	return append(jsontext.AppendString(dst, message), '}')
}

// LastEvent is the name, after "response.", of the event that ends the stream of
// a response with a status. Clients know no event for a cancelled one.
func LastEvent(status string) string {
	if status == item.StatusCancelled {
		return item.StatusIncomplete
	}
	return status
}
