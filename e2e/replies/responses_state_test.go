package replies

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A stored response is returned as it was created, until it is deleted. Requests
// for unknown responses go to the upstream.
func TestResponsesStored(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(stack.NotFound)
	c := d.CheckedOpenAI(t)
	for _, model := range stack.HarmonyModels {
		for name, respond := range stack.Responders {
			t.Run(model+"/"+name, func(t *testing.T) {
				p := stack.Asking(model, "THINK Hm.\nCOMMENTARY So.\nCALL get_weather {\"city\":\"Bern\"}")
				p.Tools, p.Metadata = stack.ResponseTools, shared.Metadata{"a": "b"}
				r := respond(t, c, p)
				stored, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
				if err != nil {
					t.Fatal(err)
				}
				stack.SameJSON(t, "stored", r.RawJSON(), stored.RawJSON())

				_, err = c.Responses.Cancel(t.Context(), r.ID)
				stack.WantError(t, "cancel", err, http.StatusBadRequest, "", "response_id")
				_, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}, option.WithQuery("stream", "true"))
				stack.WantError(t, "resume", err, http.StatusBadRequest, "", "stream")

				if err := c.Responses.Delete(t.Context(), r.ID); err != nil {
					t.Fatal(err)
				}
				_, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
				stack.WantError(t, "get", err, http.StatusNotFound, "response_not_found", "response_id")
				stack.WantError(t, "delete", c.Responses.Delete(t.Context(), r.ID), http.StatusNotFound, "response_not_found", "response_id")
				_, err = c.Responses.InputItems.List(t.Context(), r.ID, responses.InputItemListParams{})
				stack.WantError(t, "input items", err, http.StatusNotFound, "response_not_found", "response_id")
				p = stack.Asking(model, "go on")
				p.PreviousResponseID = openai.String(r.ID)
				_, err = c.Responses.New(t.Context(), p)
				stack.WantError(t, "continue", err, http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
			})
		}
	}
}

func TestResponsesNotStored(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(stack.NotFound)
	c := d.CheckedOpenAI(t)
	for name, respond := range stack.Responders {
		t.Run(name, func(t *testing.T) {
			p := stack.Asking(stack.SGLangModel, "SAY yes")
			p.Store = openai.Bool(false)
			r := respond(t, c, p)
			if gjson.Get(r.RawJSON(), "store").Raw != "false" {
				t.Errorf("the response does not report that it is not stored: %s", r.RawJSON())
			}
			_, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
			stack.WantStatus(t, err, http.StatusNotFound)
			p = stack.Asking(stack.SGLangModel, "")
			p.Input = stack.InputItems(responses.ResponseInputItemParamOfItemReference(r.Output[0].ID), stack.UserItem("SAY yes"))
			_, err = c.Responses.New(t.Context(), p)
			stack.WantError(t, "reference", err, http.StatusNotFound, "item_not_found", "input[0].id")
		})
	}
}

// Each request of a chain has its own instructions, tools and effort.
func TestResponsesChain(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Date = "2025-06-28" }})
	c := d.CheckedOpenAI(t)
	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) {
			p := stack.Asking(model, "THINK One is first.\nSAY one")
			p.Instructions, p.Tools = openai.String("Be brief."), stack.ResponseTools
			first := stack.RespondStreamed(t, c, p)
			p = stack.Asking(model, "SAY two")
			p.PreviousResponseID = openai.String(first.ID)
			p.Instructions, p.Reasoning.Effort = openai.String("Be long."), shared.ReasoningEffortHigh
			id := "chain-2-" + model
			second := stack.RespondWhole(t, c, p, option.WithHeader("x-request-id", id))
			system := func(effort string) string {
				return "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" +
					"Knowledge cutoff: 2024-06\nCurrent date: 2025-06-28\n\nReasoning: " + effort + "\n\n" +
					"# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
			}
			turns := "<|start|>user<|message|>THINK One is first.\nSAY one<|end|><|start|>assistant<|channel|>final<|message|>one<|end|><|start|>user<|message|>SAY two<|end|>"
			want := system("high") + "<|start|>developer<|message|># Instructions\n\nBe long.<|end|>" + turns + "<|start|>assistant"
			if diff := cmp.Diff(want, d.AwaitEngine(t, id, stack.StateFinished).Prompt); diff != "" {
				t.Errorf("the prompt of the second (-want +got):\n%s", diff)
			}

			p = stack.Asking(model, "")
			p.PreviousResponseID = openai.String(second.ID)
			message := first.Output[len(first.Output)-1]
			p.Input = stack.InputItems(stack.UserItem("Again:"), responses.ResponseInputItemParamOfItemReference(message.ID), stack.UserItem("SAY three"))
			id = "chain-3-" + model
			stack.RespondStreamed(t, c, p, option.WithHeader("x-request-id", id))
			want = system("medium") + turns + "<|start|>assistant<|channel|>final<|message|>two<|end|><|start|>user<|message|>Again:<|end|>" +
				"<|start|>assistant<|channel|>final<|message|>one<|end|><|start|>user<|message|>SAY three<|end|><|start|>assistant"
			if diff := cmp.Diff(want, d.AwaitEngine(t, id, stack.StateFinished).Prompt); diff != "" {
				t.Errorf("the prompt of the third (-want +got):\n%s", diff)
			}
		})
	}
}

// The input items of a response are listed in pages.
func TestResponsesInputItems(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.CheckedOpenAI(t)
	p := stack.Asking(stack.SGLangModel, "")
	p.Input = stack.InputItems(stack.UserItem("one"), responses.ResponseInputItemParamOfMessage("two", responses.EasyInputMessageRoleAssistant), stack.UserItem("NOTHINK\nSAY four"))
	first := stack.RespondWhole(t, c, p)

	p = stack.Asking(stack.SGLangModel, "five")
	p.PreviousResponseID = openai.String(first.ID)
	r := stack.RespondStreamed(t, c, p)
	want := []string{"one", "two", "NOTHINK\nSAY four", "four", "five"}

	for _, order := range []responses.InputItemListParamsOrder{responses.InputItemListParamsOrderAsc, responses.InputItemListParamsOrderDesc} {
		t.Run(string(order), func(t *testing.T) {
			var got []string
			pages := c.Responses.InputItems.ListAutoPaging(t.Context(), r.ID, responses.InputItemListParams{Order: order, Limit: openai.Int(2)})
			for pages.Next() {
				got = append(got, gjson.Get(pages.Current().RawJSON(), "content.0.text").Str)
			}
			if pages.Err() != nil {
				t.Fatal(pages.Err())
			}

			if order == responses.InputItemListParamsOrderDesc {
				slices.Reverse(got)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	_, err := c.Responses.InputItems.List(t.Context(), r.ID, responses.InputItemListParams{Limit: openai.Int(101)})
	stack.WantError(t, "limit", err, http.StatusBadRequest, "", "limit")
	_, err = c.Responses.InputItems.List(t.Context(), r.ID, responses.InputItemListParams{After: openai.String("msg_none")})
	stack.WantError(t, "after", err, http.StatusBadRequest, "", "after")
}

// input_tokens returns the number of the same request's usage.
func TestResponsesInputTokens(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.CheckedOpenAI(t)

	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) {
			count := func(p responses.ResponseNewParams) {
				t.Helper()
				got, err := c.Responses.InputTokens.Count(t.Context(), responses.InputTokenCountParams{
					Model: openai.String(model), Instructions: p.Instructions, Tools: p.Tools, Reasoning: p.Reasoning, PreviousResponseID: p.PreviousResponseID,
					Input: responses.InputTokenCountParamsInputUnion{OfString: p.Input.OfString},
				})
				if err != nil {
					t.Fatal(err)
				}
				if want := stack.RespondWhole(t, c, p).Usage.InputTokens; got.InputTokens != want {
					t.Errorf("%d tokens are counted, the usage says %d", got.InputTokens, want)
				}
			}

			p := stack.Asking(model, "Grüße, 世界 👋🏽!")
			count(p)
			p.Instructions, p.Tools, p.Reasoning.Effort = openai.String("Be brief."), stack.ResponseTools, shared.ReasoningEffortLow
			count(p)

			p.PreviousResponseID = openai.String(stack.RespondStreamed(t, c, stack.Asking(model, "SAY one")).ID)
			count(p)

			_, err := c.Responses.InputTokens.Count(t.Context(), responses.InputTokenCountParams{Model: openai.String(model)})
			stack.WantError(t, "no input", err, http.StatusBadRequest, "", "input")
		})
	}
}

// Reasoning of a response that is not stored is returned encrypted. Another replica
// with the same key decrypts it, for the same tenant and if it is unchanged.
func TestResponsesEncryptedReasoning(t *testing.T) {
	const tenant = "x-tenant"
	keyed := func(c *config.Config) {
		c.TenantHeader = tenant
		c.Responses.SealKeys = []string{stack.SealKey}
	}

	d, replica := stack.Start(t, stack.Options{Config: keyed}), stack.Start(t, stack.Options{Config: keyed})
	c, other := d.CheckedOpenAI(t, option.WithHeader(tenant, "a")), replica.CheckedOpenAI(t, option.WithHeader(tenant, "a"))

	for _, model := range stack.HarmonyModels {
		for name, respond := range stack.Responders {
			t.Run(model+"/"+name, func(t *testing.T) {
				question := "THINK " + stack.Secret + " \"ü\".\nCALL get_weather {\"city\":\"Bern\"}\nSAY sunny"
				p := stack.Asking(model, question)
				p.Tools, p.Store = stack.ResponseTools, openai.Bool(false)
				p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
				first := respond(t, c, p)

				sealed := first.Output[0].EncryptedContent
				if sealed == "" || strings.Contains(sealed, stack.Secret) {
					t.Fatalf("sealed as %q", sealed)
				}

				again := func(sealed string) responses.ResponseNewParams {
					raw, err := json.Marshal(map[string]any{"type": "reasoning", "id": first.Output[0].ID, "summary": []string{}, "encrypted_content": sealed})
					if err != nil {
						t.Fatal(err)
					}
					call := stack.CallOf(t, first)
					p.Input = stack.InputItems(stack.UserItem(question), stack.RawItem(string(raw)), stack.RawItem(call.RawJSON()), stack.OutputOf(call, "sun"))
					return p
				}

				id := "sealed-" + model + "-" + name
				second := respond(t, other, again(sealed), option.WithHeader("x-request-id", id))
				if got := second.OutputText(); got != "sunny" {
					t.Errorf("answer %q", got)
				}

				want := "<|start|>assistant<|channel|>analysis<|message|>" + stack.Secret + ` "ü".<|end|>`
				if prompt := replica.AwaitEngine(t, id, stack.StateFinished).Prompt; !strings.Contains(prompt, want) {
					t.Errorf("the prompt has no %s:\n%s", want, prompt)
				}

				if got := respond(t, other, again(sealed[:len(sealed)-4]+"AAAA")); got.OutputText() != "sunny" {
					t.Errorf("answer to changed content: %q", got.OutputText())
				}

				_, err := other.Responses.New(t.Context(), again(sealed), option.WithHeader(tenant, "b"))
				stack.WantError(t, "another tenant", err, http.StatusBadRequest, "", "input[1].encrypted_content")
			})
		}
	}
}

// Stored objects of one tenant do not exist for another.
func TestResponsesTenants(t *testing.T) {
	const tenant = "x-tenant"
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.TenantHeader = tenant }})
	d.Upstream.Handle(stack.NotFound)
	a, b := d.CheckedOpenAI(t, option.WithHeader(tenant, "a")), d.CheckedOpenAI(t, option.WithHeader(tenant, "b"))
	r := stack.RespondStreamed(t, a, stack.Asking(stack.SGLangModel, "THINK Hm.\nSAY mine"))

	_, err := b.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
	stack.WantStatus(t, err, http.StatusNotFound)
	_, err = b.Responses.InputItems.List(t.Context(), r.ID, responses.InputItemListParams{})
	stack.WantStatus(t, err, http.StatusNotFound)
	stack.WantStatus(t, b.Responses.Delete(t.Context(), r.ID), http.StatusNotFound)
	p := stack.Asking(stack.SGLangModel, "LAST_ASSISTANT")
	p.PreviousResponseID = openai.String(r.ID)
	_, err = b.Responses.New(t.Context(), p)
	stack.WantError(t, "continue", err, http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
	reference := stack.Asking(stack.SGLangModel, "")
	reference.Input = stack.InputItems(responses.ResponseInputItemParamOfItemReference(r.Output[1].ID), stack.UserItem("LAST_ASSISTANT"))
	_, err = b.Responses.New(t.Context(), reference)
	stack.WantError(t, "reference", err, http.StatusNotFound, "item_not_found", "input[0].id")
	anonymous := d.CheckedOpenAI(t)
	_, err = anonymous.Responses.New(t.Context(), stack.Asking(stack.SGLangModel, "SAY yes"))
	stack.WantError(t, "no tenant", err, http.StatusUnauthorized, "tenant_missing", "")
	_, err = anonymous.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
	stack.WantError(t, "no tenant", err, http.StatusUnauthorized, "tenant_missing", "")

	if _, err := a.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); err != nil {
		t.Errorf("its own tenant: %v", err)
	}
	for _, p := range []responses.ResponseNewParams{p, reference} {
		if got := stack.RespondWhole(t, a, p).OutputText(); got != "LAST:mine" {
			t.Errorf("its own tenant continues with %q", got)
		}
	}
}
