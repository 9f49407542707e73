package harmony

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadWritten lists what is copied into a prompt as the model wrote it, and what is not.
func TestReadWritten(t *testing.T) {
	t.Parallel()
	const thought = "<|start|>assistant<|channel|>analysis<|message|>Hm<|end|>"

	for name, c := range map[string]struct{ tokens, want string }{
		"the library's form":       {"<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}"},
		"recipient in the channel": {thought + "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "assistant analysis: Hm\nassistant commentary to=functions.f type=json: {}"},
		"recipient in the role":    {"<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}"},
		"without the marker":       {"<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|end|>", "assistant commentary to=functions.f type=json: {}"},
		"without a content type":   {"<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>", "assistant commentary to=functions.f: {}"},
		"without a space":          {"<|start|>assistant<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}"},
		"several spaces":           {"<|start|>assistant  to=functions.f <|channel|>commentary  <|constrain|> json <|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}"},
		"code":                     {"<|start|>assistant<|channel|>analysis to=python code<|message|>1+1<|call|>", "assistant analysis to=python type=code: 1+1"},
		"preamble":                 {"<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>", "assistant commentary: I look."},
		"empty":                    {"<|start|>assistant<|channel|>final<|message|><|end|>", "assistant final: "},
		"none":                     {"", ""},

		"no start":                {"assistant<|channel|>final<|message|>a<|end|>", "-"},
		"no channel":              {"<|start|>assistant<|message|>a<|end|>", "-"},
		"unknown channel":         {"<|start|>assistant<|channel|>thought<|message|>a<|end|>", "-"},
		"channel in another case": {"<|start|>assistant<|channel|>Final<|message|>a<|end|>", "-"},
		"glued channel":           {"<|start|>assistant<|channel|>commentaryto=functions.f<|message|>a<|end|>", "-"},
		"two channels":            {"<|start|>assistant<|channel|>analysis<|channel|>final<|message|>a<|end|>", "-"},
		"no role":                 {"<|start|><|channel|>final<|message|>a<|end|>", "-"},
		"another role":            {"<|start|>user<|channel|>final<|message|>a<|end|>", "-"},
		"a tool's role":           {"<|start|>functions.f to=assistant<|channel|>commentary<|message|>a<|end|>", "-"},
		"a name":                  {"<|start|>assistant:bob<|channel|>final<|message|>a<|end|>", "-"},
		"two recipients":          {"<|start|>assistant to=functions.f<|channel|>commentary to=functions.g<|message|>a<|call|>", "-"},
		"no recipient":            {"<|start|>assistant to=<|channel|>commentary<|message|>a<|call|>", "-"},
		"a namespace alone":       {"<|start|>assistant<|channel|>commentary to=functions json<|message|>a<|call|>", "-"},
		"quoted recipient":        {"<|start|>assistant<|channel|>commentary to=\"functions.f\"<|message|>a<|call|>", "-"},
		"unmarked recipient":      {"<|start|>assistant<|channel|>commentary functions.f<|message|>a<|call|>", "-"},
		"a word too many":         {"<|start|>assistant<|channel|>commentary to=functions.f now json<|message|>a<|call|>", "-"},
		"type in the role":        {"<|start|>assistant json<|channel|>final<|message|>a<|end|>", "-"},
		"two types":               {"<|start|>assistant<|channel|>final code <|constrain|>json<|message|>a<|end|>", "-"},
		"no type after a marker":  {"<|start|>assistant<|channel|>final <|constrain|><|message|>a<|end|>", "-"},
		"a marker first":          {"<|start|>assistant<|constrain|>json<|channel|>final<|message|>a<|end|>", "-"},
		"no message":              {"<|start|>assistant<|channel|>final<|end|>", "-"},
		"no end":                  {"<|start|>assistant<|channel|>final<|message|>a", "-"},
		"return":                  {"<|start|>assistant<|channel|>final<|message|>a<|return|>", "-"},
		"a marker in the text":    {"<|start|>assistant<|channel|>final<|message|>a<|channel|>b<|end|>", "-"},
		"text between":            {thought + "\n" + thought, "-"},
		"end twice":               {thought + "<|end|>", "-"},
		"the last is cut":         {thought + "<|start|>assistant", "-"},
	} {
		msgs, ok := ReadWritten(AppendEncodeSpecial(nil, c.tokens))
		got := messageLines(msgs)
		if !ok {
			got = "-"
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}

	broken := AppendEncodeSpecial(nil, thought)
	broken = slices.Insert(broken, len(broken)-1, AppendEncode(nil, "𓀀")[0])
	if _, ok := ReadWritten(broken); ok {
		t.Error("half a character is text")
	}
}

// TestReadWrittenAsParsed shows that what is accepted is what a parser reads, without a repair.
func TestReadWrittenAsParsed(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	accepted := map[string]bool{}

	// Messages whose pieces are mostly the right ones, and now and then missing, twice or another's.
	pieces := [][]string{
		{"<|start|>"},
		{"assistant", "assistant", "assistant", "user", "functions.f"},
		{"", "", " to=functions.f", " to=python", " to=user", " to="},
		{"<|channel|>"},
		{"analysis", "commentary", "commentary", "final", "Final", "thought"},
		{"", "", " to=functions.f", "to=f", " to=functions.", " to=functions", " to=mcp.a-b_c", " functions.f", " to=größer", "  to=a.b"},
		{"", " ", " json", " code", " text", "json", " now"},
		{"", "<|constrain|>", "<|constrain|>json", "<|constrain|> json "},
		{"<|message|>"},
		{"", "Hello", `{"a":1}`, "größer 🙂", "to=functions.f", "<|channel|>", "final"},
		{"<|end|>", "<|end|>", "<|call|>", "<|call|>", "<|return|>", ""},
	}

	for range 100_000 {
		var text strings.Builder
		for range 1 + rng.IntN(2) {
			for _, one := range pieces {
				switch rng.IntN(60) {
				case 0:
				case 1:
					one = pieces[rng.IntN(len(pieces))]
					fallthrough
				default:
					text.WriteString(one[rng.IntN(len(one))])
				}
			}
		}

		tokens := AppendEncodeSpecial(nil, text.String())
		msgs, ok := ReadWritten(tokens)
		if !ok {
			continue
		}
		accepted[text.String()] = true

		parser := NewParser(Tolerant, "")
		var c collector
		for _, token := range tokens {
			events, _ := parser.Push(token)
			c.add(events)
		}
		events, _ := parser.Close()
		c.add(events)
		repairs := parser.Repairs()
		if diff := cmp.Diff(messageLines(c.msgs), messageLines(msgs)); diff != "" || repairs.Total() > 0 {
			t.Fatalf("%s\n%v\n%s", text.String(), repairs, diff)
		}
	}

	if len(accepted) < 300 {
		t.Errorf("only %d texts are well formed", len(accepted))
	}
}

// TestRenderWritten shows that the tokens of a message that the model wrote are rendered as they
// are, follow the rule for reasoning, and count for the limit.
func TestRenderWritten(t *testing.T) {
	t.Parallel()
	const written = "<|start|>assistant<|channel|>analysis<|message|>Hm<|end|>" +
		"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>"
	msgs, ok := ReadWritten(AppendEncodeSpecial(nil, written))
	if !ok {
		t.Fatal("not well formed")
	}

	text := func(tokens []Token) string {
		decoded, _ := AppendDecode(nil, tokens)
		return string(decoded)
	}
	user := Message{Role: RoleUser, Content: []Content{Text("Hi")}}
	conversation := append([]Message{user}, msgs...)

	// Twice, because the second time the messages are found in the cache.
	r := NewRenderer()
	for range 2 {
		tokens, err := r.AppendConversation(nil, append(conversation, user))
		if want := "<|start|>user<|message|>Hi<|end|>"; err != nil || text(tokens) != want+written+want {
			t.Fatalf("%s %v", text(tokens), err)
		}
	}

	answer := Message{Role: RoleAssistant, Channel: ChannelFinal, Content: []Content{Text("a")}}
	tokens, err := r.AppendConversation(nil, append(conversation, answer))
	if err != nil || strings.Contains(text(tokens), "Hm") || !strings.Contains(text(tokens), "<|constrain|>") {
		t.Errorf("reasoning before an answer: %s %v", text(tokens), err)
	}

	long := Message{Role: RoleAssistant, Channel: ChannelAnalysis, Written: make([]Token, 20_000)}
	var limit *LimitError
	if _, err := r.AppendLimited(context.Background(), nil, []Message{long, user, user}, 15_000); !errors.As(err, &limit) {
		t.Errorf("more than the limit: %v", err)
	}
}
