package stored

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// find reads the response that a request names.
func (s *Server) find(ctx context.Context, r *api.HTTPRequest) (*store.Response, *apierror.Error) {
	if s.Store == nil {
		return nil, responseNotFound(r.IDs[0])
	}
	found, err := Current(ctx, s.Store, r.Context.Tenant, r.IDs[0])
	return found, responseError(r.IDs[0], err)
}

// get answers with a response, or with its stream.
func (s *Server) get(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	streamed := r.Query.Get("stream")
	// openai-go sends it in a body.
	if streamed == "" {
		streamed = gjson.GetBytes(r.Body, "stream").Raw
	}

	if streamed == "true" || streamed == "1" {
		return s.stream(ctx, r)
	}

	found, err := s.find(ctx, r)
	if err != nil {
		return failed(err)
	}

	object, err := newObject(r.Context, found)

	return api.Answered(object, err)
}

// stream answers with the stream of a background response, after the event that
// starting_after names.
func (s *Server) stream(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	after := -1
	if text := r.Query.Get("starting_after"); text != "" {
		var err error
		if after, err = strconv.Atoi(text); err != nil || after < 0 || after > math.MaxInt32 {
			return failed(apierror.Invalid("starting_after", "starting_after must be the sequence number of an event."))
		}
	}

	found, err := s.find(ctx, r)
	if err != nil {
		return failed(err)
	}
	if !isBackground(found) {
		return failed(apierror.Invalid("stream", "Only background responses can be streamed again. Leave stream out."))
	}

	return api.Streamed(&Follower{
		store: s.Store,
		key:   store.Key{Tenant: r.Context.Tenant, ID: r.IDs[0]},
		after: after,
	})
}

func isBackground(r *store.Response) bool { return gjson.GetBytes(r.Object, "background").Bool() }

func (s *Server) delete(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	id := r.IDs[0]
	if s.Store == nil {
		return nil, responseNotFound(id)
	}
	if err := responseError(id, s.Store.Delete(ctx, r.Context.Tenant, id)); err != nil {
		return nil, err
	}
	return append(jsontext.AppendString([]byte(`{"id":`), id), `,"object":"response","deleted":true}`...), nil
}

// listInput lists the items that a response was made from: those of the responses
// that it continues, as far as they are stored, and its own input.
func (s *Server) listInput(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	id := r.IDs[0]
	if s.Store == nil {
		return nil, responseNotFound(id)
	}

	chain, err := s.Store.Chain(ctx, r.Context.Tenant, id)
	// The response, or one that it continues.
	if errors.Is(err, store.ErrNotFound) {
		var last *store.Response
		last, err = s.Store.Get(ctx, r.Context.Tenant, id)
		chain = []*store.Response{last}
	}

	if err != nil {
		return nil, responseError(id, err)
	}

	var items []store.Item
	for i, response := range chain {
		items = append(items, response.Input...)
		// The response's own output is not what it was made from.
		if i < len(chain)-1 {
			items = append(items, response.Output...)
		}
	}

	return appendPage(r.Context, items, r.Query)
}

// cancel ends a background response; others end with their request. A response
// that has ended stays as it is.
func (s *Server) cancel(ctx context.Context, r *api.HTTPRequest) ([]byte, *apierror.Error) {
	for {
		found, apiErr := s.find(ctx, r)
		if apiErr != nil {
			return nil, apiErr
		}
		if !isBackground(found) {
			return nil, apierror.Invalid("response_id",
				"Only background responses can be cancelled. Close the connection of one that is not.")
		}
		if !found.Live {
			return newObject(r.Context, found)
		}

		ended, err := conclude(ctx, s.Store, r.Context.Tenant, found, item.StatusCancelled)
		if errors.Is(err, store.ErrConflict) {
			// It has just ended by itself.
			continue
		}
		if err != nil {
			return nil, responseError(r.IDs[0], err)
		}

		return newObject(r.Context, ended)
	}
}
