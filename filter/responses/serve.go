package responses

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Path is where responses are made; what can be done with them stands below
// it.
const Path = "/v1/responses"

// InputTokensPath counts the tokens of a request. It is the one path below
// [Path] whose body names a model.
const InputTokensPath = Path + "/input_tokens"

// operation is what a request that needs no engine asks for.
type operation struct {
	serve func(a *API, ctx context.Context, r *request) ([]byte, *apierror.Error)
	id    string
}

// request is what an operation is done with.
type request struct {
	id    string // of the response
	query url.Values
	body  []byte
	scope *turn.Scope
}

// operationOf finds what a method and a path without its query ask for.
func operationOf(method, path string) (operation, bool) {
	rest, ok := strings.CutPrefix(path, Path+"/")
	id, below, _ := strings.Cut(rest, "/")
	if !ok || id == "" {
		return operation{}, false
	}
	o := operation{id: id}
	switch {
	case method == http.MethodPost && path == InputTokensPath:
		o.serve = (*API).countInput
	case method == http.MethodGet && rest == id:
		o.serve = (*API).get
	case method == http.MethodDelete && rest == id:
		o.serve = (*API).delete
	case method == http.MethodGet && below == "input_items":
		o.serve = (*API).listInput
	case method == http.MethodPost && below == "cancel":
		o.serve = (*API).cancel
	}
	return o, o.serve != nil
}

// Serves tells whether [API.Serve] answers requests of this method and path,
// which has no query.
func Serves(method, path string) bool {
	_, ok := operationOf(method, path)
	return ok
}

// Serve answers a request that needs no engine:
//
//	GET    /v1/responses/{id}
//	DELETE /v1/responses/{id}
//	GET    /v1/responses/{id}/input_items
//	POST   /v1/responses/{id}/cancel
//	POST   /v1/responses/input_tokens
//
// Its status is 200. Only the last one uses more of scope than the tenant.
func (a *API) Serve(ctx context.Context, method, path, query string, body []byte, scope *turn.Scope) ([]byte, *apierror.Error) {
	o, ok := operationOf(method, path)
	if !ok {
		return nil, apierror.New(http.StatusNotFound, "", "", "There is nothing at this path for this method.")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, apierror.Invalid("", "The query of the path is malformed.")
	}
	return o.serve(a, ctx, &request{id: o.id, query: values, body: body, scope: scope})
}

// find gives a stored response.
func (a *API) find(ctx context.Context, r *request) (*store.Response, *apierror.Error) {
	if a.Responses == nil {
		return nil, notFound(r.id)
	}
	found, err := a.Responses.Get(ctx, r.scope.Tenant, r.id)
	return found, storeError(r.id, err)
}

// storeError is the answer for an error of the store, nil if there is none.
func storeError(id string, err error) *apierror.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return notFound(id)
	}
	return storeDown(err)
}

func notFound(id string) *apierror.Error {
	return apierror.New(http.StatusNotFound, "response_not_found", "response_id", "The response %q is not stored (any more).", clip(id))
}

// clip shortens an id that a client made up, for errors.
func clip(id string) string {
	if len(id) > maxTextBytes {
		return strings.ToValidUTF8(id[:maxTextBytes], "") + "..."
	}
	return id
}

func (a *API) get(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if stream := r.query.Get("stream"); stream != "" && stream != "false" {
		return nil, apierror.Invalid("stream", "Only background responses can be streamed again, and they are not supported. Leave stream out.")
	}
	found, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return appendObject(nil, found), nil
}

// appendObject appends the response object with its output.
func appendObject(dst []byte, r *store.Response) []byte {
	dst = append(append(dst, r.Object[:len(r.Object)-1]...), `,"output":[`...)
	for i, item := range r.Output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item.JSON...)
	}
	return append(dst, `]}`...)
}

func (a *API) delete(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if a.Responses == nil {
		return nil, notFound(r.id)
	}
	if err := storeError(r.id, a.Responses.Delete(ctx, r.scope.Tenant, r.id)); err != nil {
		return nil, err
	}
	return append(jsontext.AppendString([]byte(`{"id":`), r.id), `,"object":"response","deleted":true}`...), nil
}

// cancel ends a background response; others end with their request.
func (a *API) cancel(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if _, err := a.find(ctx, r); err != nil {
		return nil, err
	}
	return nil, apierror.Invalid("response_id", "Only background responses can be cancelled. Close the connection of one that is not.")
}

// The bounds of a page of items.
const (
	defaultPage = 20
	maxPage     = 100
)

// listInput lists the items that a response was made from: those of the
// responses that it continues, as far as they are stored, and its own input.
func (a *API) listInput(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	found, apiErr := a.find(ctx, r)
	if apiErr != nil {
		return nil, apiErr
	}
	chain, err := a.Responses.Chain(ctx, r.scope.Tenant, r.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		chain = []*store.Response{found}
	case err != nil:
		return nil, storeDown(err)
	}
	var items []store.Item
	for i, response := range chain {
		items = append(items, response.Input...)
		if i < len(chain)-1 {
			items = append(items, response.Output...)
		}
	}
	return appendPage(items, r.query)
}

// appendPage writes one page of a list of items, which it may change.
func appendPage(items []store.Item, query url.Values) ([]byte, *apierror.Error) {
	limit := defaultPage
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return nil, apierror.Invalid("limit", "limit must be a number between 1 and %d.", maxPage)
		}
	}
	switch order := query.Get("order"); order {
	case "", "desc":
		slices.Reverse(items)
	case "asc":
	default:
		return nil, apierror.Invalid("order", "order must be \"asc\" or \"desc\".")
	}
	if after := query.Get("after"); after != "" {
		at := slices.IndexFunc(items, func(i store.Item) bool { return i.ID == after })
		if at < 0 {
			return nil, apierror.Invalid("after", "There is no item with the id that after names.")
		}
		items = items[at+1:]
	}
	more := len(items) > limit
	items = items[:min(len(items), limit)]
	dst := []byte(`{"object":"list","data":[`)
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item.JSON...)
	}
	var first, last *string
	if len(items) > 0 {
		first, last = &items[0].ID, &items[len(items)-1].ID
	}
	dst = appendText(append(dst, `],"first_id":`...), first)
	dst = appendText(append(dst, `,"last_id":`...), last)
	dst = strconv.AppendBool(append(dst, `,"has_more":`...), more)
	return append(dst, '}'), nil
}

// countInput counts the tokens of the prompt that a request would have, also
// where the model's context has no room for them.
func (a *API) countInput(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	call, err := a.Decode(ctx, r.body, r.scope)
	if err != nil && err.Code == "context_length_exceeded" {
		model, scope := *r.scope.Model, *r.scope
		model.ContextLength = math.MaxInt32
		scope.Model = &model
		call, err = a.Decode(ctx, r.body, &scope)
	}
	if err != nil {
		return nil, err
	}
	dst := []byte(`{"object":"response.input_tokens","input_tokens":`)
	return append(strconv.AppendInt(dst, int64(len(call.Engine().Prompt)), 10), '}'), nil
}
