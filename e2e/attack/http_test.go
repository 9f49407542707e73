//go:build attack

package attack

import (
	"fmt"
	"strings"
)

func httpArea() area {
	body := chatBody(simple, "")
	length := fmt.Sprint("content-length: ", len(body))
	var all []attack

	raw := func(name, want string, parts ...string) {
		all = append(all, attack{name: name, want: want, run: func(a *attempt) { a.checkRaw(a.raw(parts...)) }})
	}

	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PRI", "BREW"} {
		all = append(all, attack{name: "method " + method, want: "4xx 5xx closed", run: func(a *attempt) {
			a.checkRaw(a.raw(method + " " + chatPath + " HTTP/1.1\r\nhost: localhost\r\nx-tenant: attacker\r\ncontent-length: 0\r\n\r\n"))
		}})
	}

	for _, path := range []string{
		"/v1/responses/..%2f..%2fetc", "/v1/responses/%00", "/v1/responses/%zz", "/v1/responses/" + strings.Repeat("x", 8000), "/v1/responses/" + strings.Repeat("a/", 3000),
		"/v1/responses//input_items", "/v1/responses/resp_x/input_items?limit=1e9", "/v1/responses/resp_x?stream=true&starting_after=-1", "/v1/conversations/%2e%2e/items",
		"/v1/responses/resp_1%0d%0ax:y", "/v1/models/" + strings.Repeat("%41", 2000), "/v1/responses/resp_'or'1'='1", "/v1/responses/resp_*", "/v1/responses/{}", "/v1/conversations/conv_x/items/../../conv_y",
		"/v1/responses?" + strings.Repeat("a=b&", 2000), "/sim/requests/../requests%3f", "//", "/%", "/v1/chat/completions/",
	} {
		all = append(all, attack{name: fmt.Sprintf("path %.40s", path), want: "4xx closed", run: func(a *attempt) {
			a.checkRaw(a.raw("GET " + path + " HTTP/1.1\r\nhost: localhost\r\nx-tenant: attacker\r\n\r\n"))
		}})
	}

	for _, host := range []string{"", "[::1", "a b", "a,b", "x@y", "x/y", "127.0.0.1:99999", "%00", strings.Repeat("h", 5000), "_", "..", "localhost:", "ｌocalhost", "169.254.169.254"} {
		all = append(all, attack{name: fmt.Sprintf("host %.30q", host), want: "200 4xx", run: func(a *attempt) {
			a.checkRaw(a.raw("POST "+chatPath+" HTTP/1.1\r\nhost: "+host+"\r\nx-tenant: attacker\r\ncontent-type: application/json\r\n"+length+"\r\n\r\n", body))
		}})
	}

	// Refusals of Envoy itself. They have to be answers, not closed connections.
	raw("HTTP/1.0", "200 4xx", "POST "+chatPath+" HTTP/1.0\r\nhost: localhost\r\nx-tenant: attacker\r\ncontent-type: application/json\r\n"+length+"\r\n\r\n", body)
	raw("two lengths", "400", head(chatPath, length, "content-length: 7"), body)
	raw("a length and chunks", "400", head(chatPath, length, "transfer-encoding: chunked"), chunked(body, 100))
	raw("chunks twice", "400 501", head(chatPath, "transfer-encoding: chunked, chunked"), chunked(body, 100))
	raw("an unknown transfer encoding", "4xx 501", head(chatPath, "transfer-encoding: gzip"), body)
	raw("150 headers", "4xx", head(chatPath, append(manyHeaders(150), length)...), body)
	raw("a header of 100 KB", "4xx", head(chatPath, length, "x-a: "+strings.Repeat("a", 100_000)), body)
	raw("no host", "4xx", "POST "+chatPath+" HTTP/1.1\r\n"+length+"\r\n\r\n", body)
	raw("no HTTP", "4xx closed", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"+strings.Repeat("\x00", 200))
	raw("a line without end", "4xx closed", strings.Repeat("A", 200_000))

	for _, header := range []string{
		"x-a: b\nx-b: c", "x-a: \x00", "x a: b", ": b", "x-a\t: b", " x-folded: b", "x-a: b\r\n folded", "content-type: application/json; charset=utf-7", "x-request-id: " + strings.Repeat("r", 50_000), "x-request-id: a b\tc",
		"connection: x-tenant", "upgrade: h2c\r\nconnection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA", "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x\r\nsec-websocket-version: 13",
		"accept: " + strings.Repeat("a/b,", 5000), "accept-encoding: identity;q=0", "range: bytes=0-1", "if-match: x", "te: trailers", "x-envoy-original-path: /sim/requests", "x-envoy-upstream-rq-timeout-ms: 1", "x-forwarded-for: " + strings.Repeat("1.1.1.1,", 3000),
		"traceparent: 00-zz-zz-zz", "baggage: " + strings.Repeat("a=b,", 2000),
	} {
		name, _, _ := strings.Cut(header, "\r\n")
		all = append(all, attack{name: fmt.Sprintf("header %.40q", name), want: "200 4xx 5xx", run: func(a *attempt) {
			text := a.raw(head(chatPath, length, header), body)
			a.checkRaw(text)

			if strings.Contains(text, "\r\nx-injected:") {
				a.Errorf("a header is injected: %.300q", text)
			}
		}})
	}

	all = append(all, attack{name: "a request id of 50 KB is cut in the log", want: "short lines", run: func(a *attempt) {
		before := len(a.Logs.String())
		r := a.post(chatPath, body, "X-Request-Id", strings.Repeat("longid", 8000))

		longest := 0
		for line := range strings.Lines(a.Logs.String()[before:]) {
			if strings.HasPrefix(line, "filter") {
				longest = max(longest, strings.Count(line, "longid"))
			}
		}

		a.see("%d, %d bytes of it in a line", r.status, 6*longest)
		if 6*longest > 4096 {
			a.Errorf("%d bytes of a request id are in a log line", 6*longest)
		}
	}})

	for _, h := range []string{"x-harmony-engine", "x-harmony-prefix", "x-harmony-session", "x-harmony-prefill", "x-harmony-upstream", "x-harmony-prompt-tokens", "x-envoy-harmony", "x-envoy-harmony-codex", "x-gateway-destination-endpoint"} {
		all = append(all, attack{name: "the client's own " + h, want: "as without it", run: func(a *attempt) {
			r := a.post(chatPath, body, h, "off\u00a0evil-value")
			plain := a.post(chatPath, body)
			a.see("%s, %s", r.brief(), plain.brief())
			if r.status != plain.status {
				a.Errorf("%s, without the header %s", r.brief(), plain.brief())
			}

			for _, record := range a.EngineRequests(a.T, r.id()) {
				if strings.Contains(record.Header[h], "evil-value") && strings.HasPrefix(h, "x-harmony-") {
					a.Errorf("the engine gets %s: %s", h, record.Header[h])
				}
			}
		}})
	}

	return area{name: "http", attacks: all}
}

func manyHeaders(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("x-h%d: v", i)
	}
	return all
}

// bypassArea has requests for Harmony models that try to reach the engine's own API.
// None of them names a tenant, so the filter's answer is 401, and anything of the
// engine is a way round it.
func bypassArea() area {
	body := chatBody(simple, "")
	var all []attack

	add := func(name, path, contentType, body string) {
		all = append(all, attack{name: name, want: "4xx closed", run: func(a *attempt) {
			lines := []string{"POST " + path + " HTTP/1.1", "host: localhost", fmt.Sprint("content-length: ", len(body))}

			if contentType != "" {
				lines = append(lines, "content-type: "+contentType)
			}
			a.checkRaw(a.raw(strings.Join(lines, "\r\n")+"\r\n\r\n", body))
		}})
	}

	const jsonType = "application/json"
	add("without a tenant", chatPath, jsonType, body)

	for _, path := range []string{
		"/v1/%63hat/completions", "/v1/chat%2fcompletions", "/v1/chat%2Fcompletions", "//v1/chat/completions", "/v1//chat/completions", "/./v1/chat/completions", "/v1/./chat/completions", "/v1/x/../chat/completions",
		"/v1/chat/completions%20", "/v1/chat/completions?x=1", "/v1/chat/completions#x", "/v1/chat/completions/", "/v1/chat/completions;x", "/V1/chat/completions", "/v1%2fchat/completions", "/v1/%2e/chat/completions", "/v1/x/%2e%2e/chat/completions", "/v1\\chat\\completions",
		"http://localhost/v1/chat/completions", "/v1/%72esponses", "//v1/responses", "/v1/%6dessages",
	} {
		add("path "+path, path, jsonType, body)
	}

	for _, contentType := range []string{"", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "application/jsonp", "application/json, text/plain", "APPLICATION/JSON", "application/json;charset=utf-16", "application/problem+json", "*/*", "json"} {
		add(fmt.Sprintf("content type %q", contentType), chatPath, contentType, body)
	}

	for _, twice := range []string{
		`{"model":"x","model":"gpt-oss-20b","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"x","messages":[{"role":"user","content":"x"}],"model":"gpt-oss-20b"}`,
		`{"model":"x","\u006dodel":"gpt-oss-20b","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"x","messages":[{"role":"user","content":"` + strings.Repeat("long", 200_000) + `"}],"model":"gpt-oss-20b"}`,
		`{"model":"\u0067pt-oss-20b","messages":[{"role":"user","content":"x"}]}`,
	} {
		add(fmt.Sprintf("model in %.60s", twice), chatPath, jsonType, twice)
	}

	for _, path := range []string{"/v1/completions", "/generate", "/inference/v1/generate", "/completion", "/flush_cache", "/update_weights", "/abort_request", "/sim/requests", "/tokenize", "/metrics", "/invocations", "/pause"} {
		add("the engine's "+path, path, jsonType, `{"model":"gpt-oss-20b","prompt":[1,2,3],"max_tokens":1,"input_ids":[1],"rid":"x"}`)
	}
	add("a body without a model", chatPath, jsonType, `{"messages":[]}`)
	add("a response that is nobody's", responsesPath, jsonType, `{"previous_response_id":"resp_1","input":"x"}`)

	return area{name: "bypass", attacks: append(all, belowAttacks()...)}
}
