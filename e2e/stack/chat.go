package stack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"
)

// ChoiceResult is one choice of a reply, streamed or not.
type ChoiceResult struct {
	Reasoning string
	Content   string
	Calls     []Call
	Finish    string
}

// Call is a tool call without its id, which differs in each reply.
type Call struct{ Name, Arguments string }

// extra reads a field that is not in the SDK's types.
func extra(raw, field string) string {
	var m map[string]any
	if json.Unmarshal([]byte(raw), &m) != nil {
		return ""
	}
	s, _ := m[field].(string)
	return s
}

// ChatReply is a reply of the API, streamed or not.
type ChatReply struct {
	Choices []ChoiceResult
	Usage   openai.CompletionUsage
	// IDs are those of the calls, in order.
	IDs []string
}

// RequestMode sends a request, streamed or not.
type RequestMode func(*testing.T, openai.Client, openai.ChatCompletionNewParams, ...option.RequestOption) ChatReply

// NonStreamed requests one JSON object.
func NonStreamed(t *testing.T, c openai.Client, p openai.ChatCompletionNewParams,
	o ...option.RequestOption,
) ChatReply {
	t.Helper()
	got, err := c.Chat.Completions.New(t.Context(), p, o...)
	if err != nil {
		t.Fatal(err)
	}

	r := ChatReply{Usage: got.Usage}
	for _, choice := range got.Choices {
		s := ChoiceResult{
			Content: choice.Message.Content, Finish: choice.FinishReason,
			Reasoning: extra(choice.Message.RawJSON(), "reasoning"),
		}

		// Clients know the text by either name: reasoning is vLLM's, reasoning_content DeepSeek's.
		if also := extra(choice.Message.RawJSON(), "reasoning_content"); also != s.Reasoning {
			t.Errorf("reasoning_content is %q, reasoning %q", also, s.Reasoning)
		}
		for _, tc := range choice.Message.ToolCalls {
			s.Calls = append(s.Calls, Call{tc.Function.Name, tc.Function.Arguments})
			r.IDs = append(r.IDs, tc.ID)
		}
		r.Choices = append(r.Choices, s)
	}
	return r
}

// Streamed requests a stream, checks the order of its chunks and joins them.
func Streamed(t *testing.T, c openai.Client, p openai.ChatCompletionNewParams, o ...option.RequestOption) ChatReply {
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
		// OpenAI sends the usage in a last chunk without choices.
		if usages > 0 {
			t.Errorf("a chunk follows the usage: %s", chunk.RawJSON())
		}
		if !acc.AddChunk(chunk) {
			t.Errorf("the chunk does not fit: %s", chunk.RawJSON())
		}
		for _, choice := range chunk.Choices {
			// OpenAI sends the role in a choice's first delta alone, and SDKs take it from there.
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

	r := ChatReply{Usage: acc.Usage}
	for i, choice := range acc.Choices {
		// The accumulator drops what is not in its types, so the reasoning is joined here.
		s := ChoiceResult{Content: choice.Message.Content, Finish: choice.FinishReason, Reasoning: reasoning[int64(i)]}
		for _, tc := range choice.Message.ToolCalls {
			s.Calls = append(s.Calls, Call{tc.Function.Name, tc.Function.Arguments})
			r.IDs = append(r.IDs, tc.ID)
		}
		r.Choices = append(r.Choices, s)
	}
	return r
}

// UserMessage returns a request with one user message.
func UserMessage(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

// WeatherTool is a function of requests, which the simulated model calls when it is asked for
// the weather.
var WeatherTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name:        "get_weather",
	Description: openai.String("Gets the weather."),
	Parameters: shared.FunctionParameters{
		"type":       "object",
		"properties": map[string]any{"city": map[string]any{"type": "string"}},
		"required":   []string{"city"},
	},
})

// CallMessage is an assistant message with one call, as a client sends it back.
func CallMessage(id, city string) openai.ChatCompletionMessageParamUnion {
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

// ReadText reads the body of a reply to its end.
func ReadText(t testing.TB, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the reply: %v, after %q", err, text)
	}
	return string(text)
}

// WordsTo is the reply to WORDS n.
func WordsTo(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", i+1)
	}
	return strings.Join(words, " ")
}

// LastUsage is the last usage object of a reply or of its stream.
func LastUsage(reply string) (usage gjson.Result) {
	for line := range strings.Lines(reply) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		// Objects have it at the top, the last event of Responses in its response.
		for _, path := range []string{"usage", "response.usage"} {
			if u := gjson.Get(line, path); u.IsObject() {
				usage = u
			}
		}
	}
	return usage
}
