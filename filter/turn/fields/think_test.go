package fields

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

func TestAppendAssistant(t *testing.T) {
	t.Parallel()
	user := item.Item{Kind: item.User, Text: "Hi"}
	think := func(text string) item.Item { return item.Item{Kind: item.Reasoning, Text: text} }
	answer := func(text string) item.Item { return item.Item{Kind: item.Answer, Text: text} }

	for _, c := range []struct {
		name   string
		before []item.Item
		text   string
		want   []item.Item
	}{
		{"plain text", nil, " a ", []item.Item{answer(" a ")}},
		{"no text", []item.Item{user}, "", []item.Item{user}},
		{"a block", []item.Item{user}, "<think>\nwhy\n</think>\n\na", []item.Item{user, think("why"), answer("a")}},
		{"white space before the block", nil, "\n <think>why</think>a ", []item.Item{think("why"), answer("a ")}},
		{"nothing but a block", nil, "<think>why</think>\n", []item.Item{think("why")}},
		{"an empty block", nil, "<think>\n\n</think>\n\na", []item.Item{answer("a")}},
		{"the step has reasoning", []item.Item{user, think("x")}, "<think>why</think>a", []item.Item{user, think("x"), answer("a")}},
		{"an earlier step has reasoning", []item.Item{think("x"), user}, "<think>why</think>a", []item.Item{think("x"), user, think("why"), answer("a")}},
		{"an earlier answer has reasoning", []item.Item{think("x"), answer("y")}, "<think>why</think>a", []item.Item{think("x"), answer("y"), think("why"), answer("a")}},
		{"a block that does not end", nil, "<think>why", []item.Item{answer("<think>why")}},
		{"a block inside", nil, "a <think>why</think>", []item.Item{answer("a <think>why</think>")}},
		{"a second block", nil, "<think>why</think><think>how</think>a", []item.Item{think("why"), answer("<think>how</think>a")}},
	} {
		if diff := cmp.Diff(c.want, AppendAssistant(c.before, answer(c.text))); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}
