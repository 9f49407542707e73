//go:build attack

package attack

import (
	"fmt"
	"strings"
	"testing"
)

// Places of a schema in a request.
func toolWith(schema string, strict bool) string {
	return fmt.Sprintf(`,"tools":[{"type":"function","function":{"name":"f","strict":%v,"parameters":%s}}]`, strict, schema)
}

func formatWith(schema string) string {
	return `,"response_format":{"type":"json_schema","json_schema":{"name":"f","schema":` + schema + `}}`
}

// doubling is a schema of levels that name the next one several times, so that its
// instance, its text or the work for it grows exponentially.
func doubling(levels, width int, level func(refs []string) string) string {
	var b strings.Builder
	b.WriteString(`{"$defs":{`)
	for i := range levels {
		refs := make([]string, width)
		for j := range refs {
			refs[j] = fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		}
		fmt.Fprintf(&b, `"d%d":%s,`, i, level(refs))
	}
	fmt.Fprintf(&b, `"d%d":{"type":"string"}},"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}}}`, levels)
	return b.String()
}

func keyword(name string) func([]string) string {
	return func(refs []string) string { return `{"` + name + `":[` + strings.Join(refs, ",") + `]}` }
}

func asProperties(refs []string) string {
	var b strings.Builder
	for i, ref := range refs {
		fmt.Fprintf(&b, `,"p%d":%s`, i, ref)
	}
	return `{"type":"object","properties":{` + b.String()[1:] + `}}`
}

// counted joins n values that a format makes of their number.
func counted(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// hostileSchemas are schemas, made when they are sent.
func hostileSchemas() []struct {
	name   string
	schema func() string
} {
	object := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	return []struct {
		name   string
		schema func() string
	}{
		{"anyOf of 8 equal references, 12 levels", func() string { return doubling(12, 8, keyword("anyOf")) }},
		{"oneOf of 8 equal references, 12 levels", func() string { return doubling(12, 8, keyword("oneOf")) }},
		{"allOf of 8 equal references, 12 levels", func() string { return doubling(12, 8, keyword("allOf")) }},
		{"objects of 8 properties, 12 levels", func() string { return doubling(12, 8, asProperties) }},
		{"anyOf of 2, 60 levels", func() string { return doubling(60, 2, keyword("anyOf")) }},
		{"prefixItems, 12 levels", func() string {
			return doubling(12, 8, func(refs []string) string { return `{"type":"array","prefixItems":[` + strings.Join(refs, ",") + `]}` })
		}},
		{"a reference to itself", func() string {
			return `{"$defs":{"a":{"$ref":"#/$defs/a"}},` + object(`"x":{"$ref":"#/$defs/a"}`)[1:]
		}},
		{"a cycle of references", func() string {
			return `{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}},` + object(`"x":{"$ref":"#/$defs/a"}`)[1:]
		}},
		{"a tree that is its own child", func() string { return `{"type":"object","properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}}}` }},
		{"oneOf of 2,000", func() string { return object(`"x":{"oneOf":[` + counted(2000, `{"const":%d}`) + `]}`) }},
		{"anyOf of 9,000 const", func() string { return object(`"x":{"anyOf":[` + counted(9000, `{"const":%d}`) + `]}`) }},
		{"an enum of 300,000", func() string { return object(`"x":{"enum":[` + counted(300_000, `"v%d"`) + `]}`) }},
		{"200,000 properties", func() string { return object(counted(200_000, `"p%d":{}`)) }},
		{"a description of 20 MB", func() string {
			return object(`"x":{"type":"string","description":"` + strings.Repeat("d", 20*million) + `"}`)
		}},
		{"minLength of 1e9", func() string { return object(`"x":{"type":"string","minLength":1000000000}`) }},
		{"minItems of 1e9", func() string {
			return object(`"x":{"type":"array","minItems":1000000000,"items":{"type":"string"}}`)
		}},
		{"10,000 levels of items", func() string {
			return object(`"x":` + strings.Repeat(`{"type":"array","items":`, 10_000) + `{}` + strings.Repeat("}", 10_000))
		}},
		{"a reference to another host", func() string { return object(`"x":{"$ref":"http://127.0.0.1:1/schema.json"}`) }},
		{"a reference with a bad pointer", func() string { return object(`"x":{"$ref":"#/$defs/~2/%zz"}`) }},
		{"not of anyOf, 12 levels", func() string {
			return doubling(12, 8, func(refs []string) string { return `{"not":{"anyOf":[` + strings.Join(refs, ",") + `]}}` })
		}},
		{"types that are no types", func() string { return object(`"x":{"type":["string",1,null,{"a":[]}]}`) }},
		{"false", func() string { return "false" }},
	}
}

func schemaArea() area {
	patterns := []string{
		"(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*a){20}", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$",
		`(\\w+\\s?)*$`, "a{1,1000}{1,1000}", "((((((((((a{10}){10}){10}){10}){10}){10}){10}){10}){10}){10})", "[", "(?=a)b", "(?<x>a)\\\\k<x>",
	}
	const want = "2xx 400 413"

	var all []attack
	for _, h := range hostileSchemas() {
		all = append(all,
			posting("tool: "+h.name, want, chatPath, func() string { return chatBody(simple, toolWith(h.schema(), false)) }),
			posting("strict tool: "+h.name, want, chatPath, func() string { return chatBody(simple, toolWith(h.schema(), true)) }),
			posting("format: "+h.name, want+" 502", chatPath, func() string { return chatBody(simple, formatWith(h.schema())) }),
			posting("Responses, tool: "+h.name, want, responsesPath, func() string {
				return responsesBody(simple, `,"tools":[{"type":"function","name":"f","parameters":`+h.schema()+`}]`)
			}),
			posting("Messages, tool: "+h.name, want, messagesPath, func() string {
				return messagesBody(simple, `,"tools":[{"name":"f","input_schema":`+h.schema()+`}]`)
			}),
		)
	}

	for _, p := range patterns {
		schema := `{"type":"object","properties":{"x":{"type":"string","pattern":"` + p + `"}},"required":["x"],"additionalProperties":false}`
		all = append(all, posting("strict tool: pattern "+p, want, chatPath, func() string { return chatBody(simple, toolWith(schema, true)) }))
	}

	all = append(all,
		posting("100 tools with anyOf of 9,000 const", want, chatPath, func() string {
			schema := `{"type":"object","properties":{"x":{"anyOf":[` + counted(9000, `{"const":%d}`) + `]}}}`
			var b strings.Builder
			for i := range 100 {
				fmt.Fprintf(&b, `,{"type":"function","function":{"name":"f%d","parameters":%s}}`, i, schema)
			}
			return chatBody(simple, `,"tools":[`+b.String()[1:]+`]`)
		}),
		attack{name: "52 clients with an exponential anyOf", want: want, run: func(a *attempt) {
			body := chatBody(simple, toolWith(doubling(12, 8, keyword("anyOf")), false))
			a.check(a.atOnce(52, func() answerOf { return a.post(chatPath, body) }))
		}},
	)

	// A smallest instance of some of them is too large for the simulator, so it ignores
	// grammars here.
	return area{name: "schemas", config: func(_ *testing.T, c *stackConfig) { c.behavior = "grammar=ignore" }, attacks: all}
}

func limitArea() area {
	calls := func(n int, reverse bool) string {
		var b, c strings.Builder
		for i := range n {
			j := i
			if reverse {
				j = n - 1 - i
			}
			fmt.Fprintf(&b, `{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}},`, i)
			fmt.Fprintf(&c, `,{"role":"tool","tool_call_id":"c%d","content":"r"}`, j)
		}
		return `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[` + strings.TrimSuffix(b.String(), ",") + `]}` + c.String() + `]}`
	}

	more := func(member string) func() string { return func() string { return chatBody(simple, `,`+member) } }
	items := func(n int, format, tools string) func() string {
		return func() string { return responsesBody("["+counted(n, format)+`,{"role":"user","content":"x"}]`, tools) }
	}

	return area{name: "limits", attacks: []attack{
		posting("100,000 stop strings", "400", chatPath, func() string { return chatBody(simple, `,"stop":[`+counted(100_000, `"s%d"`)+`]`) }),
		posting("a stop string of 10 MB", "2xx 400", chatPath, func() string { return chatBody(simple, `,"stop":"`+strings.Repeat("s", 10*million)+`"`) }),
		posting("logit_bias of 100,000", "2xx 400", chatPath, func() string { return chatBody(simple, `,"logit_bias":{`+counted(100_000, `"%d":1`)+`}`) }),
		posting("logit_bias of a control token", "2xx 400", chatPath, more(`"logit_bias":{"200006":100}`)),
		posting("n of 1e9", "400", chatPath, more(`"n":1000000000`)),
		posting("n of -1", "400", chatPath, more(`"n":-1`)),
		posting("max_tokens of 1e18", "2xx 400", chatPath, more(`"max_completion_tokens":1000000000000000000`)),
		posting("max_tokens of -1", "400", chatPath, more(`"max_completion_tokens":-1`)),
		posting("top_logprobs of 1e9", "400", chatPath, more(`"logprobs":true,"top_logprobs":1000000000`)),
		posting("513 tools", "400", chatPath, func() string {
			return chatBody(simple, `,"tools":[`+counted(513, `{"type":"function","function":{"name":"f%d"}}`)+`]`)
		}),
		posting("513 tools of Responses", "400", responsesPath, func() string {
			return responsesBody(simple, `,"tools":[`+counted(513, `{"type":"function","name":"f%d"}`)+`]`)
		}),
		posting("513 tools of Messages", "400", messagesPath, func() string {
			return messagesBody(simple, `,"tools":[`+counted(513, `{"name":"f%d","input_schema":{"type":"object"}}`)+`]`)
		}),
		posting("9,900 calls", "2xx 400", chatPath, func() string { return calls(9900, false) }),
		posting("9,900 calls, answered in reverse", "2xx 400", chatPath, func() string { return calls(9900, true) }),
		posting("9,000 approvals", "400", responsesPath, items(9000, `{"type":"mcp_approval_response","approval_request_id":"a%d","approve":true}`, "")),
		posting("3,000 lists of tools", "2xx 400", responsesPath, items(3000, `{"type":"mcp_list_tools","id":"l%d","server_label":"docs","tools":[{"name":"t","input_schema":{}}]}`, "")),
		posting("200,000 allowed tools", "400", responsesPath, func() string {
			return responsesBody(simple, `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[`+counted(200_000, `{"type":"function","name":"f%d"}`)+`]}`)
		}),
		posting("metadata of 100,000 keys", "4xx", responsesPath, func() string { return responsesBody(simple, `,"metadata":{`+counted(100_000, `"k%d":"v"`)+`}`) }),
		posting("include of 100,000", "2xx 400", responsesPath, func() string { return responsesBody(simple, `,"include":[`+counted(100_000, `"i%d"`)+`]`) }),
		posting("600,000 function outputs without calls", "4xx", responsesPath, items(400_000, `{"type":"function_call_output","call_id":"c%d","output":""}`, "")),
		posting("a picture of 20 MB", "2xx 400", chatPath, func() string {
			return chatBody(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+strings.Repeat("AAAA", 5*million)+`"}},{"type":"text","text":"x"}]`, "")
		}),
		posting("a body beyond the limit", "413", chatPath, func() string { return chatBody(`"`+strings.Repeat("x", 34<<20)+`"`, "") }),
	}}
}
