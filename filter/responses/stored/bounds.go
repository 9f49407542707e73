package stored

import (
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// CodeTooLarge is the code of an error about a conversation, or the stored items of a
// request, that have too many bytes or items.
const CodeTooLarge = "conversation_too_large"

// ItemBytes is how many bytes the JSON of items has.
func ItemBytes(items ...store.Item) int {
	n := 0
	for i := range items {
		n += len(items[i].JSON)
	}
	return n
}

// ResponseBytes is how many bytes the items of a response have.
func ResponseBytes(r *store.Response) int { return ItemBytes(r.Input...) + ItemBytes(r.Output...) }

// CheckRoom refuses items for a conversation that would have too much with them. size
// is what the conversation has.
func CheckRoom(rc *turn.RequestContext, param string, size store.Size, more []store.Item) *apierror.Error {
	limits := &rc.Limits
	switch {
	case size.Items+len(more) > limits.Items:
		return apierror.New(http.StatusBadRequest, CodeTooLarge, param,
			"The conversation would have more than %d items. Begin another conversation.", limits.Items)
	case size.Bytes+int64(ItemBytes(more...)) > int64(limits.Bytes):
		return apierror.New(http.StatusBadRequest, CodeTooLarge, param,
			"The items of the conversation would have more than %d bytes. Begin another conversation. (The "+
				"operator can raise limits.max_conversation_bytes.)", limits.Bytes)
	}
	return nil
}
