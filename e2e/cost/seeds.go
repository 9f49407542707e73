package main

import (
	"encoding/binary"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/seal"
)

// The seeds have what scenarios can have: all kinds of items, tools and constraints. They
// are what honest clients send; the search makes the hostile ones of them.

// schemaSeed has a pattern that engines can enforce, and one of each kind that is left to the
// filter's own check: with an anchor inside, with the end of a word, with a class of many
// ranges.
const schemaSeed = `{"type":"object","properties":{"a":{"type":"string","description":"words","enum":["x","y"]},` +
	`"b":{"$ref":"#/$defs/d"},` +
	`"c":{"anyOf":[{"type":"null"},{"type":"array","items":{"type":"integer","minimum":1}}]},"p":{"type":"string",` +
	`"pattern":"^[a-z]{1,9}$"},"q":{"type":"string","pattern":"b^c|a"},"w":{"type":"string","pattern":"\\ba"},` +
	`"l":{"type":"string","pattern":"[\\p{L}-]+"},"u":{"type":"array","uniqueItems":true,"items":{"multipleOf":0.5}` +
	`}},"required":["a"],"additionalProperties":false,"$defs":{"d":{"type":"object",` +
	`"properties":{"e":{"const":1}}}}}`

// answerSchemaSeed is a schema that engines cannot enforce, so that the filter checks
// answers against it.
const answerSchemaSeed = `{"type":"object","properties":{"a":{"type":"string","pattern":"b^c|[a-z]+"},` +
	`"w":{"type":"string","pattern":"\\b[a-z]+\\b"},"b":{"type":"array","uniqueItems":true,` +
	`"items":{"anyOf":[{"type":"string"},{"type":"array"}]}}},"required":["a"]}`

// The answers of the model.
const (
	said = `,"answer":[{"header":"<|channel|>analysis","text":"I think."},{"header":"<|channel|>final",` +
		`"text":"{\"a\":\"word\",\"w\":\"word\",\"b\":[\"x\",[]]}"}]`
	called = `,"answer":[{"header":"<|channel|>analysis","text":"I think."},` +
		`{"header":"<|channel|>commentary to=functions.f <|constrain|>json","text":"{\"a\":\"word\",\"w\":\"word\",` +
		`\"b\":[\"x\",[]]}"}]`
	broken = `,"answer":[{"header":"<|channel|>commentary to=functions.f <|constrain|>json","text":"{'a': 'it's',` +
		` b: [1,],}"}]`

	// What the end of a message decides: whether it is a call, and of what.
	held = `,"answer":[{"header":"<|channel|>commentary","text":"   {\"a\":1}"},{"header":"<|channel|>commentary",` +
		`"text":"   "},{"header":"<|channel|>final to=nope","text":"x"},` +
		`{"header":"<|channel|>commentary to=multi_tool_use.parallel <|constrain|>json",` +
		`"text":"{\"tool_uses\":[{\"recipient_name\":\"functions.f\",\"parameters\":{}}]}"}]`
)

// requests are scenarios of requests alone.
func requests(bodies ...string) []string {
	all := make([]string, len(bodies))
	for i, body := range bodies {
		all[i] = `{"request":` + body + `}`
	}
	return all
}

// settings are the members of a scenario in which the operator has changed the defaults.
const settings = `,"checked":true,"retry":true`

var chatSeeds = append(requests(
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",`+
		`"description":"text","parameters":`+schemaSeed+`}}]}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",`+
		`"strict":true,"parameters":`+schemaSeed+`}}],"tool_choice":"required","parallel_tool_calls":false}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",`+
		`"json_schema":{"name":"n","strict":true,"schema":`+schemaSeed+`}}}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],`+
		`"structured_outputs":{"grammar":"root ::= \"a\" | root \"b\""}}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"structured_outputs":{"regex":"(a|b)*[0-9]{1,5}"}}`,
	`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"x"}`+
		`]},{"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"a","type":"function",`+
		`"function":{"name":"f","arguments":"{\"a\":[1,{\"b\":2}]}"}}]},{"role":"tool","tool_call_id":"a",`+
		`"content":"y"}],"stop":["p","q"],"logit_bias":{"1":2},"n":2,"logprobs":true,"top_logprobs":2,`+
		`"metadata":{"a":"b"},"bad_words":[]}`,
), `{"request":{"model":"m","messages":[{"role":"user","content":"x"}],"guided_regex":"(a|b)*[0-9]{1,5}"}`+settings+`}`)

var chatAnswerSeeds = []string{
	`{"request":{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",` +
		`"json_schema":{"name":"n","strict":true,"schema":` + answerSchemaSeed + `}}}` + said + `}`,
	`{"request":{"model":"m","messages":[{"role":"user","content":"x"}],"guided_regex":".*[a-z]{1,5}.*"}` + said +
		settings + `}`,
	`{"request":{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",` +
		`"function":{"name":"f","strict":true,"parameters":` + answerSchemaSeed + `}}]}` + called + `}`,
	`{"request":{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",` +
		`"function":{"name":"f","parameters":` + answerSchemaSeed + `}}],"stream":true,"stop":["p","q"]}` +
		called + `,"retry":true}`,
	`{"request":{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",` +
		`"function":{"name":"f","parameters":` + answerSchemaSeed + `}}]}` + broken + `}`,
	`{"request":{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",` +
		`"function":{"name":"f"}}]}` + held + `}`,
}

var responsesSeeds = requests(
	`{"model":"m","input":"x","tools":[{"type":"function","name":"f","description":"text","parameters":`+
		schemaSeed+`}]}`,
	`{"model":"m","input":"x","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":`+
		schemaSeed+`}}}`,
	`{"model":"m","instructions":"i","input":[{"role":"user","content":"x"},{"type":"reasoning","id":"rs_1",`+
		`"summary":[],"content":[{"type":"reasoning_text","text":"t"}]},`+
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output",`+
		`"call_id":"c","output":[{"type":"input_text","text":"o"}]},`+
		`{"type":"custom_tool_call","call_id":"d","name":"g","input":"i"},{"type":"custom_tool_call_output",`+
		`"call_id":"d","output":"o"},`+
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]}],`+
		`"tools":[{"type":"custom","name":"g","format":{"type":"grammar","syntax":"regex",`+
		`"definition":"[a-z]+"}}],"metadata":{"a":"b"},"include":["reasoning.encrypted_content"]}`,
	`{"model":"m","input":[{"role":"user","content":"x"},{"type":"additional_tools","tools":[{"type":"function",`+
		`"name":"h","parameters":{"type":"object"}}]},{"type":"compaction","encrypted_content":"`+summary+`"},`+
		`{"type":"shell_call","call_id":"e","action":{"commands":["ls"]}},{"type":"shell_call_output",`+
		`"call_id":"e","output":[{"stdout":"o","stderr":"","outcome":{"type":"exit","exit_code":0}}]},`+
		`{"type":"mcp_call","id":"mcp_1","server_label":"a","name":"f","arguments":"{}","output":"o"},`+
		`{"type":"web_search_call","id":"ws_1","status":"completed"}],"truncation":"auto"}`,
	// What lists an item, a tool and a choice can have, where the filter reads each of its elements.
	`{"model":"m","input":[{"role":"user","content":"x"},{"type":"mcp_list_tools","id":"mcpl_1",`+
		`"server_label":"a","tools":[{"name":"f","input_schema":{},"annotations":{}}]},`+
		`{"type":"mcp_call","id":"mcp_1","server_label":"a","name":"f","arguments":"{}",`+
		`"error":{"content":[{"text":"e"}]}},{"type":"strange","content":["t",{"text":"u"},0]},`+
		`{"type":"local_shell_call","call_id":"l","action":{"command":["ls","-l"],"env":{"A":"b"}}},`+
		`{"type":"local_shell_call_output","call_id":"l","output":"o"},`+
		`{"type":"computer_call","call_id":"s","actions":[{"type":"wait"}]},{"type":"computer_call_output",`+
		`"call_id":"s","output":{"type":"computer_screenshot","image_url":"i"}},`+
		`{"type":"apply_patch_call","call_id":"p","operation":{"type":"update_file","path":"a",`+
		`"diff":"@@\n-x\n+y\n"}},{"type":"apply_patch_call_output","call_id":"p","status":"completed",`+
		`"output":"o"}],`+
		`"tools":[{"type":"function","name":"f","allowed_callers":["direct"]},{"type":"namespace","name":"n",`+
		`"tools":[{"type":"function","name":"g"}]}],"tool_choice":{"type":"allowed_tools","mode":"auto",`+
		`"tools":[{"type":"function","name":"f"}]}}`,
	`{"model":"m","input":[{"role":"user","content":"x"},{"type":"tool_search_call","call_id":"t",`+
		`"execution":"client","arguments":{"query":"q"}},`+
		`{"type":"tool_search_output","call_id":"t","execution":"client","tools":[{"type":"function",`+
		`"name":"d","parameters":{"type":"object"}}]}],`+
		`"tools":[{"type":"tool_search","execution":"client"},{"type":"function","name":"d",`+
		`"description":"text","defer_loading":true},{"type":"namespace","name":"n","description":"text",`+
		`"tools":[{"type":"function","name":"e","defer_loading":true}]}]}`,
)

var responsesAnswerSeeds = []string{
	`{"request":{"model":"m","input":"x","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":` +
		answerSchemaSeed + `}}}` + said + `}`,
	`{"request":{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":` +
		answerSchemaSeed + `}],"stream":true}` + called + `,"retry":true}`,
	`{"request":{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":` +
		answerSchemaSeed + `}]}` + broken + `}`,
	`{"request":{"model":"m","input":"x","tools":[{"type":"function","name":"f"}]}` + held + `}`,
}

var customToolSeeds = requests(
	`{"model":"m","input":"x","tools":[{"type":"custom","name":"g","format":{"type":"grammar","syntax":"lark",`+
		`"definition":"start: item+\n\n// items\nitem: NAME \":\" value\nvalue: NAME\n`+
		`  | \"b\" // text\nNAME: /[a-z]+/\n%ignore \" \"\n"}}]}`,
	`{"model":"m","input":"x","tools":[{"type":"custom","name":"g","format":{"type":"grammar","syntax":"lark",`+
		`"definition":"start: \"a\"\n# or\n| \"b\"\n"}},{"type":"custom","name":"h"}]}`,
)

var storedSeeds = []string{
	stored(`{"model":"m","previous_response_id":"resp_1","input":[{"type":"item_reference","id":"msg_2"}]}`),
	stored(`{"model":"m","store":false,"input":[{"type":"item_reference","id":"msg_2"},{"type":"item_reference",` +
		`"id":"msg_3"},{"role":"user","content":"x"}],"truncation":"auto"}`),
	stored(`{"model":"m","conversation":"conv_1","input":[{"role":"user","content":[{"type":"input_text",` +
		`"text":"x"}]}]}`),
	stored(`{"model":"m","conversation":"conv_1","input":"x"}`),
}

// stored is a scenario with items of all kinds in the store.
func stored(request string) string {
	long := strings.Repeat("qzx jv ", 40)
	return `{"stored":[{"role":"user","content":"` + long + `"},{"role":"user","content":[{"type":"input_text",` +
		`"text":"` + long + `"}]},{"role":"system","content":"s"},` +
		`{"type":"compaction","encrypted_content":"` + summary + `"},{"type":"reasoning","summary":[],` +
		`"content":[{"type":"reasoning_text","text":"t"}]},` +
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output",` +
		`"call_id":"c","output":"o"},` +
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]},` +
		`{"type":"additional_tools","tools":[{"type":"function","name":"h","parameters":{"type":"object"}}]}],` +
		`"request":` + request + `}`
}

// summary is the encrypted content of a compaction, as the service has made it: the room for
// messages that stay, and a text.
var summary = func() string {
	const room = 65_536
	sealed, err := newSealer().Seal(seal.Compaction, tenant, append(binary.AppendUvarint(nil, room), 's'))
	if err != nil {
		panic(err)
	}
	return sealed
}()

var conversationSeeds = requests(
	`{"items":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"function_call","call_id":"x",` +
		`"name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"x","output":"y"}],` +
		`"metadata":{"a":"b"}}`,
)

const mcpTool = `"tools":[{"type":"mcp","server_label":"a","require_approval":"never"}]`

var mcpSeeds = []string{
	`{"request":{"model":"m","input":"x",` + mcpTool + `},"listing":{"tools":[{"name":"f","title":"t",` +
		`"description":"text","inputSchema":` + schemaSeed + `,"annotations":{"readOnlyHint":true}}]}` + said + `}`,
	`{"request":{"model":"m","input":"x",` + mcpTool + `,"tool_choice":"required"},"listing":{"tools":[{"name":"f",` +
		`"inputSchema":` + answerSchemaSeed + `}]}` + called + `,"retry":true}`,
}

var messagesSeeds = requests(
	`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f",`+
		`"description":"text","input_schema":`+schemaSeed+`}]}`,
	`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","strict":true,`+
		`"input_schema":`+schemaSeed+`}],"tool_choice":{"type":"any"}}`,
	`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],`+
		`"output_config":{"format":{"type":"json_schema","schema":`+schemaSeed+`}}}`,
	`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],`+
		`"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},`+
		`{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},{"type":"tool_use",`+
		`"id":"toolu_1","name":"f","input":{"a":[1]}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text",`+
		`"text":"o"}]},{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"r"}]}`+
		`]}],"stop_sequences":["p"],"metadata":{"user_id":"u"}}`,
)

var messagesAnswerSeeds = []string{
	`{"request":{"model":"m","max_tokens":99999,"messages":[{"role":"user","content":"x"}],` +
		`"output_config":{"format":{"type":"json_schema","schema":` + answerSchemaSeed + `}}}` + said + `}`,
	`{"request":{"model":"m","max_tokens":99999,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f",` +
		`"input_schema":` + answerSchemaSeed + `}],"stop_sequences":["p"]}` + called + `,"retry":true}`,
	`{"request":{"model":"m","max_tokens":99999,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f",` +
		`"input_schema":` + answerSchemaSeed + `}],"stream":true}` + broken + `}`,
	`{"request":{"model":"m","max_tokens":99999,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f",` +
		`"input_schema":{"type":"object"}}]}` + held + `}`,
	searching("tool_search_tool_regex", `{"pattern":"get_(a|b).*"}`),
	searching("tool_search_tool_bm25", `{"query":"word text"}`),
}

// searching is a request whose model searches for tools. What it searches with can be the client's too, which may
// tell it what to write.
func searching(kind, arguments string) string {
	return `{"request":{"model":"m","max_tokens":99999,"messages":[{"role":"user","content":"x"}],"tools":[` +
		`{"type":"` + kind + `","name":"` + kind + `"},{"name":"get_a","description":"` + strings.Repeat("text word ", 40) + `",` +
		`"input_schema":` + answerSchemaSeed + `,"defer_loading":true}]},"answer":[{"header":` +
		`"<|channel|>commentary to=functions.` + kind + ` <|constrain|>json","value":` + arguments + `}]}`
}

var tokenizeSeeds = requests(
	`{"model":"m","prompt":"x y","return_token_strs":true}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",`+
		`"parameters":`+schemaSeed+`}}]}`,
)

var detokenizeSeeds = requests(`{"model":"m","tokens":[13225,11,2375,0]}`)
