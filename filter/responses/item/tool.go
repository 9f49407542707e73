package item

import (
	"net/url"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Tools that clients send can have secrets: what goes to an MCP server beside its
// address, the path of that address, and what a container may use. Neither a response
// nor a stored item has them.

// secretMembers are left out of all tools but those of the client, whatever their case.
var secretMembers = []string{"authorization", "headers", "domain_secrets"}

// AppendTool appends a tool without its secrets. function appends a tool of the type
// function.
func AppendTool(dst []byte, v gjson.Result, function func(dst []byte, v gjson.Result) []byte) []byte {
	switch v.Get("type").Str {
	case "function":
		return function(dst, v)
	case "custom", "tool_search":
		return jsontext.AppendCompact(dst, v.Raw)
	// The tools in it are the client's too: secrets are looked for in each by its own type.
	case "namespace":
		return appendMembers(dst, v, func(dst []byte, key string, v gjson.Result) []byte {
			if key != "tools" || !v.IsArray() {
				return jsontext.AppendCompact(dst, v.Raw)
			}
			return appendElements(dst, v,
				func(dst []byte, v gjson.Result) []byte { return AppendTool(dst, v, function) })
		})
	}

	return appendWithoutSecrets(dst, v)
}

// appendStoredTools appends the tools of an item as they are stored.
func appendStoredTools(dst []byte, list gjson.Result) []byte {
	whole := func(dst []byte, v gjson.Result) []byte { return jsontext.AppendCompact(dst, v.Raw) }
	return appendElements(dst, list, func(dst []byte, v gjson.Result) []byte { return AppendTool(dst, v, whole) })
}

// appendElements appends an array. element appends one of its elements.
func appendElements(dst []byte, list gjson.Result, element func(dst []byte, v gjson.Result) []byte) []byte {
	dst = append(dst, '[')
	comma := false
	list.ForEach(func(_, v gjson.Result) bool {
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = element(dst, v)
		return true
	})

	return append(dst, ']')
}

// appendMembers appends an object without its secret members. value appends a member's value.
func appendMembers(dst []byte, v gjson.Result, value func(dst []byte, key string, v gjson.Result) []byte) []byte {
	dst = append(dst, '{')
	comma := false
	v.ForEach(func(key, v gjson.Result) bool {
		if isOneOf(key.Str, secretMembers) {
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

func isOneOf(name string, names []string) bool {
	for _, n := range names {
		if strings.EqualFold(name, n) {
			return true
		}
	}
	return false
}

// appendWithoutSecrets appends a value without the members that are secret, at any
// depth.
func appendWithoutSecrets(dst []byte, v gjson.Result) []byte {
	switch {
	case v.IsObject():
		return appendMembers(dst, v, func(dst []byte, key string, v gjson.Result) []byte {
			// Servers put keys into the path of their address; the host says which server it is.
			if strings.EqualFold(key, "server_url") && v.Type == gjson.String {
				return jsontext.AppendString(dst, withoutPath(v.Str))
			}
			return appendWithoutSecrets(dst, v)
		})
	case v.IsArray():
		return appendElements(dst, v, appendWithoutSecrets)
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
