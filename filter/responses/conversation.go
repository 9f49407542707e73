package responses

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// readConversation is the conversation of a request that has been read.
type readConversation struct {
	reader *reader
	rc     *turn.RequestContext
	chain  *chain // what is remembered of the responses that the request continues; nil: nothing
	hosted map[hosted.Space]*hostedServer
}

// Items implements [conversation].
func (c *readConversation) Items(made []madeItem) ([]turn.Item, *apierror.Error) {
	items := &itemReader{reader: c.reader, rc: c.rc}
	items.state.noteHosted(c.hosted)
	for i := range made {
		if m := &made[i]; m.items != nil {
			items.addTurn(m.items...)
		} else if m.json != nil {
			if err := items.addStored(m.stored(), "previous_response_id"); err != nil {
				return nil, err
			}
		}
	}
	return items.items, nil
}

// Remember implements [conversation].
func (c *readConversation) Remember(ctx context.Context, r *store.Response) {
	c.reader.remember(ctx, c.rc, c.chain, r)
}
