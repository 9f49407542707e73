package turn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAppendAssistant(t *testing.T) {
	t.Parallel()
	user := Item{Kind: User, Text: "Hi"}
	think := func(text string) Item { return Item{Kind: Reasoning, Text: text} }
	answer := func(text string) Item { return Item{Kind: Answer, Text: text} }

	for _, c := range []struct {
		name   string
		before []Item
		text   string
		want   []Item
	}{
		{"plain text", nil, " a ", []Item{answer(" a ")}},
		{"no text", []Item{user}, "", []Item{user}},
		{"a block", []Item{user}, "<think>\nwhy\n</think>\n\na", []Item{user, think("why"), answer("a")}},
		{"white space before the block", nil, "\n <think>why</think>a ", []Item{think("why"), answer("a ")}},
		{"nothing but a block", nil, "<think>why</think>\n", []Item{think("why")}},
		{"an empty block", nil, "<think>\n\n</think>\n\na", []Item{answer("a")}},
		{"the step has reasoning", []Item{user, think("x")}, "<think>why</think>a", []Item{user, think("x"), answer("a")}},
		{"an earlier step has reasoning", []Item{think("x"), user}, "<think>why</think>a", []Item{think("x"), user, think("why"), answer("a")}},
		{"an earlier answer has reasoning", []Item{think("x"), answer("y")}, "<think>why</think>a", []Item{think("x"), answer("y"), think("why"), answer("a")}},
		{"a block that does not end", nil, "<think>why", []Item{answer("<think>why")}},
		{"a block inside", nil, "a <think>why</think>", []Item{answer("a <think>why</think>")}},
		{"a second block", nil, "<think>why</think><think>how</think>a", []Item{think("why"), answer("<think>how</think>a")}},
	} {
		if diff := cmp.Diff(c.want, AppendAssistant(c.before, answer(c.text))); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}
