package stored

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The bounds of a page of items.
const (
	defaultPage = 20
	maxPage     = 100
)

// appendPage writes one page of a list of items, which it may change.
func appendPage(rc *turn.RequestContext, items []store.Item, query url.Values) ([]byte, *apierror.Error) {
	page, err := readPage(query)
	if err != nil {
		return nil, err
	}

	// The order first: after is a place in the list as the client sees it.
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

	return newList(rc, items[:min(len(items), page.Limit)], more)
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

// newList makes a list object of items, once there is room for it.
func newList(rc *turn.RequestContext, items []store.Item, more bool) ([]byte, *apierror.Error) {
	size := ItemBytes(items...) + len(items) + listBytes
	if err := rc.Room(size); err != nil {
		return nil, err
	}
	return appendList(make([]byte, 0, size), items, more), nil
}

// listBytes is more than a list has beside its items and the commas between them, unless
// ids are long.
const listBytes = 512

// appendList appends a list object of items; more says that others follow.
func appendList(dst []byte, items []store.Item, more bool) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, it := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item.Shown(it)...)
	}

	id := func(dst []byte, of func([]store.Item) string) []byte {
		if len(items) == 0 {
			return append(dst, `null`...)
		}
		return jsontext.AppendString(dst, of(items))
	}
	dst = id(append(dst, `],"first_id":`...), func(list []store.Item) string { return list[0].ID })
	dst = id(append(dst, `,"last_id":`...), func(list []store.Item) string { return list[len(list)-1].ID })
	dst = strconv.AppendBool(append(dst, `,"has_more":`...), more)
	return append(dst, '}')
}
