package e2e

import (
	"encoding/json"
	"errors"
	"io"
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

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// notFound is an upstream's reply for responses that it does not have.
func notFound(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"error":{"message":"not here","type":"invalid_request_error","param":null,"code":"upstream"}}`)
}

// sealKey is a key for encrypted reasoning.
const sealKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// wantStatus checks the status of an API error.
func wantStatus(t *testing.T, err error, status int) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status {
		t.Errorf("%v, want status %d", err, status)
	}
}

// sameJSON compares two JSON texts without the order of members.
func sameJSON(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(gjson.Parse(want).Value(), gjson.Parse(got).Value()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A stored response is returned as it was created, until it is deleted. Requests
// for unknown responses go to the upstream.
func TestResponsesStored(t *testing.T) {
	d := start(t, options{})
	d.upstream.handle(notFound)
	c := d.checkedOpenAI(t)
	for _, model := range harmonyModels {
		for name, respond := range responders {
			t.Run(model+"/"+name, func(t *testing.T) {
				p := asking(model, "THINK Hm.\nCOMMENTARY So.\nCALL get_weather {\"city\":\"Bern\"}")
				p.Tools, p.Metadata = responseTools, shared.Metadata{"a": "b"}
				r := respond(t, c, p)
				stored, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
				if err != nil {
					t.Fatal(err)
				}
				sameJSON(t, "stored", r.RawJSON(), stored.RawJSON())

				_, err = c.Responses.Cancel(t.Context(), r.ID)
				wantError(t, "cancel", err, http.StatusBadRequest, "", "response_id")
				_, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}, option.WithQuery("stream", "true"))
				wantError(t, "resume", err, http.StatusBadRequest, "", "stream")

				if err := c.Responses.Delete(t.Context(), r.ID); err != nil {
					t.Fatal(err)
				}
				_, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
				wantError(t, "get", err, http.StatusNotFound, "response_not_found", "response_id")
				wantError(t, "delete", c.Responses.Delete(t.Context(), r.ID), http.StatusNotFound, "response_not_found", "response_id")
				_, err = c.Responses.InputItems.List(t.Context(), r.ID, responses.InputItemListParams{})
				wantError(t, "input items", err, http.StatusNotFound, "response_not_found", "response_id")
				p = asking(model, "go on")
				p.PreviousResponseID = openai.String(r.ID)
				_, err = c.Responses.New(t.Context(), p)
				wantError(t, "continue", err, http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
			})
		}
	}
}

func TestResponsesNotStored(t *testing.T) {
	d := start(t, options{})
	d.upstream.handle(notFound)
	c := d.checkedOpenAI(t)
	for name, respond := range responders {
		t.Run(name, func(t *testing.T) {
			p := asking(sglangModel, "SAY yes")
			p.Store = openai.Bool(false)
			r := respond(t, c, p)
			if gjson.Get(r.RawJSON(), "store").Raw != "false" {
				t.Errorf("the response does not report that it is not stored: %s", r.RawJSON())
			}
			_, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
			wantStatus(t, err, http.StatusNotFound)
			p = asking(sglangModel, "")
			p.Input = inputs(responses.ResponseInputItemParamOfItemReference(r.Output[0].ID), userItem("SAY yes"))
			_, err = c.Responses.New(t.Context(), p)
			wantError(t, "reference", err, http.StatusNotFound, "item_not_found", "input[0].id")
		})
	}
}

// Each request of a chain has its own instructions, tools and effort.
func TestResponsesChain(t *testing.T) {
	d := start(t, options{config: func(c *config.Config) { c.Date = "2025-06-28" }})
	c := d.checkedOpenAI(t)
	for _, model := range harmonyModels {
		t.Run(model, func(t *testing.T) {
			p := asking(model, "THINK One is first.\nSAY one")
			p.Instructions, p.Tools = openai.String("Be brief."), responseTools
			first := respondStreamed(t, c, p)
			p = asking(model, "SAY two")
			p.PreviousResponseID = openai.String(first.ID)
			p.Instructions, p.Reasoning.Effort = openai.String("Be long."), shared.ReasoningEffortHigh
			id := "chain-2-" + model
			second := respondWhole(t, c, p, option.WithHeader("x-request-id", id))
			system := func(effort string) string {
				return "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" +
					"Knowledge cutoff: 2024-06\nCurrent date: 2025-06-28\n\nReasoning: " + effort + "\n\n" +
					"# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
			}
			turns := "<|start|>user<|message|>THINK One is first.\nSAY one<|end|><|start|>assistant<|channel|>final<|message|>one<|end|><|start|>user<|message|>SAY two<|end|>"
			want := system("high") + "<|start|>developer<|message|># Instructions\n\nBe long.<|end|>" + turns + "<|start|>assistant"
			if diff := cmp.Diff(want, d.awaitEngine(t, id, stateFinished).Prompt); diff != "" {
				t.Errorf("the prompt of the second (-want +got):\n%s", diff)
			}

			p = asking(model, "")
			p.PreviousResponseID = openai.String(second.ID)
			message := first.Output[len(first.Output)-1]
			p.Input = inputs(userItem("Again:"), responses.ResponseInputItemParamOfItemReference(message.ID), userItem("SAY three"))
			id = "chain-3-" + model
			respondStreamed(t, c, p, option.WithHeader("x-request-id", id))
			want = system("medium") + turns + "<|start|>assistant<|channel|>final<|message|>two<|end|><|start|>user<|message|>Again:<|end|>" +
				"<|start|>assistant<|channel|>final<|message|>one<|end|><|start|>user<|message|>SAY three<|end|><|start|>assistant"
			if diff := cmp.Diff(want, d.awaitEngine(t, id, stateFinished).Prompt); diff != "" {
				t.Errorf("the prompt of the third (-want +got):\n%s", diff)
			}
		})
	}
}

// The input items of a response are listed in pages.
func TestResponsesInputItems(t *testing.T) {
	d := start(t, options{})
	c := d.checkedOpenAI(t)
	p := asking(sglangModel, "")
	p.Input = inputs(userItem("one"), responses.ResponseInputItemParamOfMessage("two", responses.EasyInputMessageRoleAssistant), userItem("NOTHINK\nSAY four"))
	first := respondWhole(t, c, p)
	p = asking(sglangModel, "five")
	p.PreviousResponseID = openai.String(first.ID)
	r := respondStreamed(t, c, p)
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
	wantError(t, "limit", err, http.StatusBadRequest, "", "limit")
	_, err = c.Responses.InputItems.List(t.Context(), r.ID, responses.InputItemListParams{After: openai.String("msg_none")})
	wantError(t, "after", err, http.StatusBadRequest, "", "after")
}

// input_tokens returns the number of the same request's usage.
func TestResponsesInputTokens(t *testing.T) {
	d := start(t, options{})
	c := d.checkedOpenAI(t)
	for _, model := range harmonyModels {
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
				if want := respondWhole(t, c, p).Usage.InputTokens; got.InputTokens != want {
					t.Errorf("%d tokens are counted, the usage says %d", got.InputTokens, want)
				}
			}
			p := asking(model, "Grüße, 世界 👋🏽!")
			count(p)
			p.Instructions, p.Tools, p.Reasoning.Effort = openai.String("Be brief."), responseTools, shared.ReasoningEffortLow
			count(p)
			p.PreviousResponseID = openai.String(respondStreamed(t, c, asking(model, "SAY one")).ID)
			count(p)
			_, err := c.Responses.InputTokens.Count(t.Context(), responses.InputTokenCountParams{Model: openai.String(model)})
			wantError(t, "no input", err, http.StatusBadRequest, "", "input")
		})
	}
}

// Reasoning of a response that is not stored is returned encrypted. Another replica
// with the same key decrypts it, for the same tenant and if it is unchanged.
func TestResponsesEncryptedReasoning(t *testing.T) {
	const tenant = "x-tenant"
	keyed := func(c *config.Config) {
		c.TenantHeader = tenant
		c.Responses.SealKeys = []string{sealKey}
	}
	d, replica := start(t, options{config: keyed}), start(t, options{config: keyed})
	c, other := d.checkedOpenAI(t, option.WithHeader(tenant, "a")), replica.checkedOpenAI(t, option.WithHeader(tenant, "a"))
	for _, model := range harmonyModels {
		for name, respond := range responders {
			t.Run(model+"/"+name, func(t *testing.T) {
				question := "THINK " + secret + " \"ü\".\nCALL get_weather {\"city\":\"Bern\"}\nSAY sunny"
				p := asking(model, question)
				p.Tools, p.Store = responseTools, openai.Bool(false)
				p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
				first := respond(t, c, p)
				sealed := first.Output[0].EncryptedContent
				if sealed == "" || strings.Contains(sealed, secret) {
					t.Fatalf("sealed as %q", sealed)
				}
				again := func(sealed string) responses.ResponseNewParams {
					raw, err := json.Marshal(map[string]any{"type": "reasoning", "id": first.Output[0].ID, "summary": []string{}, "encrypted_content": sealed})
					if err != nil {
						t.Fatal(err)
					}
					call := callOf(t, first)
					p.Input = inputs(userItem(question), rawItem(string(raw)), rawItem(call.RawJSON()), outputOf(call, "sun"))
					return p
				}
				id := "sealed-" + model + "-" + name
				second := respond(t, other, again(sealed), option.WithHeader("x-request-id", id))
				if got := second.OutputText(); got != "sunny" {
					t.Errorf("answer %q", got)
				}
				want := "<|start|>assistant<|channel|>analysis<|message|>" + secret + ` "ü".<|end|>`
				if prompt := replica.awaitEngine(t, id, stateFinished).Prompt; !strings.Contains(prompt, want) {
					t.Errorf("the prompt has no %s:\n%s", want, prompt)
				}
				if got := respond(t, other, again(sealed[:len(sealed)-4]+"AAAA")); got.OutputText() != "sunny" {
					t.Errorf("answer to changed content: %q", got.OutputText())
				}
				_, err := other.Responses.New(t.Context(), again(sealed), option.WithHeader(tenant, "b"))
				wantError(t, "another tenant", err, http.StatusBadRequest, "", "input[1].encrypted_content")
			})
		}
	}
}

// Stored objects of one tenant do not exist for another.
func TestResponsesTenants(t *testing.T) {
	const tenant = "x-tenant"
	d := start(t, options{config: func(c *config.Config) { c.TenantHeader = tenant }})
	d.upstream.handle(notFound)
	a, b := d.checkedOpenAI(t, option.WithHeader(tenant, "a")), d.checkedOpenAI(t, option.WithHeader(tenant, "b"))
	r := respondStreamed(t, a, asking(sglangModel, "THINK Hm.\nSAY mine"))

	_, err := b.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
	wantStatus(t, err, http.StatusNotFound)
	_, err = b.Responses.InputItems.List(t.Context(), r.ID, responses.InputItemListParams{})
	wantStatus(t, err, http.StatusNotFound)
	wantStatus(t, b.Responses.Delete(t.Context(), r.ID), http.StatusNotFound)
	p := asking(sglangModel, "LAST_ASSISTANT")
	p.PreviousResponseID = openai.String(r.ID)
	_, err = b.Responses.New(t.Context(), p)
	wantError(t, "continue", err, http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
	reference := asking(sglangModel, "")
	reference.Input = inputs(responses.ResponseInputItemParamOfItemReference(r.Output[1].ID), userItem("LAST_ASSISTANT"))
	_, err = b.Responses.New(t.Context(), reference)
	wantError(t, "reference", err, http.StatusNotFound, "item_not_found", "input[0].id")
	anonymous := d.checkedOpenAI(t)
	_, err = anonymous.Responses.New(t.Context(), asking(sglangModel, "SAY yes"))
	wantError(t, "no tenant", err, http.StatusUnauthorized, "tenant_missing", "")
	_, err = anonymous.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
	wantError(t, "no tenant", err, http.StatusUnauthorized, "tenant_missing", "")

	if _, err := a.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); err != nil {
		t.Errorf("its own tenant: %v", err)
	}
	for _, p := range []responses.ResponseNewParams{p, reference} {
		if got := respondWhole(t, a, p).OutputText(); got != "LAST:mine" {
			t.Errorf("its own tenant continues with %q", got)
		}
	}
}
