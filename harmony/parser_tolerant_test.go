package harmony

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// messageLines returns one line per message: role, name, channel, recipient,
// content type and text.
func messageLines(msgs []Message) string {
	lines := make([]string, 0, len(msgs))
	for _, m := range msgs {
		role := string(m.Role)
		if m.Name != "" {
			role += ":" + m.Name
		}
		line := role + " " + m.Channel
		if m.Recipient != "" {
			line += " to=" + m.Recipient
		}
		if m.ContentType != "" {
			line += " type=" + m.ContentType
		}
		lines = append(lines, line+": "+string(m.Content[0].(Text)))
	}
	return strings.Join(lines, "\n")
}

// tolerantCases are completions with their messages and repairs.
var tolerantCases = []struct {
	name, tokens, want, repairs string
}{
	// Well formed.
	{"answer", "<|channel|>final<|message|>Hi<|return|>", "assistant final: Hi", ""},
	{"reasoning and answer", "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>", "assistant analysis: Hm\nassistant final: Hi", ""},
	{"trained call", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", ""},
	{"call in the channel section", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", ""},
	{"adjacent constrain", "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", ""},
	{"call without type", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "assistant commentary to=functions.f: {}", ""},
	{"code", "<|channel|>analysis to=python code<|message|>1+1<|call|>", "assistant analysis to=python type=code: 1+1", ""},
	{"several calls", "<|channel|>commentary to=functions.f<|message|>1<|end|><|start|>assistant to=functions.g<|channel|>commentary<|message|>2<|call|>", "assistant commentary to=functions.f: 1\nassistant commentary to=functions.g: 2", ""},
	{"no stop token", "<|channel|>final<|message|>Hi", "assistant final: Hi", ""},
	{"call without stop token", "<|channel|>commentary to=functions.f<|message|>{", "assistant commentary to=functions.f: {", ""},
	{"tool message", "<|channel|>final<|message|>x<|end|><|start|>functions.f to=assistant<|channel|>commentary<|message|>r<|end|>", "assistant final: x\ntool:functions.f commentary to=assistant: r", ""},
	{"user with a name", "<|channel|>final<|message|>x<|end|><|start|>user:bob<|message|>y<|end|>", "assistant final: x\nuser:bob : y", ""},
	{"empty content", "<|channel|>final<|message|><|return|>", "assistant final: ", ""},

	// No header.
	{"bare text", "I refuse to do that.", "assistant final: I refuse to do that.", "missing_header"},
	{"bare JSON", "{\"a\": [1, 2]}<|return|>", "assistant final: {\"a\": [1, 2]}", "missing_header"},
	{"bare text like a header", "to be or not to be<|return|>", "assistant final: to be or not to be", "missing_header"},
	{"bare text like a role", "assistants help<|return|>", "assistant final: assistants help", "missing_header"},
	{"bare text like a channel", "final answer: 5<|return|>", "assistant final: final answer: 5", "missing_header"},
	{"bare text that is a channel", "final<|return|>", "assistant final: final", "missing_header"},
	{"bare spaces first", "\n\n Hello<|return|>", "assistant final: \n\n Hello", "missing_header"},
	{"text between messages", "<|channel|>analysis<|message|>a<|end|>And now.<|return|>", "assistant analysis: a\nassistant final: And now.", "missing_header"},
	{"no header, message marker", "<|message|>x<|end|>", "assistant final: x", "missing_channel"},

	// No <|message|>.
	{"channel and text", "<|channel|>final Hello there<|return|>", "assistant final: Hello there", "missing_message"},
	{"glued text", "<|channel|>final__HANDOFF__<|return|>", "assistant final: __HANDOFF__", "missing_message glued_channel"},
	{"glued word", "<|channel|>analysisWe need<|end|>", "assistant analysis: We need", "missing_message glued_channel"},
	{"longer word", "<|channel|>finally it works<|return|>", "assistant final: finally it works", "missing_header"},
	{"call without message marker", "<|channel|>commentary to=functions.f <|constrain|>json{\"a\":1}<|call|>", "assistant commentary to=functions.f type=json: {\"a\":1}", "missing_message"},
	{"call glued to arguments", "<|channel|>commentary to=functions.f{\"a\":1}<|call|>", "assistant commentary to=functions.f: {\"a\":1}", "missing_message"},
	{"call without arguments", "<|channel|>commentary to=functions.f<|call|>", "assistant commentary to=functions.f: ", "missing_message"},
	{"text after start", "<|channel|>analysis<|message|>a<|end|><|start|>assistant Well then.<|return|>", "assistant analysis: a\nassistant final: Well then.", "missing_message missing_channel"},
	{"text in place of a role", "<|channel|>analysis<|message|>a<|end|><|start|>Hello there<|return|>", "assistant analysis: a\nassistant final: Hello there", "missing_header"},
	{"header cut by the end", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.get_wea", "assistant analysis: a", "cut_header"},
	{"text in a header cut by the end", "<|channel|>final I think", "assistant final: I think", "missing_message"},
	{"channel cut by the end", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>comment", "assistant analysis: a", "cut_header"},
	{"role cut by the end", "<|channel|>analysis<|message|>a<|end|><|start|>assist", "assistant analysis: a", "cut_header"},
	{"to= cut by the end", "<|channel|>commentary to=", "", "cut_header"},
	{"to= and a stop token", "<|channel|>commentary to=<|return|>", "", "cut_header"},
	{"first recipient cut by the end", " to", "", "cut_header"},
	{"type cut by the end", "<|channel|>commentary to=functions.f <|constrain|>js", "", "cut_header"},
	{"type and a stop token", "<|channel|>commentary to=functions.f <|constrain|>js<|call|>", "assistant commentary to=functions.f type=js: ", "missing_message"},
	{"name of no tool", " to=func<|call|>", "assistant commentary to=func: ", "missing_message missing_channel"},
	{"beginning of a tool's name", " to=functions.<|call|>", "assistant commentary to=functions.: ", "missing_message missing_channel"},
	{"beginning of a tool's name, no call", " to=functions.<|return|>", "", "cut_header"},
	{"recipient, no call", "<|channel|>commentary to=functions.f<|return|>", "", "cut_header"},
	{"arguments cut by the end", "<|channel|>commentary to=functions.f <|constrain|>json{\"a", "assistant commentary to=functions.f type=json: {\"a", "missing_message"},
	{"cut header in content", "<|channel|>analysis<|message|>a<|channel|>comment", "assistant analysis: a", "missing_end cut_header"},
	{"channel without text", "<|channel|>final<|return|>", "assistant final: ", "missing_message"},
	{"text cut by the end", "<|channel|>Sure", "assistant final: Sure", "missing_header"},
	{"glued text cut by the end", "<|channel|>final__HANDOFF__", "assistant final: __HANDOFF__", "missing_message glued_channel"},
	{"one letter", "<|channel|>final b<|return|>", "assistant final: b", "missing_message"},
	{"bare word", "to", "assistant final: to", "missing_header"},
	{"bare channel cut by the end", "final", "assistant final: final", "missing_header"},
	{"unknown channel as text", "<|channel|>Sure, here<|return|>", "assistant final: Sure, here", "missing_header"},
	{"long header", "<|channel|>final" + strings.Repeat(" word", 300), "assistant final: word" + strings.Repeat(" word", 299), "missing_message long_header"},

	// Markers and stop tokens in the wrong place.
	{"stop twice", "<|channel|>final<|message|>x<|end|><|return|><|return|>", "assistant final: x", "stray_stop"},
	{"stop first", "<|return|>", "", "stray_stop"},
	{"start twice", "<|channel|>final<|message|>x<|end|><|start|><|start|>assistant<|channel|>final<|message|>y<|end|>", "assistant final: x\nassistant final: y", "double_start"},
	{"start after role", "<|channel|>final<|message|>x<|end|><|start|>assistant<|start|>assistant<|channel|>final<|message|>y<|end|>", "assistant final: x\nassistant final: y", "double_start"},
	{"start first", "<|start|>assistant<|channel|>final<|message|>y<|end|>", "assistant final: y", ""},
	{"no start", "<|channel|>analysis<|message|>x<|end|><|channel|>final<|message|>y<|end|>", "assistant analysis: x\nassistant final: y", "missing_start"},
	{"role without start", "<|channel|>analysis<|message|>x<|end|>assistant<|channel|>final<|message|>y<|end|>", "assistant analysis: x\nassistant final: y", "missing_start"},
	{"recipient without start", "<|channel|>analysis<|message|>x<|end|> to=functions.f<|channel|>commentary<|message|>{}<|call|>", "assistant analysis: x\nassistant commentary to=functions.f: {}", "missing_start"},
	{"no end before channel", "<|channel|>analysis<|message|>Hm<|channel|>final<|message|>Hi<|return|>", "assistant analysis: Hm\nassistant final: Hi", "missing_end missing_start"},
	{"no end before start", "<|channel|>analysis<|message|>Hm<|start|>assistant<|channel|>final<|message|>Hi<|return|>", "assistant analysis: Hm\nassistant final: Hi", "missing_end"},
	{"no end before a call", "<|channel|>analysis<|message|>Hm<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "assistant analysis: Hm\nassistant commentary to=functions.f type=json: {}", "missing_end"},
	{"no end, no message marker", "<|channel|>analysis<|message|>Hm<|channel|>commentary to=functions.f <|constrain|>json<|call|>", "assistant analysis: Hm\nassistant commentary to=functions.f type=json: ", "missing_end missing_message missing_start"},
	{"markers that are no headers", "<|channel|>final<|message|>a<|channel|>b<|start|>c<|message|>d<|constrain|>e<|return|>", "assistant final: abcde", "stray_marker"},
	{"start in arguments", "<|channel|>commentary to=functions.f<|message|>{\"a\":\"<|start|>text\"}<|call|>", "assistant commentary to=functions.f: {\"a\":\"text\"}", "stray_marker"},
	{"role in arguments", "<|channel|>commentary to=functions.f<|message|>{\"a\":\"<|start|>assistant\"}<|call|>", "assistant commentary to=functions.f: {\"a\":\"assistant\"}", "stray_marker"},
	{"beginning of a role", "<|channel|>final<|message|>a<|start|>us<|return|>", "assistant final: aus", "stray_marker"},
	{"end of text", "<|channel|>final<|message|>x<|endoftext|>", "assistant final: x", "end_of_text"},
	{"end of text, more text", "<|channel|>final<|message|>x<|endoftext|>y<|return|>", "assistant final: x\nassistant final: y", "end_of_text missing_header"},
	{"end of text after the end", "<|channel|>final<|message|>x<|return|><|endoftext|>", "assistant final: x", "end_of_text"},
	{"reserved", "<|channel|>fin<|reserved_200100|>al<|message|>a<|reserved_200000|>b<|startoftext|>c<|return|>", "assistant final: abc", "stray_marker"},

	// Words of headers between messages.
	{"lone channel", "<|channel|>analysis<|message|>a<|end|>final<|start|>assistant<|channel|>final<|message|>b<|return|>", "assistant analysis: a\nassistant final: b", "cut_header"},
	{"lone channel in capitals", "<|channel|>final<|message|>a<|end|>Commentary<|end|>", "assistant final: a", "cut_header"},
	{"lone role", "<|channel|>final<|message|>a<|end|>assistant<|end|>", "assistant final: a", "cut_header"},
	{"lone role at the end", "<|channel|>final<|message|>a<|end|>assistant", "assistant final: a", "cut_header"},
	{"lone type", "<|channel|>final<|message|>a<|end|> json\n<|return|>", "assistant final: a", "cut_header"},
	{"lone words", "<|channel|>final<|message|>a<|end|>assistantcommentary json<|return|>", "assistant final: a", "cut_header"},
	{"lone channel after a start", "<|channel|>final<|message|>a<|end|><|start|>final<|return|>", "assistant final: a", "cut_header"},
	{"channel and text between messages", "<|channel|>analysis<|message|>a<|end|>final answer<|return|>", "assistant analysis: a\nassistant final: final answer", "missing_header"},
	{"lone word that is the answer", "<|channel|>analysis<|message|>a<|end|>json<|return|>", "assistant analysis: a\nassistant final: json", "missing_header"},
	{"lone channel that is the answer", "<|channel|>analysis<|message|>a<|end|>final<|return|>", "assistant analysis: a\nassistant final: final", "missing_header"},
	{"lone word behind reasoning that is cut", "<|channel|>analysis<|message|>a<|end|>json", "assistant analysis: a", "cut_header"},
	{"words like those of headers", "<|channel|>analysis<|message|>a<|end|>texts<|return|>", "assistant analysis: a\nassistant final: texts", "missing_header"},

	// Headers.
	{"recipient twice", "<|channel|>commentary to=functions.f to=functions.f<|message|>{}<|call|>", "assistant commentary to=functions.f: {}", "duplicate_recipient"},
	{"recipient in both places", " to=functions.f<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", "duplicate_recipient"},
	{"spaced recipient", "<|channel|>commentary to= functions.f<|message|>{}<|call|>", "assistant commentary to=functions.f: {}", ""},
	{"glued recipient", "<|channel|>commentaryto=functions.f<|message|>{}<|call|>", "assistant commentary to=functions.f: {}", "glued_channel"},
	{"bare recipient", "<|channel|>commentary functions.f<|message|>{}<|call|>", "assistant commentary to=functions.f: {}", ""},
	{"bare recipient and type", "<|channel|>commentary functions.f code<|message|>{}<|call|>", "assistant commentary to=functions.f type=code: {}", ""},
	{"type without recipient", "<|channel|>final <|constrain|>json<|message|>{}<|return|>", "assistant final type=json: {}", ""},
	{"spaced type", "<|channel|>commentary to=functions.f <|constrain|> json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", ""},
	{"bare type", "<|channel|>final json<|message|>{}<|return|>", "assistant final type=json: {}", ""},
	{"unknown type", "<|channel|>final<|constrain|>weather_v2<|message|>{}<|return|>", "assistant final type=weather_v2: {}", ""},
	{"two channels", "<|channel|>analysis<|channel|>final<|message|>x<|return|>", "assistant final: x", "duplicate_channel"},
	{"empty channel", "<|channel|><|message|>x<|return|>", "assistant final: x", "empty_channel"},
	{"channel marker twice", "<|channel|><|channel|>final<|message|>x<|return|>", "assistant final: x", "empty_channel"},
	{"unknown channel", "<|channel|>thoughts<|message|>x<|return|>", "assistant thoughts: x", "unknown_channel"},
	{"channel in capitals", "<|channel|>ANALYSIS<|message|>x<|end|><|start|>assistant<|channel|>Final<|message|>y<|return|>", "assistant analysis: x\nassistant final: y", "unknown_channel"},
	{"channel in capitals and a recipient", "<|channel|>Commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", "unknown_channel"},
	{"channel in capitals without its marker", "Analysis<|message|>x<|end|>", "assistant analysis: x", ""},
	{"channel in capitals and text", "<|channel|>Final Hello there<|return|>", "assistant final: Hello there", "missing_message unknown_channel"},
	{"longer word in capitals", "<|channel|>Finally it works<|return|>", "assistant final: Finally it works", "missing_header"},
	{"made-up reasoning", "<|channel|>Deep_Thinking<|message|>x<|end|>", "assistant analysis: x", "unknown_channel"},
	{"made-up reasoning behind a name", "<|channel|>final_reasoning<|message|>x<|end|>", "assistant analysis: x", "unknown_channel"},
	{"made-up preamble", "<|channel|>my-comments<|message|>x<|end|>", "assistant commentary: x", "unknown_channel"},
	{"capitals cut by the end", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>Comment", "assistant analysis: a", "cut_header"},
	{"channel with punctuation", "<|channel|>commentary?!<|message|>x<|end|>", "assistant commentary: x", "glued_channel header_text"},
	{"words in a header", "<|channel|>final answer follows<|message|>x<|end|>", "assistant final: answer follows x", "header_text"},
	{"words in a header with a type", "<|channel|>final answer follows <|constrain|>json<|message|>{}<|end|>", "assistant analysis: answer follows\nassistant final type=json: {}", "header_text"},
	{"words in the header of a call", "<|channel|>commentary to=functions.f json now please<|message|>{}<|call|>", "assistant analysis: now please\nassistant commentary to=functions.f type=json: {}", "header_text"},
	{"words behind a channel", "<|channel|>final:the answer<|message|>x<|end|>", "assistant final: :the answer x", "header_text glued_channel"},
	{"answer in place of a type", " <|constrain|>answer<|return|>", "assistant final: answer", "missing_header"},
	{"answer in place of a type, alone", "<|constrain|>answer<|return|>", "assistant final: answer", "missing_header"},
	{"answer in place of a type, cut by the end", "<|constrain|>answer", "assistant final: answer", "missing_header"},
	{"answer in place of a type behind a channel", "<|channel|>final <|constrain|>answer<|return|>", "assistant final: answer", "missing_message"},
	{"answer in place of a type behind a role", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|constrain|>answer<|return|>", "assistant analysis: a\nassistant final: answer", "missing_message missing_channel"},
	{"answer in place of a type between messages", "<|channel|>analysis<|message|>a<|end|><|constrain|>answer<|return|>", "assistant analysis: a\nassistant final: answer", "missing_header"},
	{"type that is the only answer", "<|constrain|>json<|return|>", "assistant final: json", "missing_header"},
	{"role that is the only answer", "assistant<|return|>", "assistant final: assistant", "missing_header"},
	{"type of an empty message that is the only answer", "<|channel|>final <|constrain|>answer<|message|><|return|>", "assistant final type=answer: answer", ""},
	{"channel of an empty message that is the only answer", "<|channel|>answer<|message|><|return|>", "assistant answer: answer", "unknown_channel"},
	{"type of an empty message", "<|channel|>final <|constrain|>json<|message|><|return|>", "assistant final type=json: ", ""},
	{"type cut by the end, no recipient", "<|channel|>final <|constrain|>js", "", "cut_header"},

	// Recipients as models write them.
	{"recipient in quotation marks", "<|channel|>commentary to=\"functions.f\" <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=\"functions.f\" type=json: {}", "bad_recipient"},
	{"recipient in quotation marks without the channel's marker", "commentary to=\"functions.f\" <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=\"functions.f\" type=json: {}", "bad_recipient"},
	{"recipient without the channel's marker", "commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", ""},
	{"recipient in the role's section in quotation marks", " to=`functions.f`<|channel|>commentary json<|message|>{}<|call|>", "assistant commentary to=`functions.f` type=json: {}", "bad_recipient"},
	{"recipient with a space in quotation marks", "<|channel|>commentary to='functions.f g' json<|message|>{}<|call|>", "assistant commentary to='functions.f g' type=json: {}", "bad_recipient"},
	{"recipient with colons", "<|channel|>commentary to=functions::f json<|message|>{}<|call|>", "assistant commentary to=functions::f type=json: {}", "bad_recipient"},
	{"recipient with spaces", "<|channel|>commentary to=functions . f json<|message|>{}<|call|>", "assistant commentary to=functions . f type=json: {}", "bad_recipient"},
	{"recipient behind its namespace", "<|channel|>commentary to=functions f json<|message|>{}<|call|>", "assistant commentary to=functions f type=json: {}", "bad_recipient"},
	{"recipient of other letters", "<|channel|>commentary to=functions.wetter_ä json<|message|>{}<|call|>", "assistant commentary to=functions.wetter_ä type=json: {}", ""},
	{"recipient behind another word", "<|channel|>commentary To: functions.f <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=functions.f type=json: {}", ""},
	{"unmarked recipient", "<|channel|>commentary f <|constrain|>json<|message|>{}<|call|>", "assistant commentary to=f type=json: {}", "bad_recipient"},
	{"unmarked recipient on analysis", "<|channel|>analysis f code<|message|>{}<|call|>", "assistant analysis to=f type=code: {}", "bad_recipient"},
	{"word on analysis", "<|channel|>analysis Right<|message|>x<|end|>", "assistant analysis: Right x", "header_text"},
	{"unmarked recipient with a slash", "<|channel|>commentary functions/f<|message|>{}<|call|>", "assistant commentary to=functions/f: {}", ""},
	{"recipient in quotation marks glued to arguments", "<|channel|>commentary to=\"functions.f\"{\"a\":1}<|call|>", "assistant commentary to=\"functions.f\": {\"a\":1}", "missing_message bad_recipient"},
	{"recipient with colons glued to arguments", "<|channel|>commentary to=functions::f{\"a\":1}<|call|>", "assistant commentary to=functions::f: {\"a\":1}", "missing_message bad_recipient"},
	{"unmarked recipient glued to arguments", "<|channel|>commentary functions.f{\"a\":1}<|call|>", "assistant commentary to=functions.f: {\"a\":1}", "missing_message"},
	{"recipient with a call's brackets", "<|channel|>commentary to=functions.f()<|message|>{}<|call|>", "assistant commentary to=functions.f: {}", "header_text"},
	{"no recipient", "<|channel|>commentary to=\"\" json<|message|>{}<|call|>", "assistant commentary to=\"\" type=json: {}", "bad_recipient"},
	{"recipient without channel", " to=functions.f<|message|>{}<|call|>", "assistant commentary to=functions.f: {}", "missing_channel"},
	{"channel without its marker", "analysis<|message|>x<|end|>", "assistant analysis: x", ""},
	{"unknown role", "<|channel|>final<|message|>x<|end|><|start|>bogus<|channel|>final<|message|>y<|end|>", "assistant final: x\nassistant final: y", "unknown_role"},
	{"unknown role with recipient", "<|channel|>final<|message|>x<|end|><|start|>bogus to=functions.f<|channel|>commentary<|message|>{}<|call|>", "assistant final: x\nassistant commentary to=functions.f: {}", "unknown_role"},
	{"role glued to recipient", "<|channel|>final<|message|>x<|end|><|start|>assistantto=functions.f<|channel|>commentary<|message|>{}<|call|>", "assistant final: x\nassistant commentary to=functions.f: {}", ""},
	{"recipient in place of the role", "<|channel|>final<|message|>x<|end|><|start|> to=functions.f<|channel|>commentary<|message|>{}<|call|>", "assistant final: x\nassistant commentary to=functions.f: {}", ""},
	{"role twice", "<|channel|>final<|message|>x<|end|><|start|>assistant assistant<|channel|>final<|message|>y<|end|>", "assistant final: x\nassistant final: y", ""},
}

func TestParserTolerant(t *testing.T) {
	for _, c := range tolerantCases {
		t.Run(c.name, func(t *testing.T) {
			got, repairs := parseTolerant(AppendEncodeSpecial(nil, c.tokens))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			want := map[string]bool{}
			for _, name := range strings.Fields(c.repairs) {
				want[name] = true
			}
			if diff := cmp.Diff(want, repairs); diff != "" {
				t.Errorf("repairs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParserTolerantTruncated truncates well-formed completions after every
// token, like max_tokens, and also ends every header early with each stop
// token. No part of a header may become text, and no part of a name may become
// a call.
func TestParserTolerantTruncated(t *testing.T) {
	for _, c := range []struct{ name, tokens string }{
		{"reasoning and answer", "<|channel|>analysis<|message|>Let me think.<|end|><|start|>assistant<|channel|>final<|message|>It is sunny.<|return|>"},
		{"trained call", " to=functions.get_weather<|channel|>commentary json<|message|>{\"location\":\"Paris\"}<|call|>"},
		{"reasoning and trained call", "<|channel|>analysis<|message|>Call it.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{\"location\":\"Paris\"}<|call|>"},
		{"preamble and call", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"location\":\"Paris\"}<|call|>"},
		{"preamble and trained call", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"},
		{"two calls", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"a\":1}<|end|><|start|>assistant to=functions.lookup_user<|channel|>commentary json<|message|>{\"b\":2}<|call|>"},
		{"adjacent constrain", "<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{}<|call|>"},
		{"other type", "<|channel|>commentary to=functions.get_weather <|constrain|>weather_v2<|message|>{}<|call|>"},
		{"spaced type", "<|channel|>commentary to=functions.get_weather <|constrain|> json<|message|>{}<|call|>"},
		{"spaced recipient", "<|channel|>commentary to= functions.get_weather<|message|>{}<|call|>"},
		{"bare recipient", "<|channel|>commentary functions.get_weather<|message|>{}<|call|>"},
		{"glued recipient", "<|start|>assistantto=functions.get_weather<|channel|>commentaryto=functions.get_weather<|message|>{}<|call|>"},
		{"code", "<|channel|>analysis to=python code<|message|>print(1)<|call|>"},
		{"browser", "<|channel|>analysis<|message|>Search.<|end|><|start|>assistant to=browser.search<|channel|>analysis code<|message|>{\"query\":\"x\"}<|call|>"},
		{"typed answer", "<|channel|>final <|constrain|>json<|message|>{\"a\":1}<|return|>"},
		{"bare type", "<|channel|>final json<|message|>{\"a\":1}<|return|>"},
		{"tool", "<|channel|>final<|message|>x<|end|><|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>r<|end|>"},
		{"no end", "<|channel|>analysis<|message|>Hm<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens := AppendEncodeSpecial(nil, c.tokens)
			whole, _ := Parse(Tolerant, RoleAssistant, tokens)
			content := false
			for n := range tokens {
				cut := tokens[:n:n]
				if n > 0 && (cut[n-1] == TokenMessage || isStop(cut[n-1])) {
					content = cut[n-1] == TokenMessage
				}
				checkTruncated(t, whole, cut)
				if content || c.name == "no end" {
					continue
				}
				for _, stop := range []Token{TokenReturn, TokenEnd, TokenCall, TokenEndOfText} {
					if stop == TokenCall && endsInName(cut) {
						continue
					}
					checkTruncated(t, whole, append(cut, stop))
				}
			}
		})
	}
}

// endsInName reports whether the tokens end with a recipient. A call that a
// model ends there is complete.
func endsInName(tokens []Token) bool {
	msgs, _ := Parse(Tolerant, RoleAssistant, append(tokens, TokenCall))
	if len(msgs) == 0 {
		return false
	}
	name := msgs[len(msgs)-1].Recipient
	return name != "" && strings.HasSuffix(tokenString(tokens), name)
}

// checkTruncated checks that the messages of tokens are a beginning of whole.
// Messages without text may have other fields.
func checkTruncated(t *testing.T, whole []Message, tokens []Token) {
	t.Helper()
	got, _ := Parse(Tolerant, RoleAssistant, tokens)
	if len(got) > len(whole) {
		t.Fatalf("%s: %s", tokenString(tokens), messageLines(got))
	}
	for i, m := range got {
		text, wholeText := string(m.Content[0].(Text)), string(whole[i].Content[0].(Text))
		last := i == len(got)-1
		if text != wholeText && (!last || !strings.HasPrefix(wholeText, text)) {
			t.Errorf("%s: text %q", tokenString(tokens), text)
		}
		if m.Recipient != "" && m.Recipient != whole[i].Recipient {
			t.Errorf("%s: recipient %q", tokenString(tokens), m.Recipient)
		}
		if text != "" && (m.Role != whole[i].Role || m.Recipient != whole[i].Recipient || m.Channel != whole[i].Channel) {
			t.Errorf("%s: role %q, recipient %q, channel %q", tokenString(tokens), m.Role, m.Recipient, m.Channel)
		}
	}
}

func tokenString(tokens []Token) string {
	b, _ := AppendDecode(nil, tokens)
	return string(b)
}

// parseTolerant parses the completion of an assistant message.
func parseTolerant(tokens []Token) (lines string, repairs map[string]bool) {
	p := NewParser(Tolerant, RoleAssistant)
	var all collector
	for _, t := range tokens {
		events, _ := p.Push(t)
		all.add(events)
	}
	events, _ := p.Close()
	all.add(events)
	repairs = map[string]bool{}
	counts := p.Repairs()
	for kind := range counts.All() {
		repairs[kind.String()] = true
	}
	return messageLines(all.msgs), repairs
}

// TestParserTolerantTokens contains the cases that cannot be written as text.
func TestParserTolerantTokens(t *testing.T) {
	spelled := func(text string) []Token { return AppendEncode(nil, text) } // encodes special tokens as ordinary text
	join := func(parts ...any) []Token {
		var tokens []Token
		for _, p := range parts {
			switch p := p.(type) {
			case string:
				tokens = AppendEncodeSpecial(tokens, p)
			case []Token:
				tokens = append(tokens, p...)
			case int:
				tokens = append(tokens, Token(p))
			}
		}
		return tokens
	}
	for _, c := range []struct {
		name    string
		tokens  []Token
		want    string
		repairs []string
	}{
		{"unknown id", join("<|channel|>final<|message|>a", 99999999, "b<|return|>"), "assistant final: a\uFFFDb", []string{"unknown_id"}},
		{"unknown id in a cut character", join("<|message|>a", 31446, 99999999, 244, "b<|return|>"), "assistant final: a\uFFFD\uFFFD\uFFFDb", []string{"unknown_id", "invalid_utf8", "missing_channel"}},
		{"unknown id first", join(201089, "b<|return|>"), "assistant final: \uFFFDb", []string{"unknown_id", "missing_header"}},
		{"unknown id in a header", join("<|channel|>final", 2000000000, "<|message|>x<|return|>"), "assistant final: x", []string{"unknown_id", "glued_channel", "header_text"}},
		{"invalid UTF-8", join("<|channel|>final<|message|>", 9552, "XY<|return|>"), "assistant final:  \uFFFDXY", []string{"invalid_utf8"}},
		{"invalid UTF-8 thrice", join("<|channel|>final<|message|>", 9552, 9552, 9552, "<|return|>"), "assistant final:  \uFFFD \uFFFD \uFFFD", []string{"invalid_utf8"}},
		{"cut character at the end", join("<|channel|>final<|message|>a", 31446, "<|return|>"), "assistant final: a\uFFFD", []string{"invalid_utf8"}},
		{"character across a dropped marker", join("<|channel|>final<|message|>", 31446, "<|message|>", 244, "<|return|>"), "assistant final: 💖", []string{"stray_marker"}},
		{"bare emoji", join(31446, 244, "<|return|>"), "assistant final: 💖", []string{"missing_header"}},
		{"marker spelled in a recipient", join("<|channel|>commentary to=functions.f", spelled("<|channel|>commentary"), "<|message|>{}<|call|>"), "assistant commentary to=functions.f: {}", []string{"bad_recipient"}},
		{"markers spelled in content", join("<|channel|>final<|message|>", spelled("<|end|><|start|>user"), "<|return|>"), "assistant final: <|end|><|start|>user", nil},
		{"the reference's last token", join("<|channel|>final<|message|>a", 201088, "b<|return|>"), "assistant final: ab", []string{"stray_marker"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, repairs := parseTolerant(c.tokens)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			want := map[string]bool{}
			for _, name := range c.repairs {
				want[name] = true
			}
			if diff := cmp.Diff(want, repairs); diff != "" {
				t.Errorf("repairs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParserTolerantStreams checks that text without a header is streamed and
// not returned at the end only.
func TestParserTolerantStreams(t *testing.T) {
	p := NewParser(Tolerant, RoleAssistant)
	for i, token := range AppendEncode(nil, `{"answer": "a text of some length"}`) {
		events, err := p.Push(token)
		if err != nil || p.LastDelta() == nil || p.State() != StateContent {
			t.Fatalf("token %d: events %v, %v, delta %q", i, events, err, p.LastDelta())
		}
	}
}

func TestContentTokens(t *testing.T) {
	for text, want := range map[string]int{
		"<|channel|>analysis<|message|>one two three<|end|>":          3,
		"one two three<|return|>":                                     3,
		"to be or<|return|>":                                          3,
		"<|channel|>final one two three<|return|>":                    3,
		"<|channel|>final<|message|>one<|start|> two three<|return|>": 3,
		"<|channel|>final<|message|><|return|>":                       0,
	} {
		p := NewParser(Tolerant, RoleAssistant)
		for _, token := range AppendEncodeSpecial(nil, text) {
			if _, err := p.Push(token); err != nil {
				t.Fatal(err)
			}
		}
		if p.ContentTokens() != want {
			t.Errorf("%s: %d content tokens, want %d", text, p.ContentTokens(), want)
		}
	}
}

func TestParserReset(t *testing.T) {
	p := NewParser(Tolerant, "")
	first := AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>final<|message|>a\xff<|start|>ass")
	for _, token := range append(first, 31446) {
		if _, err := p.Push(token); err != nil {
			t.Fatal(err)
		}
	}
	p.Reset(RoleAssistant)
	repairs := p.Repairs()
	if p.State() != StateHeader || p.Role() != RoleAssistant || repairs.Total() != 0 || p.ContentTokens() != 0 {
		t.Error("Reset keeps state")
	}
	var all collector
	for _, token := range AppendEncodeSpecial(nil, "<|channel|>final<|message|>b<|return|>") {
		events, _ := p.Push(token)
		all.add(events)
	}
	if got := messageLines(all.msgs); got != "assistant final: b" {
		t.Errorf("got %q", got)
	}
}

// checkTolerant parses tokens in tolerant mode and checks properties that hold
// for all inputs.
func checkTolerant(t *testing.T, p *Parser, tokens []Token) {
	t.Helper()
	open := false
	var deltas []byte
	check := func(events []Event, err error) {
		if err != nil {
			t.Fatalf("%v: error %v", tokens, err)
		}
		for _, e := range events {
			switch e.Kind {
			case MessageStart:
				if open || !e.Header.Role.known() {
					t.Fatalf("%v: message in message, or role %q", tokens, e.Header.Role)
				}
				if e.Header.Role == RoleAssistant && e.Header.Channel == "" {
					t.Fatalf("%v: an assistant's message without channel", tokens)
				}
				if to := e.Header.Recipient; !utf8.ValidString(to) || strings.Contains(to, "<|") || strings.TrimSpace(to) != to {
					t.Fatalf("%v: recipient %q", tokens, to)
				}
				for _, field := range []string{e.Header.Name, e.Header.Channel, e.Header.ContentType} {
					if nameLength([]byte(field)) != len(field) {
						t.Fatalf("%v: header field %q", tokens, field)
					}
				}
				open = true
			case Delta:
				if !open || len(e.Text) == 0 || !utf8.Valid(e.Text) {
					t.Fatalf("%v: delta %q, message open: %v", tokens, e.Text, open)
				}
				deltas = append(deltas, e.Text...)
			case MessageEnd:
				if !open || len(e.Text) > 0 {
					t.Fatalf("%v: end without a start, or with text %q", tokens, e.Text)
				}
				open = false
			}
		}
		if open != (p.State() == StateContent) {
			t.Fatalf("%v: message open: %v, state %d", tokens, open, p.State())
		}
	}
	for _, token := range tokens {
		check(p.Push(token))
	}
	check(p.Close())
	if open {
		t.Fatalf("%v: message open after Close", tokens)
	}
	if want := contentText(tokens); !isSubsequence(want, string(deltas)) {
		t.Fatalf("%v:\ncontent %q\ndeltas  %q", tokens, want, deltas)
	}
}

// contentText returns the text of the tokens that are content without doubt:
// from a <|message|> outside of content to the next special token.
func contentText(tokens []Token) string {
	var d Decoder
	var text []byte
	content, doubt := false, false
	for _, t := range tokens {
		_, special := SpecialName(t)
		switch {
		case t == TokenMessage:
			content, doubt = true, content || doubt
			if doubt {
				content = false
			}
		case special:
			content = false
			doubt = doubt || !isStop(t) && t != TokenStart && t != TokenChannel && t != TokenConstrain
		case content:
			text, _ = d.Append(text, t)
			continue
		}
		d.Flush(nil)
	}
	return strings.ReplaceAll(string(text), replacement, "")
}

// isSubsequence reports whether got contains the characters of want in order.
func isSubsequence(want, got string) bool {
	rest := []rune(got)
	for _, r := range want {
		for {
			if len(rest) == 0 {
				return false
			}
			next := rest[0]
			rest = rest[1:]
			if next == r {
				break
			}
		}
	}
	return true
}

// randomCompletion returns random tokens that resemble a completion.
func randomCompletion(r *rand.Rand) []Token {
	texts := []string{
		"Hello", " there", "assistant", "user", " to=functions.f", "to=", "final", "analysis", "commentary", " json", "{\"a\":1}", "\n", " ", "é中🙂",
		"<|channel|>final<|message|>", "<|end|><|start|>assistant", "<|channel|>", "<|start|>", "<|message|>", "<|constrain|>json", "<|end|>", "<|call|>",
		"<|return|>", "<|endoftext|>", "<|reserved_200000|>", "functions.f", "fi", "nal", "as", "sistant",
	}
	var tokens []Token
	for range r.IntN(16) {
		switch r.IntN(12) {
		case 0:
			tokens = append(tokens, []Token{31446, 244, 9552, 187, 160, 201089, 1 << 31}[r.IntN(7)])
		case 1:
			tokens = append(tokens, r.Uint32N(ordinaryTokens))
		default:
			tokens = AppendEncodeSpecial(tokens, texts[r.IntN(len(texts))])
		}
	}
	return tokens
}

// TestParserTolerantLosesNothing puts words between the pieces of completions, at random.
// Each stands in the text of a message, in the order of the output, or in a field of a
// header.
func TestParserTolerantLosesNothing(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"<|channel|>final", "<|channel|>analysis", "<|channel|>commentary", "<|message|>", "<|message|>", "<|start|>assistant", "<|start|>",
		"<|end|>", "<|end|><|start|>assistant", "<|return|>", "<|call|>", "<|constrain|>", " <|constrain|>json", "<|channel|>",
		" to=functions.f", " to=\"functions.f\"", "assistant", " json", " final", "\n", "<|endoftext|>",
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 50000 {
		var output strings.Builder
		var words []string
		fields := map[string]bool{} // words that can be a field of a header
		for range 1 + r.IntN(9) {
			piece := pieces[r.IntN(len(pieces))]
			if r.IntN(2) > 0 {
				output.WriteString(piece)
				continue
			}
			if len(words) > 0 && strings.HasSuffix(strings.TrimRight(output.String(), "!"), words[len(words)-1]) {
				output.WriteString(" ") // else both are one word
			}
			word := "Zq" + strings.Repeat(string(rune('b'+len(words))), 3) + "k"
			words = append(words, word)
			for _, before := range []string{"<|start|>", "<|channel|>", "<|constrain|>", "to="} { // one word is a field
				_, since, found := cutLast(output.String(), before)
				fields[word] = fields[word] || found && len(strings.Fields(since+"x")) == 1
			}
			for _, before := range []string{"to=functions.f\"", "to=functions.f", "to=functions.f json"} { // a type
				fields[word] = fields[word] || strings.HasSuffix(strings.TrimRight(output.String(), " \n"), before)
			}
			output.WriteString([]string{" ", ""}[r.IntN(2)] + word + []string{"", " ", "!"}[r.IntN(3)])
		}

		msgs, _ := Parse(Tolerant, RoleAssistant, AppendEncodeSpecial(nil, output.String()))
		var text, header strings.Builder
		for _, m := range msgs {
			text.WriteString(string(m.Content[0].(Text)))
			header.WriteString(m.Name + " " + m.Channel + " " + m.Recipient + " " + m.ContentType + " ")
		}
		for _, word := range words {
			if !strings.Contains(text.String(), word) && !strings.Contains(header.String(), word) && !fields[word] {
				t.Fatalf("%s: %s is lost\n%s", output.String(), word, messageLines(msgs))
			}
		}
	}
}

// cutLast splits s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(sep):], true
}

func TestParserTolerantRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := NewParser(Tolerant, RoleAssistant)
	for range 20000 {
		p.Reset([]Role{RoleAssistant, "", RoleTool}[r.IntN(3)])
		checkTolerant(t, p, randomCompletion(r))
	}
}

// TestParserTolerantBuffers repeats short sequences, as a client can have a model do by
// logit_bias. What may be a header is read again with each token, so that the parser must
// not collect much of it.
func TestParserTolerantBuffers(t *testing.T) {
	t.Parallel()
	spaces := AppendEncode(nil, strings.Repeat(" ", 128))
	if len(spaces) != 1 {
		t.Fatalf("128 spaces are %d tokens", len(spaces))
	}
	alphabet := append(spaces, TokenStart, TokenChannel, TokenConstrain, TokenMessage, TokenEnd, TokenCall, lastSpecial)
	for _, text := range []string{"analysis", "assistant", " to=", "f", "json", " "} {
		alphabet = append(alphabet, AppendEncode(nil, text)[0])
	}

	for _, before := range []string{"", "<|channel|>final<|message|>hi", "<|channel|>final<|message|>hi<|start|>assistant", "<|channel|>final<|message|>hi<|end|>"} {
		for _, first := range alphabet {
			for _, second := range alphabet {
				p := NewParser(Tolerant, RoleAssistant)
				for _, token := range AppendEncodeSpecial(nil, before) {
					_, _ = p.Push(token)
				}
				for i := range 3 * maxHeaderTokens {
					_, _ = p.Push([]Token{first, second}[i%2])
					unsure := p.state == stateProbe || p.state == StateHeader && !p.head.started && len(p.head.sections) == 1
					switch size := p.head.size(); {
					case p.state == stateProbe && size > maxProbeTokens, p.state == StateHeader && size > maxHeaderTokens,
						unsure && len(p.head.text) > maxUnsureBytes:
						t.Fatalf("after %q and %d of %d, %d: %d tokens of %d bytes are collected", before, i+1, first, second, size, len(p.head.text))
					}
				}
			}
		}
	}
}

// TestParseOfRender parses the output of the renderer.
func TestParseOfRender(t *testing.T) {
	msgs := []Message{
		{Role: RoleUser, Content: []Content{Text("Hi <|end|>")}},
		{Role: RoleAssistant, Channel: ChannelAnalysis, Content: []Content{Text("中 🙂")}},
		{Role: RoleAssistant, Channel: ChannelCommentary, Recipient: "functions.f", ContentType: "json", Content: []Content{Text(`{"a":1}`)}},
		{Role: RoleTool, Name: "functions.f", Channel: ChannelCommentary, Recipient: "assistant", Content: []Content{Text("r")}},
		{Role: RoleAssistant, Channel: ChannelFinal, Content: []Content{Text("")}},
	}
	tokens, err := NewRenderer(WithAnalysis(KeepAnalysis)).AppendConversation(nil, msgs)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{Strict, Permissive, Tolerant} {
		got, err := Parse(mode, "", tokens)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(msgs, got); diff != "" {
			t.Errorf("mode %d (-want +got):\n%s", mode, diff)
		}
	}
}

func FuzzParser(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		tokens := randomCompletion(r)
		b := make([]byte, 0, 3*len(tokens))
		for _, t := range tokens {
			b = append(b, byte(t), byte(t>>8), byte(t>>16))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var tokens []Token
		for ; len(b) >= 3; b = b[3:] {
			tokens = append(tokens, Token(b[0])|Token(b[1])<<8|Token(b[2])<<16)
		}
		for _, role := range []Role{RoleAssistant, ""} {
			checkTolerant(t, NewParser(Tolerant, role), tokens)
			for _, mode := range []Mode{Strict, Permissive} {
				p := NewParser(mode, role)
				for _, token := range tokens {
					events, _ := p.Push(token)
					for _, e := range events {
						if !utf8.Valid(e.Text) {
							t.Fatalf("mode %d, %v: text %q", mode, tokens, e.Text)
						}
					}
				}
				_, _ = p.Close()
			}
		}
	})
}
