package harmony

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// commonWords are the words of the prose in benchmarks.
var commonWords = strings.Fields(`the of and to in is that for it as was with be by on not he this are or his from at which but have an had
they you were their one all we can her has there been if more when will would who so no out up into them then she many some these its also
only other new time two may after first any about could man than our over such great most made before state being very through where much
people between work world years system however request response gateway listener cluster route header policy resource configure namespace
authorization implementation, performance. deployment; (example) "quoted" don't they're 2024 1,000 https://example.com/a/b?c=d snake_case camelCase`)

// longConversation returns 1,000 messages with 20 tools, about 98,000 tokens.
func longConversation(r *rand.Rand) []Message {
	prose := func(n int) Text {
		words := make([]string, n)
		for i := range words {
			words[i] = commonWords[r.IntN(len(commonWords))]
		}
		return Text(strings.Join(words, " "))
	}
	tools := make([]Tool, 20)
	for i := range tools {
		var properties strings.Builder
		for j := range 6 {
			fmt.Fprintf(&properties, `"param_%d":{"type":"string","description":"Parameter %d of tool %d: the value that is used."},`, j, j, i)
		}
		tools[i] = Tool{
			Name: fmt.Sprintf("tool_%d_lookup", i), Description: string(prose(20)),
			Parameters: json.RawMessage(`{"type":"object","properties":{` + properties.String() + `"mode":{"type":"string","enum":["fast","safe"],"default":"fast"}},"required":["mode"]}`),
		}
	}
	msgs := make([]Message, 0, 1000)
	msgs = append(msgs,
		Message{Role: RoleSystem, Content: []Content{&SystemContent{Identity: "You are ChatGPT.", Effort: EffortMedium, Channels: []string{"analysis", "commentary", "final"}, ChannelRequired: true}}},
		Message{Role: RoleDeveloper, Content: []Content{&DeveloperContent{Instructions: string(prose(200)), Tools: []Namespace{{Name: "functions", Tools: tools}}}}})
	for len(msgs) < 1000 {
		msgs = append(msgs,
			Message{Role: RoleUser, Content: []Content{prose(70)}},
			Message{Role: RoleAssistant, Channel: ChannelCommentary, Recipient: "functions.tool_3_lookup", ContentType: "json", Content: []Content{`{"param_0":"` + prose(12) + `"}`}},
			Message{Role: RoleTool, Name: "functions.tool_3_lookup", Recipient: "assistant", Channel: ChannelCommentary, Content: []Content{prose(130)}},
			Message{Role: RoleAssistant, Channel: ChannelFinal, Content: []Content{prose(90)}})
	}
	return msgs[:1000]
}

func BenchmarkRenderCold(b *testing.B) {
	msgs := longConversation(rand.New(rand.NewPCG(5, 6)))
	var dst []Token
	var err error
	for b.Loop() {
		if dst, err = NewRenderer().AppendCompletion(dst[:0], msgs, RoleAssistant); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(dst)), "tokens")
}

func BenchmarkRenderLastMessageNew(b *testing.B) {
	msgs := longConversation(rand.New(rand.NewPCG(5, 6)))
	r := NewRenderer()
	var dst []Token
	var err error
	for i := 0; b.Loop(); i++ {
		msgs[len(msgs)-1] = Message{Role: RoleUser, Content: []Content{Text(fmt.Sprintf("And now for question number %d, which nobody has asked before.", i))}}
		if dst, err = r.AppendCompletion(dst[:0], msgs, RoleAssistant); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(dst)), "tokens")
}
