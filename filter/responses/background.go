package responses

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A background response is a live response in the store from when it is queued
// until it has ended. Its process renews the lease and writes the events of its
// stream to the store's journal, streamed or not; all who want the stream, its
// first client too, follow it there.

// Background tells whether the response is made after its request has been
// answered.
func (c *Call) Background() bool { return c.options.background }

// Queue stores the response as one that owner is going to make, with the
// events with which its stream begins, and gives its key and the object with
// which the request is answered. It can only be called if the call is a
// Background one.
func (c *Call) Queue(ctx context.Context, owner string, lease time.Duration) (store.Key, []byte, *apierror.Error) {
	r := c.NewReply()
	key := store.Key{Tenant: c.scope.Tenant, ID: c.id}
	err := c.store.Put(ctx, key.Tenant, &store.Response{
		ID: c.id, Previous: c.previous, Conversation: c.conversation(), Version: 1,
		Object: append(r.appendMembers(nil, &ending{status: statusInProgress}), '}'), Input: c.input,
		Live: true, Owner: owner, Lease: lease,
	})
	if err == nil {
		r.begin()
		c.queued = r.sequence
		if err = c.store.Append(ctx, key.Tenant, key.ID, owner, store.Batch{First: 0, Last: r.sequence - 1, SSE: r.dst}); err != nil {
			_ = c.store.Delete(context.WithoutCancel(ctx), key.Tenant, key.ID) // else it fails when the lease ends
		}
	}
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return key, nil, apierror.New(http.StatusRequestEntityTooLarge, "response_too_large", "input", "The request is too large for the store of responses. Send less, or leave background out.")
	case err != nil:
		return key, nil, storeDown(err)
	}
	return key, r.appendResponse(nil, &ending{status: statusQueued}), nil
}

// Start begins the reply to a call that has been queued.
func (r *Reply) Start() {
	r.begun = true
	r.sequence = r.call.queued
}

// Lost is why the response could not be stored as it has ended, nil if it could:
// then nothing has been said of its end.
func (r *Reply) Lost() error { return r.lost }

// Sequence is the number of the stream's next event.
func (r *Reply) Sequence() int { return r.sequence }

// Follow gives the stream of a background response from its beginning.
func (c *Call) Follow() *Follower {
	return &Follower{store: c.store, key: store.Key{Tenant: c.scope.Tenant, ID: c.id}, after: -1}
}

// Follower gives the stored stream of a background response, as it grows. It
// is used by one goroutine.
type Follower struct {
	store store.Store
	key   store.Key
	after int // number of the last event given
}

// followWait is how long one look at the journal waits for events.
const followWait = time.Second

// Next waits a while for events after those given; end tells that these are
// the last. A stream whose maker has died ends with the event that says so.
func (f *Follower) Next(ctx context.Context) (sse []byte, end bool, apiErr *apierror.Error) {
	batches, err := f.store.Events(ctx, f.key.Tenant, f.key.ID, f.after, followWait)
	if err != nil {
		return nil, false, storeDown(err)
	}
	if len(batches) > 0 {
		sse, end = f.take(batches)
		return sse, end, nil
	}
	r, err := current(ctx, f.store, f.key.Tenant, f.key.ID)
	switch {
	case err != nil:
		return nil, false, storeError(f.key.ID, err)
	case r.Live:
		return nil, false, nil
	}
	// It has ended, but the journal may not say so: its maker died in between.
	err = endJournal(ctx, f.store, f.key.Tenant, r)
	if err == nil {
		batches, err = f.store.Events(ctx, f.key.Tenant, f.key.ID, f.after, 0)
	}
	if err != nil {
		return nil, false, storeDown(err)
	}
	if len(batches) == 0 { // all that there is has been given
		return []byte(lastData), true, nil
	}
	sse, end = f.take(batches)
	return sse, end, nil
}

// lastData ends every stream.
const lastData = "data: [DONE]\n\n"

// Fail is the event that breaks the stream off.
func (f *Follower) Fail(err *apierror.Error) []byte {
	w := &Reply{sequence: f.after + 1}
	w.beginEvent("error", "")
	w.dst = jsontext.AppendString(append(w.dst, `,"code":`...), cmp.Or(err.Code, err.Type))
	w.dst = jsontext.AppendString(append(w.dst, `,"message":`...), err.Message)
	w.dst = append(w.dst, `,"param":null`...)
	w.endEvent()
	return append(w.dst, lastData...)
}

// take gives the events of batches that are new.
func (f *Follower) take(batches []store.Batch) (sse []byte, end bool) {
	for _, b := range batches {
		events := b.SSE
		for range f.after + 1 - b.First {
			events = afterEvent(events)
		}
		f.after = max(f.after, b.Last)
		sse = append(sse, events...)
		end = end || b.End
	}
	return sse, end
}

// afterEvent is what follows the first of some events.
func afterEvent(sse []byte) []byte {
	for i := 1; i < len(sse); i++ {
		if sse[i-1] == '\n' && sse[i] == '\n' {
			return sse[i+1:]
		}
	}
	return nil
}

// current reads a response. One whose maker has died ends as failed here.
func current(ctx context.Context, s store.Store, tenant, id string) (*store.Response, error) {
	for {
		r, err := s.Get(ctx, tenant, id)
		if err != nil || !r.Live || !r.Lapsed {
			return r, err
		}
		ended, err := conclude(ctx, s, tenant, r, statusFailed)
		if !errors.Is(err, store.ErrConflict) {
			return ended, err
		}
	}
}

// conclude ends a live response from outside: it was cancelled, or its maker
// has died. Whoever writes first has the last word: ErrConflict means that it
// was another. The items that were complete are the response's output.
func conclude(ctx context.Context, s store.Store, tenant string, r *store.Response, status string) (*store.Response, error) {
	ended := *r
	ended.Version++
	ended.Live, ended.Lapsed, ended.Owner, ended.Lease = false, false, "", 0
	var err error
	if ended.Object, err = sjson.SetBytes(r.Object, "status", status); err != nil {
		return nil, err
	}
	if status == statusFailed {
		lost := appendError(nil, apierror.New(http.StatusInternalServerError, "", "", "The process that made the response has died. Send the request again."))
		if ended.Object, err = sjson.SetRawBytes(ended.Object, "error", lost); err != nil {
			return nil, err
		}
	}
	batches, err := journalOf(ctx, s, tenant, r.ID)
	if err != nil {
		return nil, err
	}
	ended.Output = itemsDone(batches)
	if err := s.Put(ctx, tenant, &ended); err != nil {
		return nil, err
	}
	// Only now nothing is added to the journal any more.
	if batches, err = journalOf(ctx, s, tenant, r.ID); err != nil {
		return nil, err
	}
	if all := itemsDone(batches); len(all) > len(ended.Output) {
		whole := ended
		whole.Version++
		whole.Output = all
		if err := s.Put(ctx, tenant, &whole); err != nil {
			return nil, err
		}
		ended = whole
	}
	return &ended, endJournal(ctx, s, tenant, &ended)
}

// journalOf reads a whole stream.
func journalOf(ctx context.Context, s store.Store, tenant, id string) ([]store.Batch, error) {
	var all []store.Batch
	for after := -1; ; {
		batches, err := s.Events(ctx, tenant, id, after, 0)
		if err != nil || len(batches) == 0 {
			return all, err
		}
		all = append(all, batches...)
		after = batches[len(batches)-1].Last
	}
}

// itemsDone is the items that a stream has completed, in the order of the output:
// calls that are made here may be completed after items behind them.
func itemsDone(batches []store.Batch) []store.Item {
	const name = "event: response.output_item.done\ndata: "
	var items []store.Item
	var places []int
	for _, b := range batches {
		for event := range bytes.SplitSeq(b.SSE, []byte("\n\n")) {
			data, ok := bytes.CutPrefix(event, []byte(name))
			if !ok {
				continue
			}
			item := gjson.GetBytes(data, "item")
			place := int(gjson.GetBytes(data, "output_index").Int())
			at, _ := slices.BinarySearch(places, place)
			places = slices.Insert(places, at, place)
			items = slices.Insert(items, at, store.Item{ID: item.Get("id").Str, JSON: []byte(item.Raw)})
		}
	}
	return items
}

// endJournal adds the last event to the stream of a response that has ended,
// unless it is there.
func endJournal(ctx context.Context, s store.Store, tenant string, r *store.Response) error {
	batches, err := journalOf(ctx, s, tenant, r.ID)
	if err != nil {
		return err
	}
	next := 0
	if n := len(batches); n > 0 {
		next = batches[n-1].Last + 1
		if batches[n-1].End {
			return nil
		}
	}
	if done := itemsDone(batches); len(done) > len(r.Output) { // the second writing of conclude did not come
		whole := *r
		whole.Output = done
		r = &whole
	}
	w := &Reply{sequence: next}
	w.beginEvent("response.", lastEvent(gjson.GetBytes(r.Object, "status").Str))
	w.dst = appendObject(append(w.dst, `,"response":`...), r)
	w.endEvent()
	w.dst = append(w.dst, lastData...)
	err = s.Append(ctx, tenant, r.ID, "", store.Batch{First: next, Last: next, SSE: w.dst, End: true})
	if errors.Is(err, store.ErrConflict) {
		return nil // another has said it
	}
	return err
}

// lastEvent is the name, behind "response.", of the event that ends the stream
// of a response with a status. Clients know no event for a cancelled one.
func lastEvent(status string) string {
	if status == statusCancelled {
		return statusIncomplete
	}
	return status
}

// Stream gives the stream that a GET of a response asks for, nil if it asks for
// the response itself.
func (a *API) Stream(ctx context.Context, method, path, query string, body []byte, scope *turn.Scope) (*Follower, *apierror.Error) {
	ids, ok := match(responsePattern, path)
	values, err := url.ParseQuery(query)
	if !ok || method != http.MethodGet || err != nil {
		return nil, nil
	}
	asked := values.Get("stream")
	if asked == "" { // openai-go sends it in a body
		asked = gjson.GetBytes(body, "stream").Raw
	}
	if asked != "true" && asked != "1" {
		return nil, nil
	}
	after := -1
	if text := values.Get("starting_after"); text != "" {
		if after, err = strconv.Atoi(text); err != nil || after < 0 || after > math.MaxInt32 {
			return nil, apierror.Invalid("starting_after", "starting_after must be the sequence number of an event.")
		}
	}
	r, apiErr := a.find(ctx, &request{id: ids[0], scope: scope})
	if apiErr != nil {
		return nil, apiErr
	}
	if !isBackground(r) {
		return nil, apierror.Invalid("stream", "Only background responses can be streamed again. Leave stream out.")
	}
	return &Follower{store: a.Store, key: store.Key{Tenant: scope.Tenant, ID: ids[0]}, after: after}, nil
}

func isBackground(r *store.Response) bool { return gjson.GetBytes(r.Object, "background").Bool() }

// cancel ends a background response; others end with their request. One that
// has ended stays as it is.
func (a *API) cancel(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	for {
		found, apiErr := a.find(ctx, r)
		if apiErr != nil {
			return nil, apiErr
		}
		if !isBackground(found) {
			return nil, apierror.Invalid("response_id", "Only background responses can be cancelled. Close the connection of one that is not.")
		}
		if !found.Live {
			return appendObject(nil, found), nil
		}
		ended, err := conclude(ctx, a.Store, r.scope.Tenant, found, statusCancelled)
		if errors.Is(err, store.ErrConflict) {
			continue // it has just ended by itself
		}
		if err != nil {
			return nil, storeError(r.id, err)
		}
		return appendObject(nil, ended), nil
	}
}
