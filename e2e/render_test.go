package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// post sends JSON and returns the status and the reply.
func (d *dataplane) post(t *testing.T, path, body string) (int, gjson.Result) {
	t.Helper()
	resp, err := d.client.Post(d.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, gjson.ParseBytes(text)
}

// A rendered request has as many tokens as its model call, whatever its length.
func TestRender(t *testing.T) {
	d := start(t, options{})
	for path, c := range map[string]struct{ field, usage string }{
		"/v1/chat/completions": {"messages", "usage.prompt_tokens"},
		"/v1/responses":        {"input", "usage.input_tokens"},
	} {
		ask := func(model, text string) string {
			return fmt.Sprintf(`{"model":%q,%q:[{"role":"user","content":%q}]}`, model, c.field, text)
		}
		for _, model := range harmonyModels {
			body := ask(model, "SAY Grüße, 世界 👋🏽!")
			status, rendered := d.post(t, path+"/render", body)
			_, reply := d.post(t, path, body)
			if n := rendered.Get("token_count").Int(); status != http.StatusOK || n == 0 || n != reply.Get(c.usage).Int() || n != rendered.Get("token_ids.#").Int() {
				t.Errorf("%s of %s: status %d, %d tokens, the usage says %s", path, model, status, n, reply.Get(c.usage))
			}
		}
		const words = 1_000_000 // a reply of several megabytes
		status, rendered := d.post(t, path+"/render", ask(vllmModel, strings.Repeat(" word", words)))
		if n := rendered.Get("token_ids.#").Int(); status != http.StatusOK || n < words || strings.Count(rendered.Get("text").Str, " word") != words {
			t.Errorf("a long prompt of %s: status %d, %d tokens, %.200s", path, status, n, rendered.Raw)
		}
		if status, _ := d.post(t, path+"/render", ask(otherModel, "x")); status != http.StatusNotFound {
			t.Errorf("%s of another model: status %d, not the upstream's", path, status)
		}
	}
}
