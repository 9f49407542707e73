package chat

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// testAPI is the Chat Completions API, for the tests that all APIs pass.
var testAPI = &apitest.API{
	Decode: func(body []byte, rc *turn.RequestContext) (api.Request, *apierror.Error) {
		return Decode(context.Background(), body, rc)
	},
	Ask:      ask,
	Whole:    []any{"stream", false, "stream_options", nil},
	Streamed: []any{"stream", true, "stream_options.include_usage", true},
	Mode:     api.Loop,
	Read: func(t testing.TB, request api.Request, reply string) any {
		if request.Info().Stream {
			return fold(t, reply, request.Engine().N)
		}
		o := parseObject(t, reply)
		for i := range o.Choices { // a stream says nothing of nothing
			if p := o.Choices[i].Logprobs; p != nil && len(p.Content) == 0 {
				o.Choices[i].Logprobs = nil
			}
		}
		return o
	},
	Accounts: accounts,
	Brief:    func(t testing.TB, whole string) string { return brief(parseObject(t, whole).Choices[0]) },
}

// accounts reports whether a reply shows something of an output, or its length or a
// stop condition of the client ended it.
func accounts(t testing.TB, whole string, o apitest.Output) bool {
	t.Helper()
	c := parseObject(t, whole).Choices[o.Index]
	m := c.Message
	return len(m.ToolCalls) > 0 || m.Reasoning != nil || m.Content != nil && *m.Content != "" || c.Matched != nil || *c.Finish == "length"
}

// brief returns what a client sees of a choice, in one line.
func brief(c objectChoice) string {
	var b strings.Builder
	if c.Message.Reasoning != nil {
		fmt.Fprintf(&b, "reasoning %q ", *c.Message.Reasoning)
	}
	if c.Message.Content != nil {
		fmt.Fprintf(&b, "content %q ", *c.Message.Content)
	}
	for _, call := range c.Message.ToolCalls {
		fmt.Fprintf(&b, "%s(%s) ", call.Function.Name, call.Function.Arguments)
	}
	return b.String() + *c.Finish
}

func TestGolden(t *testing.T) {
	t.Parallel()
	testAPI.Golden(t)
}

// FuzzChat decodes arbitrary bodies, and pushes arbitrary tokens into the replies.
func FuzzChat(f *testing.F) {
	testAPI.Fuzz(f, "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>", ask(weatherTool+`,"stream":true,"n":2,"stop":"a"`))
}

// TestAnyChunking shows that a reply does not depend on how the engine cuts its tokens
// into chunks, and that a stream's deltas join to the whole reply.
func TestAnyChunking(t *testing.T) {
	t.Parallel()
	testAPI.AnyChunking(t, apitest.Chunking{
		Rounds: 1000,
		Model: apitest.Model{Pieces: []string{
			"<|start|>assistant<|channel|>final <|constrain|>json<|message|>",
			"<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
			"STO", "STOP", "P", "aab", "a", // begin stop strings
		}},
		Requests: []string{
			``,
			weatherTool,
			weatherTool + `,"parallel_tool_calls":false`,
			weatherTool + `,"tool_choice":"none","include_reasoning":false`,
			`,"stop":["STOP","aaab","d🙂"],"return_token_ids":true`,
			`,"stop":"STOP","include_stop_str_in_output":true,"stop_token_ids":[13225,200007]`,
			`,"n":2,"reasoning_effort":"none"`,
			`,"logprobs":true,"top_logprobs":2,"stop":["STOP","aaab","d🙂"],"n":2`,
			weatherTool + `,"logprobs":true,"include_reasoning":false`,
		},
	})
}

// TestLetters has tools with names in letters of other scripts.
func TestLetters(t *testing.T) {
	t.Parallel()
	testAPI.Letters(t,
		func(name string) string { return strings.Replace(weatherTool, "get_weather", name, 1) },
		func(name string) string {
			return `,"tool_choice":{"type":"function","function":{"name":"` + name + `"}}`
		})
}

// functionTools are the members of a request with functions.
func functionTools(functions []string) string {
	if len(functions) == 0 {
		return ""
	}
	return `,"tools":[{"type":"function","function":{` + strings.Join(functions, `}},{"type":"function","function":{`) + `}}]`
}

// TestOutputs has outputs that models are known to write, also those for which other servers send an error
// or nothing.
func TestOutputs(t *testing.T) {
	t.Parallel()
	testAPI.Outputs(t, "chat", functionTools)
}

// TestParity has the cases of a public table of Harmony parsers.
func TestParity(t *testing.T) {
	t.Parallel()
	testAPI.Parity(t, functionTools)
}

// TestRawTexts has texts in place of arguments.
func TestRawTexts(t *testing.T) {
	t.Parallel()
	testAPI.RawTexts(t, functionTools)
}

// TestExcluded has calls of tools that tool_choice excludes.
func TestExcluded(t *testing.T) {
	t.Parallel()
	both := functionTools([]string{apitest.WeatherTool, `"name":"g"`})
	testAPI.Excluded(t, map[string]string{
		"a function":             both + `,"tool_choice":{"type":"function","function":{"name":"g"}}`,
		"allowed tools":          both + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}`,
		"allowed tools required": both + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}`,
	})
}

var measured = apitest.Stream{Members: weatherTool + `,"stop":["never"]`, Text: " and \"then\", nev er,\nnaïve 🙂", Parts: apitest.Parts}

// TestStreamAllocates shows that a chunk of text costs no allocation.
func TestStreamAllocates(t *testing.T) { testAPI.StreamAllocates(t, measured) }

func BenchmarkStream(b *testing.B) { testAPI.BenchmarkStream(b, measured) }
func BenchmarkDecode(b *testing.B) { testAPI.BenchmarkDecode(b, weatherTool) }
