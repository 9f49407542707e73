package filter

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// histories generate the histories of each API, with texts wherever one may stand. Two of one seed differ
// in their texts alone.
var histories = map[string]func(rng *rand.Rand, text func() string) object{
	"/v1/chat/completions": func(rng *rand.Rand, text func() string) object {
		content := func() any {
			if rng.IntN(2) == 0 {
				return text()
			}
			return []any{object{"type": "text", "text": text()}, object{"type": "text", "text": text()}}
		}
		messages := []any{object{"role": "system", "content": content()}}
		for range rng.IntN(8) {
			switch rng.IntN(5) {
			case 0:
				messages = append(messages, object{"role": "developer", "content": content()})
			case 1:
				messages = append(messages, object{"role": "user", "content": content()})
			case 2:
				messages = append(messages, object{"role": "assistant", "reasoning": text(), "content": content()})
			case 3:
				messages = append(messages, object{"role": "assistant", "content": content(), "refusal": text()})
			case 4:
				messages = append(messages,
					object{"role": "assistant", "reasoning_content": text(), "content": content(), "tool_calls": []any{
						object{"id": "c", "type": "function", "function": object{"name": "read", "arguments": "{}"}},
					}},
					object{"role": "tool", "tool_call_id": "c", "content": " "})
			}
		}
		return object{"messages": append(messages, object{"role": "user", "content": content()})}
	},
	"/v1/responses": func(rng *rand.Rand, text func() string) object {
		message := func(role, kind string) object {
			if rng.IntN(2) == 0 {
				return object{"type": "message", "role": role, "content": text()}
			}
			return object{"type": "message", "role": role, "content": []any{object{"type": kind, "text": text()}, object{"type": kind, "text": text()}}}
		}
		items := []any{}
		for range rng.IntN(8) {
			switch rng.IntN(6) {
			case 0:
				items = append(items, message([]string{"developer", "system"}[rng.IntN(2)], "input_text"))
			case 1:
				items = append(items, message("user", "input_text"))
			case 2:
				said := message("assistant", "output_text")
				said["phase"] = []any{"commentary", "final_answer", nil}[rng.IntN(3)]
				items = append(items, said)
			case 3:
				items = append(items, object{"type": "reasoning", "summary": []any{}, "content": []any{object{"type": "reasoning_text", "text": text()}}})
			case 4:
				items = append(items, object{"type": "reasoning", "summary": []any{object{"type": "summary_text", "text": text()}}})
			case 5:
				items = append(items,
					object{"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
					object{"type": "function_call_output", "call_id": "c", "output": " "})
			}
		}
		return object{"instructions": text(), "input": append(items, message("user", "input_text")), "store": false}
	},
	"/v1/messages": func(rng *rand.Rand, text func() string) object {
		content := func() any {
			if rng.IntN(2) == 0 {
				return text()
			}
			return []any{object{"type": "text", "text": text()}, object{"type": "text", "text": text()}}
		}
		messages := []any{object{"role": "user", "content": content()}}
		for range rng.IntN(6) {
			switch rng.IntN(3) {
			case 0:
				messages = append(messages, object{"role": "user", "content": content()})
			case 1:
				messages = append(messages, object{"role": "assistant", "content": []any{
					object{"type": "thinking", "thinking": text(), "signature": ""}, object{"type": "text", "text": text()},
				}})
			case 2:
				messages = append(messages,
					object{"role": "assistant", "content": []any{
						object{"type": "thinking", "thinking": text(), "signature": ""},
						object{"type": "text", "text": text()},
						object{"type": "tool_use", "id": "toolu_c", "name": "read", "input": object{}},
					}},
					object{"role": "user", "content": []any{
						object{"type": "tool_result", "tool_use_id": "toolu_c", "content": " "}, object{"type": "text", "text": text()},
					}})
			}
		}
		return object{
			"max_tokens": 100, "system": []any{object{"type": "text", "text": text()}, object{"type": "text", "text": text()}},
			"messages": append(messages, object{"role": "user", "content": content()}),
		}
	},
}

var emptyMessage = regexp.MustCompile(`^[^<]*(<\|channel\|>\w+)?<\|message\|>(# Instructions)?\s*(<\|end\|>|# Tools|$)`)

// TestWhiteSpaceAlone shows that a text of white space alone is no message, and that the prompt is the same
// as with an empty one. Outputs of tools stay as they are.
func TestWhiteSpaceAlone(t *testing.T) {
	t.Parallel()
	e, s := startSessions(t)
	e.output = harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>ok<|return|>")
	spaces := []string{" ", "\n", " \t\n ", "\u00a0", "\u2003\r\n"}

	for path, history := range histories {
		blank := 0
		for seed := range uint64(150) {
			prompt := func(space func(rng *rand.Rand) string) string {
				texts, words := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
				body := history(rand.New(rand.NewPCG(seed, 3)), func() string {
					if texts.IntN(2) == 0 {
						blank++
						return space(words)
					}
					return "words"
				})
				body["model"] = "gpt-oss-exact"
				encoded, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				x := ask(t, s, path, string(encoded), nil)
				if gjson.GetBytes(x.body.Bytes(), "error").IsObject() {
					t.Fatalf("%s\n%s", encoded, &x.body)
				}
				text, _ := harmony.AppendDecode(nil, e.prompt)
				return string(text)
			}

			got := prompt(func(rng *rand.Rand) string { return spaces[rng.IntN(len(spaces))] })
			for message := range strings.SplitSeq(got, "<|start|>") {
				if emptyMessage.MatchString(message) && !strings.Contains(message, "to=assistant") {
					t.Fatalf("%s: %q is empty in\n%s", path, message, got)
				}
			}
			// Beside other parts of a message white space stays.
			bare := func(text string) string { return strings.Join(strings.Fields(text), "") }
			if want := prompt(func(*rand.Rand) string { return "" }); bare(got) != bare(want) {
				t.Fatalf("%s: the prompt is\n%s\nwith empty texts\n%s", path, got, want)
			}
		}
		if blank < 300 {
			t.Errorf("%s: only %d texts are white space", path, blank)
		}
	}
}
