package record

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// What no record has, whatever it has of contents: by what a client is known, and the
// credentials that it sends along for the tools of its request.

// hidden stands in place of a secret.
const hidden = "[hidden]"

// secretHeaders are request headers that no record has. Others whose names contain one
// of secretWords are left out too.
var (
	secretHeaders = []string{"authorization", "proxy-authorization", "cookie", "set-cookie"}
	secretWords   = []string{"key", "token", "secret", "auth", "password", "credential", "session", "signature", "jwt", "assertion", "cert", "cookie"}
)

// isSecret reports whether the name of a header or of a parameter is that of a secret.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(secretHeaders, name) || slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// Header returns the request's headers for a record, by their names in lower case.
func Header(h http.Header) map[string]string {
	c := make(map[string]string, len(h))
	for name, values := range h {
		if name = strings.ToLower(name); !isSecret(name) {
			c[name] = strings.Join(values, ", ")
		}
	}
	return c
}

// Path returns the request's path for a record, with its query.
func Path(path, query string) string {
	if query == "" {
		return path
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err != nil || isSecret(plain) {
			pairs[i] = name + "=" + url.QueryEscape(hidden)
		}
	}
	return path + "?" + strings.Join(pairs, "&")
}

// Body returns the request's body for a record, of its own memory: the credentials of MCP
// servers are hidden, which tools of type mcp have in OpenAI's Responses, and mcp_servers
// in Anthropic's Messages.
func Body(body []byte) Text {
	var c cutter
	c.request(gjson.ParseBytes(body))
	clean := make([]byte, 0, len(body))
	at := 0
	for _, value := range c.found {
		if value.Index < at || value.Index+len(value.Raw) > len(body) {
			continue // it is not of the body itself
		}
		clean = append(append(clean, body[at:value.Index]...), `"`+hidden+`"`...)
		at = value.Index + len(value.Raw)
	}
	return Text{bytes: append(clean, body[at:]...)}
}

// cutter finds the values of a body that are hidden, in their order.
type cutter struct{ found []gjson.Result }

// request looks at a request, or at an endpoint's body that has one.
func (c *cutter) request(r gjson.Result) {
	if !r.IsObject() {
		return
	}
	r.ForEach(func(key, v gjson.Result) bool {
		switch name := key.Str; {
		case name == "tools":
			c.each(v, c.tool)
		case name == "mcp_servers":
			c.each(v, c.server)
		case name == "input": // items that add tools
			c.each(v, func(item gjson.Result) { c.each(item.Get("tools"), c.tool) })
		case strings.HasSuffix(name, "_request"): // of a reply that is derendered
			c.request(v)
		}
		return true
	})
}

func (c *cutter) each(list gjson.Result, do func(gjson.Result)) {
	if list.IsArray() {
		list.ForEach(func(_, v gjson.Result) bool {
			do(v)
			return true
		})
	}
}

// tool looks at a tool of Responses.
func (c *cutter) tool(t gjson.Result) {
	if t.IsObject() && t.Get("type").Str == "mcp" {
		c.server(t)
	}
}

// server looks at what says how a server is called.
func (c *cutter) server(s gjson.Result) {
	if !s.IsObject() {
		return
	}
	s.ForEach(func(key, v gjson.Result) bool {
		switch {
		case v.Type == gjson.String && (key.Str == "authorization" || key.Str == "authorization_token"):
			c.found = append(c.found, v)
		case key.Str == "headers" && v.IsObject():
			v.ForEach(func(_, value gjson.Result) bool {
				if value.Type == gjson.String {
					c.found = append(c.found, value)
				}
				return true
			})
		}
		return true
	})
}
