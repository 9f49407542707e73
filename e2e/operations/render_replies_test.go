package operations

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// renderedAPI is an API whose replies are compared.
type renderedAPI struct {
	path, field string
	request     string // with the content as %s
	object      func(gjson.Result) said
	events      func([]gjson.Result) said
}

// said is what a reply says, without its ids.
type said struct {
	Text, Reasoning, Finish string
	Calls                   []stack.Call
	Usage                   [3]int64 // of the prompt, of the output, and what of it is reasoning
}

const askedParameters = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`

var renderedAPIs = []renderedAPI{
	{
		"/v1/chat/completions", "chat_request",
		`{"model":"` + stack.VLLMModel + `","messages":[{"role":"user","content":%s}],"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"get_weather","parameters":` + askedParameters + `}}]}`,
		saidByChat, saidByChunks,
	},
	{
		"/v1/responses", "responses_request",
		`{"model":"` + stack.VLLMModel + `","input":%s,"store":false,"tools":[{"type":"function","name":"get_weather","parameters":` + askedParameters + `}]}`,
		saidByResponse, func(events []gjson.Result) said { return saidByResponse(events[len(events)-1].Get("response")) },
	},
	{
		"/v1/messages", "messages_request",
		`{"model":"` + stack.VLLMModel + `","max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":%s}],"tools":[{"name":"get_weather","input_schema":` + askedParameters + `}]}`,
		saidByMessage, saidByBlocks,
	},
}

func saidByChat(v gjson.Result) said {
	choice := v.Get("choices.0")
	s := said{Text: choice.Get("message.content").Str, Reasoning: choice.Get("message.reasoning").Str, Finish: choice.Get("finish_reason").Str, Usage: chatUsage(v)}
	for _, c := range choice.Get("message.tool_calls").Array() {
		s.Calls = append(s.Calls, stack.Call{Name: c.Get("function.name").Str, Arguments: c.Get("function.arguments").Str})
	}
	return s
}

func chatUsage(v gjson.Result) [3]int64 {
	return [3]int64{v.Get("usage.prompt_tokens").Int(), v.Get("usage.completion_tokens").Int(), v.Get("usage.completion_tokens_details.reasoning_tokens").Int()}
}

func saidByChunks(chunks []gjson.Result) said {
	var s said
	for _, c := range chunks {
		choice := c.Get("choices.0")
		s.Text += choice.Get("delta.content").Str
		s.Reasoning += choice.Get("delta.reasoning").Str
		s.Finish += choice.Get("finish_reason").Str
		for _, piece := range choice.Get("delta.tool_calls").Array() {
			if name := piece.Get("function.name").Str; name != "" {
				s.Calls = append(s.Calls, stack.Call{Name: name})
			}
			s.Calls[piece.Get("index").Int()].Arguments += piece.Get("function.arguments").Str
		}
		if c.Get("usage").IsObject() {
			s.Usage = chatUsage(c)
		}
	}
	return s
}

func saidByResponse(v gjson.Result) said {
	s := said{Finish: v.Get("status").Str, Usage: [3]int64{v.Get("usage.input_tokens").Int(), v.Get("usage.output_tokens").Int(), v.Get("usage.output_tokens_details.reasoning_tokens").Int()}}
	for _, item := range v.Get("output").Array() {
		switch item.Get("type").Str {
		case "reasoning":
			s.Reasoning += item.Get("content.0.text").Str
		case "message":
			s.Text += item.Get("content.0.text").Str
		case "function_call":
			s.Calls = append(s.Calls, stack.Call{Name: item.Get("name").Str, Arguments: item.Get("arguments").Str})
		}
	}
	return s
}

func messageUsage(v gjson.Result) [3]int64 {
	input := v.Get("input_tokens").Int() + v.Get("cache_read_input_tokens").Int()
	return [3]int64{input, v.Get("output_tokens").Int(), v.Get("output_tokens_details.thinking_tokens").Int()}
}

func saidByMessage(v gjson.Result) said {
	s := said{Finish: v.Get("stop_reason").Str, Usage: messageUsage(v.Get("usage"))}
	for _, block := range v.Get("content").Array() {
		s.Text += block.Get("text").Str
		s.Reasoning += block.Get("thinking").Str
		if block.Get("type").Str == "tool_use" {
			s.Calls = append(s.Calls, stack.Call{Name: block.Get("name").Str, Arguments: block.Get("input").Raw})
		}
	}
	return s
}

func saidByBlocks(events []gjson.Result) said {
	var s said
	for _, e := range events {
		switch e.Get("type").Str {
		case "content_block_start":
			if block := e.Get("content_block"); block.Get("type").Str == "tool_use" {
				s.Calls = append(s.Calls, stack.Call{Name: block.Get("name").Str})
			}
		case "content_block_delta":
			s.Text += e.Get("delta.text").Str
			s.Reasoning += e.Get("delta.thinking").Str
			if piece := e.Get("delta.partial_json"); piece.Exists() {
				s.Calls[len(s.Calls)-1].Arguments += piece.Str
			}
		case "message_delta":
			s.Finish = e.Get("delta.stop_reason").Str
			s.Usage = messageUsage(e.Get("usage"))
		}
	}
	return s
}

// objects returns the objects of a stream's events.
func objects(stream string) []gjson.Result {
	var all []gjson.Result
	for line := range strings.Lines(stream) {
		if data, found := strings.CutPrefix(line, "data: {"); found {
			all = append(all, gjson.Parse("{"+data))
		}
	}
	return all
}
