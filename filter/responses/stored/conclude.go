package stored

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Current reads a response. One whose process has died ends as failed here.
// Errors are the store's.
func Current(ctx context.Context, s store.Store, tenant, id string) (*store.Response, error) {
	for {
		r, err := s.Get(ctx, tenant, id)
		if err != nil || !r.Live || !r.Lapsed {
			return r, err
		}
		ended, err := conclude(ctx, s, tenant, r, item.StatusFailed)
		if !errors.Is(err, store.ErrConflict) {
			return ended, err
		}
	}
}

// conclude ends a live response from outside: it was cancelled, or its process
// has died. The first writer decides: store.ErrConflict means that it was
// another. The items that were complete are the response's output.
func conclude(
	ctx context.Context, s store.Store, tenant string, r *store.Response, status string,
) (*store.Response, error) {
	ended := *r
	// Another writer of the same version gets the conflict, and sees this end.
	ended.Version++
	ended.Live, ended.Lapsed, ended.Owner, ended.Lease = false, false, "", 0
	var err error
	if ended.Object, err = concludedObject(r.Object, status); err != nil {
		return nil, err
	}

	batches, err := journalOf(ctx, s, tenant, r.ID)
	if err != nil {
		return nil, err
	}

	ended.Output = itemsDone(batches)
	if err := s.Put(ctx, tenant, &ended); err != nil {
		return nil, err
	}
	// From here on nothing is added to the journal any more.
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

// concludedObject is the object of a live response with the status with which it
// ends.
func concludedObject(object []byte, status string) ([]byte, error) {
	object, err := sjson.SetBytes(object, "status", status)
	if err == nil && status == item.StatusFailed {
		died := AppendError(nil,
			apierror.New(http.StatusInternalServerError, "", "",
				"The process that made the response has died. Send the request again.").InStream())
		object, err = sjson.SetRawBytes(object, "error", died)
	}
	if err != nil {
		return nil, fmt.Errorf("change the response: %w", err)
	}
	return object, nil
}

// journalOf reads a whole stream, which can be far larger than the response.
func journalOf(ctx context.Context, s store.Store, tenant, id string) ([]store.Batch, error) {
	var all []store.Batch
	for after := -1; ; {
		batches, err := s.Events(ctx, tenant, id, after, 0)
		if err != nil || len(batches) == 0 {
			return all, err
		}

		// The store has taken room for what it has read. The items are copies of parts of it.
		if err := store.TakeRoom(ctx, batchBytes(batches)); err != nil {
			return nil, fmt.Errorf("read the items of a stream: %w", err)
		}

		all = append(all, batches...)
		after = batches[len(batches)-1].Last
	}
}

// batchBytes is how many bytes the events of batches have.
func batchBytes(batches []store.Batch) (n int) {
	for i := range batches {
		n += len(batches[i].SSE)
	}
	return n
}

// itemsDone are the items that a stream has completed, in the order of the
// output: calls that are made here may be completed after items after them.
func itemsDone(batches []store.Batch) []store.Item {
	// The journal is written here, so that its events are always spelled like this.
	const name = "event: response.output_item.done\ndata: "
	var items []store.Item
	// In the output.
	var indexes []int
	for _, b := range batches {
		for e := range bytes.SplitSeq(b.SSE, []byte("\n\n")) {
			data, ok := bytes.CutPrefix(e, []byte(name))
			if !ok {
				continue
			}
			done := gjson.GetBytes(data, "item")
			index := int(gjson.GetBytes(data, "output_index").Int())
			at, _ := slices.BinarySearch(indexes, index)
			indexes = slices.Insert(indexes, at, index)
			items = slices.Insert(items, at, store.Item{ID: done.Get("id").Str, JSON: []byte(done.Raw)})
		}
	}

	return items
}

// endJournal adds the last event to the stream of a response that has ended,
// unless the stream has one.
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

	// Conclude's second write failed.
	if done := itemsDone(batches); len(done) > len(r.Output) {
		whole := *r
		whole.Output = done
		r = &whole
	}

	w := event.Writer{Sequence: next}
	w.Begin("response.", LastEvent(gjson.GetBytes(r.Object, "status").Str))
	w.Dst = AppendObject(append(w.Dst, `,"response":`...), r)
	w.End()
	w.Close()
	err = s.Append(ctx, tenant, r.ID, "", store.Batch{First: next, Last: next, SSE: w.Dst, End: true})
	if errors.Is(err, store.ErrConflict) {
		// Another has added it.
		return nil
	}

	return err
}
