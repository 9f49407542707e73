package responses

import (
	"net/url"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// A response repeats every tool of its request as it was sent, also those that are not
// offered to the model. Secrets are left out: what goes to an MCP server beside its
// address, the path of that address, and what a container may use.

// secretMembers are left out of all tools but those of the client.
var secretMembers = map[string]bool{"authorization": true, "headers": true, "domain_secrets": true}

// repeat adds a tool to those that the response repeats.
func (e *echo) repeat(v gjson.Result) {
	if len(e.tools) > 0 {
		e.tools = append(e.tools, ',')
	}
	e.tools = appendTool(e.tools, v)
}

// appendTool appends a tool as a response repeats it.
func appendTool(dst []byte, v gjson.Result) []byte {
	switch v.Get("type").Str {
	case "function":
		return appendWith(dst, v, "description", "parameters", "strict") // which clients require to be there
	case "custom", "tool_search":
		return jsontext.AppendCompact(dst, v.Raw)
	case "namespace":
		return appendMembers(dst, v, func(dst []byte, key string, v gjson.Result) []byte {
			if key != "tools" || !v.IsArray() {
				return jsontext.AppendCompact(dst, v.Raw)
			}
			dst = append(dst, '[')
			for i, t := range v.Array() {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = appendTool(dst, t)
			}
			return append(dst, ']')
		})
	}
	return appendWithoutSecrets(dst, v)
}

// appendWith appends a tool, and null for each of the members that it does not have.
func appendWith(dst []byte, v gjson.Result, members ...string) []byte {
	dst = jsontext.AppendCompact(dst, v.Raw)
	for _, name := range members {
		if !v.Get(name).Exists() {
			dst = append(append(append(dst[:len(dst)-1], `,"`...), name...), `":null}`...)
		}
	}
	return dst
}

// appendMembers appends an object without its secret members. value appends a member's value.
func appendMembers(dst []byte, v gjson.Result, value func(dst []byte, key string, v gjson.Result) []byte) []byte {
	dst = append(dst, '{')
	comma := false
	v.ForEach(func(key, v gjson.Result) bool {
		if secretMembers[key.Str] {
			return true
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = value(append(jsontext.AppendString(dst, key.Str), ':'), key.Str, v)
		return true
	})
	return append(dst, '}')
}

// appendWithoutSecrets appends a value without the members that are secret, at any
// depth.
func appendWithoutSecrets(dst []byte, v gjson.Result) []byte {
	switch {
	case v.IsObject():
		return appendMembers(dst, v, func(dst []byte, key string, v gjson.Result) []byte {
			if key == "server_url" && v.Type == gjson.String {
				return jsontext.AppendString(dst, withoutPath(v.Str))
			}
			return appendWithoutSecrets(dst, v)
		})
	case v.IsArray():
		dst = append(dst, '[')
		for i, element := range v.Array() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendWithoutSecrets(dst, element)
		}
		return append(dst, ']')
	}
	return jsontext.AppendCompact(dst, v.Raw)
}

// withoutPath is an address up to its host.
func withoutPath(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "<redacted>"
	}
	return u.Scheme + "://" + u.Host + "/<redacted>"
}
