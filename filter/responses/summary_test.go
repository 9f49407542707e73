package responses

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestSummaryInPlaceOfContent shows that reasoning with a summary has its text once,
// in the object, in the stream and in the store, and that the next turn works with it.
func TestSummaryInPlaceOfContent(t *testing.T) {
	t.Parallel()
	const output = "<|channel|>analysis<|message|>a \"thought\"<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"
	s := newServer()
	s.Sealer = mustSealer(t, "k")
	first := s.create(t, `,"input":"one","reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"]`+weatherTool, output)
	thought := first.Get("output.0")
	if thought.Get("summary.0.text").Str != `a "thought"` || thought.Get("content").Exists() || thought.Get("encrypted_content").Str == "" {
		t.Fatalf("the reasoning: %s", thought.Raw)
	}
	if got, err := s.do("GET", "/v1/responses/"+first.Get("id").Str); err != nil || gjson.Get(got, "output.0").Raw != thought.Raw {
		t.Errorf("stored as %s, %v", got, err)
	}
	call := first.Get("output.1")
	result := `{"type":"function_call_output","call_id":"` + call.Get("call_id").Str + `","output":"sunny"}`
	for name, input := range map[string]string{
		"the stored response": `,"previous_response_id":"` + first.Get("id").Str + `","input":[` + result + `]`,
		"the items":           `,"input":[{"role":"user","content":"one"},` + thought.Raw + `,` + call.Raw + `,` + result + `]`,
		"without a key":       `,"input":[{"role":"user","content":"one"},` + strings.ReplaceAll(thought.Raw, thought.Get("encrypted_content").Str, "x") + `,` + call.Raw + `,` + result + `]`,
	} {
		if prompt := s.prompt(t, input); !strings.Contains(prompt, "<|channel|>analysis<|message|>a \"thought\"<|end|>") {
			t.Errorf("%s: the reasoning is lost:\n%s", name, prompt)
		}
	}

	request := mustDecode(t, ask(`,"stream":true,"reasoning":{"summary":"auto"}`+weatherTool))
	sse := run(t, request, apitest.Output{Tokens: apitest.Tokens(output), Finish: "stop"}.Chunks(apitest.Size(2)))
	var deltas strings.Builder
	for line := range strings.Lines(sse) {
		data, found := strings.CutPrefix(line, "data: ")
		event := gjson.Parse(data)
		if kind := event.Get("type").Str; found && (strings.HasPrefix(kind, "response.reasoning_text") || strings.HasPrefix(kind, "response.content_part")) {
			t.Errorf("the stream has %s", kind)
		} else if kind == "response.reasoning_summary_text.delta" {
			deltas.WriteString(event.Get("delta").Str)
		}
	}
	if deltas.String() != `a "thought"` || !slices.Contains(eventNames(sse), "response.reasoning_summary_part.done") {
		t.Errorf("the deltas are %q", &deltas)
	}
}
