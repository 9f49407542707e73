package responses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// testAPI is the Responses API without a store, for the tests that all APIs pass.
var testAPI = &apitest.API{
	Decode: func(body []byte, rc *turn.RequestContext) (api.Request, *apierror.Error) {
		return (&API{}).decode(body, rc)
	},
	Ask:      ask,
	Whole:    []any{"stream", false},
	Streamed: []any{"stream", true},
	Mode:     api.SingleCall,
	Read: func(t testing.TB, request api.Request, reply string) any {
		return finalObject(t, request.Info().Stream, reply)
	},
	Accounts: func(_ testing.TB, whole string, o apitest.Output) bool {
		return gjson.Get(whole, "output.#").Int() > 0 || o.Finish == engine.FinishLength
	},
	Brief: brief,
}

// brief returns what a client sees of a response, in one line.
func brief(_ testing.TB, whole string) string {
	r := gjson.Parse(whole)
	var b strings.Builder
	for _, i := range r.Get("output").Array() {
		switch i.Get("type").Str {
		case "reasoning":
			fmt.Fprintf(&b, "reasoning %q ", i.Get("content.0.text").Str)
		case "message":
			fmt.Fprintf(&b, "content %q ", i.Get("content.0.text").Str)
		default:
			fmt.Fprintf(&b, "%s(%s) ", i.Get("name").Str, i.Get("arguments").Str)
		}
	}
	switch status := r.Get("status").Str; {
	case r.Get("incomplete_details.reason").Str == "max_output_tokens":
		b.WriteString("length")
	case status != item.StatusCompleted:
		b.WriteString(status)
	case strings.Contains(b.String(), "("):
		b.WriteString("tool_calls")
	default:
		b.WriteString("stop")
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	t.Parallel()
	testAPI.Golden(t)
}

// model generates outputs that call the tools of mixedTools.
var model = apitest.Model{
	Openings: []string{" to=functions.apply_patch<|channel|>commentary json<|message|>"},
	Pieces: []string{
		"<|start|>assistant<|channel|>commentary<|message|>",
		"<|start|>assistant to=mcp__fs.read<|channel|>commentary json<|message|>",
		"<|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>",
		"<|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>{\"input\":\"",
		"<|start|>assistant to=functions.tool_search<|channel|>commentary json<|message|>{\"query\":\"",
		`\ud83d\ude42`, `\`, `"`, `"}`, `{"input":"`, // split escapes
		"STO", "STOP", "P", "aab", "a", // begin stop strings
	},
}

// TestAnyChunking shows that a response does not depend on how the engine cuts its
// tokens into chunks, that every stream keeps the rules, and that it ends in the object
// of the whole reply.
func TestAnyChunking(t *testing.T) {
	t.Parallel()
	testAPI.AnyChunking(t, apitest.Chunking{
		Rounds: 400,
		Model:  model,
		Requests: []string{
			``,
			mixedTools,
			mixedTools + `,"reasoning":{"summary":"auto"}`,
			mixedTools + `,"stop":["STOP","aaab","d🙂"],"metadata":{"stops":"true"}`,
			mixedTools + `,"parallel_tool_calls":false`,
			mixedTools + `,"include":["message.output_text.logprobs"],"top_logprobs":2`,
			mixedTools + `,"include":["message.output_text.logprobs"],"stop":["STOP","aaab","d🙂"],"metadata":{"stops":"true"}`,
			`,"tools":[{"type":"tool_search","execution":"client"},{"type":"custom","name":"apply_patch"}]`,
			mixedTools + `,"tool_choice":"none","reasoning":{"effort":"none"}`,
		},
	})
}

// TestLetters has tools with names in letters of other scripts.
func TestLetters(t *testing.T) {
	t.Parallel()
	testAPI.Letters(t,
		func(name string) string { return strings.Replace(weatherTool, "get_weather", name, 1) },
		func(name string) string { return `,"tool_choice":{"type":"function","name":"` + name + `"}` })
}

// functionTools are the members of a request with functions.
func functionTools(functions []string) string {
	if len(functions) == 0 {
		return ""
	}
	return `,"tools":[{"type":"function",` + strings.Join(functions, `},{"type":"function",`) + `}]`
}

// TestOutputs has outputs that models are known to write, also those for which other servers send an error
// or nothing.
func TestOutputs(t *testing.T) {
	t.Parallel()
	testAPI.Outputs(t, "responses", functionTools)
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
		"a function":             both + `,"tool_choice":{"type":"function","name":"g"}`,
		"allowed tools":          both + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`,
		"allowed tools required": both + `,"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}`,
	})
}

// FuzzResponses decodes arbitrary bodies, and pushes arbitrary tokens into the replies.
func FuzzResponses(f *testing.F) {
	testAPI.Fuzz(f, "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>{\"input\":\"\\ud83d\"}<|call|>",
		ask(mixedTools+`,"stream":true,"reasoning":{"summary":"auto"}`))
}

var measured = apitest.Stream{
	Members: mixedTools + `,"reasoning":{"summary":"auto"}`,
	Text:    " and then, never,\nnaïve 🙂",
	Parts:   append([]apitest.Part{{Name: "custom", Header: ` to=functions.apply_patch<|channel|>commentary json<|message|>{"input":"`}}, apitest.Parts...),
	Bound: func(r api.Reply) (forget func()) { // the growth of the text is not the chunk's
		open := r.(*write.Reply).Text()
		*open = append(make([]byte, 0, 1<<20), *open...)
		begin := len(*open)
		return func() { *open = (*open)[:begin] }
	},
}

// TestStreamAllocates shows that a chunk of text costs no allocation.
func TestStreamAllocates(t *testing.T) { testAPI.StreamAllocates(t, measured) }

func BenchmarkStream(b *testing.B) { testAPI.BenchmarkStream(b, measured) }

func BenchmarkDecode(b *testing.B) { testAPI.BenchmarkDecode(b, mixedTools) }
