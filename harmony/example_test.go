package harmony_test

import (
	"encoding/json"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A turn: the conversation is rendered as a prompt, token ids that end where the
// model continues, and the tokens that the model generates are parsed as they arrive.
func Example() {
	conversation := []harmony.Message{
		{Role: harmony.RoleSystem, Content: []harmony.Content{&harmony.SystemContent{
			Identity:        "You are ChatGPT, a large language model trained by OpenAI.",
			KnowledgeCutoff: "2024-06",
			StartDate:       "2025-06-28",
			Effort:          harmony.EffortMedium,
			Channels:        []string{harmony.ChannelAnalysis, harmony.ChannelCommentary, harmony.ChannelFinal},
			ChannelRequired: true,
		}}},
		{Role: harmony.RoleUser, Content: []harmony.Content{harmony.Text("What is 2 + 2?")}},
	}
	renderer := harmony.NewRenderer()
	prompt, err := renderer.AppendCompletion(nil, conversation, harmony.RoleAssistant)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := harmony.AppendDecode(nil, prompt)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))

	// An engine would generate these tokens for the prompt.
	generated := harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>It is 4.<|return|>")
	parser := harmony.NewParser(harmony.Tolerant, harmony.RoleAssistant)
	for _, token := range generated {
		// In tolerant mode the error is always nil.
		events, _ := parser.Push(token)
		for _, event := range events {
			if event.Kind == harmony.Delta {
				fmt.Printf("%s %q\n", event.Header.Channel, event.Text)
			}
		}
	}
	// A message that no token has ended ends here.
	events, _ := parser.Close()
	fmt.Println(len(events))
	// Output:
	// <|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.
	// Knowledge cutoff: 2024-06
	// Current date: 2025-06-28
	//
	// Reasoning: medium
	//
	// # Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|><|start|>user<|message|>What is 2 + 2?<|end|><|start|>assistant
	// final "It"
	// final " is"
	// final " "
	// final "4"
	// final "."
	// 0
}

// Function tools are part of a developer message. The history contains a call
// and its result.
func ExampleRenderer_AppendConversation() {
	tool := harmony.Tool{
		Name:        "get_weather",
		Description: "Gets the weather.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {"city": {"type": "string"}, "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
			"required": ["city"]
		}`),
	}
	prompt, err := harmony.NewRenderer().AppendConversation(nil, []harmony.Message{
		{Role: harmony.RoleDeveloper, Content: []harmony.Content{&harmony.DeveloperContent{
			Instructions: "Be brief.",
			Tools:        []harmony.Namespace{{Name: "functions", Tools: []harmony.Tool{tool}}},
		}}},
		{Role: harmony.RoleUser, Content: []harmony.Content{harmony.Text("Sun in Oslo?")}},
		{
			Role: harmony.RoleAssistant, Channel: harmony.ChannelCommentary, Recipient: "functions.get_weather", ContentType: "json",
			Content: []harmony.Content{harmony.Text(`{"city":"Oslo"}`)},
		},
		{
			Role: harmony.RoleTool, Name: "functions.get_weather", Recipient: "assistant", Channel: harmony.ChannelCommentary,
			Content: []harmony.Content{harmony.Text(`"sunny"`)},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := harmony.AppendDecode(nil, prompt)
	fmt.Println(string(text))
	// Output:
	// <|start|>developer<|message|># Instructions
	//
	// Be brief.
	//
	// # Tools
	//
	// ## functions
	//
	// namespace functions {
	//
	// // Gets the weather.
	// type get_weather = (_: {
	// city: string,
	// days?: number | null,
	// }) => any;
	//
	// } // namespace functions<|end|><|start|>user<|message|>Sun in Oslo?<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Oslo"}<|call|><|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"sunny"<|end|>
}

// A parser returns messages while their tokens arrive. This completion lacks
// the <|message|> of its last header.
func ExampleParser() {
	completion := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final It is 4.<|return|>")
	parser := harmony.NewParser(harmony.Tolerant, harmony.RoleAssistant)
	show := func(events []harmony.Event) {
		for _, e := range events {
			switch e.Kind {
			case harmony.MessageStart:
				fmt.Printf("%s: ", e.Header.Channel)
			case harmony.Delta:
				fmt.Printf("%s", e.Text)
			case harmony.MessageEnd:
				fmt.Println()
			}
		}
	}
	for _, token := range completion {
		events, _ := parser.Push(token) // tolerant mode returns no errors
		show(events)
	}
	events, _ := parser.Close()
	show(events)
	repairs := parser.Repairs()
	for kind, n := range repairs.All() {
		fmt.Println(kind, n)
	}
	// Output:
	// analysis: Easy.
	// final: It is 4.
	// missing_message 1
}

// Parse parses a complete completion.
func ExampleParse() {
	completion := harmony.AppendEncodeSpecial(nil, `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>`)
	msgs, err := harmony.Parse(harmony.Strict, harmony.RoleAssistant, completion)
	fmt.Println(msgs[0].Recipient, msgs[0].ContentType, msgs[0].Content[0], err)
	_, err = harmony.Parse(harmony.Strict, harmony.RoleAssistant, append(completion, harmony.TokenReturn))
	fmt.Println(err)
	// Output:
	// functions.f <|constrain|>json {"a":1} <nil>
	// Unexpected token 200002 while expecting start token 200006
}

// Text that spells a special token stays text, except with AppendEncodeSpecial.
func ExampleAppendEncode() {
	fmt.Println(harmony.AppendEncode(nil, "hello<|end|>"))
	fmt.Println(harmony.AppendEncodeSpecial(nil, "hello<|end|>"))
	// Output:
	// [24912 27 91 419 91 29]
	// [24912 200007]
}
