package messages

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

// testAPI is the Messages API, for the tests that all APIs pass.
func testAPI(t testing.TB) *apitest.API {
	a := newAPI(t, 1)
	return &apitest.API{
		Decode: func(body []byte, rc *turn.RequestContext) (api.Request, *apierror.Error) {
			return a.Decode(context.Background(), body, rc)
		},
		Ask:      ask,
		Whole:    []any{"stream", false},
		Streamed: []any{"stream", true},
		Mode:     api.Loop,
		Read: func(t testing.TB, request api.Request, reply string) any {
			if request.Info().Stream {
				return fold(t, reply)
			}
			return parseObject(t, reply)
		},
		Accounts: accounts,
		Brief:    brief,
	}
}

// accounts reports whether a reply shows something of an output, or its length or a
// stop condition of the client ended it.
func accounts(t testing.TB, whole string, _ apitest.Output) bool {
	t.Helper()
	o := parseObject(t, whole)
	for _, b := range o.Content {
		if b.Type != "text" || *b.Text != "" {
			return true
		}
	}
	return *o.Reason != "end_turn"
}

// brief returns what a client sees of a message, in one line.
func brief(t testing.TB, whole string) string {
	t.Helper()
	var s strings.Builder
	o := parseObject(t, whole)
	for _, b := range o.Content {
		switch b.Type {
		case "thinking":
			fmt.Fprintf(&s, "reasoning %q ", *b.Thinking)
		case "text":
			fmt.Fprintf(&s, "content %q ", *b.Text)
		case "tool_use":
			fmt.Fprintf(&s, "%s(%s) ", b.Name, b.Input)
		}
	}
	// An output that ends before the client's limit has met the engine's.
	reasons := map[string]string{"end_turn": "stop", "tool_use": "tool_calls", "model_context_window_exceeded": "length"}
	return s.String() + reasons[*o.Reason]
}

func TestGolden(t *testing.T) {
	t.Parallel()
	testAPI(t).Golden(t)
}

// FuzzMessages decodes arbitrary bodies, and pushes arbitrary tokens into the replies.
func FuzzMessages(f *testing.F) {
	testAPI(f).Fuzz(f, "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>", ask(weatherTool+`,"stream":true,"thinking":{"type":"adaptive"},"stop_sequences":["a"]`))
}

// TestAnyChunking shows that a reply does not depend on how the engine cuts its tokens
// into chunks, and that a stream's deltas join to the whole reply.
func TestAnyChunking(t *testing.T) {
	t.Parallel()
	const thinking = `,"thinking":{"type":"adaptive"}`
	testAPI(t).AnyChunking(t, apitest.Chunking{
		Rounds: 1000,
		Model: apitest.Model{Pieces: []string{
			"<|start|>assistant<|channel|>final <|constrain|>json<|message|>",
			"<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
			"<|start|>assistant<|channel|>commentary to=computer.key <|constrain|>json<|message|>",
			"STO", "STOP", "P", "aab", "a", // begin stop sequences
		}},
		Requests: []string{
			thinking,
			weatherTool + thinking,
			weatherTool + thinking + `,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`,
			weatherTool + `,"tool_choice":{"type":"none"},"thinking":{"type":"disabled"}`,
			weatherTool + `,"thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"}`,
			thinking + `,"stop_sequences":["STOP","aaab","d🙂"]`,
			thinking + `,"tools":[{"type":"computer_toolset_20260801"},{"type":"bash_20250124","name":"bash"}]`,
		},
	})
}

// TestLetters has tools with names in letters of other scripts.
func TestLetters(t *testing.T) {
	t.Parallel()
	testAPI(t).Letters(t,
		func(name string) string { return strings.Replace(weatherTool, "get_weather", name, 1) },
		func(name string) string { return `,"tool_choice":{"type":"tool","name":"` + name + `"}` })
}

// functionTools are the members of a request with functions, and with reasoning.
func functionTools(functions []string) string {
	const thinking = `,"thinking":{"type":"adaptive"}`
	if len(functions) == 0 {
		return thinking
	}
	return thinking + `,"tools":[{` + strings.ReplaceAll(strings.Join(functions, "},{"), `"parameters"`, `"input_schema"`) + `}]`
}

// TestOutputs has outputs that models are known to write, also those for which other servers send an error
// or nothing. A part is a content block of its own.
func TestOutputs(t *testing.T) {
	t.Parallel()
	testAPI(t).Outputs(t, "messages", functionTools)
}

// TestParity has the cases of a public table of Harmony parsers.
func TestParity(t *testing.T) {
	t.Parallel()
	testAPI(t).Parity(t, functionTools)
}

// TestRawTexts has texts in place of arguments.
func TestRawTexts(t *testing.T) {
	t.Parallel()
	testAPI(t).RawTexts(t, functionTools)
}

// TestExcluded has calls of tools that tool_choice excludes.
func TestExcluded(t *testing.T) {
	t.Parallel()
	testAPI(t).Excluded(t, map[string]string{
		"a tool": functionTools([]string{apitest.WeatherTool, `"name":"g","input_schema":{"type":"object"}`}) + `,"tool_choice":{"type":"tool","name":"g"}`,
	})
}

var measured = apitest.Stream{
	Members: weatherTool + `,"stop_sequences":["never"],"thinking":{"type":"adaptive"}`, Text: " and \"then\", nev er,\nnaïve 🙂", Parts: apitest.Parts,
}

// TestStreamAllocates shows that a chunk of text costs no allocation.
func TestStreamAllocates(t *testing.T) { testAPI(t).StreamAllocates(t, measured) }

func BenchmarkStream(b *testing.B) { testAPI(b).BenchmarkStream(b, measured) }
func BenchmarkDecode(b *testing.B) { testAPI(b).BenchmarkDecode(b, weatherTool) }
