package responses

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
)

// TestAdditionalTools shows the form in which Codex sends its tools for some models:
// one item at the beginning, with a namespace of the model's own name for functions.
func TestAdditionalTools(t *testing.T) {
	t.Parallel()
	const item = `{"type":"additional_tools","id":"at_1","role":"developer","tools":[
		{"type":"namespace","name":"functions","description":"","tools":[{"type":"function","name":"exec","parameters":{"type":"object","properties":{"cmd":{"type":"string"}}}},{"type":"custom","name":"apply_patch"}]},
		{"type":"namespace","name":"crm","description":"Customers.","tools":[{"type":"function","name":"list"}]}]}`
	const rest = `{"role":"developer","content":"Be kind."},{"role":"user","content":"Hi"}`
	lite := mustDecode(t, askItems(item+`,`+rest))
	text := apitest.Spell(t, lite.Engine().Prompt)
	plain := mustDecode(t, `{"model":"m","input":[`+rest+`],"tools":`+gjson.Get(item, "tools").Raw+`}`)
	if diff := cmp.Diff(apitest.Spell(t, plain.Engine().Prompt), text); diff != "" {
		t.Errorf("the prompt differs from that of a request with the same tools (-tools +additional_tools):\n%s", diff)
	}
	if !strings.Contains(text, "# Instructions\n\nBe kind.\n\n# Tools\n\n## crm\n\n// Customers.\nnamespace crm {\n\ntype list = () => any;\n\n} // namespace crm\n\n## functions\n\nnamespace functions {\n\ntype exec =") {
		t.Errorf("the prompt is %s", text)
	}
	for _, request := range []*write.Request{lite, plain} {
		object := gjson.Parse(run(t, request, apitest.Said(` to=functions.exec<|channel|>commentary json<|message|>{}<|end|><|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>{"input":"p"}<|call|>`).Chunks(apitest.Size(5))))
		for path, want := range map[string]string{
			"output.0.type": "function_call", "output.0.name": "exec", "output.0.namespace": "functions",
			"output.1.type": "custom_tool_call", "output.1.name": "apply_patch", "output.1.namespace": "functions", "output.1.input": "p",
		} {
			if got := object.Get(path).Str; got != want {
				t.Errorf("%s is %q, want %q", path, got, want)
			}
		}
	}
	// The call of a tool, sent again with its namespace, has the same recipient.
	again := mustDecode(t, askItems(item+`,`+rest+`,{"type":"function_call","call_id":"a","name":"exec","namespace":"functions","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"x"}`))
	if text := apitest.Spell(t, again.Engine().Prompt); !strings.Contains(text, "<|start|>assistant to=functions.exec<|channel|>commentary json") {
		t.Errorf("the prompt is %s", text)
	}
}

// TestAdditionalToolsLater shows tools that join in the middle of a stored
// conversation, and tools of an earlier request that have no effect in later ones.
func TestAdditionalToolsLater(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	const user = `{"role":"user","content":"Hi"}`
	first := l.play(t, askItems(`{"type":"additional_tools","role":"developer","tools":[{"type":"custom","name":"one"},{"type":"mcp","server_label":"docs"}]},`+user), searchCall("cats"), doneText)
	if got := first.Get("output.#(type==mcp_call).output").Str; got != "found cats" {
		t.Errorf("the server's tool has answered %q", got)
	}
	body := `{"model":"m","previous_response_id":"` + first.Get("id").Str + `","input":[` + user + `,{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"two"}]}]}`
	request, err := l.api.decode([]byte(body), l.rc)
	if err != nil {
		t.Fatal(err)
	}
	text := apitest.Spell(t, request.Engine().Prompt)
	if !strings.Contains(text, "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\ntype one =") ||
		!strings.HasSuffix(text, "<|start|>user<|message|>Hi<|end|><|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\ntype two = () => any;\n\n} // namespace functions<|end|><|start|>assistant") {
		t.Errorf("the prompt is %s", text)
	}
	object := gjson.Parse(run(t, request, apitest.Said(` to=functions.one<|channel|>commentary json<|message|>{"input":"p"}<|end|><|start|>assistant to=functions.two<|channel|>commentary json<|message|>{}<|call|>`).Chunks(apitest.Size(5))))
	if one, two := object.Get("output.0"), object.Get("output.1"); one.Get("type").Str != "custom_tool_call" || one.Get("input").Str != "p" || two.Get("name").Str != "two" {
		t.Errorf("the calls are %s", object.Get("output"))
	}
	if request.Tools.Hosted != nil {
		t.Error("a server of an earlier request is called")
	}
}
