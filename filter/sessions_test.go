package filter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// These tests play sessions of coding agents, whose requests have the form of the agents' own:
// which API, what of the reasoning they send back, and how they write the arguments of calls. The
// engine has a prefix cache, and writes calls as gpt-oss does.

// cachingEngine answers each model call with the next output, and counts the tokens of the prompt
// that it has not computed before.
type cachingEngine struct {
	mu sync.Mutex
	// All that it has computed: prompts with the outputs to them.
	computed [][]harmony.Token
	output   []harmony.Token
	// Of the last call.
	prompt []harmony.Token
	cached int
}

func (e *cachingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"gpt-oss-20b","max_model_len":131072}]}`)
		return
	}
	var call struct{ Prompt []harmony.Token }
	_ = json.NewDecoder(r.Body).Decode(&call)

	e.mu.Lock()
	defer e.mu.Unlock()
	e.prompt, e.cached = call.Prompt, 0
	for _, sequence := range e.computed {
		e.cached = max(e.cached, shared(sequence, call.Prompt))
	}
	// What is generated last is the input of no step.
	e.computed = append(e.computed, slices.Concat(call.Prompt, e.output[:len(e.output)-1]))

	ids, _ := json.Marshal(e.output)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":%s,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", ids)
}

// shared returns how many tokens two sequences begin with in common.
func shared(a, b []harmony.Token) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// sessionTurn is what follows one message of a user.
type sessionTurn struct {
	user  string
	steps []sessionStep
}

// sessionStep is one model call: reasoning, and calls or an answer.
type sessionStep struct {
	reasoning []string
	preamble  string
	calls     []sessionCall
	answer    string
	// What the model writes; nil: its messages with headers of one form.
	tokens []harmony.Token
}

type sessionCall struct{ tool, arguments, result string }

// The files of the session, which it reads, writes and patches.
var (
	sourceFile = strings.Repeat("func area(width, height float64) float64 { return width * height } // <m²>\n", 40)
	testFile   = strings.Repeat("\tif got := area(2, 3); got != 6 {\n\t\tt.Errorf(\"area is %v, not 6\", got)\n\t}\n", 25)
)

// codingSession is the session that all agents play. Arguments are written as models write them:
// with spaces, escapes and numbers that a client writes in another way.
func codingSession() []sessionTurn {
	text := func(s string) string {
		quoted, _ := json.Marshal(s)
		return string(quoted)
	}
	return []sessionTurn{
		{"Add a test for area, and run it.", []sessionStep{
			{reasoning: []string{"I have to look at the code first."}, preamble: "I look at the code.", calls: []sessionCall{
				{"read", `{"path": "shape.go", "limit": 200.0}`, sourceFile},
			}},
			{reasoning: []string{"It has no test.", "Both files may matter."}, calls: []sessionCall{
				{"read", `{"path": "go.mod"}`, "module shape\n\ngo 1.26\n"},
				{"shell", `{"command": ["ls", "-la"], "timeout": 1e4}`, "shape.go\ngo.mod\n"},
			}},
			{reasoning: []string{"Now I write it."}, calls: []sessionCall{
				{"write", `{"path": "shape_test.go", "text": ` + text(testFile) + `}`, "ok"},
			}},
			{reasoning: []string{"Run it."}, calls: []sessionCall{
				{"shell", `{"timeout": 60000, "command": ["go", "test", "./..."]}`, "FAIL: undefined: t"},
			}},
			{reasoning: []string{"The function around it is missing."}, preamble: "I forgot the function.", calls: []sessionCall{
				{"write", `{"path": "shape_test.go", "text": ` + text("func TestArea(t *testing.T) {\n"+testFile+"}\n") + `}`, "ok"},
			}},
			{reasoning: []string{"Again."}, calls: []sessionCall{
				{"shell", `{"command": ["go", "test", "./..."], "timeout": 60000}`, "ok  shape 0.002s"},
			}},
			{reasoning: []string{"Done."}, answer: "The test passes."},
		}},
		{"Thanks. Round the result, too.", []sessionStep{
			{reasoning: []string{"One edit."}, calls: []sessionCall{
				{"write", `{"path":"shape.go","text":` + text(strings.ReplaceAll(sourceFile, "width * height", "math.Round(width * height)")) + `}`, "ok"},
			}},
			{reasoning: []string{"And the test."}, calls: []sessionCall{
				{"shell", `{"command": ["go", "vet"]}`, ""},
			}},
			{reasoning: []string{"Done."}, answer: "It is rounded."},
		}},
	}
}

// callHeaders are the forms in which gpt-oss writes the header of a call.
var callHeaders = []string{
	"<|channel|>commentary to=functions.%s <|constrain|>json<|message|>",
	" to=functions.%s<|channel|>commentary <|constrain|>json<|message|>",
	"<|channel|>commentary to=functions.%s json<|message|>",
}

// output returns what the model writes in a step, with headers in one of the forms, or in each of
// them by seed: -1.
func (s *sessionStep) output(form int, seed *rand.Rand) []harmony.Token {
	if s.tokens != nil {
		return s.tokens
	}
	var messages []string
	for _, text := range s.reasoning {
		messages = append(messages, "<|channel|>analysis<|message|>"+text+"<|end|>")
	}
	if s.preamble != "" {
		messages = append(messages, "<|channel|>commentary<|message|>"+s.preamble+"<|end|>")
	}
	for i, call := range s.calls {
		end := "<|end|>"
		if i == len(s.calls)-1 {
			end = "<|call|>"
		}
		chosen := form
		if form < 0 {
			chosen = seed.IntN(len(callHeaders))
		}
		messages = append(messages, fmt.Sprintf(callHeaders[chosen], call.tool)+call.arguments+end)
	}
	if s.answer != "" {
		messages = append(messages, "<|channel|>final<|message|>"+s.answer+"<|return|>")
	}
	return harmony.AppendEncodeSpecial(nil, strings.Join(messages, "<|start|>assistant"))
}

// agent is a client: it builds the next request of what it has got.
type agent interface {
	path() string
	user(text string)
	body(model string) any
	// take takes a reply, and the results of its calls in their order.
	take(reply gjson.Result, results []string)
}

type object = map[string]any

var toolSchemas = []struct{ name, properties string }{
	{"read", `{"path":{"type":"string"},"limit":{"type":"number"}}`},
	{"write", `{"path":{"type":"string"},"text":{"type":"string"}}`},
	{"shell", `{"command":{"type":"array","items":{"type":"string"}},"timeout":{"type":"number"}}`},
}

func schema(properties string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":` + properties + `}`)
}

// stringify writes JSON as JavaScript does that has read it: without spaces, the members in their
// order, numbers as float64.
func stringify(v gjson.Result) string {
	switch {
	case v.IsObject():
		var members []string
		v.ForEach(func(name, value gjson.Result) bool {
			members = append(members, stringify(name)+":"+stringify(value))
			return true
		})
		return "{" + strings.Join(members, ",") + "}"
	case v.IsArray():
		var elements []string
		for _, element := range v.Array() {
			elements = append(elements, stringify(element))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case v.Type == gjson.Number:
		return strconv.FormatFloat(v.Num, 'f', -1, 64)
	case v.Type == gjson.String:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v.Str)
		return strings.TrimSuffix(b.String(), "\n")
	}
	return v.Raw
}

// chatAgent is a client of Chat Completions.
type chatAgent struct {
	// The field in which it sends reasoning back; "": it does not.
	reasoning string
	// It has read the arguments, and writes them again.
	rewrites bool
	// Of the reasoning it has the end alone, as openai-node's helper for streams leaves it.
	rest bool
	// The content of a message that has calls alone; "null" or "".
	empty    any
	messages []any
}

func (a *chatAgent) path() string { return "/v1/chat/completions" }

func (a *chatAgent) user(text string) {
	a.messages = append(a.messages, object{"role": "user", "content": text})
}

func (a *chatAgent) body(model string) any {
	tools := make([]any, 0, len(toolSchemas))
	for _, tool := range toolSchemas {
		tools = append(tools, object{"type": "function", "function": object{"name": tool.name, "description": "Does it.", "parameters": schema(tool.properties)}})
	}
	system := object{"role": "system", "content": "You are a coding agent."}
	return object{"model": model, "messages": append([]any{system}, a.messages...), "tools": tools}
}

func (a *chatAgent) take(reply gjson.Result, results []string) {
	message := reply.Get("choices.0.message")
	sent := object{"role": "assistant", "content": message.Get("content").Value()}
	if message.Get("content").Str == "" {
		sent["content"] = a.empty
	}
	if a.reasoning != "" {
		text := message.Get(a.reasoning).Str
		if a.rest {
			text = text[len(text)/2:]
		}
		sent[a.reasoning] = text
	}

	made := message.Get("tool_calls").Array()
	calls, outputs := make([]any, 0, len(made)), make([]any, 0, len(made))
	for i, call := range made {
		arguments := call.Get("function.arguments").Str
		if a.rewrites {
			arguments = stringify(gjson.Parse(arguments))
		}
		calls = append(calls, object{"id": call.Get("id").Str, "type": "function", "function": object{"name": call.Get("function.name").Str, "arguments": arguments}})
		outputs = append(outputs, object{"role": "tool", "tool_call_id": call.Get("id").Str, "content": results[i]})
	}
	if len(calls) > 0 {
		sent["tool_calls"] = calls
	}
	a.messages = append(append(a.messages, sent), outputs...)
}

// responsesAgent is a client of Responses that keeps the conversation itself.
type responsesAgent struct {
	// It asks for encrypted reasoning, and sends nothing else of it.
	encrypted bool
	// It takes the ids of items for those of calls: of the calls, of their outputs, or of both.
	callsByItem, outputsByItem bool
	items                      []any
}

func (a *responsesAgent) path() string { return "/v1/responses" }

func (a *responsesAgent) user(text string) {
	a.items = append(a.items, object{"type": "message", "role": "user", "content": []any{object{"type": "input_text", "text": text}}})
}

func (a *responsesAgent) body(model string) any {
	tools := make([]any, 0, len(toolSchemas))
	for _, tool := range toolSchemas {
		tools = append(tools, object{"type": "function", "name": tool.name, "description": "Does it.", "strict": false, "parameters": schema(tool.properties)})
	}
	body := object{"model": model, "instructions": "You are a coding agent.", "input": a.items, "tools": tools, "store": false}
	if a.encrypted {
		body["include"] = []string{"reasoning.encrypted_content"}
	}
	return body
}

func (a *responsesAgent) take(reply gjson.Result, results []string) {
	var outputs []any
	for _, item := range reply.Get("output").Array() {
		sent, _ := item.Value().(object)
		if item.Get("type").Str == "reasoning" && a.encrypted {
			delete(sent, "content")
		}
		a.items = append(a.items, sent)
		if item.Get("type").Str == "function_call" {
			id := item.Get("call_id").Str
			if a.outputsByItem {
				id = item.Get("id").Str
			}
			if a.callsByItem {
				sent["call_id"] = item.Get("id").Str
			}
			outputs = append(outputs, object{"type": "function_call_output", "call_id": id, "output": results[len(outputs)]})
		}
	}
	a.items = append(a.items, outputs...)
}

// messagesAgent is a client of Messages.
type messagesAgent struct{ messages []any }

func (a *messagesAgent) path() string { return "/v1/messages" }

func (a *messagesAgent) user(text string) {
	a.messages = append(a.messages, object{"role": "user", "content": []any{object{"type": "text", "text": text}}})
}

func (a *messagesAgent) body(model string) any {
	tools := make([]any, 0, len(toolSchemas))
	for _, tool := range toolSchemas {
		tools = append(tools, object{"name": tool.name, "description": "Does it.", "input_schema": schema(tool.properties)})
	}
	return object{
		"model": model, "max_tokens": 32000, "thinking": object{"type": "adaptive"}, "messages": a.messages, "tools": tools,
		"system": []any{object{"type": "text", "text": "You are a coding agent."}},
	}
}

func (a *messagesAgent) take(reply gjson.Result, results []string) {
	var blocks, outputs []any
	for _, block := range reply.Get("content").Array() {
		if block.Get("type").Str != "tool_use" {
			blocks = append(blocks, block.Value())
			continue
		}
		blocks = append(blocks, object{
			"type": "tool_use", "id": block.Get("id").Str, "name": block.Get("name").Str, "input": json.RawMessage(stringify(block.Get("input"))),
		})
		outputs = append(outputs, object{"type": "tool_result", "tool_use_id": block.Get("id").Str, "content": results[len(outputs)]})
	}
	a.messages = append(a.messages, object{"role": "assistant", "content": blocks})
	if outputs != nil {
		a.messages = append(a.messages, object{"role": "user", "content": outputs})
	}
}

// knownAgent is a client by name.
type knownAgent struct {
	name string
	make func() agent
}

// oddAgents are clients that send histories back with something missing or in another place.
var oddAgents = []knownAgent{
	{"the rest of reasoning", func() agent { return &chatAgent{reasoning: "reasoning", rest: true, empty: nil} }},
	{"ids of items", func() agent { return &responsesAgent{callsByItem: true, outputsByItem: true} }},
	{"ids of items in calls", func() agent { return &responsesAgent{encrypted: true, callsByItem: true} }},
	{"ids of items in outputs", func() agent { return &responsesAgent{outputsByItem: true} }},
}

// agents are the clients by name, as they are known to send histories back.
var agents = []knownAgent{
	{"Claude Code", func() agent { return &messagesAgent{} }},
	{"Codex", func() agent { return &responsesAgent{encrypted: true} }},
	{"OpenAI Agents", func() agent { return &responsesAgent{} }},
	{"opencode", func() agent { return &chatAgent{reasoning: "reasoning_content", rewrites: true, empty: ""} }},
	{"pi", func() agent { return &chatAgent{reasoning: "reasoning", rewrites: true, empty: nil} }},
	{"Qwen Code", func() agent { return &chatAgent{rewrites: true, empty: nil} }},
}

// sessionCost is what a session has cost its engine.
type sessionCost struct {
	calls int
	// Tokens of the prompts, and those of them that the engine had not computed before.
	prompts, prefilled int
	// Of the latter, those of each prompt.
	each []int
}

// playSession plays a session on the servers, and returns what it costs. With an exact history the engine
// has all that is not new: see reusable.
func playSession(
	t *testing.T, next func() *Server, e *cachingEngine, a agent, session []sessionTurn, exact bool, form int,
) (cost sessionCost) {
	t.Helper()
	model := "gpt-oss-canonical"
	if exact {
		model = "gpt-oss-exact"
	}
	seed := rand.New(rand.NewPCG(3, 4))
	// The prompt before, and the output to it.
	var before []harmony.Token

	for _, asked := range session {
		a.user(asked.user)
		for i := range asked.steps {
			step := &asked.steps[i]
			e.output = step.output(form, seed)
			body, err := json.Marshal(a.body(model))
			if err != nil {
				t.Fatal(err)
			}
			x := ask(t, next(), a.path(), string(body), nil)
			reply := gjson.ParseBytes(x.body.Bytes())
			_, isStream := a.(streaming)
			if isStream {
				reply = streamed(a.path(), x.body.String())
			}
			if !isStream && !reply.Get("usage").Exists() || reply.Get("error").IsObject() {
				t.Fatalf("status %d: %s", x.status, &x.body)
			}

			cost.calls++
			cost.prompts += len(e.prompt)
			cost.prefilled += len(e.prompt) - e.cached
			cost.each = append(cost.each, len(e.prompt)-e.cached)
			if least := reusable(before, i == 0); exact && e.cached < least {
				around, _ := harmony.AppendDecode(nil, e.prompt[max(0, e.cached-20):e.cached+20])
				t.Fatalf("form %d, call %d: of %d tokens only %d are cached: %s", form, cost.calls, least, e.cached, around)
			}
			before = e.computed[len(e.computed)-1]

			results := make([]string, len(step.calls))
			for j, call := range step.calls {
				results[j] = call.result
			}
			a.take(reply, results)
		}
	}
	return cost
}

// reusable returns how many of the tokens that an engine has computed last are the beginning of the
// next prompt: all, except after an answer those from the first reasoning on, which the format drops.
func reusable(computed []harmony.Token, answered bool) int {
	if !answered {
		return len(computed)
	}
	analysis := harmony.AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>analysis")
	for i := range computed {
		if slices.Equal(computed[i:min(len(computed), i+len(analysis))], analysis) {
			return i
		}
	}
	return len(computed)
}

// startSessions starts a server with models of both kinds of history, and the engine of both.
func startSessions(t *testing.T) (*cachingEngine, *Server) {
	t.Helper()
	e := &cachingEngine{}
	_, address := serveLoopback(t, e)
	s := startTestServer(t, func(c *config.Config) {
		c.Engines = []config.Engine{{Name: "main", Kind: "vllm"}}
		c.Loopback = address
		c.Models = []config.Model{
			{Match: "=gpt-oss-exact", UpstreamModel: "gpt-oss-20b"},
			{Match: "=gpt-oss-canonical", UpstreamModel: "gpt-oss-20b", History: turn.HistoryCanonical},
		}
	})
	return e, s
}

// TestSessionsOfAgents compares what sessions cost an engine with an exact history, and with the
// canonical one. -v prints the table.
func TestSessionsOfAgents(t *testing.T) {
	t.Parallel()
	e, s := startSessions(t)

	same := func() *Server { return s }
	t.Logf("%-14s %-5s %6s %8s %10s %6s", "agent", "form", "calls", "prompts", "canonical", "exact")
	for _, known := range agents {
		for form := range len(callHeaders) + 1 {
			name := strconv.Itoa(form + 1)
			if form == len(callHeaders) {
				form, name = -1, "mixed"
			}

			// Another engine for each, whose cache is empty.
			e.computed = nil
			canonical := playSession(t, same, e, known.make(), codingSession(), false, form)
			e.computed = nil
			exact := playSession(t, same, e, known.make(), codingSession(), true, form)
			t.Logf("%-14s %-5s %6d %8d %10d %6d", known.name, name, exact.calls, exact.prompts, canonical.prefilled, exact.prefilled)
			t.Logf("  of each prompt: canonical %v, exact %v", canonical.each, exact.each)
			if exact.prefilled >= canonical.prefilled {
				t.Errorf("%s, form %s: %d tokens are prefilled, and %d with a canonical history", known.name, name, exact.prefilled, canonical.prefilled)
			}
		}
	}
}

// elsewhere answers each request of a session in another region: with a store of its own, and the
// same keys.
func elsewhere(t *testing.T, address string) (next func() *Server) {
	t.Helper()
	var regions [2]*Server
	for i := range regions {
		s := startTestServer(t, func(c *config.Config) {
			c.Engines = []config.Engine{{Name: "main", Kind: "vllm"}}
			c.Loopback = address
			c.Responses.SealKeys = []string{"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}
			c.Models = []config.Model{{Match: "=gpt-oss-exact", UpstreamModel: "gpt-oss-20b"}}
		})
		regions[i] = s
	}

	n := 0
	return func() *Server {
		n++
		return regions[n%len(regions)]
	}
}

// streamed returns the whole reply whose events a client has got.
func streamed(path, events string) gjson.Result {
	var outputs []any
	var text, thinking, signature, input string
	for line := range strings.SplitSeq(events, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		e := gjson.Parse(data)
		switch {
		case !ok:
		case e.Get("type").Str == "response.output_item.done":
			outputs = append(outputs, e.Get("item").Value())
		case e.Get("type").Str == "content_block_start":
			text, thinking, signature, input = "", "", "", ""
			outputs = append(outputs, e.Get("content_block").Value())
		case e.Get("type").Str == "content_block_delta":
			text += e.Get("delta.text").Str
			thinking += e.Get("delta.thinking").Str
			signature += e.Get("delta.signature").Str
			input += e.Get("delta.partial_json").Str
		case e.Get("type").Str == "content_block_stop":
			switch block := outputs[len(outputs)-1].(object); block["type"] {
			case "thinking":
				block["thinking"], block["signature"] = thinking, signature
			case "tool_use":
				block["input"] = json.RawMessage(input)
			default:
				block["text"] = text
			}
		}
	}

	name := "output"
	if path == "/v1/messages" {
		name = "content"
	}
	whole, _ := json.Marshal(object{name: outputs})
	return gjson.ParseBytes(whole)
}

// streaming is a client that asks for a stream.
type streaming struct{ agent }

func (a streaming) body(model string) any {
	body, _ := a.agent.body(model).(object)
	body["stream"] = true
	return body
}

// finishedSession has turns that are over, whose first calls no reasoning precedes: with late, reasoning
// begins in the second step. Arguments are written as clients write them.
func finishedSession(late bool) (session []sessionTurn) {
	for _, asked := range []string{"Add a test, and run it.", "Thanks. Again.", "Once more.", "Bye."} {
		steps := []sessionStep{
			{preamble: "I look.", calls: []sessionCall{{"read", `{"path":"shape.go","limit":200}`, sourceFile}}},
			{calls: []sessionCall{{"write", `{"path":"a_test.go","text":"package a\n// <größer>\n"}`, "ok"}}},
			{calls: []sessionCall{{"shell", `{"command":["go","test"],"timeout":60000}`, "ok"}}},
			{answer: "It is done."},
		}
		for i := 1; late && i < len(steps); i++ {
			steps[i].reasoning = []string{"Go on."}
		}
		session = append(session, sessionTurn{asked, steps})
	}
	return session
}

// TestFinishedTurns shows that an engine has a turn that is over until reasoning was dropped.
func TestFinishedTurns(t *testing.T) {
	t.Parallel()
	e, s := startSessions(t)
	same := func() *Server { return s }

	for _, known := range agents {
		for form := -1; form < len(callHeaders); form++ {
			for _, late := range []bool{false, true} {
				e.computed = nil
				cost := playSession(t, same, e, known.make(), finishedSession(late), true, form)
				t.Logf("%s, form %d, late %t: %d of %d tokens", known.name, form, late, cost.prefilled, cost.prompts)
			}
		}
	}
}

// TestSessionsWithoutTheStore plays sessions each of whose requests reaches another store: what the
// model wrote comes back from the client alone. Arguments are written as clients write them.
func TestSessionsWithoutTheStore(t *testing.T) {
	t.Parallel()
	reasoning := []sessionTurn{{"Add a test, and run it.", []sessionStep{
		{reasoning: []string{"I look at the code first."}, preamble: "I look.", calls: []sessionCall{{"read", `{"path":"shape.go","limit":200}`, sourceFile}}},
		{reasoning: []string{"It has no test."}, calls: []sessionCall{{"write", `{"path":"a_test.go","text":"package a\n// <größer>\n"}`, "ok"}}},
		{calls: []sessionCall{{"shell", `{"command":["go","test"],"timeout":60000}`, "ok"}}},
		{reasoning: []string{"Done."}, answer: "It is done."},
	}}}
	clients := map[string]func() agent{
		"opencode": func() agent { return &chatAgent{reasoning: "reasoning_content", rewrites: true, empty: ""} },
	}
	for name, make := range map[string]func() agent{
		"Claude Code":   func() agent { return &messagesAgent{} },
		"Codex":         func() agent { return &responsesAgent{encrypted: true} },
		"OpenAI Agents": func() agent { return &responsesAgent{} },
	} {
		clients[name] = make
		clients[name+", streamed"] = func() agent { return streaming{make()} }
	}

	for name, make := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &cachingEngine{}
			_, address := serveLoopback(t, e)
			next := elsewhere(t, address)

			for form := range len(callHeaders) {
				for _, session := range [][]sessionTurn{reasoning, finishedSession(false), finishedSession(true)} {
					e.computed = nil
					playSession(t, next, e, make(), session, true, form)
				}
			}
		})
	}
}
