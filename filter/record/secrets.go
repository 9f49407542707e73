package record

import (
	"net/http"
	"net/url"
	"strings"
)

// What no record has, whatever it has of contents: by what a client is known, and the
// credentials that it sends along for the tools of its request. They come in too many forms
// to be listed, so records have what is on a list of what may be kept: see kept.go.

// Hidden stands in place of what is not kept.
const Hidden = "[hidden]"

// Header returns the request's headers for a record, by their names in lower case.
func Header(h http.Header) map[string]string {
	c := make(map[string]string, len(h))
	for name, values := range h {
		name = strings.ToLower(name)
		c[name] = Hidden
		if keptHeader[name] {
			c[name] = strings.Join(values, ", ")
		}
	}
	return c
}

// Path returns the request's path for a record, with its query. A parameter without a value
// may be a value itself.
func Path(path, query string) string {
	if query == "" {
		return path
	}

	// Pair by pair, so that the order and the spelling stay.
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, assigned := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		switch {
		case err == nil && keptParameters[plain]:
		// Without an equals sign the whole of it may be a secret.
		case err != nil || !assigned:
			pairs[i] = url.QueryEscape(Hidden)
		default:
			pairs[i] = name + "=" + url.QueryEscape(Hidden)
		}
	}

	return path + "?" + strings.Join(pairs, "&")
}
