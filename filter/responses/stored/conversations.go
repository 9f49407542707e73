package stored

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// createConversation makes a conversation. The request does not say whose it is:
// it is ours wherever there is a store.
func (s *Server) createConversation(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	if s.Store == nil {
		return nil, apierror.New(http.StatusNotFound, "", "", "No conversations are stored here.")
	}

	body, err := s.ReadBody(ctx, r.Body, r.Context)
	if err != nil {
		return nil, err
	}
	// Before anything is stored: a conversation without its items would stay.
	if err := CheckRoom(r.Context, "items", store.Size{}, body.Items); err != nil {
		return nil, err
	}

	c := &store.Conversation{ID: r.Context.NewID("conv_"), Created: r.Context.Now().Unix(), Metadata: body.Metadata}
	if c.Metadata == nil {
		c.Metadata = []byte(`{}`)
	}

	if err := s.Store.PutConversation(ctx, r.Context.Tenant, c); err != nil {
		return nil, ConversationError(c.ID, err)
	}

	if len(body.Items) > 0 {
		if err := s.Store.AddItems(ctx, r.Context.Tenant, c.ID, "", body.Items); err != nil {
			return nil, ConversationError(c.ID, err)
		}
	}

	return conversationObject(c), nil
}

func (s *Server) getConversation(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	c, err := s.findConversation(ctx, r)
	if err != nil {
		return nil, err
	}
	return conversationObject(c), nil
}

// updateConversation replaces the metadata of a conversation.
func (s *Server) updateConversation(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	found, apiErr := s.findConversation(ctx, r)
	if apiErr != nil {
		return nil, apiErr
	}

	body, apiErr := s.ReadBody(ctx, r.Body, r.Context)
	switch {
	case apiErr != nil:
		return nil, apiErr
	case body.Metadata == nil:
		return nil, apierror.Invalid("metadata",
			"The field \"metadata\" is missing. It is the part of a conversation that can be changed.")
	}

	c := *found
	c.Metadata = body.Metadata
	if err := s.Store.PutMetadata(ctx, r.Context.Tenant, c.ID, c.Metadata); err != nil {
		return nil, ConversationError(c.ID, err)
	}

	return conversationObject(&c), nil
}

func (s *Server) deleteConversation(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	id := r.IDs[0]
	if s.Store == nil {
		return nil, conversationNotFound(id)
	}
	if err := s.Store.DeleteConversation(ctx, r.Context.Tenant, id); err != nil {
		return nil, ConversationError(id, err)
	}
	dst := jsontext.AppendString([]byte(`{"id":`), id)
	return append(dst, `,"object":"conversation.deleted","deleted":true}`...), nil
}

// listConversation lists the items of a conversation.
func (s *Server) listConversation(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	id := r.IDs[0]
	if s.Store == nil {
		return nil, conversationNotFound(id)
	}

	page, apiErr := readPage(r.Query)
	if apiErr != nil {
		return nil, apiErr
	}

	limit := page.Limit
	// Shows whether there are more.
	page.Limit++
	items, err := s.Store.ConversationItems(ctx, r.Context.Tenant, id, page)
	if errors.Is(err, store.ErrNotFound) && page.After != "" {
		if _, apiErr := s.findConversation(ctx, r); apiErr != nil {
			return nil, apiErr
		}
		return nil, unknownAfter()
	}
	if err != nil {
		return nil, ConversationError(id, err)
	}

	return newList(r.Context, items[:min(len(items), limit)], len(items) > limit)
}

// extendConversation appends items to a conversation, and lists them.
func (s *Server) extendConversation(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	if _, err := s.findConversation(ctx, r); err != nil {
		return nil, err
	}

	body, apiErr := s.ReadBody(ctx, r.Body, r.Context)
	switch {
	case apiErr != nil:
		return nil, apiErr
	case !body.HasItems:
		return nil, apierror.Invalid("items", "The field \"items\" is missing. Send the items to add.")
	}

	if len(body.Items) > 0 {
		if err := s.addItems(ctx, r, body.Items); err != nil {
			return nil, err
		}
	}

	return newList(r.Context, body.Items, false)
}

// addItems adds items to a conversation that has room for them.
func (s *Server) addItems(ctx context.Context, r *api.HTTPRequest, items []store.Item) *apierror.Error {
	id, tenant := r.IDs[0], r.Context.Tenant
	// Another request may add items in between: the bound can be passed by what it adds.
	size, err := s.Store.ConversationSize(ctx, tenant, id)
	if err != nil {
		return ConversationError(id, err)
	}
	if err := CheckRoom(r.Context, "items", size, items); err != nil {
		return err
	}

	switch err := s.Store.AddItems(ctx, tenant, id, "", items); {
	case errors.Is(err, store.ErrConflict):
		return s.conflict(ctx, r, items)
	case err != nil:
		return ConversationError(id, err)
	}

	return nil
}

// conflict is why items were not added: the conversation has one of them already,
// or is locked.
func (s *Server) conflict(ctx context.Context, r *api.HTTPRequest, items []store.Item) *apierror.Error {
	var twice []string
	for _, it := range items {
		switch _, err := s.Store.ConversationItem(ctx, r.Context.Tenant, r.IDs[0], it.ID); {
		case err == nil:
			twice = append(twice, it.ID)
		case !errors.Is(err, store.ErrNotFound):
			return Unavailable(err)
		}
	}

	if twice != nil {
		return DuplicateItems("items", twice)
	}

	return conversationLocked(r.IDs[0])
}

func (s *Server) getConversationItem(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	if s.Store == nil {
		return nil, conversationNotFound(r.IDs[0])
	}

	it, err := s.Store.ConversationItem(ctx, r.Context.Tenant, r.IDs[0], r.IDs[1])
	if err != nil {
		return nil, s.itemError(ctx, r, err)
	}

	// The answer is a copy: the store's memory has the same bytes, which must not be handed out.
	if err := r.Context.Room(len(it.JSON)); err != nil {
		return nil, err
	}
	return slices.Clone(item.Shown(it)), nil
}

// deleteConversationItem deletes an item of a conversation, and answers with the
// conversation.
func (s *Server) deleteConversationItem(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	c, apiErr := s.findConversation(ctx, r)
	if apiErr != nil {
		return nil, apiErr
	}
	if err := s.Store.DeleteItem(ctx, r.Context.Tenant, r.IDs[0], r.IDs[1]); err != nil {
		return nil, s.itemError(ctx, r, err)
	}
	return conversationObject(c), nil
}

// itemError is the answer for an error of the store about one item.
func (s *Server) itemError(ctx context.Context, r *api.HTTPRequest, err error) *apierror.Error {
	if !errors.Is(err, store.ErrNotFound) {
		return ConversationError(r.IDs[0], err)
	}
	if _, err := s.findConversation(ctx, r); err != nil {
		return err
	}
	return apierror.New(http.StatusNotFound, CodeItemNotFound, "item_id",
		"The conversation %q has no item %q (any more).", item.Clip(r.IDs[0]), item.Clip(r.IDs[1]))
}

// findConversation reads the conversation that a request names.
func (s *Server) findConversation(ctx context.Context, r *api.HTTPRequest) (*store.Conversation, *apierror.Error) {
	if s.Store == nil {
		return nil, conversationNotFound(r.IDs[0])
	}
	c, err := s.Store.Conversation(ctx, r.Context.Tenant, r.IDs[0])
	if err != nil {
		return nil, ConversationError(r.IDs[0], err)
	}
	return c, nil
}

// conversationObject is the JSON of a conversation.
func conversationObject(c *store.Conversation) []byte {
	dst := jsontext.AppendString([]byte(`{"id":`), c.ID)
	dst = strconv.AppendInt(append(dst, `,"object":"conversation","created_at":`...), c.Created, 10)
	return append(append(append(dst, `,"metadata":`...), c.Metadata...), '}')
}
