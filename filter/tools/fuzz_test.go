package tools

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// fuzzSecret is the secret of the server of the fuzz targets.
const fuzzSecret = "s3cr3t-of-the-server"

// FuzzResult reads arbitrary results of tool calls. What the model and the client get of
// one is bounded, is valid JSON and UTF-8, and does not have the server's secrets.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"},{"type":"text","text":"` + fuzzSecret + `"}]}`,
		`{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"resource_link","name":"n","uri":"file:///a","description":"d"}],"isError":true}`,
		`{"content":[{"type":"resource","resource":{"uri":"u","text":"\ud83d\ud83d","blob":"AA=="}},7,null,{"type":5}],"structuredContent":{"a":"s3cr3t\u002dof-the-server"}}`,
		`{"resultType":"input_required"}`,
		`{"content":null,"structuredContent":null,"isError":true}`,
	} {
		f.Add([]byte(seed), uint16(0))
		f.Add([]byte(seed), uint16(9))
	}

	f.Fuzz(func(t *testing.T, raw []byte, more uint16) {
		limit := 1024 + int(more) // the least that a configuration may have
		x := &task{client: &Client{o: Options{MaxResultBytes: limit}}, server: &Server{Header: http.Header{"Authorization": {"Bearer " + fuzzSecret}}}, tool: "f"}
		r, err := x.result(&jsonrpc.Response{Result: raw})
		if err != nil {
			if json.Valid(raw) && isObject(raw) && strings.Contains(err.Error(), fuzzSecret) {
				t.Fatalf("the error has the secret: %v", err)
			}
			return
		}

		if len(r.Text) > limit || len(r.Error) > max(limit, 128) {
			t.Errorf("the model gets %d bytes and an error of %d, more than %d", len(r.Text), len(r.Error), limit)
		}

		if len(r.Structured) > 0 && !json.Valid(r.Structured) {
			t.Errorf("the structured result is not JSON: %q", r.Structured)
		}

		size := len(r.Structured)
		texts := []string{r.Text, r.Error, string(r.Structured)}

		for i := range r.Content {
			p := &r.Content[i]
			size += p.size() - partBytes
			texts = append(texts, p.Text, p.MIME, p.URI, p.Name)
		}

		if size > 6*len(raw)+128 { // [hidden] and U+FFFD are longer than what they replace
			t.Errorf("%d bytes of a result of %d", size, len(raw))
		}

		for _, text := range texts {
			if !utf8.ValidString(text) && utf8.Valid(raw) {
				t.Errorf("not UTF-8: %q", text)
			}
			if strings.Contains(text, fuzzSecret) {
				t.Errorf("the secret is shown: %q", text)
			}
		}
	})
}

// FuzzListing reads arbitrary pages of lists of tools. Schemas are JSON objects in the
// server's order, and nothing grows.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"f","title":"t","description":"d","inputSchema":{"type":"object","b":1,"a":2},"annotations":{"readOnlyHint":true}}]}`))
	f.Add([]byte(`{"tools":[{"name":"f","inputSchema":[],"annotations":7},{},null,{"NAME":"g","inputSchema":{"default":"s3cr3t-of-the-server"}}]}`))
	f.Add([]byte(`{"tools":{}}`))
	server := &Server{Header: http.Header{"Authorization": {"Bearer " + fuzzSecret}}}
	secrets := server.mask(minSecretBytesInResults)
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parseTools(&mcp.ListToolsResult{}, &jsonrpc.Response{Result: raw})
		if err != nil {
			return
		}

		for i := range list {
			tool := &list[i]
			if n := tool.bytes(); n > 3*len(raw) { // U+FFFD has three bytes
				t.Errorf("%d bytes of a page of %d", n, len(raw))
			}

			tool.hide(secrets)
			for _, object := range []json.RawMessage{tool.InputSchema, tool.Annotations} {
				if object != nil && !isObject(object) {
					t.Errorf("not an object: %q", object)
				}
				if strings.Contains(string(object), fuzzSecret) {
					t.Errorf("the secret is shown: %q", object)
				}
			}
		}
	})
}

// FuzzArguments shows that a tool gets nothing but JSON objects as arguments.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"", " \n", "{}", ` {"a":1} `, "[]", `{"a":1}}`, `{"a":"\ud800"}`, "null", "{'a':1}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw, ok := parseArguments(text)
		if !ok {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil || object == nil {
			t.Fatalf("%q becomes %q: %v", text, raw, err)
		}
		if again, ok := parseArguments(string(raw)); !ok || string(again) != string(raw) {
			t.Errorf("%q becomes %q and then %q", text, raw, again)
		}
	})
}
