package apitest

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// WeatherTool is the function that the outputs of the tests call: the JSON members
// name, description and parameters.
const WeatherTool = `"name":"get_weather","description":"Weather of a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`

// malformed are outputs for which other servers send an error or nothing, with the
// replies to them as [API.Brief] returns them.
var malformed = []struct{ name, output, want string }{
	{"words left in the header", "<|channel|>final some more words<|message|>a<|return|>", `content "some more words a" stop`},
	{"a type that is the answer", " <|constrain|>answer<|return|>", `content "answer" stop`},
	{"a type behind a channel that is the answer", "<|channel|>final <|constrain|>answer<|return|>", `content "answer" stop`},
	{"words left in a header with a type", "<|channel|>final some words <|constrain|>json<|message|>{}<|return|>", `reasoning "some words" content "{}" stop`},
	{"no start", "<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b<|return|>", `reasoning "a" content "b" stop`},
	{"text between messages", "<|channel|>analysis<|message|>a<|end|>b<|return|>", `reasoning "a" content "b" stop`},
	{"return twice", "<|channel|>final<|message|>a<|end|><|return|><|return|>", `content "a" stop`},
	{"only special tokens", "<|return|>", `content "" stop`},
	{"end in the header", "<|channel|>final", `content "" stop`},
	{"no message token", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final b c<|return|>", `reasoning "a" content "b c" stop`},
	{"no header at all", "{\"a\":1}", `content "{\"a\":1}" stop`},
	{"no channel", "<|message|>a<|return|>", `content "a" stop`},
	{"unknown channel", "<|channel|>reflection<|message|>a<|return|>", `content "a" stop`},
	{"channels in capitals", "<|channel|>Analysis<|message|>a<|end|><|start|>assistant<|channel|>FINAL<|message|>b<|return|>", `reasoning "a" content "b" stop`},
	{"a channel of reasoning", "<|channel|>thinking<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", `reasoning "a" content "b" stop`},
	{"a channel of comments", "<|channel|>Comments<|message|>a<|return|>", `content "a" stop`},
	{"a channel in capitals, with a call", "<|channel|>Commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
	{"a lone channel", "<|channel|>analysis<|message|>a<|end|>final<|start|>assistant<|channel|>final<|message|>b<|return|>", `reasoning "a" content "b" stop`},
	{"a lone role at the end", "<|channel|>final<|message|>a<|end|>assistant", `content "a" stop`},
	{"a lone content type before a call", "<|channel|>analysis<|message|>a<|end|>json<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>", `reasoning "a" get_weather({}) tool_calls`},
	{"lone words", "<|channel|>final<|message|>a<|end|>assistantfinal<|return|>", `content "a" stop`},
	{"two starts", "<|channel|>analysis<|message|>a<|end|><|start|><|start|>assistant<|channel|>final<|message|>b<|return|>", `reasoning "a" content "b" stop`},
	{"constrained final", "<|channel|>final <|constrain|>json<|message|>{}<|return|>", `content "{}" stop`},
	{"constrained preamble", "<|channel|>commentary json<|message|>{}<|end|>", `content "{}" stop`},
	{"special tokens in the recipient", "<|start|>assistant to=functions.get_weather<|channel|>commentary<|channel|>commentary json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
	{"no call token", " to=functions.get_weather<|channel|>commentary json<|message|>{\"a\":1}", `get_weather({"a":1}) tool_calls`},
	{"end of text", "<|channel|>final<|message|>a<|endoftext|>", `content "a" stop`},
	{"two reasonings", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c<|return|>", `reasoning "a\n\nb" content "c" stop`},
	{"two answers", "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", `content "a\n\nb" stop`},
	{"the answer on commentary", "<|channel|>commentary<|message|>a<|return|>", `content "a" stop`},
	{"reasoning only", "<|channel|>analysis<|message|>a<|return|>", `reasoning "a" content "" stop`},
	{"a recipient in quotation marks", "<|channel|>commentary to=\"functions.get_weather\" <|constrain|>json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
	{"a recipient with colons", "<|channel|>commentary to=functions::get_weather <|constrain|>json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
	{"a repeated recipient", "<|channel|>commentary to=functions.functions.get_weather <|constrain|>json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
	{"a recipient with another prefix", "<|channel|>commentary to=tools.get_weather <|constrain|>json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
	{"a recipient without to=", "<|channel|>commentary get_weather <|constrain|>json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
	{"a word that is no recipient", "<|channel|>commentary Right<|message|>a<|end|>", `content "Right a" stop`},
	{"a call without a recipient", "<|channel|>commentary <|constrain|>json<|message|>{\"a\":1}<|call|>", `unknown({"a":1}) tool_calls`},
	{"a call of the assistant", "<|channel|>commentary to=assistant json<|message|>{}<|call|>", `assistant({}) tool_calls`},
	{"a message to the assistant", "<|channel|>commentary to=assistant<|message|>a<|end|>", `content "a" stop`},
	{"a call on final", "<|channel|>final to=other_tool<|message|>{}<|call|>", `other_tool({}) tool_calls`},
	{"a call as the tool's message", "<|channel|>analysis<|message|>a<|end|><|start|>functions.get_weather<|channel|>commentary<|message|>{}<|call|>", `reasoning "a" get_weather({}) tool_calls`},
	{"several calls in one", "<|channel|>commentary to=multi_tool_use.parallel <|constrain|>json<|message|>{\"tool_uses\":[{\"recipient_name\":\"functions.get_weather\",\"parameters\":{\"city\":\"a\"}},{\"recipient_name\":\"get_weather\",\"parameters\":{}}]}<|call|>", `get_weather({"city":"a"}) get_weather({}) tool_calls`},
	{"several calls in one, of another tool", "<|channel|>commentary to=multi_tool_use.parallel json<|message|>{\"tool_uses\":[{\"recipient_name\":\"functions.nope\",\"parameters\":{}}]}<|call|>", `multi_tool_use_parallel({"tool_uses":[{"recipient_name":"functions.nope","parameters":{}}]}) tool_calls`},
	{"a hidden tool", "<|channel|>analysis to=container.exec code<|message|>ls<|call|>", `container_exec(ls) tool_calls`},
}

// Malformed shows the replies to outputs that break the format, and that their streams
// are the same. members are those of the request, with [WeatherTool] among its tools.
// other are the replies that the API has in place of the usual ones, by the names of
// the cases.
func (a *API) Malformed(t *testing.T, members string, other map[string]string) {
	// A case that is renamed must not leave its exception behind unseen.
	left := maps.Clone(other)
	for _, c := range malformed {
		want := c.want
		if own, ok := other[c.name]; ok {
			want = own
			delete(left, c.name)
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			body, chunks := a.Ask(members), Said(c.output).Chunks(Size(1<<20))
			request, streamed := a.MustDecode(t, body), a.MustDecode(t, With(t, body, a.Streamed...))

			whole := Play(t, request, a.Mode, chunks)
			got := a.Brief(t, whole)
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}

			a.compareStream(t, request, whole, streamed, Play(t, streamed, a.Mode, chunks))
			if strings.Contains(got, "<|") {
				t.Error("a special token is shown")
			}
		})
	}

	if len(left) > 0 {
		t.Errorf("there are no cases %q", slices.Sorted(maps.Keys(left)))
	}
}
