package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// choiceResult is one choice of a reply, streamed or not.
type choiceResult struct {
	Reasoning string
	Content   string
	Calls     []call
	Finish    string
}

// call is a tool call without its id, which differs in each reply.
type call struct{ Name, Arguments string }

// extra reads a field that is not in the SDK's types.
func extra(raw, field string) string {
	var m map[string]any
	if json.Unmarshal([]byte(raw), &m) != nil {
		return ""
	}
	s, _ := m[field].(string)
	return s
}

// reply is a reply of the API, streamed or not.
type reply struct {
	Choices []choiceResult
	Usage   openai.CompletionUsage
	IDs     []string // of the calls, in order
}

// requestMode sends a request, streamed or not.
type requestMode func(*testing.T, openai.Client, openai.ChatCompletionNewParams, ...option.RequestOption) reply

// nonStreamed requests one JSON object.
func nonStreamed(t *testing.T, c openai.Client, p openai.ChatCompletionNewParams, o ...option.RequestOption) reply {
	t.Helper()
	got, err := c.Chat.Completions.New(t.Context(), p, o...)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{Usage: got.Usage}
	for _, choice := range got.Choices {
		s := choiceResult{Content: choice.Message.Content, Finish: choice.FinishReason, Reasoning: extra(choice.Message.RawJSON(), "reasoning")}
		if also := extra(choice.Message.RawJSON(), "reasoning_content"); also != s.Reasoning {
			t.Errorf("reasoning_content is %q, reasoning %q", also, s.Reasoning)
		}
		for _, tc := range choice.Message.ToolCalls {
			s.Calls = append(s.Calls, call{tc.Function.Name, tc.Function.Arguments})
			r.IDs = append(r.IDs, tc.ID)
		}
		r.Choices = append(r.Choices, s)
	}
	return r
}

// streamed requests a stream, checks the order of its chunks and joins them.
func streamed(t *testing.T, c openai.Client, p openai.ChatCompletionNewParams, o ...option.RequestOption) reply {
	t.Helper()
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(t.Context(), p, o...)
	defer func() { _ = stream.Close() }()
	var acc openai.ChatCompletionAccumulator
	reasoning := map[int64]string{}
	begun := map[int64]bool{}
	usages := 0
	for stream.Next() {
		chunk := stream.Current()
		if usages > 0 {
			t.Errorf("a chunk follows the usage: %s", chunk.RawJSON())
		}
		if !acc.AddChunk(chunk) {
			t.Errorf("the chunk does not fit: %s", chunk.RawJSON())
		}
		for _, choice := range chunk.Choices {
			if !begun[choice.Index] && choice.Delta.Role != "assistant" {
				t.Errorf("choice %d begins without its role: %s", choice.Index, chunk.RawJSON())
			}
			begun[choice.Index] = true
			reasoning[choice.Index] += extra(choice.Delta.RawJSON(), "reasoning")
		}
		if len(chunk.Choices) == 0 {
			usages++
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if usages != 1 {
		t.Errorf("%d chunks hold the usage", usages)
	}
	r := reply{Usage: acc.Usage}
	for i, choice := range acc.Choices {
		s := choiceResult{Content: choice.Message.Content, Finish: choice.FinishReason, Reasoning: reasoning[int64(i)]}
		for _, tc := range choice.Message.ToolCalls {
			s.Calls = append(s.Calls, call{tc.Function.Name, tc.Function.Arguments})
			r.IDs = append(r.IDs, tc.ID)
		}
		r.Choices = append(r.Choices, s)
	}
	return r
}

func user(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

var weatherTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name:        "get_weather",
	Description: openai.String("Gets the weather."),
	Parameters: shared.FunctionParameters{
		"type":       "object",
		"properties": map[string]any{"city": map[string]any{"type": "string"}},
		"required":   []string{"city"},
	},
})

// Every case gets the same reply from both engines, streamed or not.
func TestChat(t *testing.T) {
	d := start(t, options{})
	c := d.openai()
	withTool := func(p *openai.ChatCompletionNewParams) { p.Tools = []openai.ChatCompletionToolUnionParam{weatherTool} }
	for _, tt := range []struct {
		name   string
		text   string
		change func(*openai.ChatCompletionNewParams)
		want   []choiceResult
	}{
		{"answer", "THINK Let me see.\nSAY Grüße, 世界 👋🏽!", nil, []choiceResult{{Reasoning: "Let me see.", Content: "Grüße, 世界 👋🏽!", Finish: "stop"}}},
		{"no reasoning", "NOTHINK\nSAY yes", nil, []choiceResult{{Content: "yes", Finish: "stop"}}},
		{"empty answer", "@@<channel>final<message><return>@@", nil, []choiceResult{{Finish: "stop"}}},
		{"markers are text", "NOTHINK\nSAY a<|end|>b", nil, []choiceResult{{Content: "a<|end|>b", Finish: "stop"}}},
		{
			"choices", "THINK Hm.\nSAY yes", func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) },
			[]choiceResult{{Reasoning: "Hm.", Content: "yes", Finish: "stop"}, {Reasoning: "Hm.", Content: "yes", Finish: "stop"}},
		},
		{
			"stop string", "THINK w3 is no stop.\nWORDS 10", func(p *openai.ChatCompletionNewParams) {
				p.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"3 w4", "never"}}
			},
			[]choiceResult{{Reasoning: "w3 is no stop.", Content: "w1 w2 w", Finish: "stop"}},
		},
		{
			"length", "NOTHINK\nWORDS 1000", func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(3) },
			[]choiceResult{{Finish: "length"}}, // the header has three tokens
		},
		{
			"call", "THINK A tool.\nCOMMENTARY I look it up.\nCALL get_weather {\"city\":\"Zürich\"}", withTool,
			[]choiceResult{{Reasoning: "A tool.", Content: "I look it up.", Calls: []call{{"get_weather", `{"city":"Zürich"}`}}, Finish: "tool_calls"}},
		},
		{"no channel", "@@<message>plain text<return>@@", nil, []choiceResult{{Content: "plain text", Finish: "stop"}}},
		{
			"no call token", "@@<channel>commentary to=functions.get_weather<message>{\"city\":\"Bern\"}@@", withTool,
			[]choiceResult{{Calls: []call{{"get_weather", `{"city":"Bern"}`}}, Finish: "tool_calls"}},
		},
	} {
		for _, model := range harmonyModels {
			t.Run(tt.name+"/"+model, func(t *testing.T) {
				p := user(model, tt.text)
				if tt.change != nil {
					tt.change(&p)
				}
				one, many := nonStreamed(t, c, p), streamed(t, c, p)
				if diff := cmp.Diff(tt.want, one.Choices); diff != "" {
					t.Errorf("whole reply (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.want, many.Choices); diff != "" {
					t.Errorf("streamed reply (-want +got):\n%s", diff)
				}
				for _, r := range []reply{one, many} {
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
	d := start(t, options{config: func(c *config.Config) { c.Date = "2025-06-28" }})
	for model, path := range map[string]string{sglangModel: "/generate", vllmModel: "/v1/completions"} {
		t.Run(model, func(t *testing.T) {
			id := "tokens-" + model
			if resp, text := d.chat(t, model, "NOTHINK\nSAY <|start|>", "", "x-request-id", id); resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d: %s", resp.StatusCode, text)
			}
			got := d.awaitEngine(t, id, stateFinished)
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
	d := start(t, options{})
	c := d.openai()
	for _, model := range harmonyModels {
		for name, ask := range map[string]requestMode{"whole": nonStreamed, "streamed": streamed} {
			t.Run(model+"/"+name, func(t *testing.T) {
				p := user(model, "THINK I need both.\nCALL get_weather {\"city\":\"Bern\"}\nCALL get_weather {\"city\":\"Rom\"}\nSAY Both are sunny.")
				p.Tools = []openai.ChatCompletionToolUnionParam{weatherTool}
				ids := map[string]bool{}
				for turn, city := range []string{"Bern", "Rom"} {
					r := ask(t, c, p)
					want := []choiceResult{{Reasoning: "I need both.", Calls: []call{{"get_weather", fmt.Sprintf(`{"city":%q}`, city)}}, Finish: "tool_calls"}}
					if diff := cmp.Diff(want, r.Choices); diff != "" {
						t.Fatalf("turn %d (-want +got):\n%s", turn, diff)
					}
					id := r.IDs[0]
					if id == "" || ids[id] {
						t.Fatalf("turn %d: call id %q is empty or not new", turn, id)
					}
					ids[id] = true
					p.Messages = append(p.Messages, callMessage(id, city), openai.ToolMessage("sunny in "+city, id))
				}
				id := "tools-" + model + "-" + name
				r := ask(t, c, p, option.WithHeader("x-request-id", id))
				if got := r.Choices[0].Content; got != "Both are sunny." {
					t.Errorf("answer %q", got)
				}
				prompt := d.awaitEngine(t, id, stateFinished).Prompt
				for _, want := range []string{
					"// Gets the weather.\ntype get_weather = (_: {\ncity: string,\n}) => any;",
					"<|channel|>analysis<|message|>I need both.<|end|>",
					`to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Rom"}<|call|>`,
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

// callMessage is an assistant message with one call, as a client sends it back.
func callMessage(id, city string) openai.ChatCompletionMessageParamUnion {
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &openai.ChatCompletionAssistantMessageParam{
		ToolCalls: []openai.ChatCompletionMessageToolCallUnionParam{{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: id,
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: "get_weather", Arguments: fmt.Sprintf(`{"city":%q}`, city),
				},
			},
		}},
	}}
}

// A stop string ends the request at the engine.
func TestStopEndsEngine(t *testing.T) {
	d := start(t, options{})
	for _, model := range harmonyModels {
		t.Run(model, func(t *testing.T) {
			id := "stop-" + model
			_, text := d.chat(t, model, "NOTHINK\nWORDS 1000000 5", `,"stop":"w4"`, "x-request-id", id)
			if !strings.Contains(text, `"content":"w1 w2 w3 "`) {
				t.Errorf("reply %s", text)
			}
			d.awaitEngine(t, id, stateCancelled)
		})
	}
}

// The reply does not depend on the engine's tokens per event or chunk boundaries.
func TestEngineChunking(t *testing.T) {
	d := start(t, options{})
	c := d.openai()
	for _, model := range harmonyModels {
		p := user(model, "THINK Thinking about 👩‍👩‍👧‍👦 and ẞ.\nCOMMENTARY Now.\nCALL get_weather {\"city\":\"Ürümqi 乌鲁木齐\"}")
		p.Tools = []openai.ChatCompletionToolUnionParam{weatherTool}
		want := nonStreamed(t, c, p).Choices
		for _, behavior := range []string{
			"cut=1", "tokens-per-event=40", "tokens-per-event=random:8 cut=random:9 seed=7", "crlf=true comments=true cut=3",
			"output-ids=cumulative cut=random:50",
		} {
			t.Run(model+"/"+behavior, func(t *testing.T) {
				header := option.WithHeader("x-engine-sim", behavior)
				for _, got := range []reply{nonStreamed(t, c, p, header), streamed(t, c, p, header)} {
					if diff := cmp.Diff(want, got.Choices); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
			})
		}
	}
}
