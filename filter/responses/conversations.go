package responses

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// ConversationsPath is where conversations are made; what can be done with them
// stands below it.
const ConversationsPath = "/v1/conversations"

// maxNewItems is how many items a request can add to a conversation, as OpenAI
// has it.
const maxNewItems = 20

// HoldLease is how long a conversation is held for a response unless
// [Call.Hold] renews it.
const HoldLease = 15 * time.Second

// createConversation makes a conversation. No model tells whose it is: it is
// ours wherever there is a store.
func (a *API) createConversation(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if a.Store == nil {
		return nil, apierror.New(http.StatusNotFound, "", "", "No conversations are stored here.")
	}
	given, err := a.readConversationBody(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := checkRoom(r.scope, "items", store.Size{}, given.items); err != nil {
		return nil, err
	}
	c := &store.Conversation{ID: r.scope.NewID("conv_"), Created: r.scope.Now().Unix(), Metadata: given.metadata}
	if c.Metadata == nil {
		c.Metadata = []byte(`{}`)
	}
	if err := a.Store.PutConversation(ctx, r.scope.Tenant, c); err != nil {
		return nil, conversationError(c.ID, err)
	}
	if len(given.items) > 0 {
		if err := a.Store.AddItems(ctx, r.scope.Tenant, c.ID, "", given.items); err != nil {
			return nil, conversationError(c.ID, err)
		}
	}
	return conversationObject(c), nil
}

func (a *API) getConversation(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	c, err := a.findConversation(ctx, r)
	if err != nil {
		return nil, err
	}
	return conversationObject(c), nil
}

// updateConversation puts other metadata in place of a conversation's own.
func (a *API) updateConversation(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	found, apiErr := a.findConversation(ctx, r)
	if apiErr != nil {
		return nil, apiErr
	}
	given, apiErr := a.readConversationBody(ctx, r)
	switch {
	case apiErr != nil:
		return nil, apiErr
	case given.metadata == nil:
		return nil, apierror.Invalid("metadata", "The field \"metadata\" is missing. It is what of a conversation can be changed.")
	}
	c := *found
	c.Metadata = given.metadata
	if err := a.Store.PutMetadata(ctx, r.scope.Tenant, c.ID, c.Metadata); err != nil {
		return nil, conversationError(c.ID, err)
	}
	return conversationObject(&c), nil
}

func (a *API) deleteConversation(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if a.Store == nil {
		return nil, noConversation(r.id)
	}
	if err := a.Store.DeleteConversation(ctx, r.scope.Tenant, r.id); err != nil {
		return nil, conversationError(r.id, err)
	}
	return append(jsontext.AppendString([]byte(`{"id":`), r.id), `,"object":"conversation.deleted","deleted":true}`...), nil
}

// listConversation lists the items of a conversation.
func (a *API) listConversation(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if a.Store == nil {
		return nil, noConversation(r.id)
	}
	page, apiErr := readPage(r.query)
	if apiErr != nil {
		return nil, apiErr
	}
	limit := page.Limit
	page.Limit++ // tells whether there are more
	items, err := a.Store.ConversationItems(ctx, r.scope.Tenant, r.id, page)
	if errors.Is(err, store.ErrNotFound) && page.After != "" {
		if _, apiErr := a.findConversation(ctx, r); apiErr != nil {
			return nil, apiErr
		}
		return nil, unknownAfter()
	}
	if err != nil {
		return nil, conversationError(r.id, err)
	}
	return appendList(nil, items[:min(len(items), limit)], len(items) > limit), nil
}

// extendConversation appends items to a conversation, and lists them.
func (a *API) extendConversation(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if _, err := a.findConversation(ctx, r); err != nil {
		return nil, err
	}
	given, apiErr := a.readConversationBody(ctx, r)
	switch {
	case apiErr != nil:
		return nil, apiErr
	case !given.hasItems:
		return nil, apierror.Invalid("items", "The field \"items\" is missing. Send the items to add.")
	}
	if len(given.items) > 0 {
		held, err := a.Store.ConversationSize(ctx, r.scope.Tenant, r.id)
		if err != nil {
			return nil, conversationError(r.id, err)
		}
		if err := checkRoom(r.scope, "items", held, given.items); err != nil {
			return nil, err
		}
		err = a.Store.AddItems(ctx, r.scope.Tenant, r.id, "", given.items)
		if errors.Is(err, store.ErrConflict) {
			return nil, a.conflict(ctx, r, given.items)
		}
		if err != nil {
			return nil, conversationError(r.id, err)
		}
	}
	return appendList(nil, given.items, false), nil
}

// conflict tells why items were not added: the conversation has one of them
// already, or is held.
func (a *API) conflict(ctx context.Context, r *request, items []store.Item) *apierror.Error {
	for _, item := range items {
		switch _, err := a.Store.ConversationItem(ctx, r.scope.Tenant, r.id, item.ID); {
		case err == nil:
			return duplicateItem("items", item.ID)
		case !errors.Is(err, store.ErrNotFound):
			return storeDown(err)
		}
	}
	return locked(r.id)
}

func (a *API) getConversationItem(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if a.Store == nil {
		return nil, noConversation(r.id)
	}
	item, err := a.Store.ConversationItem(ctx, r.scope.Tenant, r.id, r.item)
	if err != nil {
		return nil, a.itemError(ctx, r, err)
	}
	return slices.Clone(shown(item)), nil
}

// deleteConversationItem takes an item out of a conversation, and gives the
// conversation.
func (a *API) deleteConversationItem(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	c, apiErr := a.findConversation(ctx, r)
	if apiErr != nil {
		return nil, apiErr
	}
	if err := a.Store.DeleteItem(ctx, r.scope.Tenant, r.id, r.item); err != nil {
		return nil, a.itemError(ctx, r, err)
	}
	return conversationObject(c), nil
}

// itemError is the answer for an error of the store about one item.
func (a *API) itemError(ctx context.Context, r *request, err error) *apierror.Error {
	if !errors.Is(err, store.ErrNotFound) {
		return conversationError(r.id, err)
	}
	if _, err := a.findConversation(ctx, r); err != nil {
		return err
	}
	return apierror.New(http.StatusNotFound, itemNotFound, "item_id", "The conversation %q has no item %q (any more).", clip(r.id), clip(r.item))
}

// findConversation gives a stored conversation.
func (a *API) findConversation(ctx context.Context, r *request) (*store.Conversation, *apierror.Error) {
	if a.Store == nil {
		return nil, noConversation(r.id)
	}
	c, err := a.Store.Conversation(ctx, r.scope.Tenant, r.id)
	if err != nil {
		return nil, conversationError(r.id, err)
	}
	return c, nil
}

// conversationError is the answer for an error of the store.
func conversationError(id string, err error) *apierror.Error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noConversation(id)
	case errors.Is(err, store.ErrConflict):
		return locked(id)
	case errors.Is(err, store.ErrTooLarge):
		return apierror.New(http.StatusRequestEntityTooLarge, "conversation_too_large", "", "The store has no room for the items. Send less, or begin another conversation.")
	}
	return storeDown(err)
}

func noConversation(id string) *apierror.Error {
	return apierror.New(http.StatusNotFound, "conversation_not_found", "conversation_id", "The conversation %q is not stored (any more).", clip(id))
}

// locked is the answer while a response is being made in the conversation.
// OpenAI's status is 400; its own clients try a 409 again by themselves.
func locked(id string) *apierror.Error {
	err := apierror.New(http.StatusConflict, "conversation_locked", "conversation", "A response is being made in the conversation %q. Try again when it has ended.", clip(id))
	err.RetryAfter = time.Second
	return err
}

func duplicateItem(param, id string) *apierror.Error {
	return apierror.Invalid(param, "Two items of the conversation would have the id %q. Send none that the conversation has already, or leave the id out.", clip(id))
}

// conversationObject is the JSON of a conversation.
func conversationObject(c *store.Conversation) []byte {
	dst := jsontext.AppendString([]byte(`{"id":`), c.ID)
	dst = strconv.AppendInt(append(dst, `,"object":"conversation","created_at":`...), c.Created, 10)
	return append(append(append(dst, `,"metadata":`...), c.Metadata...), '}')
}

// conversationBody is what a request about a conversation has in it.
type conversationBody struct {
	metadata []byte // nil: none
	items    []store.Item
	hasItems bool
}

// readConversationBody reads the body of a request about a conversation. Its
// items are those that the input of a response can have.
func (a *API) readConversationBody(ctx context.Context, r *request) (conversationBody, *apierror.Error) {
	var given conversationBody
	body := r.body
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte(`{}`)
	}
	root, err := jsontext.Parse(body)
	if err != nil {
		return given, err
	}
	if v := root.Get("metadata"); v.Exists() {
		given.metadata = []byte(`{}`) // what null asks for
	}
	d := a.newDecoder(r.scope)
	known := func(key string) bool { return key == "metadata" || key == "items" }
	if err := (jsontext.Field{Result: root}).FieldsOf(known, func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "metadata":
			err := d.readMetadata(v)
			given.metadata = d.echo.metadata
			return err
		case "items":
			given.hasItems = true
			return d.readItems(v)
		}
		return nil
	}); err != nil {
		return given, err
	}
	if err := d.addInput(ctx); err != nil {
		return given, err
	}
	if d.triggered {
		return given, apierror.Invalid("items", "An item of type compaction_trigger is for the input of a response. Leave it out.")
	}
	given.items = d.kept
	return given, d.checkIDs("items")
}

// readItems notes the items for a conversation.
func (d *decoder) readItems(v jsontext.Field) *apierror.Error {
	n := 0
	err := v.Elements(func(int, jsontext.Field) *apierror.Error {
		if n == maxNewItems {
			return apierror.Invalid("items", "The field \"items\" has more than %d items. Send the others in further requests.", maxNewItems)
		}
		n++
		return nil
	})
	d.given = v
	return err
}

// checkIDs refuses items of the request that have the id of another, or of an
// item of the conversation.
func (d *decoder) checkIDs(param string) *apierror.Error {
	ids := make(map[string]bool, len(d.earlier)+len(d.kept))
	for _, item := range d.earlier {
		ids[item.ID] = true
	}
	for _, item := range d.kept {
		if ids[item.ID] {
			return duplicateItem(param, item.ID)
		}
		ids[item.ID] = true
	}
	return nil
}

// What follows is a response's way with its conversation: it is held and read
// before the input, and given the input and the output at the end.

// readConversation reads the name of a conversation: its id, or an object with
// the id.
func (d *decoder) readConversation(v jsontext.Field) *apierror.Error {
	if v.IsObject() {
		v = jsontext.Field{Result: v.Get("id"), Path: v.Path + ".id"}
	}
	var err *apierror.Error
	d.conversation, err = v.ShortText()
	if err == nil && d.conversation == "" {
		return apierror.Invalid(v.Path, "The id of the conversation is empty. Leave conversation out, or make one with POST %s.", ConversationsPath)
	}
	return err
}

// addConversation holds the conversation for the response, unless the response
// is not stored, and adds the conversation's items.
func (d *decoder) addConversation(ctx context.Context) *apierror.Error {
	switch {
	case d.conversation == "":
		return nil
	case d.previous != "":
		return apierror.New(http.StatusBadRequest, "mutually_exclusive_parameters", "conversation",
			"\"previous_response_id\" and \"conversation\" are two ways to say what came before. Send one of them.")
	case d.api.Store == nil:
		return apierror.Invalid("conversation", "No conversations are stored. Send the whole conversation as input.")
	}
	if d.store && !d.scope.Unbounded {
		if err := d.hold(ctx); err != nil {
			return err
		}
	}
	items, err := d.api.Store.ConversationItems(ctx, d.scope.Tenant, d.conversation, store.Page{Limit: d.scope.Limits.Items + 1})
	if err != nil {
		return ofConversation(conversationError(d.conversation, err))
	}
	if err := d.bringIn("conversation", itemBytes(items...)); err != nil {
		return err
	}
	for _, i := range items {
		it, err := readStored(i, "conversation")
		if err == nil {
			err = d.addItem(it)
		}
		if err != nil {
			return err
		}
	}
	d.earlier = items
	return nil
}

// hold takes the conversation for the response.
func (d *decoder) hold(ctx context.Context) *apierror.Error {
	if err := d.api.Store.Hold(ctx, d.scope.Tenant, d.conversation, d.id, HoldLease); err != nil {
		return ofConversation(conversationError(d.conversation, err))
	}
	d.holder = &holder{store: d.api.Store, tenant: d.scope.Tenant, conversation: d.conversation, response: d.id}
	return nil
}

// ofConversation names the field of a response's request in an error.
func ofConversation(err *apierror.Error) *apierror.Error {
	if err.Param == "" {
		return err
	}
	e := *err
	e.Param = "conversation"
	return &e
}

// holder is a response that holds its conversation.
type holder struct {
	store        store.Conversations
	tenant       string
	conversation string
	response     string
}

// conversation is the id of the conversation that the response belongs to, "" if
// it belongs to none.
func (c *Call) conversation() string {
	if c.holder == nil {
		return ""
	}
	return c.holder.conversation
}

// Holds tells whether the response holds a conversation, which [Call.Hold] must
// renew while the reply is being made and let go when it is over.
func (c *Call) Holds() bool { return c.holder != nil }

// Hold holds the response's conversation for another lease; one of 0 lets it
// go. An error that is [store.ErrConflict] says that the conversation was lost:
// the response can add nothing to it any more.
func (c *Call) Hold(ctx context.Context, lease time.Duration) error {
	if c.holder == nil {
		return nil
	}
	return c.holder.hold(ctx, lease)
}

func (h *holder) hold(ctx context.Context, lease time.Duration) error {
	hold := h.store.RenewHold
	if lease == 0 {
		hold = h.store.Hold
	}
	if err := hold(ctx, h.tenant, h.conversation, h.response, lease); err != nil {
		return fmt.Errorf("hold the conversation: %w", err)
	}
	return nil
}

// release lets the conversation go after a request that could not be decoded.
func (h *holder) release(ctx context.Context) {
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	_ = h.hold(ctx, 0) // else its lease ends
}

// extender is how a reply appends items to the conversation, and lets it go; nil
// where none is held. Items that were added stay so if it cannot be let go: its
// lease ends.
func (d *decoder) extender(ctx context.Context) func(items []store.Item) (added bool, err error) {
	h := d.holder
	if h == nil {
		return nil
	}
	return func(items []store.Item) (added bool, err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		if len(items) > 0 {
			if err = h.store.AddItems(ctx, h.tenant, h.conversation, h.response, items); err != nil {
				err = fmt.Errorf("extend the conversation: %w", err)
			}
		}
		return err == nil, errors.Join(err, h.hold(ctx, 0))
	}
}

// extend gives the conversation what the response adds to it: the input and the
// output of one that has come to its own end, but no call that was cut, for it
// can have no output. All others leave the conversation as it was. A stored
// response whose items could not be added is stored again, as one without a
// conversation.
func (r *Reply) extend(end *ending, made *store.Response) {
	if r.call.extend == nil {
		return
	}
	var items []store.Item
	if r.stored && end.ownEnd() {
		items = slices.Concat(made.Input, withoutCut(made.Output))
	}
	added, err := r.call.extend(items)
	r.fault = errors.Join(r.fault, err)
	r.apart = !added || !r.stored
	if !r.stored || added {
		return
	}
	again := *made
	again.Version++
	again.Conversation, again.Object = "", r.storedObject(end)
	if err := r.call.keep(&again); err != nil {
		r.fault = errors.Join(r.fault, fmt.Errorf("store that the response is not in its conversation: %w", err))
	}
}

// appendOwner appends which conversation a response belongs to.
func (r *Reply) appendOwner(dst []byte) []byte {
	h := r.call.holder
	if h == nil || r.apart {
		return append(dst, `null`...)
	}
	return append(jsontext.AppendString(append(dst, `{"id":`...), h.conversation), '}')
}
