package replies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// Every case gets the same reply from both engines, streamed or not.
func TestChat(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.Openai()
	withTool := func(p *openai.ChatCompletionNewParams) {
		p.Tools = []openai.ChatCompletionToolUnionParam{stack.WeatherTool}
	}

	for _, tt := range []struct {
		name   string
		text   string
		change func(*openai.ChatCompletionNewParams)
		want   []stack.ChoiceResult
	}{
		{"answer", "THINK Let me see.\nSAY Grüße, 世界 👋🏽!", nil, []stack.ChoiceResult{{Reasoning: "Let me see.", Content: "Grüße, 世界 👋🏽!", Finish: "stop"}}},
		{"no reasoning", "NOTHINK\nSAY yes", nil, []stack.ChoiceResult{{Content: "yes", Finish: "stop"}}},
		{
			"choices", "THINK Hm.\nSAY yes", func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) },
			[]stack.ChoiceResult{{Reasoning: "Hm.", Content: "yes", Finish: "stop"}, {Reasoning: "Hm.", Content: "yes", Finish: "stop"}},
		},
		{
			"stop string", "THINK w3 is no stop.\nWORDS 10", func(p *openai.ChatCompletionNewParams) {
				p.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"3 w4", "never"}}
			},
			[]stack.ChoiceResult{{Reasoning: "w3 is no stop.", Content: "w1 w2 w", Finish: "stop"}},
		},
		{
			"length", "NOTHINK\nWORDS 1000", func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(3) },
			[]stack.ChoiceResult{{Finish: "length"}}, // the header has three tokens
		},
		{
			"call", "THINK A tool.\nCOMMENTARY I look it up.\nCALL get_weather {\"city\":\"Zürich\"}", withTool,
			[]stack.ChoiceResult{{Reasoning: "A tool.", Content: "I look it up.", Calls: []stack.Call{{Name: "get_weather", Arguments: `{"city":"Zürich"}`}}, Finish: "tool_calls"}},
		},
	} {
		for _, model := range stack.HarmonyModels {
			t.Run(tt.name+"/"+model, func(t *testing.T) {
				p := stack.UserMessage(model, tt.text)
				if tt.change != nil {
					tt.change(&p)
				}

				one, many := stack.NonStreamed(t, c, p), stack.Streamed(t, c, p)
				if diff := cmp.Diff(tt.want, one.Choices); diff != "" {
					t.Errorf("whole reply (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.want, many.Choices); diff != "" {
					t.Errorf("streamed reply (-want +got):\n%s", diff)
				}

				for _, r := range []stack.ChatReply{one, many} {
					u := r.Usage
					if u.PromptTokens == 0 || u.CompletionTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
						t.Errorf("usage %s", u.RawJSON())
					}
					if has := tt.want[0].Reasoning != ""; (u.CompletionTokensDetails.ReasoningTokens > 0) != has {
						t.Errorf("%d reasoning tokens", u.CompletionTokensDetails.ReasoningTokens)
					}
				}
			})
		}
	}
}

// The engine gets only token ids, in the Harmony format.
func TestEngineSeesTokens(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Date = "2025-06-28" }})

	for model, path := range map[string]string{stack.SGLangModel: "/generate", stack.VLLMModel: "/v1/completions"} {
		t.Run(model, func(t *testing.T) {
			id := "tokens-" + model
			if resp, text := d.Chat(t, model, "NOTHINK\nSAY <|start|>", "", "x-request-id", id); resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d: %s", resp.StatusCode, text)
			}

			got := d.AwaitEngine(t, id, stack.StateFinished)
			if got.Path != path {
				t.Errorf("path %s, want %s", got.Path, path)
			}

			want := "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" +
				"Knowledge cutoff: 2024-06\nCurrent date: 2025-06-28\n\nReasoning: medium\n\n" +
				"# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>" +
				"<|start|>user<|message|>NOTHINK\nSAY <|start|><|end|><|start|>assistant"
			if diff := cmp.Diff(want, got.Prompt); diff != "" {
				t.Errorf("prompt (-want +got):\n%s", diff)
			}

			if !strings.Contains(got.RequestID, id) {
				t.Errorf("the engine's request id %q does not contain the client's %q", got.RequestID, id)
			}
			if _, has := got.Header["x-harmony-engine"]; has {
				t.Error("the engine gets x-harmony-engine")
			}
		})
	}
}

// A conversation with two tool calls and an answer. The client does not send
// reasoning back, like most clients. The model still sees it until it has answered.
func TestToolTurns(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.Openai()

	for _, model := range stack.HarmonyModels {
		for name, ask := range map[string]stack.RequestMode{"whole": stack.NonStreamed, "streamed": stack.Streamed} {
			t.Run(model+"/"+name, func(t *testing.T) {
				p := stack.UserMessage(model, "THINK I need both.\nCALL get_weather {\"city\":\"Bern\"}\nCALL get_weather {\"city\":\"Rom\"}\nSAY Both are sunny.")
				p.Tools = []openai.ChatCompletionToolUnionParam{stack.WeatherTool}

				ids := map[string]bool{}
				for turn, city := range []string{"Bern", "Rom"} {
					r := ask(t, c, p)
					want := []stack.ChoiceResult{{Reasoning: "I need both.", Calls: []stack.Call{{Name: "get_weather", Arguments: fmt.Sprintf(`{"city":%q}`, city)}}, Finish: "tool_calls"}}
					if diff := cmp.Diff(want, r.Choices); diff != "" {
						t.Fatalf("turn %d (-want +got):\n%s", turn, diff)
					}

					id := r.IDs[0]
					if id == "" || ids[id] {
						t.Fatalf("turn %d: call id %q is empty or not new", turn, id)
					}
					ids[id] = true
					p.Messages = append(p.Messages, stack.CallMessage(id, city), openai.ToolMessage("sunny in "+city, id))
				}

				id := "tools-" + model + "-" + name
				r := ask(t, c, p, option.WithHeader("x-request-id", id))
				if got := r.Choices[0].Content; got != "Both are sunny." {
					t.Errorf("answer %q", got)
				}

				prompt := d.AwaitEngine(t, id, stack.StateFinished).Prompt
				for _, want := range []string{
					"// Gets the weather.\ntype get_weather = (_: {\ncity: string,\n}) => any;",
					"<|channel|>analysis<|message|>I need both.<|end|>",
					`<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Rom"}<|call|>`,
					"<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sunny in Bern<|end|>",
				} {
					if !strings.Contains(prompt, want) {
						t.Errorf("the prompt has no %q:\n%s", want, prompt)
					}
				}
			})
		}
	}
}

// A stop string ends the request at the engine.
func TestStopEndsEngine(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) {
			id := "stop-" + model
			_, text := d.Chat(t, model, "NOTHINK\nWORDS 1000000 5", `,"stop":"w4"`, "x-request-id", id)
			if !strings.Contains(text, `"content":"w1 w2 w3 "`) {
				t.Errorf("reply %s", text)
			}
			d.AwaitEngine(t, id, stack.StateCancelled)
		})
	}
}

// The reply does not depend on the engine's tokens per event or chunk boundaries.
func TestEngineChunking(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.Openai()
	for _, model := range stack.HarmonyModels {
		p := stack.UserMessage(model, "THINK Thinking about 👩‍👩‍👧‍👦 and ẞ.\nCOMMENTARY Now.\nCALL get_weather {\"city\":\"Ürümqi 乌鲁木齐\"}")
		p.Tools = []openai.ChatCompletionToolUnionParam{stack.WeatherTool}
		want := stack.NonStreamed(t, c, p).Choices
		for _, behavior := range []string{
			"cut=1", "tokens-per-event=40", "tokens-per-event=random:8 cut=random:9 seed=7", "crlf=true comments=true cut=3",
			"output-ids=cumulative cut=random:50",
		} {
			t.Run(model+"/"+behavior, func(t *testing.T) {
				header := option.WithHeader("x-engine-sim", behavior)
				for _, got := range []stack.ChatReply{stack.NonStreamed(t, c, p, header), stack.Streamed(t, c, p, header)} {
					if diff := cmp.Diff(want, got.Choices); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
			})
		}
	}
}
