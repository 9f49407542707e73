package responses

import (
	"context"
	"errors"
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

// operation is what a request that needs no engine asks for.
type operation struct {
	method  string
	pattern string // of the path: a segment {…} stands for an id
	serve   func(a *API, ctx context.Context, r *request) ([]byte, *apierror.Error)
}

// responsePattern is the path of a response.
const responsePattern = Path + "/{id}"

// operations are what [API.Serve] answers. Of two that fit a path the first
// counts.
var operations = []operation{
	{http.MethodPost, InputTokensPath, (*API).countInput},
	{http.MethodPost, RenderPath, (*API).render},
	{http.MethodGet, responsePattern, (*API).get},
	{http.MethodDelete, responsePattern, (*API).delete},
	{http.MethodGet, Path + "/{id}/input_items", (*API).listInput},
	{http.MethodPost, Path + "/{id}/cancel", (*API).cancel},

	{http.MethodPost, ConversationsPath, (*API).createConversation},
	{http.MethodGet, ConversationsPath + "/{id}", (*API).getConversation},
	{http.MethodPost, ConversationsPath + "/{id}", (*API).updateConversation},
	{http.MethodDelete, ConversationsPath + "/{id}", (*API).deleteConversation},
	{http.MethodGet, ConversationsPath + "/{id}/items", (*API).listConversation},
	{http.MethodPost, ConversationsPath + "/{id}/items", (*API).extendConversation},
	{http.MethodGet, ConversationsPath + "/{id}/items/{item}", (*API).getConversationItem},
	{http.MethodDelete, ConversationsPath + "/{id}/items/{item}", (*API).deleteConversationItem},
}

// request is what an operation is done with.
type request struct {
	id    string // of the response or conversation
	item  string // of the item
	query url.Values
	body  []byte
	scope *turn.Scope
}

// operationOf finds what a method and a path without its query ask for, and the
// ids in the path; nil if there is nothing.
func operationOf(method, path string) (o *operation, id, item string) {
	for i := range operations {
		o := &operations[i]
		if o.method != method {
			continue
		}
		if ids, ok := match(o.pattern, path); ok {
			return o, ids[0], ids[1]
		}
	}
	return nil, "", ""
}

// match gives the segments of a path that stand where the pattern has ids.
func match(pattern, path string) (ids [2]string, ok bool) {
	n := 0
	for more := true; more; {
		var want, got string
		want, pattern, more = strings.Cut(pattern, "/")
		var another bool
		got, path, another = strings.Cut(path, "/")
		switch {
		case another != more:
			return ids, false
		case strings.HasPrefix(want, "{"):
			if got == "" {
				return ids, false
			}
			ids[n] = got
			n++
		case got != want:
			return ids, false
		}
	}
	return ids, true
}

// Serves tells whether [API.Serve] answers requests of this method and path,
// which has no query.
func Serves(method, path string) bool {
	o, _, _ := operationOf(method, path)
	return o != nil
}

// Serve answers a request that needs no engine:
//
//	GET    /v1/responses/{id}
//	DELETE /v1/responses/{id}
//	GET    /v1/responses/{id}/input_items
//	POST   /v1/responses/{id}/cancel
//	POST   /v1/responses/input_tokens
//	POST   /v1/responses/render
//	POST   /v1/conversations
//	GET    /v1/conversations/{id}
//	POST   /v1/conversations/{id}
//	DELETE /v1/conversations/{id}
//	GET    /v1/conversations/{id}/items
//	POST   /v1/conversations/{id}/items
//	GET    /v1/conversations/{id}/items/{item}
//	DELETE /v1/conversations/{id}/items/{item}
//
// Its status is 200. Of scope only input_tokens and render use the model.
func (a *API) Serve(ctx context.Context, method, path, query string, body []byte, scope *turn.Scope) ([]byte, *apierror.Error) {
	o, id, item := operationOf(method, path)
	if o == nil {
		return nil, apierror.New(http.StatusNotFound, "", "", "There is nothing at this path for this method.")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, apierror.Invalid("", "The query of the path is malformed.")
	}
	return o.serve(a, ctx, &request{id: id, item: item, query: values, body: body, scope: scope})
}

// Elsewhere tells whether an error of [API.Serve] says that a response or a
// conversation is not stored here: it may be another service's.
func Elsewhere(err *apierror.Error) bool {
	return err.Status == http.StatusNotFound && err.Code != itemNotFound
}

// itemNotFound is the code of an error that says that an item is missing.
const itemNotFound = "item_not_found"

// find gives a stored response.
func (a *API) find(ctx context.Context, r *request) (*store.Response, *apierror.Error) {
	if a.Store == nil {
		return nil, notFound(r.id)
	}
	found, err := current(ctx, a.Store, r.scope.Tenant, r.id)
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
	if len(id) > jsontext.MaxShortText {
		return strings.ToValidUTF8(id[:jsontext.MaxShortText], "") + "..."
	}
	return id
}

func (a *API) get(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	found, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return appendObject(nil, found), nil
}

// appendObject appends the response object with its output.
func appendObject(dst []byte, r *store.Response) []byte {
	dst = append(append(append(dst, '{'), shownMembers(r.Object)...), `,"output":[`...)
	for i, item := range r.Output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, shown(item)...)
	}
	return append(dst, `]}`...)
}

func (a *API) delete(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if a.Store == nil {
		return nil, notFound(r.id)
	}
	if err := storeError(r.id, a.Store.Delete(ctx, r.scope.Tenant, r.id)); err != nil {
		return nil, err
	}
	return append(jsontext.AppendString([]byte(`{"id":`), r.id), `,"object":"response","deleted":true}`...), nil
}

// The bounds of a page of items.
const (
	defaultPage = 20
	maxPage     = 100
)

// listInput lists the items that a response was made from: those of the
// responses that it continues, as far as they are stored, and its own input.
func (a *API) listInput(ctx context.Context, r *request) ([]byte, *apierror.Error) {
	if a.Store == nil {
		return nil, notFound(r.id)
	}
	chain, err := a.Store.Chain(ctx, r.scope.Tenant, r.id)
	if errors.Is(err, store.ErrNotFound) { // the response, or one that it continues
		var last *store.Response
		last, err = a.Store.Get(ctx, r.scope.Tenant, r.id)
		chain = []*store.Response{last}
	}
	if err != nil {
		return nil, storeError(r.id, err)
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
	page, err := readPage(query)
	if err != nil {
		return nil, err
	}
	if page.Descending {
		slices.Reverse(items)
	}
	if page.After != "" {
		at := slices.IndexFunc(items, func(i store.Item) bool { return i.ID == page.After })
		if at < 0 {
			return nil, unknownAfter()
		}
		items = items[at+1:]
	}
	more := len(items) > page.Limit
	return appendList(nil, items[:min(len(items), page.Limit)], more), nil
}

// readPage reads which part of a list a query asks for. Its limit is never 0.
func readPage(query url.Values) (store.Page, *apierror.Error) {
	page := store.Page{After: query.Get("after"), Limit: defaultPage}
	if text := query.Get("limit"); text != "" {
		var err error
		if page.Limit, err = strconv.Atoi(text); err != nil || page.Limit < 1 || page.Limit > maxPage {
			return page, apierror.Invalid("limit", "limit must be a number between 1 and %d.", maxPage)
		}
	}
	switch order := query.Get("order"); order {
	case "", "desc":
		page.Descending = true
	case "asc":
	default:
		return page, apierror.Invalid("order", "order must be \"asc\" or \"desc\".")
	}
	return page, nil
}

func unknownAfter() *apierror.Error {
	return apierror.Invalid("after", "There is no item with the id that after names.")
}

// appendList appends a list object of items; more says that others follow.
func appendList(dst []byte, items []store.Item, more bool) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, shown(item)...)
	}
	var first, last *string
	if len(items) > 0 {
		first, last = &items[0].ID, &items[len(items)-1].ID
	}
	dst = appendText(append(dst, `],"first_id":`...), first)
	dst = appendText(append(dst, `,"last_id":`...), last)
	dst = strconv.AppendBool(append(dst, `,"has_more":`...), more)
	return append(dst, '}')
}
