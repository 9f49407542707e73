package prompt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// conversationDate returns the conversation's date: the day, in UTC, on which its start was
// first seen. So the prompt of a conversation begins with the same tokens on
// every day, and the engine's prefix cache remains useful. With an error it
// returns today.
func conversationDate(
	ctx context.Context, rc *request.Context, in *request.Input, start conversationStart,
) (string, error) {
	switch rc.Model.Date {
	case "", request.DateUTC:
	case request.DateNone:
		return "", nil
	default:
		return rc.Model.Date, nil
	}

	today := rc.Now().UTC().Format(time.DateOnly)
	if rc.Memory == nil {
		return today, nil
	}

	// The first request of a conversation decides, also if two come at once.
	key := "date:" + start.key(cmp.Or(rc.Model.Upstream, in.Engine.Model))
	pinned, err := rc.Memory.PutTextIfAbsent(ctx, rc.Tenant, key, today)
	if err == nil && pinned < rc.Now().UTC().Add(-maxDateAge).Format(time.DateOnly) {
		pinned = today
		err = rc.Memory.PutTexts(ctx, rc.Tenant, map[string]string{key: today})
	}

	if err != nil {
		return today, fmt.Errorf("read the conversation's date: %w", err)
	}
	return pinned, nil
}

// maxDateAge bounds the age of a conversation's date: many conversations start with
// the same words, so that one of them is always in use.
const maxDateAge = 48 * time.Hour

// sumBytes is the length of the hash of a text.
const sumBytes = sha256.Size

// conversationStart identifies a conversation by its start: the instructions up to
// the first user's text, and that text.
type conversationStart struct {
	// The kind and the hash of each text.
	sums []byte
	// The user's text is included.
	user bool
}

// newConversationStart returns the start of a request's conversation; items are
// those after before.
func newConversationStart(in *request.Input, before *Prefix, items []item.Item) conversationStart {
	var start conversationStart
	if own := (item.Item{Kind: item.Instructions, Text: in.Instructions}); !own.Blank() {
		start = start.with([]item.Item{own})
	}
	return start.followed(before.start).with(items)
}

// with returns the start with the texts of the next items that belong to it.
func (s conversationStart) with(items []item.Item) conversationStart {
	// The array may be another conversation's too.
	s.sums = slices.Clip(s.sums)

	for i := 0; i < len(items) && !s.user; i++ {
		if kind := items[i].Kind; (kind == item.Instructions || kind == item.User) && !items[i].Blank() {
			// The text is not copied: it can be long.
			text := items[i].Text
			sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
			s.sums = append(append(s.sums, byte(kind)), sum[:]...)
			s.user = kind == item.User
		}
	}
	return s
}

// followed returns the start followed by another one.
func (s conversationStart) followed(by conversationStart) conversationStart {
	return conversationStart{slices.Concat(s.sums, by.sums), by.user}
}

// key returns a short text that identifies the start and the model.
func (s conversationStart) key(model string) string {
	first := sha256.Sum256([]byte(model))
	sum := sha256.Sum256(slices.Concat(first[:], s.sums))
	return hex.EncodeToString(sum[:])
}
