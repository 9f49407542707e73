//go:build attack

package attack

import (
	"fmt"
	"strings"
)

// belowAttacks has paths below those of the filter, and methods that they do not have,
// with a tenant. The engine must not get them.
func belowAttacks() []attack {
	var all []attack

	add := func(want, method string, paths ...string) {
		for _, path := range paths {
			all = append(all, attack{name: method + " " + path, want: want, run: func(a *attempt) {
				body := chatBody(simple, "")
				if method == "GET" || method == "HEAD" {
					body = ""
				}
				id := fmt.Sprintf("below-%s-%x", method, path)
				text := a.raw(fmt.Sprintf("%s %s HTTP/1.1\r\nhost: localhost\r\nx-tenant: attacker\r\nx-request-id: %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", method, path, id, len(body)), body)
				a.checkRaw(text)
				if want == "405" && !strings.Contains(strings.ToLower(text), "\r\nallow: ") {
					a.Errorf("a 405 lists no methods: %.300q", text)
				}

				if got := a.EngineRequests(a.T, id); len(got) > 0 {
					a.Errorf("the engine has got %d requests", len(got))
				}
			}})
		}
	}

	add("404", "POST", "/v1/chat/completions/batch", "/v1/chat/completions/x/y", "/v1/responses/resp_1/secrets", "/v1/responses/resp_1/a/b/c", "/v1/conversations/conv_1/dump", "/v1/messages/batches", "/v1/messages/batches/x/cancel", "/v1/x/../responses/resp_1/secrets")
	add("404", "GET", "/v1/chat/completions/x/y/z", "/v1/responses/resp_1/secrets?x=/v1/embeddings", "/v1/messages/batches")
	add("405", "GET", "/v1/chat/completions", "/v1/messages", "/v1/responses/input_tokens/../input_tokens/../../chat/completions")

	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		add("405", method, "/v1/chat/completions", "/v1/messages")
	}
	add("400", "BREW", "/v1/chat/completions", "/v1/messages") // Envoy takes HTTP/1.1 methods that it knows
	add("405", "PATCH", "/v1/responses/resp_1", "/v1/conversations/conv_1", "/v1/conversations/conv_1/items")
	add("405", "HEAD", "/v1/chat/completions")
	add("404", "HEAD", "/v1/responses/resp_1") // answered as a GET
	return all
}
