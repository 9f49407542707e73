package responses

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// deferredTools are a plain function, a namespace and a custom tool that a search finds;
// execution is where the search is run.
func deferredTools(execution string) string {
	return `"tools":[{"type":"function","name":"now"},{"type":"tool_search","execution":"` + execution + `"},
	{"type":"function","name":"weather","description":"The weather of a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false},"strict":true,"defer_loading":true},
	{"type":"namespace","name":"crm","description":"Customers and orders.","tools":[
		{"type":"function","name":"list_orders","description":"Lists the orders of a customer.","parameters":{"type":"object","properties":{"id":{"type":"string"}}},"defer_loading":true},
		{"type":"custom","name":"query","description":"Runs a query.","defer_loading":true}]}]`
}

// searchTurn is a model's output that searches for tools.
func searchTurn(arguments string) string {
	return `<|channel|>analysis<|message|>I need a tool.<|end|><|start|>assistant to=functions.tool_search<|channel|>commentary json<|message|>` + arguments + `<|call|>`
}

const ordersCall = ` to=crm.list_orders<|channel|>commentary json<|message|>{"id":"7"}<|call|>`

// continues checks that each prompt begins with the one before it, except the start
// of the reply.
func continues(t *testing.T, prompts ...[]harmony.Token) {
	t.Helper()
	for i, p := range prompts[1:] {
		if before := prompts[i]; len(p) <= len(before) || !slices.Equal(before, p[:len(before)]) {
			t.Errorf("prompt %d does not begin with prompt %d:\n%s\n%s", i+2, i+1, apitest.Spell(t, before), apitest.Spell(t, p))
		}
	}
}

// TestServerToolSearch shows a search that is run here: what the model sees before and
// after it, the items, and that the tools can be called in the same response.
func TestServerToolSearch(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	object := l.play(t, ask(`,"stream":true,`+deferredTools("server")), searchTurn(`{"query": "customer orders", "limit": 1}`), ordersCall)
	const want = "reasoning completed, tool_search_call completed, tool_search_output completed, function_call completed"
	if got := kinds(object); got != want {
		t.Fatalf("the response has %s, want %s", got, want)
	}
	for path, want := range map[string]string{
		"output.1.execution": "server", "output.1.arguments": `{"query":"customer orders","limit":1}`, "output.1.call_id": "",
		"output.2.execution": "server", "output.2.tools.#": "1", "output.2.tools.0.type": "namespace", "output.2.tools.0.name": "crm",
		"output.2.tools.0.tools.#": "1", "output.2.tools.0.tools.0.name": "list_orders", "output.2.tools.0.tools.0.defer_loading": "true",
		"output.3.name": "list_orders", "output.3.namespace": "crm", "status": "completed",
	} {
		if got := object.Get(path).String(); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	before, after := l.prompts[0], l.prompts[1]
	for _, word := range []string{"type weather", "namespace crm", "type query"} {
		if strings.Contains(before, word) {
			t.Errorf("a deferred tool is in the first prompt: %s", word)
		}
	}
	for _, word := range []string{"type tool_search = (_: {", "// - crm: Customers and orders.", "// - weather: The weather of a city."} {
		if !strings.Contains(before, word) {
			t.Errorf("the first prompt does not have %q:\n%s", word, before)
		}
	}
	if !strings.HasPrefix(after, before) {
		t.Error("the second prompt does not begin with the first")
	}
	const behind = "1 tools were found, and can be called now: crm.list_orders<|end|><|start|>developer<|message|># Tools\n\n## crm\n\n// Customers and orders.\nnamespace crm {\n\n// Lists the orders of a customer.\ntype list_orders"
	if !strings.Contains(after[len(before):], behind) || strings.Contains(after, "type query") {
		t.Errorf("the second prompt goes on with %s", after[len(before):])
	}
}

// TestToolSearchesAreBounded searches more often in a turn than it may: the last searches
// find nothing, though there are tools that fit.
func TestToolSearchesAreBounded(t *testing.T) {
	t.Parallel()
	call := func(query string) string {
		return `<|start|>assistant to=functions.tool_search<|channel|>commentary json<|message|>{"query":"` + query + `","limit":1}<|end|>`
	}
	many := strings.TrimPrefix(strings.Repeat(call("nothing"), hosted.MaxTurnCalls)+call("orders"), "<|start|>assistant")
	l := newLoop(t)
	object := l.play(t, ask(`,`+deferredTools("server")), many, call("orders")[len("<|start|>assistant"):], doneText)
	outputs := object.Get(`output.#(type=="tool_search_output")#.tools.#`).Array()
	if len(outputs) != hosted.MaxTurnCalls+2 || outputs[hosted.MaxTurnCalls].Int() != 0 || outputs[hosted.MaxTurnCalls+1].Int() != 1 {
		t.Errorf("the searches have found %v tools", outputs)
	}
	if !strings.HasSuffix(strings.TrimSuffix(l.prompts[1], "<|start|>assistant"), "No tools were found beside those that are listed already.<|end|>") {
		t.Errorf("the prompt ends with %s", l.prompts[1][len(l.prompts[1])-200:])
	}
}

// TestToolSearchIsHistory shows that the tools that a search has found can be called in
// later requests, with the same prompt whether the client sends the items again or
// continues the stored response, and whether the chain is remembered or not.
func TestToolSearchIsHistory(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	first := l.play(t, ask(`,`+deferredTools("server")), searchTurn(`{"query":"orders"}`), ordersCall)
	result := `{"type":"function_call_output","call_id":"` + first.Get("output.3.call_id").Str + `","output":"none"}`
	stored := `{"model":"m","previous_response_id":"` + first.Get("id").Str + `","input":[` + result + `],` + deferredTools("server") + `}`
	sent := `{"model":"m","store":false,"input":[{"role":"user","content":"Hi"},` + strings.Trim(first.Get("output").Raw, "[]") + `,` + result + `],` + deferredTools("server") + `}`
	prompts := map[string]string{}
	for name, body := range map[string]string{"remembered": stored, "read": stored, "sent": sent} {
		api := *l.api
		if name == "read" {
			api.Chains = read.NewChains(1 << 20)
		}
		request, err := api.decode([]byte(body), l.rc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		prompts[name] = apitest.Spell(t, request.Engine().Prompt)
		if !request.Tools.Search.Loaded[turn.ToolName{Namespace: "crm", Name: "list_orders"}] {
			t.Errorf("%s: the search would find the tool again", name)
		}
		object := gjson.Parse(run(t, request, apitest.Said(ordersCall).Chunks(apitest.Size(3))))
		if call := object.Get("output.0"); call.Get("name").Str != "list_orders" || call.Get("namespace").Str != "crm" {
			t.Errorf("%s: the call is %s", name, call)
		}
	}
	if prompts["remembered"] != prompts["sent"] || prompts["read"] != prompts["sent"] {
		t.Errorf("the prompts differ:\n%s", cmp.Diff(prompts["sent"], prompts["remembered"]))
	}
	if last := l.prompts[1]; !strings.HasPrefix(prompts["sent"], last) {
		t.Errorf("the prompt does not begin with the last one of the response: %s", cmp.Diff(last, prompts["sent"]))
	}
}

// TestClientToolSearch shows a search that the client runs, over three turns of a
// stateless client.
func TestClientToolSearch(t *testing.T) {
	t.Parallel()
	const tools = `"tools":[{"type":"tool_search","execution":"client","description":"Finds tools.","parameters":{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"number"}},"required":["query"]}}]`
	items := `{"role":"user","content":"Hi"}`
	var prompts [][]harmony.Token
	turnOf := func(output string) gjson.Result {
		t.Helper()
		request := mustDecode(t, `{"model":"m","input":[`+items+`],`+tools+`}`)
		prompts = append(prompts, request.Engine().Prompt)
		object := gjson.Parse(run(t, request, apitest.Said(output).Chunks(apitest.Size(4))))
		items += `,` + strings.Trim(object.Get("output").Raw, "[]")
		return object
	}
	call := turnOf(searchTurn(`{"query": "text", "limit": 4}`)).Get("output.1")
	if call.Get("type").Str != "tool_search_call" || call.Get("execution").Str != "client" || call.Get("call_id").Str == "" || call.Get("arguments").Raw != `{"query":"text","limit":4}` {
		t.Fatalf("the call is %s", call)
	}
	if text := apitest.Spell(t, prompts[0]); !strings.Contains(text, "// Finds tools.\ntype tool_search = (_: {\nquery: string,\nlimit?: number,\n}) => any;") {
		t.Errorf("the search is shown otherwise: %s", text)
	}
	items += `,{"type":"tool_search_output","execution":"client","status":"completed","call_id":"` + call.Get("call_id").Str + `","tools":[
		{"type":"namespace","name":"mcp__texts","description":"Works on texts.","tools":[{"type":"function","name":"reverse","defer_loading":true,"strict":false,"parameters":{"type":"object","properties":{"text":{"type":"string"}}}}]},
		{"type":"custom","name":"patch","description":"Patches."}]}`
	calls := turnOf(` to=mcp__texts.reverse<|channel|>commentary json<|message|>{"text":"a"}<|end|><|start|>assistant to=functions.patch<|channel|>commentary json<|message|>{"input":"p"}<|call|>`)
	reverse, patch := calls.Get("output.0"), calls.Get("output.1")
	if reverse.Get("type").Str != "function_call" || reverse.Get("name").Str != "reverse" || reverse.Get("namespace").Str != "mcp__texts" {
		t.Errorf("the call of the tool that was found is %s", reverse)
	}
	if patch.Get("type").Str != "custom_tool_call" || patch.Get("input").Str != "p" {
		t.Errorf("the call of the custom tool that was found is %s", patch)
	}
	result := func(call gjson.Result) string {
		return `,{"type":"function_call_output","call_id":"` + call.Get("call_id").Str + `","output":"x"}`
	}
	items += result(reverse) + result(patch)
	turnOf(doneText)
	continues(t, prompts...)
	if text := apitest.Spell(t, prompts[2]); strings.Count(text, "type reverse =") != 1 || strings.Contains(text, "type patch =") != true {
		t.Errorf("the tools are not shown once: %s", text)
	}
}

// TestToolSearchFallsBack shows which tools are offered where nothing can search.
func TestToolSearchFallsBack(t *testing.T) {
	t.Parallel()
	search := `{"type":"tool_search","execution":"server"},`
	for name, c := range map[string]struct{ tools, ignored string }{
		"a server's search without a loopback listener": {deferredTools("server"), "tools.tool_search"},
		"no search": {strings.Replace(deferredTools("server"), search, "", 1), "tools.defer_loading"},
	} {
		request := mustDecode(t, ask(`,`+c.tools))
		text := apitest.Spell(t, request.Engine().Prompt)
		for _, word := range []string{"type now =", "type weather =", "type list_orders =", "type query ="} {
			if !strings.Contains(text, word) {
				t.Errorf("%s: the prompt does not have %q", name, word)
			}
		}
		if strings.Contains(text, "type tool_search") || !slices.Contains(request.Ignored(), c.ignored) {
			t.Errorf("%s: ignored is %v, the prompt %s", name, request.Ignored(), text)
		}
	}
}

// TestToolSearchOfServer shows that the tools of an MCP server are deferred and found
// like others, and run here then.
func TestToolSearchOfServer(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	object := l.play(t, ask(`,"tools":[{"type":"tool_search"},{"type":"mcp","server_label":"docs","server_description":"Documents.","defer_loading":true}]`),
		searchTurn(`{"query":"search"}`), searchCall("cats"), searchTurn(`{"query":"search"}`), doneText)
	const want = "mcp_list_tools, reasoning completed, tool_search_call completed, tool_search_output completed, reasoning completed, mcp_call completed, reasoning completed, tool_search_call completed, tool_search_output completed, message completed"
	if got := kinds(object); got != want {
		t.Fatalf("the response has %s", got)
	}
	if strings.Contains(l.prompts[0], "namespace docs") || !strings.Contains(l.prompts[0], "// - docs: Documents.") || !strings.Contains(l.prompts[1], "type search =") || strings.Contains(l.prompts[1], "delete-all") {
		t.Errorf("the prompts are\n%s\n%s", l.prompts[0], l.prompts[1])
	}
	if found := object.Get("output.8.tools"); found.Raw != "[]" {
		t.Errorf("a tool is found twice: %s", found)
	}
	if text := object.Get("output.5.output").Str; text != "found cats" {
		t.Errorf("the tool has answered %q", text)
	}
	if !strings.Contains(l.prompts[3], "No tools were found beside those that are listed already.") || !strings.HasPrefix(l.prompts[3], l.prompts[2]) {
		t.Errorf("the last prompt is %s", l.prompts[3])
	}
}

// TestDeferredToolsChosen shows that deferred tools that tool_choice names are offered
// at once, and that their schemas are enforced.
func TestDeferredToolsChosen(t *testing.T) {
	t.Parallel()
	api := &API{Tools: newLoop(t).api.Tools}
	request, err := api.decode([]byte(ask(`,"tool_choice":{"type":"function","name":"weather"},`+deferredTools("server"))), apitest.NewContext())
	if err != nil {
		t.Fatal(err)
	}
	if text := apitest.Spell(t, request.Engine().Prompt); !strings.Contains(text, "type weather =") || strings.Contains(text, "namespace crm") {
		t.Errorf("the prompt is %s", text)
	}
	if request.Engine().Constraint == nil {
		t.Error("the call is not enforced")
	}
}

// TestFoundToolsStrict shows that the schemas of strict tools in a search's output are
// enforced.
func TestFoundToolsStrict(t *testing.T) {
	t.Parallel()
	output := func(strict string) *write.Request {
		return mustDecode(t, askItems(`{"role":"user","content":"Hi"},{"type":"tool_search_call","call_id":"a","execution":"client","arguments":{"query":"x"}},
		{"type":"tool_search_output","call_id":"a","tools":[{"type":"function","name":"f","strict":`+strict+`,"parameters":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}}]}`))
	}
	if output("true").Engine().Constraint == nil || output("false").Engine().Constraint != nil {
		t.Error("strict has no effect")
	}
}

// TestToolItemsRefused has items about tools that are invalid.
func TestToolItemsRefused(t *testing.T) {
	t.Parallel()
	const user = `{"role":"user","content":"Hi"},`
	for _, c := range []struct{ name, body, param, message string }{
		{"another role", askItems(user + `{"type":"additional_tools","role":"user","tools":[]}`), "input[1].role", "must be developer"},
		{"no tools", askItems(user + `{"type":"additional_tools","role":"developer"}`), "input[1].tools", "a list of tools"},
		{"a tool without a name", askItems(user + `{"type":"additional_tools","role":"developer","tools":[{"type":"function"}]}`), "input[1].tools[0].name", "no name"},
		{"an output without a search", askItems(user + `{"type":"tool_search_output","tools":[]}`), "input[1].call_id", "no search before it"},
		{"a search without an output", askItems(user + `{"type":"tool_search_call","call_id":"a","arguments":{}}`), "input[1]", `"a" has no output`},
		{"a search without an id", askItems(user + `{"type":"tool_search_call","arguments":{}}`), "input[1].call_id", "neither a call_id nor an id"},
		{"an unknown execution", ask(`,"tools":[{"type":"tool_search","execution":"x"}]`), "tools[0].execution", "client or server"},
		{"two searches", ask(`,"tools":[{"type":"tool_search","execution":"client"},{"type":"tool_search","execution":"client"}]`), "tools[1]", "twice"},
		{"a search's name", ask(`,"tools":[{"type":"tool_search","execution":"client"},{"type":"function","name":"tool_search"}]`), "tools", `the name "tool_search"`},
		{"defer_loading of a wrong type", ask(`,"tools":[{"type":"function","name":"f","defer_loading":"x"}]`), "tools[0].defer_loading", "must be a boolean"},
	} {
		_, err := (&API{}).decode([]byte(c.body), apitest.NewContext())
		if err == nil || err.Param != c.param || !strings.Contains(err.Message, c.message) {
			t.Errorf("%s: %v, want %q of %q", c.name, err, c.message, c.param)
		}
	}
}

// TestManyToolsFound shows that the tools of a request and those of items are bounded
// together.
func TestManyToolsFound(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Limits.Tools = 3
	body := ask(`,"tools":[{"type":"function","name":"a"},{"type":"function","name":"b"}]`)
	body = strings.Replace(body, `"input":"Hi"`, `"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"c"},{"type":"function","name":"d"}]},{"role":"user","content":"Hi"}]`, 1)
	if _, err := (&API{}).decode([]byte(body), rc); err == nil || !strings.Contains(err.Message, "more than 3 tools") {
		t.Errorf("%v in %s", err, body)
	}
}

// TestSearchForText shows that a search without an object as its arguments is one
// for its text.
func TestSearchForText(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	object := l.play(t, ask(`,`+strings.Replace(deferredTools("server"), `"strict":true`, `"strict":false`, 1)), searchTurn(`orders "of" customers`), doneText)
	if v := object.Get("output.1.arguments.query").Str; v != `orders "of" customers` || object.Get("output.2.tools.#").Int() == 0 {
		t.Errorf("the search is %s", object.Get("output"))
	}
}
