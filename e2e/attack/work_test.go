//go:build attack

package attack

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// workArea has small requests, and requests that name what is stored, which once took
// seconds of a core. The table shows the time of the one request.
func workArea() area {
	// ask sends the request of an attack, and notes the filter's processor time of it.
	ask := func(a *attempt, path, body string) answerOf {
		a.Helper()
		before := a.target.cpu()
		r := a.post(path, body)
		took := a.target.cpu() - before
		a.check(r)
		a.see("%d bytes, %s, %.2f s of the filter", len(body), r.brief(), took.Seconds())
		return r
	}
	format := func(pattern string) string {
		return `,"response_format":{"type":"json_schema","json_schema":{"name":"f","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string","pattern":` +
			jsonText(pattern) + `}},"required":["a"],"additionalProperties":false}}}`
	}
	// derendered is a request to read tokens of a model, for a chat.
	derendered := func(tokens []harmony.Token, more string) string {
		ids := make([]string, len(tokens))
		for i, t := range tokens {
			ids[i] = strconv.Itoa(int(t))
		}
		return fmt.Sprintf(`{"model":%q,"generate_response":{"request_id":"x","choices":[{"index":0,"token_ids":[%s],"finish_reason":"stop"}]},"chat_request":%s}`,
			stack.VLLMModel, strings.Join(ids, ","), chatBody(simple, more))
	}
	grammar := func(tools int) string {
		lark := jsonText(`start: "a"` + strings.Repeat("\n#", 32_700) + "\n| \"b\"")
		var b strings.Builder
		for i := range tools {
			fmt.Fprintf(&b, `,{"type":"custom","name":"t%d","format":{"type":"grammar","syntax":"lark","definition":%s}}`, i, lark)
		}
		return responsesBody(simple, `,"tools":[`+b.String()[1:]+`]`)
	}
	// search asks the model to search for tools, as it does when the client tells it to.
	search := func(a *attempt, calls string) {
		a.Helper()
		deferred := counted(500, `{"name":"t%d","description":`+jsonText(strings.Repeat("a", 2000))+
			`,"input_schema":{"type":"object"},"defer_loading":true}`)
		r := ask(a, messagesPath, fmt.Sprintf(`{"model":%q,"max_tokens":50000,"messages":[{"role":"user","content":%s}],"tools":[`+
			`{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"},%s]}`,
			stack.VLLMModel, jsonText("NOTHINK"+calls), deferred))
		if !gjson.Get(r.text, `content.#(type=="tool_search_tool_result")`).Exists() {
			a.Errorf("nothing was searched: %s", r.brief())
		}
	}
	anchored := strings.Repeat(`b^c|a{0,1000}a{0,1000}|`, 20) + "a"

	return area{name: "work", attacks: []attack{
		{name: "a conversation of 6,000 instructions and 6,000 compactions", want: "200", heavy: true, run: func(a *attempt) {
			made := a.post(responsesPath+"/compact", responsesBody(simple, ""))
			compaction := gjson.Get(made.text, `output.#(type=="compaction")`)
			if !compaction.Exists() {
				a.Fatalf("no compaction: %s", made.brief())
			}
			item := `{"type":"compaction","encrypted_content":` + compaction.Get("encrypted_content").Raw + `}`
			path := conversationOf(a, 6000, `{"role":"system","content":"s"}`, item)
			ask(a, responsesPath, responsesBody(simple, `,"conversation":`+jsonText(path)))
		}},
		{name: "a Lark grammar of 32,700 comments", want: "200", run: func(a *attempt) { ask(a, responsesPath, grammar(1)) }},
		{name: "ten tools with such grammars", want: "200 4xx", run: func(a *attempt) { ask(a, responsesPath, grammar(10)) }},
		{name: "strict patterns with anchors inside", want: "4xx", run: func(a *attempt) {
			ask(a, chatPath+"/derender", derendered(harmony.AppendEncodeSpecial(nil, `<|channel|>final<|message|>{"a":"`+strings.Repeat("a", 3000)+`"}<|return|>`), format(anchored)))
		}},
		{name: "a pattern of 1,000 states, and an answer of 20,000 letters", want: "200 4xx 502", run: func(a *attempt) {
			ask(a, chatPath, chatBody(jsonText("NOTHINK\nJSON {\"a\":\""+strings.Repeat("a", 20_000)+"\"}"), format(`^(a|b|ab){0,100}(a{0,100}b?){0,9}c\bd$|^a*$`)))
		}},
		{name: "2,400 classes of letters", want: "4xx", run: func(a *attempt) {
			ask(a, chatPath, chatBody(simple, format("["+strings.Repeat(`\pL`, 2400)+"]")))
		}},
		{name: "500 tools, and a search for them by a pattern of 20,000 states", want: "200", run: func(a *attempt) {
			search(a, "\nCALL functions.tool_search_tool_regex "+`{"pattern":`+jsonText("("+strings.Repeat(".{0,1000}", 20)+")Q")+`}`)
		}},
		{name: "500 tools, and 100 searches for them", want: "200", run: func(a *attempt) {
			search(a, strings.Repeat("\nCALL functions.tool_search_tool_regex "+`{"pattern":"(a|aa|aaa)*Q"}`, 100))
		}},
		{name: "14,000 markers in a message", want: "200", run: func(a *attempt) {
			tokens := harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>hi<|start|>assistant")
			for range 14_000 {
				tokens = append(tokens, harmony.TokenChannel)
			}
			ask(a, chatPath+"/derender", derendered(tokens, ""))
		}},
		{name: "4,000 runs of 127 spaces", want: "200 4xx", run: func(a *attempt) {
			ask(a, chatPath, chatBody(jsonText("NOTHINK\nSAY hi\n"+strings.Repeat(strings.Repeat(" ", 127)+"}", 4000)), ""))
		}},
		{name: "19,990 system messages", want: "200 4xx", run: func(a *attempt) {
			list := strings.Repeat(`{"role":"system","content":"s"},`, 19_990) + `{"role":"user","content":` + simple + `}`
			ask(a, chatPath, fmt.Sprintf(`{"model":%q,"messages":[%s]}`, stack.VLLMModel, list))
		}},
		{name: "2,000,000 headers for an MCP server", want: "4xx", run: func(a *attempt) {
			headers := strings.TrimSuffix(strings.Repeat(`"x":"b",`, 2_000_000), ",")
			ask(a, responsesPath, responsesBody(simple, `,"tools":[{"type":"mcp","server_label":"s","server_url":"https://example.com","headers":{`+headers+`}}]`))
		}},
		{name: "a required call of 100 tools whose schemas cannot be enforced", want: "200 4xx", run: func(a *attempt) {
			list := "[" + strings.TrimSuffix(strings.Repeat("[],", 85_000), ",") + "]"
			tools := counted(100, `{"type":"function","function":{"name":"f%d","parameters":{"type":"object","properties":{"a":{"$ref":"#/nope"}},"examples":`+list+`}}}`)
			ask(a, chatPath, chatBody(simple, `,"tool_choice":"required","tools":[`+tools+`]`))
		}},
	}}
}

// conversationOf makes a conversation with n of each of some items, and returns its id.
func conversationOf(a *attempt, n int, items ...string) string {
	a.Helper()
	const atOnce = 20 // the most that OpenAI's API takes
	id := gjson.Get(a.post("/v1/conversations", `{}`).text, "id").Str
	for _, item := range items {
		list := strings.TrimSuffix(strings.Repeat(item+",", atOnce), ",")
		for range n / atOnce {
			if r := a.post("/v1/conversations/"+id+"/items", `{"items":[`+list+`]}`); r.status != http.StatusOK {
				a.Fatalf("items are not stored: %s", r.brief())
			}
		}
	}
	return id
}
