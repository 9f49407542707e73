package main

import (
	"strings"

	"github.com/tidwall/gjson"
)

// outputOf returns what the model has written, with special tokens spelled, if a reply was made of
// it: neutral, as the client sends it back. Empty: the reply has no output.
func outputOf(path, reply string) string {
	objects := objectsOf(reply)
	if len(objects) == 0 {
		return ""
	}

	o := &output{neutral: &neutral{}}
	switch {
	case strings.Contains(path, "/messages"):
		o.messages(objects)
	case strings.Contains(path, "/responses"):
		o.responses(objects)
	case strings.Contains(path, "/chat/completions"):
		o.chat(objects)
	}
	return o.text()
}

// output is Harmony's messages of one model call.
type output struct {
	neutral *neutral
	written []string
	end     string
}

func (o *output) text() string {
	if len(o.written) == 0 {
		return ""
	}
	return strings.Join(o.written, "<|end|><|start|>assistant") + o.end
}

func (o *output) say(channel, text string) {
	if text == "" {
		return
	}
	o.written = append(o.written, "<|channel|>"+channel+"<|message|>"+o.neutral.value(place{"content"}, text))
	if o.end = "<|end|>"; channel == "final" {
		o.end = "<|return|>"
	}
}

// think writes reasoning, also such as the client does not see: it has it encrypted, and sends it back.
func (o *output) think(text string) {
	if text == "" {
		text = "hidden"
	}
	o.say("analysis", text)
}

// call writes a call, whose arguments are JSON or the text of a custom tool.
func (o *output) call(name, arguments string) {
	if strings.HasPrefix(arguments, "{") && gjson.Valid(arguments) {
		arguments = o.neutral.text(place{"arguments"}, arguments)
	} else {
		arguments = prose(arguments)
	}
	o.written = append(o.written, "<|channel|>commentary to=functions."+name+" <|constrain|>json<|message|>"+arguments)
	o.end = "<|call|>"
}

// chat reads a completion, or its chunks. Of several choices it reads the first.
func (o *output) chat(objects []gjson.Result) {
	var reasoning, content strings.Builder
	type call struct{ name, arguments strings.Builder }
	var calls []*call
	for _, object := range objects {
		choice := object.Get("choices.#(index==0)")
		for _, message := range []gjson.Result{choice.Get("message"), choice.Get("delta")} {
			// Both names are of one text.
			if text := message.Get("reasoning_content"); text.Exists() {
				reasoning.WriteString(text.Str)
			} else {
				reasoning.WriteString(message.Get("reasoning").Str)
			}
			content.WriteString(message.Get("content").Str)
			for i, made := range message.Get("tool_calls").Array() {
				at := i
				if made.Get("index").Exists() {
					at = int(made.Get("index").Int())
				}
				for len(calls) <= at && at < 64 {
					calls = append(calls, &call{})
				}
				calls[at].name.WriteString(made.Get("function.name").Str + made.Get("custom.name").Str)
				calls[at].arguments.WriteString(made.Get("function.arguments").Str + made.Get("custom.input").Str)
			}
		}
	}

	o.say("analysis", reasoning.String())
	if len(calls) == 0 {
		o.say("final", content.String())
		return
	}
	o.say("commentary", content.String())
	for _, c := range calls {
		o.call(c.name.String(), c.arguments.String())
	}
}

// responses reads a response, or the one of its last event.
func (o *output) responses(objects []gjson.Result) {
	last := objects[len(objects)-1]
	if response := last.Get("response"); response.IsObject() {
		last = response
	}

	for _, item := range last.Get("output").Array() {
		name := item.Get("name").Str
		if space := item.Get("namespace").Str; space != "" {
			name = space + "." + name
		}

		switch item.Get("type").Str {
		case "reasoning":
			o.think(item.Get("content.0.text").Str + item.Get("summary.0.text").Str)
		case "message":
			channel := "final"
			if item.Get("phase").Str == "commentary" {
				channel = "commentary"
			}
			o.say(channel, item.Get("content.0.text").Str)
		case "function_call":
			o.call(name, item.Get("arguments").Str)
		case "tool_search_call":
			o.call("tool_search", item.Get("arguments").Raw)
		case "custom_tool_call":
			o.call(name, `{"input":`+quoted(item.Get("input").Str)+`}`)
		}
	}
}

// messages reads a message, or its events.
func (o *output) messages(objects []gjson.Result) {
	type block struct {
		kind, name, input    string
		text, thinking, json strings.Builder
	}
	var blocks []*block
	read := func(b gjson.Result) {
		made := &block{kind: b.Get("type").Str, name: b.Get("name").Str, input: b.Get("input").Raw}
		made.text.WriteString(b.Get("text").Str)
		made.thinking.WriteString(b.Get("thinking").Str)
		blocks = append(blocks, made)
	}
	for _, object := range objects {
		for _, b := range object.Get("content").Array() {
			read(b)
		}
		if b := object.Get("content_block"); b.Exists() {
			read(b)
		}
		if delta := object.Get("delta"); delta.Exists() && len(blocks) > 0 {
			b := blocks[len(blocks)-1]
			b.text.WriteString(delta.Get("text").Str)
			b.thinking.WriteString(delta.Get("thinking").Str)
			b.json.WriteString(delta.Get("partial_json").Str)
		}
	}

	called := false
	for _, b := range blocks {
		called = called || b.kind == "tool_use"
	}
	for _, b := range blocks {
		switch b.kind {
		case "thinking":
			o.think(b.thinking.String())
		case "text":
			if called {
				o.say("commentary", b.text.String())
			} else {
				o.say("final", b.text.String())
			}
		case "tool_use":
			arguments := b.input
			if b.json.Len() > 0 {
				arguments = b.json.String()
			}
			o.call(b.name, arguments)
		}
	}
}
