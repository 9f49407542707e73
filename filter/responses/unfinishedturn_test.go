package responses

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// These tests play turns in which the model calls tools of the filter and tools of the client.
// Until the turn has its answer each prompt must have all that came before, however the client
// keeps the conversation.

// turnStep is a call of the model: what it writes, and what the tool returns.
type turnStep struct {
	text, result string
	// The client makes it.
	client bool
	// The model has written more in the same model call.
	goesOn bool
}

// ofClient is a call of the client's tool.
func ofClient(n int) turnStep {
	return turnStep{text: fmt.Sprintf(`<|channel|>commentary to=functions.local <|constrain|>json<|message|>{"n": %d}`, n), result: fmt.Sprintf("local result %d", n), client: true}
}

// hostedKinds are the tools that the filter runs: the tool of a request, and what the model writes
// for its n-th call.
var hostedKinds = slices.Concat(builtinKinds, []hostedKind{mcpKind, searchKind})

type hostedKind struct{ name, tool, call string }

var builtinKinds = []hostedKind{
	{"web search", `{"type":"web_search"}`, `<|channel|>analysis to=browser.search code<|message|>{"query": "cats %d"}`},
	{"code", `{"type":"code_interpreter","container":{"type":"auto"}}`, `<|channel|>analysis to=python code<|message|>print(%d)`},
	{"container", `{"type":"container"}`, `<|channel|>analysis to=container.search code<|message|>{"q":"files %d"}`},
	{"file search", `{"type":"file_search"}`, ` to=file_search.search<|channel|>commentary json<|message|>{"q": "notes %d"}`},
	{"pictures", `{"type":"image_generation"}`, ` to=image_generation.delete-all<|channel|>commentary json<|message|>{"n": %d}`},
}

var (
	mcpKind = hostedKind{
		"MCP",
		`{"type":"mcp","server_label":"docs"}`,
		` to=docs.search<|channel|>commentary json<|message|>{"q": "docs %d"}`,
	}
	searchKind = hostedKind{
		"tool search",
		`{"type":"tool_search"},{"type":"function","name":"weather","description":"The weather.","defer_loading":true}`,
		` to=functions.tool_search<|channel|>commentary json<|message|>{"query":"weather","limit":%d}`,
	}
)

// A call of each built-in tool is played.
func TestBuiltinsArePlayed(t *testing.T) {
	t.Parallel()
	for _, b := range hosted.Builtins {
		if !slices.ContainsFunc(builtinKinds, func(k hostedKind) bool { return strings.Contains(k.call, "to="+b.Namespace) }) {
			t.Errorf("no call of %s is played: add one to builtinKinds (filter/responses/unfinishedturn_test.go), and a case "+
				"to TestBuiltinTools (builtins_test.go)", b.Name)
		}
	}
}

// Do is what the server does: each call has a result of its own.
func (c *keeper) Do(ctx context.Context, j tools.Job) tools.Result {
	if j.Tool == "" {
		listed := c.loop.Do(ctx, j)
		// A list says the same of a tool without a schema in other words.
		listed.Tools[1].InputSchema = listed.Tools[0].InputSchema
		return listed
	}
	result := tools.Result{Text: "hosted result " + number.FindString(j.Arguments) + " <|end|>" + c.long}
	if j.Tool == "delete-all" {
		result.Content = []tools.Part{{Type: "image", MIME: "image/png", Data: []byte("png")}}
	}
	return result
}

var number = regexp.MustCompile("[0-9]+")

// keeping is a way in which a client keeps the conversation.
type keeping struct {
	name, fields string
	// previous_response_id, or conversation; "": it sends all of it.
	by string
	// The filter has a store.
	store bool
	// It has keys, which are all that the replicas share to which the requests come.
	seals bool
	// What it sends back of an item; nil: all.
	back func(item gjson.Result) string
}

// withoutMember is a client that does not send a member back.
func withoutMember(member string) func(gjson.Result) string {
	return func(it gjson.Result) string {
		// The API requires the id of these.
		if kind := it.Get("type").Str; strings.HasPrefix(kind, "mcp_") || strings.HasPrefix(kind, "tool_search_") {
			return it.Raw
		}
		m, _ := it.Value().(map[string]any)
		delete(m, member)
		raw, _ := json.Marshal(m)
		return string(raw)
	}
}

// onlyItsOwn is a client that sends back reasoning, messages and calls of its own tools alone.
func onlyItsOwn(it gjson.Result) string {
	switch it.Get("type").Str {
	case "reasoning", "message", "function_call", "tool_search_call", "tool_search_output":
		return it.Raw
	}
	return ""
}

const encrypted = `"include":["reasoning.encrypted_content"],`

var keepings = []keeping{
	{name: "the whole, with a store", fields: `"store":false,`, store: true},
	{name: "the whole, stored all the same", store: true},
	{name: "the whole, without a store", fields: `"store":false,` + encrypted, seals: true},
	{name: "the whole, without a store, content not asked for", fields: `"store":false,`, seals: true},
	{name: "the whole, without ids", fields: `"store":false,` + encrypted, seals: true, back: withoutMember("id")},
	{name: "the whole without hosted items", fields: `"store":false,` + encrypted, seals: true, back: onlyItsOwn},
	{name: "previous_response_id", store: true, by: "previous_response_id"},
	{name: "previous_response_id, sealed", fields: encrypted, store: true, seals: true, by: "previous_response_id"},
	{name: "conversation", store: true, by: "conversation"},
}

// keeper is a client and the filter that it talks to.
type keeper struct {
	*loop
	keeping
	tools string
	// The key that seals, and what results end with.
	key, long string
	// What the model wrote in each model call.
	written []string
	// What it sends, and the id that it goes on with.
	items []string
	id    string
}

func newKeeper(t *testing.T, k keeping, tool string) *keeper {
	t.Helper()
	c := &keeper{loop: newBuiltinLoop(t), keeping: k, tools: tool + "," + functionTool, key: "k"}
	c.api.servers = c
	c.rc.Model = &turn.Model{History: turn.HistoryExact, ContextLength: 1 << 22}
	c.rc.Limits.Turns = 8
	if !k.store {
		c.rc.Memory, c.api.Store, c.api.Approvals, c.api.Chains = nil, nil, nil, nil
	}
	c.say(`{"role":"user","content":"hi"}`)
	if k.by == "conversation" {
		o := c.api.outcome("POST", "/v1/conversations", []byte(`{}`), c.rc)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		c.id = gjson.GetBytes(o.Answer, "id").Str
	}
	return c
}

func (c *keeper) say(items ...string) { c.items = append(c.items, items...) }

// body is the next request.
func (c *keeper) body(stream bool) string {
	body := fmt.Sprintf(`{"model":"m",%s"stream":%t,"tools":[%s],"input":[%s]`, c.fields, stream, c.tools, strings.Join(c.items, ","))
	if c.by != "" && c.id != "" {
		body += fmt.Sprintf(`,%q:%q`, c.by, c.id)
	}
	return body + "}"
}

// request reads the next request.
func (c *keeper) request(t *testing.T) *write.Request {
	t.Helper()
	c.api.Sealer = mustSealer(t, c.key)
	request, err := c.api.decode([]byte(c.body(false)), c.rc)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// send sends what is new, or all, and takes the reply.
func (c *keeper) send(t *testing.T, stream bool, outputs ...string) gjson.Result {
	t.Helper()
	if c.seals {
		// A replica has nothing but the keys.
		c.api.Sealer = mustSealer(t, c.key)
	}
	got := c.play(t, c.body(stream), outputs...)

	if c.by != "" {
		c.items = nil
		if c.by == "previous_response_id" {
			c.id = got.Get("id").Str
		}
		return got
	}
	for _, it := range got.Get("output").Array() {
		raw := it.Raw
		if c.back != nil {
			raw = c.back(it)
		}
		if raw != "" {
			c.say(raw)
		}
	}
	return got
}

// orders are the orders of calls: h of the filter, c of the client. A dash joins those of one model
// call.
var orders = []string{"hc", "chc", "h-hc", "h-c", "c-h", "hhc-hchc"}

// stepsOf are the steps of an order. The first has the number 1.
func stepsOf(order, call string) []turnStep {
	var all []turnStep
	for _, who := range order {
		n := len(all) + 1
		switch who {
		case 'h':
			all = append(all, turnStep{text: fmt.Sprintf(call, n), result: fmt.Sprintf("hosted result %d", n)})
		case 'c':
			all = append(all, ofClient(n))
		default:
			all[len(all)-1].goesOn = true
		}
	}
	return all
}

// playTurn plays a turn to its answer.
func (c *keeper) playTurn(t *testing.T, stream bool, all []turnStep) {
	t.Helper()
	// Of the response that is being made, and of the model call.
	var outputs, results []string
	output := ""
	for i := range all {
		s := &all[i]
		if output == "" {
			output = fmt.Sprintf("<|channel|>analysis<|message|>Thought %d.<|end|><|start|>assistant", i+1)
		}
		output += s.text
		if s.client {
			results = append(results, s.result)
		}
		if s.goesOn {
			output += "<|end|><|start|>assistant"
			continue
		}

		outputs = append(outputs, output+"<|call|>")
		c.written = append(c.written, output+"<|call|>")
		output = ""
		if len(results) == 0 {
			continue
		}
		got := c.send(t, stream, outputs...)
		outputs = nil
		for _, it := range got.Get("output").Array() {
			if it.Get("type").Str == "function_call" {
				c.say(fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%q}`, it.Get("call_id").Str, results[0]))
				results = results[1:]
			}
		}
	}
	c.send(t, stream, append(outputs, doneText)...)
}

// TestUnfinishedTurnIsWhole is the table: each tool of the filter, each way of keeping the
// conversation, streamed or not, in each order.
func TestUnfinishedTurnIsWhole(t *testing.T) {
	t.Parallel()
	for _, kind := range hostedKinds {
		for _, k := range keepings {
			for _, order := range orders {
				t.Run(kind.name+"/"+k.name+"/"+order, func(t *testing.T) {
					t.Parallel()
					for _, stream := range []bool{false, true} {
						c := newKeeper(t, k, kind.tool)
						all := stepsOf(order, kind.call)
						c.playTurn(t, stream, all)
						c.checkPrompts(t, all)
					}
				})
			}
		}
	}
}

// checkPrompts checks that each prompt has all steps before it, in their order, once, and that with
// a store it begins with the prompt before and its output as the model wrote it.
func (c *keeper) checkPrompts(t *testing.T, all []turnStep) {
	t.Helper()
	n := 0
	for p, prompt := range c.prompts {
		// A search beside other calls ends the message before the tools that it has found.
		exact := c.store && !(strings.Contains(prompt, "tool_search") && slices.ContainsFunc(all, func(s turnStep) bool { return s.goesOn }))
		if p > 0 && exact && !strings.HasPrefix(prompt, c.prompts[p-1]+c.written[p-1]) {
			t.Fatalf("prompt %d does not begin with the one before and its output:\n%s\n%s", p+1, c.prompts[p-1]+c.written[p-1], prompt)
		}

		rest := prompt
		inOrder := func(want string) {
			at := strings.Index(rest, want)
			if at < 0 {
				t.Fatalf("prompt %d does not have %q in its place:\n%s", p+1, want, prompt)
			}
			rest = rest[at+len(want):]
		}
		for i := range all[:n] {
			if i == 0 || !all[i-1].goesOn {
				inOrder(fmt.Sprintf("Thought %d.", i+1))
			}
			_, call, _ := strings.Cut(all[i].text, "<|message|>")
			inOrder(call)
			if strings.Count(prompt, call) != 1 || !strings.Contains(all[i].text, "tool_search") && strings.Count(prompt, all[i].result) != 1 {
				t.Fatalf("prompt %d does not have %q and its result once:\n%s", p+1, call, prompt)
			}
		}
		if got := strings.Count(prompt, " to=assistant<|channel|>"); got != n {
			t.Fatalf("prompt %d has %d results, want %d:\n%s", p+1, got, n, prompt)
		}

		for n < len(all) {
			n++
			if !all[n-1].goesOn {
				break
			}
		}
	}
	if n != len(all) {
		t.Fatalf("the prompts have %d steps, want %d", n, len(all))
	}
}

// statelessKeeper is a client that keeps the conversation itself, of a filter without a store, after
// a search and a call of its own.
func statelessKeeper(t *testing.T, tool, call string) *keeper {
	t.Helper()
	c := newKeeper(t, keepings[2], tool)
	c.playOpen(t, false, call)
	return c
}

// playOpen plays a hosted call and one of the client, which gets its result with the next request.
func (c *keeper) playOpen(t *testing.T, stream bool, call string) {
	t.Helper()
	got := c.send(t, stream, fmt.Sprintf(call, 1)+"<|call|>", ofClient(2).text+"<|call|>")
	output := got.Get("output").Array()
	c.say(fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"local result"}`, output[len(output)-1].Get("call_id").Str))
}

// TestAnswerEndsTheTurn shows that the steps of a turn with its answer are gone, as if no carrier had
// had them, and that no response which ends with an answer has a carrier.
func TestAnswerEndsTheTurn(t *testing.T) {
	t.Parallel()
	for _, kind := range builtinKinds {
		for _, phase := range []bool{true, false} {
			c := statelessKeeper(t, kind.tool, kind.call)
			if answer := c.send(t, true, fmt.Sprintf(kind.call, 3)+"<|call|>", doneText); strings.Contains(answer.Raw, "steps.") {
				t.Errorf("%s: a response with its answer has a carrier: %s", kind.name, answer.Get("output"))
			}
			if !phase { // clients drop it
				last := &c.items[len(c.items)-1]
				*last = strings.Replace(*last, `"phase":"final_answer",`, "", 1)
			}
			c.say(`{"role":"user","content":"And now?"}`)
			c.send(t, false, doneText)
			with := c.prompts[len(c.prompts)-1]

			c.items = c.items[:len(c.items)-1] // the last answer
			c.items = slices.DeleteFunc(c.items, func(it string) bool { return strings.Contains(it, "steps.") })
			c.send(t, false, doneText)
			if without := c.prompts[len(c.prompts)-1]; with != without || strings.Contains(with, "hosted result") && kind.name != "container" {
				t.Errorf("%s: after the answer the prompt is\n%s\nand without carriers\n%s", kind.name, with, without)
			}
		}
	}
}

// TestLostStepsAreNamed shows what happens to steps that cannot be read.
func TestLostStepsAreNamed(t *testing.T) {
	t.Parallel()
	for _, kind := range append(slices.Clone(builtinKinds), mcpKind) {
		itemType, whole := map[string]string{"web search": "web_search_call", "code": "code_interpreter_call", "file search": "file_search_call", "pictures": "image_generation_call"}[kind.name], false
		if itemType == "" {
			itemType, whole = "mcp_call", true
		}
		for name, c := range map[string]struct {
			spoil func(c *keeper)
			want  []string
		}{
			"nothing is lost": {func(*keeper) {}, nil},
			"no carrier": {func(c *keeper) {
				c.items = slices.DeleteFunc(c.items, func(it string) bool { return strings.Contains(it, "steps.") })
			}, []string{"input." + itemType}},
			"another key": {func(c *keeper) { c.key = "l" }, []string{"input.encrypted_content", "input." + itemType}},
			"too long":    {func(c *keeper) { c.long = strings.Repeat("x", 1<<20) }, []string{"input." + itemType}},
			"too long, and the item left out": {func(c *keeper) {
				c.long = strings.Repeat("x", 1<<20)
				c.back = onlyItsOwn
			}, []string{"input." + itemType}},
		} {
			k := newKeeper(t, keepings[2], kind.tool)
			if strings.HasPrefix(name, "too long") {
				c.spoil(k)
			}
			k.playOpen(t, true, kind.call)
			c.spoil(k)
			want := slices.DeleteFunc(c.want, func(field string) bool {
				// The item of an MCP call has all of it.
				return whole && field == "input.mcp_call" && !strings.HasSuffix(name, "left out")
			})
			if got := k.request(t).Ignored(); !slices.Equal(got, want) {
				t.Errorf("%s, %s: ignored is %q, want %q", kind.name, name, got, want)
			}
		}
	}
}

// TestCarrierOfAnotherTenant shows that sealed steps open for their tenant alone, and that they are
// not taken for reasoning.
func TestCarrierOfAnotherTenant(t *testing.T) {
	t.Parallel()
	c := statelessKeeper(t, hostedKinds[0].tool, hostedKinds[0].call)
	c.rc.Tenant = "b"
	_, err := c.api.decode([]byte(c.body(false)), c.rc)
	if err == nil || err.Status != 400 || !strings.HasSuffix(err.Param, "].encrypted_content") || !strings.Contains(err.Message, "another tenant") {
		t.Errorf("another tenant's steps: %v", err)
	}

	c.rc.Tenant = ""
	c.items = slices.DeleteFunc(c.items, func(it string) bool { return strings.Contains(it, `"web_search_call"`) })
	for i := range c.items { // the seal is of another purpose
		c.items[i] = strings.Replace(c.items[i], "steps.", "", 1)
	}
	if got := c.request(t).Ignored(); !slices.Equal(got, []string{"input.encrypted_content"}) {
		t.Errorf("steps as reasoning: ignored is %q", got)
	}
}

// TestCarrierIsReadOnce shows that a prompt does not grow by what is sent again.
func TestCarrierIsReadOnce(t *testing.T) {
	t.Parallel()
	for _, k := range []keeping{keepings[0], keepings[2], keepings[5]} {
		c := newKeeper(t, k, hostedKinds[0].tool)
		c.playOpen(t, false, hostedKinds[0].call)
		var again []string
		for _, it := range c.items {
			if strings.Contains(it, "steps.") || strings.Contains(it, "web_search_call") {
				again = append(again, it, it, it)
			}
		}
		c.items = slices.Insert(c.items, 1, again...)
		c.send(t, false, doneText)
		if prompt := c.prompts[len(c.prompts)-1]; strings.Count(prompt, "hosted result 1") != 1 {
			t.Errorf("%s: the prompt has the result more than once:\n%s", k.name, prompt)
		}
	}
}

// begun plays a reply up to its second model call.
func (c *keeper) begun(t *testing.T, r *write.Reply, output string) (out []byte) {
	t.Helper()
	for calls := 0; ; {
		var step api.Step
		var err *apierror.Error
		if out, step, err = r.Step(out); err != nil {
			t.Fatal(err)
		}
		if step.Call == nil {
			out = c.do(r, out, step.Jobs)
			continue
		}
		if calls++; calls == 2 {
			return out
		}
		for _, chunk := range apitest.Said(output).Chunks(apitest.Size(2)) {
			if out, err = r.Push(out, &chunk); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestInterruptedTurnIsWhole shows turns whose response did not come to its own end: a client that
// tries again sends the items that it has got.
func TestInterruptedTurnIsWhole(t *testing.T) {
	t.Parallel()
	call := fmt.Sprintf(hostedKinds[0].call, 1) + "<|call|>"
	cut := "<|channel|>analysis<|message|>And then"

	for _, k := range []keeping{keepings[0], keepings[2]} {
		for name, end := range map[string]func(c *keeper, request *write.Request, r *write.Reply) string{
			"it fails": func(c *keeper, request *write.Request, r *write.Reply) string {
				out := r.Fail(c.begun(t, r, call), apierror.New(502, "engine_error", "", "Broken."))
				return finalObject(t, request.Options.Stream, string(mustEnd(t, r, out)))
			},
			"the client leaves": func(c *keeper, _ *write.Request, r *write.Reply) string {
				out := c.begun(t, r, call)
				c.do(r, nil, r.Cancel())
				var items []string
				for line := range strings.Lines(string(out)) {
					if data, ok := strings.CutPrefix(line, "data: "); ok && gjson.Get(data, "type").Str == "response.output_item.done" {
						items = append(items, gjson.Get(data, "item").Raw)
					}
				}
				return `{"output":[` + strings.Join(items, ",") + "]}"
			},
			"it is cut": func(c *keeper, request *write.Request, r *write.Reply) string {
				out, err := c.reply(t, r, call, cut+"…")
				if err != nil {
					t.Fatal(err)
				}
				return finalObject(t, request.Options.Stream, string(out))
			},
		} {
			// Without a store a carrier can only come with an end that is not cut.
			if !k.store && name != "it fails" {
				continue
			}
			c := newKeeper(t, k, hostedKinds[0].tool)
			if c.seals {
				c.api.Sealer = mustSealer(t, "k")
			}
			request, err := c.api.decode([]byte(c.body(true)), c.rc)
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range gjson.Get(end(c, request, newReply(request, api.Loop)), "output").Array() {
				c.say(it.Raw)
			}
			c.send(t, true, doneText)
			if prompt := c.prompts[len(c.prompts)-1]; strings.Count(prompt, "hosted result 1") != 1 {
				t.Errorf("%s, %s: the prompt does not have the result:\n%s", k.name, name, prompt)
			}
		}
	}
}

// TestCarriedStepsAreStored shows a client that sends the whole conversation, and goes on with the
// stored response from there.
func TestCarriedStepsAreStored(t *testing.T) {
	t.Parallel()
	for _, back := range []func(gjson.Result) string{nil, onlyItsOwn} {
		c := newKeeper(t, keepings[2], hostedKinds[0].tool)
		c.back = back
		c.playOpen(t, false, hostedKinds[0].call)
		c.api.Store, c.fields = store.NewMemory(store.Options{ResponseBytes: 1 << 24, ResponseTTL: time.Hour, Now: c.rc.Now}), ""
		got := c.send(t, false, ofClient(3).text+"<|call|>")

		c.by, c.id = "previous_response_id", got.Get("id").Str
		c.items = []string{fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"x"}`, got.Get("output.0.call_id").Str)}
		c.send(t, false, doneText)
		if prompt := c.prompts[len(c.prompts)-1]; strings.Count(prompt, "hosted result 1") != 1 {
			t.Errorf("the prompt does not have the result:\n%s", prompt)
		}
	}
}

// TestCarrierIsReplayed shows the stream of a stored response that has a carrier.
func TestCarrierIsReplayed(t *testing.T) {
	t.Parallel()
	c := newKeeper(t, keepings[7], hostedKinds[0].tool)
	c.api.Sealer = mustSealer(t, c.key)
	c.playOpen(t, true, hostedKinds[0].call)
	r, err := c.api.Store.Get(context.Background(), "", c.id)
	if err != nil || !strings.Contains(string(r.Output[1].JSON), "steps.") {
		t.Fatalf("the stored response has no carrier: %v, %s", err, r.Output)
	}
	// The item of the search has its end alone.
	r.Output = slices.Delete(r.Output, 0, 1)
	object := gjson.Parse(finalObject(t, true, string(write.Replay(r, request.Options{Stream: true}))))
	if got := kinds(object); got != "reasoning completed, function_call completed" {
		t.Errorf("the output is %s", got)
	}
}

// grownMemory has a long text under every name, and counts the bytes that were read.
type grownMemory struct {
	turn.Memory

	text string
	read int
}

func (m *grownMemory) Texts(_ context.Context, _ string, names []string) (map[string]string, error) {
	texts := map[string]string{}
	for _, name := range names {
		texts[name] = m.text
		m.read += len(m.text)
	}
	return texts, nil
}

// TestKeptResultsAreBounded shows that a request that names many calls does not read all that is kept of
// them before it is refused.
func TestKeptResultsAreBounded(t *testing.T) {
	t.Parallel()
	c := newKeeper(t, keepings[0], hostedKinds[0].tool)
	memory := &grownMemory{Memory: c.rc.Memory, text: `{"output":"` + strings.Repeat("x", 1<<20) + `"}`}
	c.rc.Memory, c.rc.Limits.Bytes = memory, 4<<20
	for i := range 256 {
		c.say(fmt.Sprintf(`{"type":"web_search_call","id":"ws_%d","status":"completed"}`, i))
	}

	_, err := c.api.decode([]byte(c.body(false)), c.rc)
	if most := 32 << 20; err == nil || err.Status != 400 || memory.read == 0 || memory.read > most {
		t.Errorf("%d bytes were read, at most %d may be: %v", memory.read, most, err)
	}
}
