package replies

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// patchGrammar is the grammar that Codex sends with its tool apply_patch.
const patchGrammar = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
`

func grammarTool(name, syntax, definition string) stack.Object {
	return stack.Object{"type": "custom", "name": name, "format": stack.Object{"type": "grammar", "syntax": syntax, "definition": definition}}
}

// The engine enforces the grammars of custom tools: a call that follows one is as the
// model writes it, another one becomes one that does. Answers stay free.
func TestToolGrammars(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.CheckedOpenAI(t)
	tools := stack.Object{"tools": []stack.Object{
		grammarTool("apply_patch", "lark", patchGrammar),
		grammarTool("ticket", "regex", `^[a-z]{3}-"?\d+$`),
		responseTool("f", true),
		grammarTool("lookahead", "regex", `(?=a)b`), // cannot be enforced
	}}

	custom := func(name, text string) stack.Item {
		return stack.Item{Type: "custom_tool_call", Status: "completed", Name: name, Text: text}
	}
	const patch = "*** Begin Patch\n*** Update File: a \"b\".txt\n@@ func\n-\told\\\n+new ü\n*** End of File\n*** End Patch\n"

	for _, tt := range []struct {
		name, text string
		want       stack.Item
	}{
		{"patch", `CALL apply_patch {"input":` + strconv.Quote(patch) + "}", custom("apply_patch", patch)},
		{"no patch", `CALL apply_patch {"input":"*** Begin Patch\nold"}`, custom("apply_patch", "*** Begin Patch\n*** Add File:  \n+\n*** End Patch")},
		{"match", `CALL ticket {"input":"abc-\"12"}`, custom("ticket", `abc-"12`)},
		{"no match", `CALL ticket {"input":"abcd-12"}`, custom("ticket", "aaa-0")},
		{"strict function", `CALL f {"n":"one"}`, stack.Item{Type: "function_call", Status: "completed", Name: "f", Text: `{"n": 1}`}},
		{"unenforceable", `CALL lookahead {"input":"zzz"}`, custom("lookahead", "zzz")},
		{"answer", "SAY hello", stack.Item{Type: "message", Status: "completed", Phase: "final_answer", Text: "hello"}},
	} {
		for _, model := range stack.HarmonyModels {
			for name, respond := range stack.Responders {
				t.Run(tt.name+"/"+model+"/"+name, func(t *testing.T) {
					r := respond(t, c, stack.Asking(model, "THINK Hm.\n"+tt.text), stack.SetFields(tools)...)
					if diff := gocmp.Diff([]stack.Item{{Type: "reasoning", Status: "completed", Text: "Hm."}, tt.want}, stack.ItemsOf(r)); diff != "" {
						t.Errorf("items (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// A malformed grammar is refused, with the place of the fault.
func TestToolGrammarMalformed(t *testing.T) {
	c := stack.Start(t, stack.Options{}).Openai()
	for definition, want := range map[string]string{"start: \"a\"\n  b": "line 2, column 4", "start: word": "line 1, column 8"} {
		tools := []stack.Object{grammarTool("g", "lark", definition)}
		_, err := c.Responses.New(t.Context(), stack.Asking(stack.HarmonyModels[0], "SAY hello"), option.WithJSONSet("tools", tools))
		stack.WantStatus(t, err, http.StatusBadRequest)
		var fault *openai.Error
		if !errors.As(err, &fault) || !strings.Contains(fault.Message, want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
