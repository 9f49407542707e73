package engines

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// One listener serves two models on two engines, one of them a gRPC service, and a
// third model of the upstream, and lists all of them.
func TestSeveralModels(t *testing.T) {
	log := &stack.LogFile{Quiet: true}
	sims := map[string]string{stack.SGLangModel: stack.StartSim(t, log), stack.VLLMModel: stack.StartSim(t, log)}
	d := stack.Start(t, stack.Options{SimURL: sims[stack.SGLangModel], Config: func(c *config.Config) {
		c.Engines = []config.Engine{{Kind: "sglang", URLs: []string{sims[stack.SGLangModel]}}, {Kind: "vllm-grpc", URLs: []string{sims[stack.VLLMModel]}}}
		c.Models = []config.Model{{Match: "=" + stack.VLLMModel, Engine: "vllm-grpc"}, {Match: "=gpt-oss-fast", UpstreamModel: stack.SGLangModel, Effort: "low"}}
		c.TenantHeader = "x-tenant"
	}})

	failure := 0 // status of the upstream's reply; 0: it succeeds
	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case r.URL.Path == "/v1/models" && failure != 0:
			w.Header().Set("www-authenticate", "Bearer")
			w.WriteHeader(failure)
			_, _ = io.WriteString(w, `{"error":{"message":"theirs"}}`)
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"`+stack.OtherModel+`","object":"model","created":1,"owned_by":"them"}]}`)
		default:
			_, _ = io.WriteString(w, `upstream `+r.URL.Path+` `+string(body))
		}
	})

	t.Run("list", func(t *testing.T) {
		c := d.Openai()
		list := func() (ids []string) {
			t.Helper()
			page, err := c.Models.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Data {
				ids = append(ids, m.ID)
				if m.Object != "model" || m.Created == 0 || m.OwnedBy == "" {
					t.Errorf("%s", m.RawJSON())
				}
			}
			return ids
		}

		own := []string{"openai/gpt-oss-20b", "openai/gpt-oss-120b", stack.SGLangModel, stack.VLLMModel, "gpt-oss-fast"}
		if diff := cmp.Diff(append([]string{stack.OtherModel}, own...), list()); diff != "" {
			t.Errorf("models (-want +got):\n%s", diff)
		}

		one, err := c.Models.Get(t.Context(), stack.SGLangModel)
		if err != nil || one.ID != stack.SGLangModel || !strings.Contains(one.RawJSON(), `"max_model_len"`) {
			t.Errorf("%v, %v", one.RawJSON(), err)
		}

		resp := d.Do(t, http.MethodGet, "/v1/models/unlisted", "", http.NoBody)
		if text, err := io.ReadAll(resp.Body); string(text) != "upstream /v1/models/unlisted " || err != nil {
			t.Errorf("a model that is not listed: %s, %v", text, err)
		}

		failure = http.StatusTooManyRequests
		if diff := cmp.Diff(own, list()); diff != "" {
			t.Errorf("models without the upstream's (-want +got):\n%s", diff)
		}

		failure = http.StatusUnauthorized // clients check their key this way
		resp = d.Do(t, http.MethodGet, "/v1/models", "", http.NoBody)
		if text, err := io.ReadAll(resp.Body); resp.StatusCode != failure || string(text) != `{"error":{"message":"theirs"}}` || resp.Header.Get("www-authenticate") != "Bearer" || err != nil {
			t.Errorf("without a key: %s: %s, %v", resp.Status, text, err)
		}
	})

	t.Run("chat", func(t *testing.T) {
		for model, sim := range map[string]string{stack.SGLangModel: stack.SGLangModel, stack.VLLMModel: stack.VLLMModel, "gpt-oss-fast": stack.SGLangModel, stack.OtherModel: ""} {
			for _, more := range []string{"", `,"stream":true`} {
				id := "several-" + model + strings.NewReplacer(`"`, "", ",", "-", ":", "-").Replace(more)
				resp, text := d.Chat(t, model, "NOTHINK\nSAY hello", more, "x-request-id", id, "x-tenant", "a")
				want := `"content":"hello"`
				if sim == "" {
					want = "upstream /v1/chat/completions {"
				}

				if resp.StatusCode != http.StatusOK || !strings.Contains(text, want) {
					t.Errorf("%s%s: %s: %s", model, more, resp.Status, text)
				}

				for served, url := range sims {
					d.Sim = url
					if n := len(d.EngineRequests(t, id)); n != map[bool]int{true: 1}[served == sim] {
						t.Errorf("%s%s: the engine of %s got %d requests", model, more, served, n)
					}
				}
			}
		}
	})
}

// Every engine reports its model and its context length, gRPC engines by their own
// method. A request without a limit then asks for no more tokens than fit, which
// SGLang and vLLM would reject.
func TestContextOfEngines(t *testing.T) {
	address, _ := stack.StartSimAs(t, &stack.LogFile{Quiet: true}, "--models", stack.SGLangModel, "--context-length", "500")
	for _, kind := range engine.Kinds() {
		t.Run(kind, func(t *testing.T) {
			d := stack.Start(t, stack.Options{SimURL: address, Config: func(c *config.Config) {
				c.Engines, c.Models = []config.Engine{{Kind: kind, URLs: []string{address}}}, nil
			}})
			d.Upstream.Handle(http.NotFound)

			context := 500
			if kind == "sglang-grpc" {
				context -= 6 // its scheduler keeps so many free of a prompt
			}

			c := d.Openai()
			page, err := c.Models.List(t.Context())
			if err != nil || len(page.Data) != 1 || page.Data[0].ID != stack.SGLangModel || !strings.Contains(page.Data[0].RawJSON(), fmt.Sprintf(`"max_model_len":%d`, context)) {
				t.Errorf("%+v, %v", page, err)
			}

			if resp, text := d.Chat(t, stack.SGLangModel, "NOTHINK\nSAY yes", ""); gjson.Get(text, "choices.0.message.content").Str != "yes" {
				t.Errorf("%s: %s", resp.Status, text)
			}

			id := "context-" + kind
			resp, text := d.Chat(t, stack.SGLangModel, strings.Repeat("word ", 500), "", "x-request-id", id)
			if e := stack.ReadError(t, text); resp.StatusCode != http.StatusBadRequest || e.Code == nil || *e.Code != "context_length_exceeded" {
				t.Errorf("%s: %s", resp.Status, text)
			}

			if n := len(d.EngineRequests(t, id)); n != 0 {
				t.Errorf("the engine got %d requests with too long a prompt", n)
			}
			wantCard(t, d, context, kind != "llamacpp")
		})
	}
}

// wantCard checks that Codex learns the context length, and of a patch tool where its
// grammar is enforced, from the list that OpenAI's clients read.
func wantCard(t *testing.T, d *stack.Dataplane, context int, patches bool) {
	t.Helper()
	resp := d.Do(t, http.MethodGet, "/v1/models?client_version=0.171.0", "", http.NoBody)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}

	list := gjson.ParseBytes(text)
	card := list.Get("models.0")
	if list.Get("data.0.id").Str != stack.SGLangModel || card.Get("slug").Str != stack.SGLangModel ||
		card.Get("context_window").Int() != int64(context) || card.Get("apply_patch_tool_type").Exists() != patches {
		t.Errorf("Codex gets %s", text)
	}
}

// A request that writes the model's name in another way than the engine's list has
// the context length of the model too. Without a limit of its own it asks for no more
// tokens than fit.
func TestContextUnderAnotherName(t *testing.T) {
	const listed = "gpt-oss-20b"
	address, _ := stack.StartSimAs(t, &stack.LogFile{Quiet: true}, "--models", listed, "--context-length", "500")
	d := stack.Start(t, stack.Options{SimURL: address, Config: func(c *config.Config) {
		c.Engines, c.Models = []config.Engine{{Kind: "sglang", URLs: []string{address}}}, nil
	}})
	d.Upstream.Handle(http.NotFound)
	c := d.Openai()
	if _, err := c.Models.List(t.Context()); err != nil { // the engine has been asked
		t.Fatal(err)
	}
	for _, model := range []string{"openai/" + listed, "GPT-OSS-20B", "gpt-oss"} {
		if resp, text := d.Chat(t, model, "NOTHINK\nSAY yes", ""); gjson.Get(text, "choices.0.message.content").Str != "yes" {
			t.Errorf("%s: %s: %s", model, resp.Status, text)
		}
		id := "another-" + strings.ReplaceAll(model, "/", "-")
		resp, text := d.Chat(t, model, strings.Repeat("word ", 500), "", "x-request-id", id)
		if e := stack.ReadError(t, text); resp.StatusCode != http.StatusBadRequest || !strings.Contains(e.Message, "maximum context length is 500 tokens") || len(d.EngineRequests(t, id)) != 0 {
			t.Errorf("%s: %s: %s", model, resp.Status, text)
		}
	}
}

// Without a loopback listener the model list is the upstream's.
func TestModelsPassThrough(t *testing.T) {
	d := stack.Start(t, stack.Options{Direct: true})
	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "theirs "+r.URL.String()) })
	for _, path := range []string{"/v1/models", "/v1/models/x"} {
		resp := d.Do(t, http.MethodGet, path, "", http.NoBody)
		if text, err := io.ReadAll(resp.Body); string(text) != "theirs "+path || err != nil {
			t.Errorf("%s: %s, %v", path, text, err)
		}
	}
}
