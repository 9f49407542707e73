package replies

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A request for an alias is served by its model: the engine gets the model's name, the
// client the one that it has asked for. The names of other models pass through.
func TestAliases(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Aliases = []config.Alias{{Name: "gpt-5", Model: stack.SGLangModel}, {Name: "claude-*", Model: stack.VLLMModel}}
	}})
	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[],"path":"`+r.URL.Path+`"}`)
	})

	for i, tt := range []struct{ name, model string }{{"gpt-5", stack.SGLangModel}, {"claude-sonnet-4-5", stack.VLLMModel}, {"Claude-Opus-4", stack.VLLMModel}} {
		for api, body := range map[string]string{
			"/v1/chat/completions": `{"model":%q,"messages":[{"role":"user","content":"NOTHINK\nSAY yes"}]%s}`,
			"/v1/responses":        `{"model":%q,"input":"NOTHINK\nSAY yes"%s}`,
		} {
			for _, more := range []string{"", `,"stream":true`} {
				id := fmt.Sprintf("alias-%d-%d-%d", i, len(api), len(more))
				resp := d.Do(t, http.MethodPost, api, "application/json", strings.NewReader(fmt.Sprintf(body, tt.name, more)), "x-request-id", id)
				text, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"model":"`+tt.name+`"`) || strings.Contains(string(text), tt.model) {
					t.Errorf("%s of %s%s: %s: %s, %v", api, tt.name, more, resp.Status, text, err)
				}

				requests := d.EngineRequests(t, id)
				if len(requests) != 1 || tt.model == stack.VLLMModel && gjson.GetBytes(requests[0].Params, "model").Str != tt.model {
					t.Errorf("%s of %s%s: the engine got %+v", api, tt.name, more, requests)
				}
			}
		}
	}

	resp, text := d.Chat(t, "claude", "hello", "") // is no alias
	if !strings.Contains(text, `"path":"/v1/chat/completions"`) {
		t.Errorf("a name that is no alias: %s: %s", resp.Status, text)
	}

	get := func(path string) string {
		resp := d.Do(t, http.MethodGet, path, "", http.NoBody)
		return stack.ReadText(t, resp)
	}
	if listed := get("/v1/models"); gjson.Get(listed, `data.#(id=="gpt-5").owned_by`).Str != "envoy-harmony" || strings.Contains(listed, "claude") {
		t.Errorf("the list is %s", listed)
	}
	for _, id := range []string{"gpt-5", "claude-haiku-4-5"} {
		if got := gjson.Get(get("/v1/models/"+id), "id").Str; got != id {
			t.Errorf("model %s is %q", id, got)
		}
	}
}
