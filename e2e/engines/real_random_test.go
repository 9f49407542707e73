//go:build engines

package engines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Schemas with bounded values, which a model with random weights can complete.
// Strings have patterns because of two bugs of xgrammar with arbitrary strings, see
// docs/engines.md.
var boundedSchemas = []string{
	verdict,
	`{"type":"object","properties":{"n":{"type":"integer","minimum":-5,"maximum":1200},"color":{"enum":["red","green",null,7]}},"required":["n","color"],"additionalProperties":false}`,
	`{"type":"object","properties":{"tags":{"type":"array","items":{"enum":["a","b","ü"]},"minItems":1,"maxItems":3},"deep":{"type":"object","properties":{"x":{"type":"boolean"}},"additionalProperties":false}},"required":["tags","deep"],"additionalProperties":false}`,
	`{"type":"object","properties":{"name":{"type":"string","pattern":"^[a-zß世 ]{1,6}$"},"code":{"type":"string","pattern":"^[a-f]{2,5}-[0-9]$"}},"required":["name","code"],"additionalProperties":false}`,
	`{"type":"object","properties":{"day":{"type":"string","format":"date"},"kind":{"const":"K"}},"required":["day","kind"],"additionalProperties":false}`,
	`{"type":"object","properties":{"one":{"$ref":"#/$defs/side"},"two":{"anyOf":[{"$ref":"#/$defs/side"},{"type":"null"}]}},"required":["one","two"],"additionalProperties":false,"$defs":{"side":{"enum":["left","right"]}}}`,
}

// randomCase is a request that forces the form of its reply, and the allowed
// results.
type randomCase struct {
	name    string
	fields  func(first, second string) string // members of the request, with two schemas
	tools   []string                          // schemas of the tools f and g if they may be called
	answers bool                              // a final answer by the first schema is allowed
	one     bool                              // at most one call
}

func functionOf(name, schema string) string {
	return fmt.Sprintf(`{"type":"function","function":{"name":%q,"strict":true,"parameters":%s}}`, name, schema)
}

func responseFunctionOf(name, schema string) string {
	return fmt.Sprintf(`{"type":"function","name":%q,"strict":true,"parameters":%s}`, name, schema)
}

// Cases of chat completions. The bias ends each analysis at once, and calls and
// answers as soon as possible.
var randomChats = []randomCase{
	{"required", func(a, b string) string {
		return `"tool_choice":"required","tools":[` + functionOf("f", a) + `,` + functionOf("g", b) + `]`
	}, []string{"f", "g"}, false, false},
	{"required, one call", func(a, b string) string {
		return `"tool_choice":"required","parallel_tool_calls":false,"tools":[` + functionOf("f", a) + `,` + functionOf("g", b) + `]`
	}, []string{"f", "g"}, false, true},
	{"named", func(a, b string) string {
		return `"tool_choice":{"type":"function","function":{"name":"g"}},"tools":[` + functionOf("f", a) + `,` + functionOf("g", b) + `]`
	}, []string{"g"}, false, true},
	{"json_schema", func(a, _ string) string {
		return `"response_format":{"type":"json_schema","json_schema":{"name":"r","strict":true,"schema":` + a + `}}`
	}, nil, true, false},
	{"json_schema and strict tools", func(a, b string) string {
		return `"response_format":{"type":"json_schema","json_schema":{"name":"r","schema":` + a + `}},"tools":[` + functionOf("f", a) + `,` + functionOf("g", b) + `]`
	}, []string{"f", "g"}, true, false},
}

// Cases of the Responses API, which has no logit_bias. The first analysis is
// scripted; another one may follow and run to the limit.
var randomResponses = []randomCase{
	{"responses, required", func(a, b string) string {
		return `"tool_choice":"required","parallel_tool_calls":false,"tools":[` + responseFunctionOf("f", a) + `,` + responseFunctionOf("g", b) + `]`
	}, []string{"f", "g"}, false, true},
	{"responses, named", func(a, b string) string {
		return `"tool_choice":{"type":"function","name":"g"},"tools":[` + responseFunctionOf("f", a) + `,` + responseFunctionOf("g", b) + `]`
	}, []string{"g"}, false, true},
	{"responses, json_schema", func(a, _ string) string {
		return `"text":{"format":{"type":"json_schema","name":"r","strict":true,"schema":` + a + `}}`
	}, nil, true, false},
}

// instance is a text that must be valid under a schema.
type instance struct {
	Schema json.RawMessage `json:"schema"`
	Text   string          `json:"instance"`
	from   string          // describes the request
}

// randomReplies sends count requests with forced forms, as many at a time as an engine takes. Replies
// that did not end at their limit must be complete and valid.
func randomReplies(t *testing.T, d *stack.Dataplane, models []string, count int) {
	t.Helper()
	cases := slices.Concat(randomChats, randomResponses)
	var mu sync.Mutex
	var instances []instance
	counts := map[string]int{}

	var group sync.WaitGroup
	numbers := make(chan int)

	for range 16 {
		group.Go(func() {
			for n := range numbers {
				found, how := randomReply(t, d, n, cases[n%len(cases)], n%len(cases) >= len(randomChats), models[n/len(cases)%len(models)])
				mu.Lock()
				instances = append(instances, found...)
				counts[how]++
				mu.Unlock()
			}
		})
	}

	for n := range count {
		numbers <- n
	}
	close(numbers)
	group.Wait()

	validateAll(t, instances)
	whole := counts["call"] + counts["answer"]
	t.Logf("%d requests: %d whole replies (%d with calls, %d answers), %d incomplete by their limit; %d instances valid by their schemas",
		count, whole, counts["call"], counts["answer"], counts["incomplete"], len(instances))

	if whole < count/2 || counts["call"] == 0 || counts["answer"] == 0 {
		t.Errorf("too few replies are complete: %v", counts)
	}
}

// randomReply sends request n and returns the instances in its reply and how it
// ended: call, answer or incomplete.
func randomReply(t *testing.T, d *stack.Dataplane, n int, tt randomCase, ofResponses bool, model string) (found []instance, how string) {
	first, second := boundedSchemas[n%len(boundedSchemas)], boundedSchemas[(n/len(boundedSchemas)+1)%len(boundedSchemas)]
	from := fmt.Sprintf("request %d (%s, %s)", n, tt.name, model)

	path := "/v1/chat/completions"
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Number %d"}],"max_completion_tokens":300,"seed":%d,"logit_bias":{"200007":100,"200002":100,"200012":100},%s}`, model, n, n, tt.fields(first, second))
	if ofResponses {
		path = "/v1/responses"
		body = fmt.Sprintf(`{"model":%q,"input":"THINK Number %d.\nFREE","max_output_tokens":300,%s}`, model, n, tt.fields(first, second))
	}

	status, reply := d.Post(t, path, body)
	if status != http.StatusOK {
		t.Errorf("%s: status %d: %s", from, status, reply.Raw)
		return nil, "failed"
	}

	answer, calls, cut := readRandomChat(reply)
	if ofResponses {
		answer, calls, cut = readRandomResponse(reply)
	}

	switch {
	case cut:
		return nil, "incomplete"
	case len(calls) > 0:
		if len(tt.tools) == 0 || tt.one && len(calls) > 1 {
			t.Errorf("%s: %d calls: %s", from, len(calls), reply.Raw)
		}
		for _, c := range calls {
			if !slices.Contains(tt.tools, c.Name) {
				t.Errorf("%s: a call of %s: %s", from, c.Name, reply.Raw)
			}
			schema := map[string]string{"f": first, "g": second}[c.Name]
			found = append(found, instance{json.RawMessage(schema), c.Arguments, from})
		}
		return found, "call"
	case !tt.answers:
		t.Errorf("%s: no call: %s", from, reply.Raw)
	}

	return []instance{{json.RawMessage(first), answer, from}}, "answer"
}

func readRandomChat(reply gjson.Result) (answer string, calls []stack.Call, cut bool) {
	choice := reply.Get("choices.0")
	for _, c := range choice.Get("message.tool_calls").Array() {
		calls = append(calls, stack.Call{Name: c.Get("function.name").Str, Arguments: c.Get("function.arguments").Str})
	}
	return choice.Get("message.content").Str, calls, choice.Get("finish_reason").Str == "length"
}

func readRandomResponse(reply gjson.Result) (answer string, calls []stack.Call, cut bool) {
	for _, o := range reply.Get("output").Array() {
		switch o.Get("type").Str {
		case "function_call":
			calls = append(calls, stack.Call{Name: o.Get("name").Str, Arguments: o.Get("arguments").Str})
		case "message":
			if o.Get("phase").Str == "final_answer" {
				answer += o.Get("content.0.text").Str
			}
		}
	}
	return answer, calls, reply.Get("status").Str == "incomplete" && reply.Get("incomplete_details.reason").Str == "max_output_tokens"
}

// validateAll validates instances with Python's jsonschema.
func validateAll(t *testing.T, instances []instance) {
	t.Helper()
	var lines, stderr bytes.Buffer
	for _, i := range instances {
		line, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}

	cmd := exec.CommandContext(t.Context(), stack.Python, "engines/validate.py")
	cmd.Stdin, cmd.Stderr = &lines, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}

	verdicts := bufio.NewScanner(bytes.NewReader(out))
	for _, i := range instances {
		if !verdicts.Scan() {
			t.Fatal("the validator has no result for some instances")
		}

		if verdicts.Text() != "null" {
			t.Errorf("%s: %q is not valid: %s", i.from, i.Text, verdicts.Text())
		}
	}
}

// Forced calls and bounded schemas with random weights.
func TestRealRandomVLLM(t *testing.T) {
	realRandom(t, engineAt(t, "ENGINE_TEST_VLLM", "vllm", nil), engineAt(t, "ENGINE_TEST_VLLM", "vllm-generate", nil))
}

func TestRealRandomVLLMGRPC(t *testing.T) {
	realRandom(t, engineAt(t, "ENGINE_TEST_VLLM_GRPC", "vllm-grpc", nil))
}

func TestRealRandomSGLang(t *testing.T) {
	realRandom(t, engineAt(t, "ENGINE_TEST_SGLANG", "sglang", nil))
}

func TestRealRandomSGLangIncremental(t *testing.T) {
	realRandom(t, engineAt(t, "ENGINE_TEST_SGLANG_INCREMENTAL", "sglang", nil))
}

func TestRealRandomSGLangGRPC(t *testing.T) {
	realRandom(t, engineAt(t, "ENGINE_TEST_SGLANG_GRPC", "sglang-grpc", nil))
}

func realRandom(t *testing.T, engines ...realEngine) {
	t.Helper()
	models := make([]string, len(engines))
	for i, e := range engines {
		models[i] = stack.ModelOf(e.kind)
	}
	randomReplies(t, startReal(t, engines...), models, 500)
}
