package replies

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// Every case gets the same response from both engines, streamed or not.
func TestResponses(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.CheckedOpenAI(t)
	final := func(text string) stack.Item {
		return stack.Item{Type: "message", Status: "completed", Phase: "final_answer", Text: text}
	}
	reasoning := func(text string) stack.Item { return stack.Item{Type: "reasoning", Status: "completed", Text: text} }
	withTools := func(p *responses.ResponseNewParams) { p.Tools = stack.ResponseTools }

	for _, tt := range []struct {
		name   string
		text   string
		change func(*responses.ResponseNewParams)
		want   []stack.Item
		status string // default: completed
		reason string // of an incomplete response
	}{
		{name: "answer", text: "THINK Let me see.\nSAY Grüße, 世界 👋🏽!", want: []stack.Item{reasoning("Let me see."), final("Grüße, 世界 👋🏽!")}},
		{name: "no reasoning", text: "NOTHINK\nSAY yes", want: []stack.Item{final("yes")}},
		{name: "markers are text", text: "NOTHINK\nSAY a<|end|>b", want: []stack.Item{final("a<|end|>b")}},
		{name: "empty answer", text: "@@<channel>final<message><return>@@", want: []stack.Item{final("")}},
		{name: "no channel", text: "@@<message>plain text<return>@@", want: []stack.Item{final("plain text")}},
		{
			name: "summary", text: "THINK Hm.\nSAY yes",
			change: func(p *responses.ResponseNewParams) { p.Reasoning.Summary = shared.ReasoningSummaryAuto },
			want:   []stack.Item{{Type: "reasoning", Status: "completed", Summary: "Hm."}, final("yes")},
		},
		{
			name: "preamble and call", text: "THINK A tool.\nCOMMENTARY I look it up.\nCALL get_weather {\"city\":\"Zürich\"}", change: withTools,
			want: []stack.Item{
				reasoning("A tool."),
				{Type: "message", Status: "completed", Phase: "commentary", Text: "I look it up."},
				{Type: "function_call", Status: "completed", Name: "get_weather", Text: `{"city":"Zürich"}`},
			},
		},
		{
			name: "custom tool", text: "NOTHINK\nCALL shell {\"input\":\"echo \\\"\\u00fc\\\"\\n\"}", change: withTools,
			want: []stack.Item{{Type: "custom_tool_call", Status: "completed", Name: "shell", Text: "echo \"ü\"\n"}},
		},
		{
			name: "namespace", text: "NOTHINK\nCALL places.find {\"city\":\"Bern\"}", change: withTools,
			want: []stack.Item{{Type: "function_call", Status: "completed", Namespace: "places", Name: "find", Text: `{"city":"Bern"}`}},
		},
		{
			name: "length", text: "NOTHINK\nWORDS 1000", status: "incomplete", reason: "max_output_tokens",
			change: func(p *responses.ResponseNewParams) { p.MaxOutputTokens = openai.Int(7) }, // three of them are the header
			want:   []stack.Item{{Type: "message", Status: "incomplete", Phase: "final_answer", Text: "w1 w2"}},
		},
		{
			name: "length of a call", text: "NOTHINK\nCALL get_weather {\"city\":\"Bern\"}", status: "incomplete", reason: "max_output_tokens",
			change: func(p *responses.ResponseNewParams) { p.Tools, p.MaxOutputTokens = stack.ResponseTools, openai.Int(16) },
			want:   []stack.Item{{Type: "function_call", Status: "incomplete", Name: "get_weather", Text: `{"city":"Bern`}},
		},
	} {
		for _, model := range stack.HarmonyModels {
			for name, respond := range stack.Responders {
				t.Run(tt.name+"/"+model+"/"+name, func(t *testing.T) {
					p := stack.Asking(model, tt.text)
					if tt.change != nil {
						tt.change(&p)
					}

					r := respond(t, c, p)
					if diff := gocmp.Diff(tt.want, stack.ItemsOf(r)); diff != "" {
						t.Errorf("items (-want +got):\n%s", diff)
					}
					if got, want := string(r.Status), cmp.Or(tt.status, "completed"); got != want || r.IncompleteDetails.Reason != tt.reason {
						t.Errorf("status %s, reason %q, want %s, %q", got, r.IncompleteDetails.Reason, want, tt.reason)
					}

					thinks := len(tt.want) > 0 && tt.want[0].Type == "reasoning"
					if u := r.Usage; u.InputTokens == 0 || u.OutputTokens == 0 || (u.OutputTokensDetails.ReasoningTokens > 0) != thinks {
						t.Errorf("usage %s", u.RawJSON())
					}
				})
			}
		}
	}
}

// Two turns with a tool of each kind, continued by id or with the whole history:
// the engine gets the same prompts.
func TestResponsesToolTurns(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.CheckedOpenAI(t)

	for _, tool := range []struct{ name, call, arguments string }{
		{"functions.get_weather", "get_weather", `{"city":"Bern"}`},
		{"functions.shell", "shell", `{"input":"ls"}`},
		{"places.find", "places.find", `{"city":"Rom"}`},
	} {
		for _, model := range stack.HarmonyModels {
			for name, respond := range stack.Responders {
				for _, chained := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/%s/chained=%v", tool.name, model, name, chained), func(t *testing.T) {
						question := fmt.Sprintf("THINK I need it.\nCALL %s %s\nSAY done", tool.call, tool.arguments)
						p := stack.Asking(model, question)
						p.Tools = stack.ResponseTools
						first := respond(t, c, p)

						output := stack.OutputOf(stack.CallOf(t, first), "sunny")
						if chained {
							p.PreviousResponseID = openai.String(first.ID)
							p.Input = stack.InputItems(output)
						} else {
							p.Store = openai.Bool(false)
							p.Input = stack.InputItems(append(append([]responses.ResponseInputItemUnionParam{stack.UserItem(question)}, stack.AsInput(first)...), output)...)
						}

						id := strings.NewReplacer("/", "-", "=", "-").Replace(t.Name())
						second := respond(t, c, p, option.WithHeader("x-request-id", id))
						if got := second.OutputText(); got != "done" {
							t.Errorf("answer %q", got)
						}

						want := "<|start|>assistant<|channel|>analysis<|message|>I need it.<|end|>" +
							"<|start|>assistant<|channel|>commentary to=" + tool.name + " <|constrain|>json<|message|>" + tool.arguments + "<|call|>" +
							"<|start|>" + tool.name + " to=assistant<|channel|>commentary<|message|>sunny<|end|><|start|>assistant"
						if prompt := d.AwaitEngine(t, id, stack.StateFinished).Prompt; !strings.HasSuffix(prompt, want) {
							t.Errorf("the prompt does not end with %s:\n%s", want, prompt)
						}
					})
				}
			}
		}
	}
}

// Unsupported requests are rejected with the parameter. Errors before the reply are
// HTTP errors, streamed or not.
func TestResponsesErrorsBeforeTheReply(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, tt := range []struct {
		name     string
		more     string // further members of the request
		behavior string // directives for the engine
		status   int
		typ      string
		param    string
	}{
		{"background that is not stored", `,"background":true,"store":false`, "", 400, "invalid_request_error", "background"},
		{"unknown conversation", `,"conversation":"conv_1"`, "", 404, "not_found_error", "conversation"},
		{"format", `,"text":{"format":{"type":"xml"}}`, "", 400, "invalid_request_error", "text.format"},
		{"forced tool without tools", `,"tool_choice":"required"`, "", 400, "invalid_request_error", "tool_choice"},
		{"logprobs of chat", `,"logprobs":true`, "", 400, "invalid_request_error", "logprobs"},
		{"unknown previous response", `,"previous_response_id":"resp_none"`, "", 400, "invalid_request_error", "previous_response_id"},
		{"engine 400", "", "status=400", 400, "invalid_request_error", ""},
		{"engine 429", "", "status=429 retry-after=7", 429, "rate_limit_error", ""},
		{"engine 503", "", "status=503 body=html", 503, "server_error", ""},
		{"engine error as first event", "", "fault=error@0", 502, "server_error", ""},
	} {
		for _, model := range stack.HarmonyModels {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/stream=%v", tt.name, model, stream), func(t *testing.T) {
					resp, text := d.Respond(t, model, stack.Secret, fmt.Sprintf(`,"stream":%v%s`, stream, tt.more), "x-engine-sim", tt.behavior)
					got := stack.ReadError(t, text)

					param := ""
					if got.Param != nil {
						param = *got.Param
					}
					if resp.StatusCode != tt.status || got.Type != tt.typ || param != tt.param {
						t.Errorf("status %d, want %d, type %s, param %s: %s", resp.StatusCode, tt.status, tt.typ, tt.param, text)
					}
				})
			}
		}
	}
}

// An engine error during a stream is response.failed with the output so far, and is
// stored that way. For a reply that is not streamed it is an HTTP error.
func TestResponsesErrorsDuringTheReply(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.CheckedOpenAI(t)
	for _, fault := range []string{"error@30", "end@30", "garbage@30", "done@30"} {
		for _, model := range stack.HarmonyModels {
			t.Run(fault+"/"+model, func(t *testing.T) {
				p := stack.Asking(model, "THINK Hm.\nWORDS 60\nSIM delay=10ms fault="+fault)
				r := stack.RespondStreamed(t, c, p)
				items := stack.ItemsOf(r)
				if r.Status != "failed" || r.Error.Code != "server_error" || len(items) != 2 || items[1].Status != "incomplete" || !strings.HasPrefix(items[1].Text, "w1 w2 w3") {
					t.Fatalf("response %s", r.RawJSON())
				}
				stored, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
				if err != nil {
					t.Fatal(err)
				}
				stack.SameJSON(t, "stored", r.RawJSON(), stored.RawJSON())

				_, err = c.Responses.New(t.Context(), p)
				stack.WantStatus(t, err, http.StatusBadGateway)
			})
		}
	}
}

// If a client disconnects during a stream, the request at the engine is cancelled.
// The output so far is stored as cancelled.
func TestResponsesDisconnect(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(stack.NotFound)
	c := d.CheckedOpenAI(t)

	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) {
			id := "left-" + model
			response := leave(t, d, model, id)
			d.AwaitEngine(t, id, stack.StateCancelled)

			for deadline := time.Now().Add(stack.Patience); ; time.Sleep(10 * time.Millisecond) {
				stored, err := c.Responses.Get(t.Context(), response, responses.ResponseGetParams{})
				if err == nil {
					items := stack.ItemsOf(stored)
					if stored.Status != "cancelled" || len(items) != 1 || items[0].Status != "incomplete" || !strings.HasPrefix(items[0].Text, "w") {
						t.Errorf("stored %s", stored.RawJSON())
					}
					return
				}
				stack.WantStatus(t, err, http.StatusNotFound)
				if time.Now().After(deadline) {
					t.Fatal("the response is not stored")
				}
			}
		})
	}
}

// leave starts a stream, disconnects after the first text and returns the id of the
// response.
func leave(t *testing.T, d *stack.Dataplane, model, id string) string {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()

	body := fmt.Sprintf(`{"model":%q,"input":"NOTHINK\nWORDS 1000000 5","stream":true}`, model)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/responses", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)

	resp, err := d.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	response := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		event := gjson.Parse(strings.TrimPrefix(lines.Text(), "data: "))
		if found := event.Get("response.id").Str; found != "" {
			response = found
		}
		if event.Get("type").Str == "response.output_text.delta" {
			return response
		}
	}

	t.Fatal("the stream has no text")
	return ""
}

// The events do not depend on the engine's tokens per event or chunk boundaries.
func TestResponsesEngineChunking(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, model := range stack.HarmonyModels {
		for _, behavior := range []string{"cut=1", "tokens-per-event=40", "tokens-per-event=random:8 cut=random:9 seed=7 crlf=true"} {
			t.Run(model+"/"+behavior, func(t *testing.T) {
				_, sse := d.Respond(t, model, "THINK Thinking about 👩‍👩‍👧‍👦.\nCOMMENTARY Now.\nCALL shell {\"input\":\"\\ud83d\\udc4b ẞ\"}",
					`,"stream":true,"tools":[{"type":"custom","name":"shell"}],"reasoning":{"summary":"auto"}`, "x-engine-sim", behavior)
				object, err := responsestest.Stream([]byte(sse))
				if err != nil {
					t.Fatalf("%v, in\n%s", err, sse)
				}
				got := fmt.Sprint(gjson.GetBytes(object, `output.#.{"t":type,"s":summary.0.text,"x":content.0.text,"i":input}`))
				want := `[{"t":"reasoning","s":"Thinking about 👩‍👩‍👧‍👦."},{"t":"message","x":"Now."},{"t":"custom_tool_call","i":"👋 ẞ"}]`
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}
