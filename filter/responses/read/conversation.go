package read

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// readConversation is the conversation of a request that has been read.
type readConversation struct {
	reader *Reader
	rc     *turn.RequestContext
	// What is remembered of the responses that the request continues; nil: nothing.
	chain  *chain
	hosted map[hosted.Space]*hosted.Server
}

// Items implements [request.Conversation].
func (c *readConversation) Items(made []request.Made) ([]turn.Item, *apierror.Error) {
	items := &itemReader{reader: c.reader, rc: c.rc}
	items.state.noteHosted(c.hosted)
	for i := range made {
		if m := &made[i]; m.View != nil {
			items.addTurn(m.View...)
		} else if m.JSON != nil {
			if err := items.addStored(m.Stored(), "previous_response_id"); err != nil {
				return nil, err
			}
		}
	}

	return items.items, nil
}

// Remember implements [request.Conversation].
func (c *readConversation) Remember(ctx context.Context, r *store.Response) {
	c.reader.remember(ctx, c.rc, c.chain, r)
}
