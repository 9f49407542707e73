package responses

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// storeTimeout bounds how long the end of a response waits for the store.
const storeTimeout = 5 * time.Second

// storeDown is the answer where a request needs the store and it fails.
func storeDown(cause error) *apierror.Error {
	return apierror.New(http.StatusServiceUnavailable, "store_unavailable", "", "The store of responses does not answer. Try again.").With(cause)
}

// addStored adds the items of one stored response. A call that was cut is left
// out: it has no output, and its client cannot take it back.
func (d *decoder) addStored(r *store.Response) *apierror.Error {
	for _, items := range [][]store.Item{r.Input, withoutCut(r.Output)} {
		for _, i := range items {
			if err := d.addItemOf(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// withoutCut is a response's output without calls that the engine has not
// completed.
func withoutCut(output []store.Item) []store.Item {
	return slices.DeleteFunc(slices.Clone(output), isCutCall)
}

// isCutCall tells whether an item is a call that the engine has not completed. An
// MCP call that it has may have been made.
func isCutCall(item store.Item) bool {
	v := gjson.ParseBytes(item.JSON)
	if v.Get("status").Str != statusIncomplete {
		return false
	}
	return v.Get("call_id").Exists() || v.Get("type").Str == "mcp_call" && !gjson.Valid(v.Get("arguments").Str)
}

// addItemOf adds an item of a continued response.
func (d *decoder) addItemOf(i store.Item) *apierror.Error {
	it, err := readStored(i, "previous_response_id")
	if err != nil {
		return err
	}
	return d.addItem(it)
}

// findReferences reads the stored items that the input refers to.
func (d *decoder) findReferences(ctx context.Context, input jsontext.Field) *apierror.Error {
	var ids []string
	input.ForEach(func(_, v gjson.Result) bool {
		if isReference(v) {
			ids = append(ids, v.Get("id").Str)
		}
		return len(ids) <= d.scope.Limits.Items
	})
	if len(ids) == 0 || d.api.Store == nil {
		return nil
	}
	found, err := d.fetch(ctx, "input", ids)
	d.references = make(map[string]*reference, len(found))
	for id, item := range found {
		d.references[id] = &reference{item: item}
	}
	return err
}

// reference is a stored item that the input refers to, maybe more than once: it
// is read, and written for the store, once.
type reference struct {
	item store.Item
	read item // nothing yet if it has no kind
	kept []byte
}

// isReference tells whether an element of input is the id of another item.
func isReference(v gjson.Result) bool {
	kind := v.Get("type")
	if kind.Type == gjson.String {
		return kind.Str == "item_reference"
	}
	return v.Get("id").Type == gjson.String && v.Get("role").Type != gjson.String
}

// resolve gives the item that a reference means.
func (d *decoder) resolve(it item) (item, *apierror.Error) {
	if d.api.Store == nil {
		return it, apierror.Invalid(it.at.Path, "No responses are stored, so their items cannot be referred to. Send the item itself.")
	}
	found, ok := d.references[it.id]
	if !ok {
		return it, apierror.New(http.StatusNotFound, itemNotFound, it.at.Path+".id", "The item %q is not stored (any more). Send the item itself.", clip(it.id))
	}
	if found.read.kind == "" {
		read, err := readStored(found.item, it.at.Path)
		if err != nil {
			return it, err
		}
		read.source = found
		found.read = read
	}
	read := found.read
	read.at.Path = it.at.Path
	return read, nil
}

// readStored reads a stored item. Its content needs no seal to be believed, and
// outlives the keys.
func readStored(i store.Item, path string) (item, *apierror.Error) {
	it, err := readItem(jsontext.Field{Result: gjson.ParseBytes(i.JSON), Path: path})
	if it.content.Exists() {
		it.encrypted = ""
	}
	it.told = it.at.Get(toldModel)
	return it, err
}

// keep notes an item of the request's input for the store.
func (d *decoder) keep(it *item) {
	if !d.stores() || it.kind == "compaction_trigger" {
		return
	}
	id := strings.Clone(it.id)
	if id == "" {
		id = d.scope.NewID(idPrefix(it.kind))
	}
	d.kept = append(d.kept, store.Item{ID: id, JSON: it.storedJSON(id)})
}

// storedJSON is the item as it is stored, of one text for all references to it.
func (it *item) storedJSON(id string) []byte {
	if it.source == nil {
		return it.appendStored(nil, id)
	}
	if it.source.kept == nil {
		it.source.kept = it.appendStored(nil, id)
	}
	return it.source.kept
}

// stores tells whether the response will be stored.
func (d *decoder) stores() bool { return d.store && d.api.Store != nil }

// idPrefix is what the id of an input item begins with.
func idPrefix(kind string) string {
	switch kind {
	case "message":
		return "msg_"
	case "reasoning":
		return "rs_"
	case "function_call":
		return "fc_"
	case "function_call_output":
		return "fco_"
	case "custom_tool_call":
		return "ctc_"
	case "custom_tool_call_output":
		return "ctco_"
	case "compaction":
		return "cmp_"
	}
	return "item_"
}

// appendStored appends the item as it is stored and listed: with its type, an
// id and a status, without nulls, and of a message with a list of parts.
func (it *item) appendStored(dst []byte, id string) []byte {
	dst = slices.Grow(dst, max(len(it.at.Raw), len(it.content.Raw))+len(id)+storedMembers)
	if it.told.Exists() {
		dst = append(append(append(dst, `{"`+toldModel+`":`...), it.told.Raw...), ',')
	} else {
		dst = append(dst, '{')
	}
	dst = jsontext.AppendString(append(dst, `"type":`...), it.kind)
	dst = jsontext.AppendString(append(dst, `,"id":`...), id)
	if it.at.Get("status").Type != gjson.String {
		dst = append(dst, `,"status":"completed"`...)
	}
	it.at.ForEach(func(k, v gjson.Result) bool {
		if k.Str == "type" || k.Str == "id" || k.Str == toldModel || v.Type == gjson.Null {
			return true
		}
		dst = append(jsontext.AppendString(append(dst, ','), k.Str), ':')
		if k.Str == "content" && it.kind == "message" && v.Type == gjson.String {
			dst = it.appendTextPart(dst, it.content.Str)
		} else {
			dst = jsontext.AppendCompact(dst, v.Raw)
		}
		return true
	})
	return append(dst, '}')
}

// storedMembers is about how many bytes the members have that every stored item
// has.
const storedMembers = 128

// appendTextPart appends a message's content that is one text.
func (it *item) appendTextPart(dst []byte, text string) []byte {
	if it.role == "assistant" {
		dst = jsontext.AppendString(append(dst, `[{"type":"output_text","text":`...), text)
		return append(dst, `,"annotations":[],"logprobs":[]}]`...)
	}
	return append(jsontext.AppendString(append(dst, `[{"type":"input_text","text":`...), text), `}]`...)
}

// keeper is how a reply stores its response; nil where it is not stored.
func (d *decoder) keeper(ctx context.Context) func(*store.Response) error {
	if !d.stores() {
		return nil
	}
	api, scope, chain := d.api, d.scope, d.chain
	tries := 1
	if d.options.background {
		tries = backgroundTries
	}
	return func(r *store.Response) error {
		ctx := context.WithoutCancel(ctx)
		err := api.put(ctx, scope.Tenant, r)
		for try := 1; err != nil && try < tries && !permanent(err); try++ {
			time.Sleep(putRetry)
			err = api.put(ctx, scope.Tenant, r)
		}
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, storeTimeout)
			defer cancel()
			api.written(ctx, scope, chain, r)
		}
		if errors.Is(err, store.ErrConflict) && r.Version > 1 {
			err = api.outrunBy(ctx, scope.Tenant, r.ID, err)
		}
		return err
	}
}

const (
	// putRetry is how long a store that does not answer is left alone before
	// a background response is written again; for nobody waits for it, and
	// its lease goes on.
	putRetry        = time.Second
	backgroundTries = 10
)

// put writes a response.
func (a *API) put(ctx context.Context, tenant string, r *store.Response) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return a.Store.Put(ctx, tenant, r)
}

// outrunBy tells why a response has not the version that was to be written over:
// the store's ErrNotFound if it is gone, else conflict.
func (a *API) outrunBy(ctx context.Context, tenant, id string, conflict error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if _, err := a.Store.Head(ctx, tenant, id); errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("the response is gone: %w", err)
	}
	return conflict
}

// permanent tells of an error that a second try does not change.
func permanent(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTooLarge)
}
