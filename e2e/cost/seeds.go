package main

// The seeds have what requests can have: all kinds of items, tools and constraints.

const schemaSeed = `{"type":"object","properties":{"a":{"type":"string","description":"words","enum":["x","y"]},"b":{"$ref":"#/$defs/d"},` +
	`"c":{"anyOf":[{"type":"null"},{"type":"array","items":{"type":"integer","minimum":1}}]}},"required":["a"],"additionalProperties":false,"$defs":{"d":{"type":"object","properties":{"e":{"const":1}}}}}`

var chatSeeds = []string{
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","description":"text","parameters":` + schemaSeed + `}}]}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":` + schemaSeed + `}}],"tool_choice":"required","parallel_tool_calls":false}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":` + schemaSeed + `}}}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"structured_outputs":{"grammar":"root ::= \"a\" | root \"b\""}}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"structured_outputs":{"regex":"(a|b)*[0-9]{1,5}"}}`,
	`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"a","type":"function",` +
		`"function":{"name":"f","arguments":"{\"a\":[1,{\"b\":2}]}"}}]},{"role":"tool","tool_call_id":"a","content":"y"}],"stop":["p","q"],"logit_bias":{"1":2},"n":2,"logprobs":true,"top_logprobs":2,"metadata":{"a":"b"}}`,
}

var responsesSeeds = []string{
	`{"model":"m","input":"x","tools":[{"type":"function","name":"f","description":"text","parameters":` + schemaSeed + `}]}`,
	`{"model":"m","input":"x","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":` + schemaSeed + `}}}`,
	`{"model":"m","previous_response_id":"resp_1","input":[{"type":"item_reference","id":"msg_1"}]}`,
	`{"model":"m","store":false,"input":[{"type":"item_reference","id":"msg_1"},{"type":"item_reference","id":"msg_2"},{"role":"user","content":"x"}],"truncation":"auto"}`,
	`{"model":"m","conversation":"conv_1","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}]}`,
	`{"model":"m","instructions":"i","input":[{"role":"user","content":"x"},{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},` +
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"o"}]},` +
		`{"type":"custom_tool_call","call_id":"d","name":"g","input":"i"},{"type":"custom_tool_call_output","call_id":"d","output":"o"},` +
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]}],"tools":[{"type":"custom","name":"g","format":{"type":"grammar","syntax":"lark","definition":"start: \"a\""}}],"metadata":{"a":"b"},"include":["reasoning.encrypted_content"]}`,
}

var conversationSeeds = []string{
	`{"items":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"function_call","call_id":"x","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"x","output":"y"}],"metadata":{"a":"b"}}`,
}

var messagesSeeds = []string{
	`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","description":"text","input_schema":` + schemaSeed + `}]}`,
	`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","strict":true,"input_schema":` + schemaSeed + `}],"tool_choice":{"type":"any"}}`,
	`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":` + schemaSeed + `}}}`,
	`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},` +
		`{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":[1]}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"o"}]},{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"r"}]}]}],"stop_sequences":["p"],"metadata":{"user_id":"u"}}`,
}

var listingSeeds = []string{
	`{"tools":[{"name":"f","title":"t","description":"text","inputSchema":` + schemaSeed + `,"annotations":{"readOnlyHint":true}}]}`,
}
