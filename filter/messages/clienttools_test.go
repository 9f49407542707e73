package messages

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// clientKinds are all types of tools that the client runs, with what the model sees of each.
var clientKinds = map[string][]string{
	"bash_20241022":        {"type bash = (_:", "command?: string", "restart?: boolean"},
	"bash_20250124":        {"type bash = (_:", "command?: string", "restart?: boolean"},
	"text_editor_20241022": {"type str_replace_editor = (_:", `"undo_edit"`, "new_str?: string"},
	"text_editor_20250124": {"type str_replace_editor = (_:", `"undo_edit"`, "new_str?: string"},
	"text_editor_20250429": {"type str_replace_based_edit_tool = (_:", "insert_text?: string"},
	"text_editor_20250728": {"type str_replace_based_edit_tool = (_:", "insert_text?: string"},
	"memory_20250818":      {"type memory = (_:", `"rename"`, "old_path?: string"},
	"computer_20241022":    {"type computer = (_:", `"cursor_position"`, "coordinate?: number[]"},
	"computer_20250124":    {"type computer = (_:", `"triple_click"`, "scroll_amount?: number"},
	"computer_20251124":    {"type computer = (_:", `"triple_click"`, "scroll_amount?: number"},
	// A version that is newer than this code.
	"bash_20301231": {"type bash = (_:", "restart?: boolean"},
}

// TestClientTools shows that tools which the client runs are functions, of all versions,
// although the request has no parameters of them.
func TestClientTools(t *testing.T) {
	t.Parallel()
	for kind, want := range clientKinds {
		request := mustDecode(t, ask(`,"tools":[{"type":"`+kind+`"}]`))
		if ignored := request.Ignored(); len(ignored) > 0 {
			t.Errorf("%s: ignored %v", kind, ignored)
		}
		shown := prompt(t, ask(`,"tools":[{"type":"`+kind+`"}]`))
		for _, part := range want {
			if !strings.Contains(shown, part) {
				t.Errorf("%s: the prompt has no %q:\n%s", kind, part, shown)
			}
		}
	}

	for name, c := range map[string]struct {
		tool      string
		has, lack []string
	}{
		"a schema of the request's own": {
			`{"type":"bash_20250124","name":"bash","description":"D.","input_schema":{"type":"object","properties":{"cmd":{"type":"string"}}}}`,
			[]string{"// D.\ntype bash = (_:", "cmd?: string"},
			[]string{"restart"},
		},
		"an unknown type with a schema": {
			`{"type":"robot_20260101","name":"robot","input_schema":{"type":"object","properties":{"arm":{"type":"integer"}}}}`,
			[]string{"type robot = (_:", "arm?: number"},
			nil,
		},
		"a screen": {
			`{"type":"computer_20251124","name":"computer","display_width_px":1024,"display_height_px":768,"display_number":0,"enable_zoom":true}`,
			[]string{"1024 x 768 pixels", "display is :0", `"zoom"`, "region?: number[]"},
			nil,
		},
		"a screen without zoom": {
			`{"type":"computer_20251124","name":"computer","display_width_px":1024,"display_height_px":768,"display_number":null}`,
			[]string{"1024 x 768 pixels", `"scroll"`},
			[]string{"zoom", "region", "display is"},
		},
		"an old screen": {`{"type":"computer_20241022","enable_zoom":true}`, nil, []string{`"scroll"`, "zoom", "start_coordinate"}},
		"views with a limit": {
			`{"type":"text_editor_20250728","name":"str_replace_based_edit_tool","max_characters":10000}`,
			[]string{"at most 10000 characters"},
			[]string{"undo_edit"},
		},
		"another name": {`{"type":"memory_20250818","name":"notes"}`, []string{"type notes = (_:"}, []string{"type memory"}},
	} {
		shown := prompt(t, ask(`,"tools":[`+c.tool+`]`))
		for _, part := range c.has {
			if !strings.Contains(shown, part) {
				t.Errorf("%s: the prompt has no %q:\n%s", name, part, shown)
			}
		}
		for _, part := range c.lack {
			if strings.Contains(shown, part) {
				t.Errorf("%s: the prompt has %q:\n%s", name, part, shown)
			}
		}
	}
}

// TestClientToolTurns shows that a call of such a tool is the client's, that it can be
// demanded, deferred and strict, and that its result is the model's.
func TestClientToolTurns(t *testing.T) {
	t.Parallel()
	const bash = `,"tools":[{"type":"bash_20250124","name":"bash"}]`
	request := mustDecode(t, ask(bash+`,"tool_choice":{"type":"tool","name":"bash"}`))
	reply := answer(t, request, `<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{"command":"ls"}<|call|>`, engine.FinishStop)
	block := gjson.Get(reply, "content.0")
	if block.Get("type").Str != "tool_use" || block.Get("name").Str != "bash" || block.Get("input.command").Str != "ls" || gjson.Get(reply, "stop_reason").Str != "tool_use" {
		t.Errorf("the reply is %s", reply)
	}

	later := prompt(t, conversation(userHi+`,{"role":"assistant","content":[`+block.Raw+`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+block.Get("id").Str+`","content":"a.txt"}]}`, bash))
	if !strings.Contains(later, `to=functions.bash<|channel|>commentary json<|message|>{"command":"ls"}<|call|>`) || !strings.Contains(later, "a.txt") {
		t.Errorf("the next prompt is\n%s", later)
	}

	deferred := `,"tools":[{"type":"bash_20250124","name":"bash","defer_loading":true},{"name":"f","input_schema":{}}]`
	if shown := prompt(t, ask(deferred)); strings.Contains(shown, "bash") {
		t.Errorf("a deferred tool is shown:\n%s", shown)
	}
	strict := mustDecode(t, ask(`,"tools":[{"type":"bash_20250124","name":"bash","strict":true}]`))
	if strict.Engine().Constraint == nil {
		t.Error("a strict tool has no grammar")
	}
}

// TestOtherTypes shows that types which only look like those of clients' tools stay what they
// are: tools that run elsewhere.
func TestOtherTypes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"bash_code_execution_20250825", "bash", "bash_2025", "web_fetch_20250910", "memory_x0250818", "_20250101"} {
		if ignored := mustDecode(t, ask(`,"tools":[{"type":"`+kind+`","name":"x"}]`)).Ignored(); !slices.Equal(ignored, []string{"tools." + kind}) {
			t.Errorf("%s: ignored %v", kind, ignored)
		}
	}
}

// TestClientToolsets shows that the members of a toolset are a namespace, and that their calls
// name it.
func TestClientToolsets(t *testing.T) {
	t.Parallel()
	const computer = `{"type":"computer_toolset_20260801","configs":{"zoom":{"enabled":false},"wait":null,"key":{}}}`
	const browser = `{"type":"browser_toolset_20260801"}`
	for _, c := range []struct{ tools, has, lacks string }{
		{computer, "type left_click = (_: {\ncoordinate?: number[],\ntext?: string,\n})", "type zoom"},
		{computer, "namespace computer {", "namespace functions"},
		{browser, "namespace browser_ {", ""},
		{browser, "type navigate = (_: {\nurl: string,\ntab_id?: string,\n})", ""},
		{browser, "type javascript_exec =", ""},
		{computer + "," + browser + `,{"name":"f","input_schema":{}}`, "type f =", ""},
	} {
		if shown := prompt(t, ask(`,"tools":[`+c.tools+`]`)); !strings.Contains(shown, c.has) || c.lacks != "" && strings.Contains(shown, c.lacks) {
			t.Errorf("%s: the prompt has no %q, or has %q:\n%s", c.tools, c.has, c.lacks, shown)
		}
	}

	for family, tool := range map[string]string{"computer": computer, "browser": browser} {
		space := map[string]string{"computer": "computer", "browser": "browser_"}[family]
		tools := `,"tools":[` + tool + `]`
		call := `<|channel|>commentary to=` + space + `.left_click <|constrain|>json<|message|>{"text":"ctrl"}<|call|>`
		reply := answer(t, mustDecode(t, ask(tools)), call, engine.FinishStop)
		block := gjson.Get(reply, "content.0")
		if block.Get("type").Str != "tool_use" || block.Get("name").Str != "left_click" || block.Get("toolset_name").Str != family {
			t.Errorf("%s: the reply is %s", family, reply)
		}
		later := prompt(t, conversation(userHi+`,{"role":"assistant","content":[`+block.Raw+`]},{"role":"user","content":[{"type":"tool_result","toolset_name":"`+family+`","tool_use_id":"`+block.Get("id").Str+`","content":"ok"}]}`, tools))
		if !strings.Contains(later, "to="+space+".left_click<|channel|>commentary") || !strings.Contains(later, "<|start|>"+space+".left_click to=assistant") {
			t.Errorf("%s: the next prompt is\n%s", family, later)
		}
	}

	// Members are named as their calls name them; a function of the client comes first.
	const mine = `{"name":"left_click","input_schema":{}}`
	for _, c := range []struct{ tools, name, allowed string }{
		{computer, "left_click", "computer.left_click"},
		{computer + "," + browser, "left_click", "computer.left_click browser_.left_click"},
		{computer + "," + browser, "navigate", "browser_.navigate"},
		{computer + "," + mine, "left_click", "functions.left_click"},
	} {
		rest := `,"tools":[` + c.tools + `]`
		request := mustDecode(t, ask(rest+`,"tool_choice":{"type":"tool","name":"`+c.name+`"}`))
		tag := string(constraint.AppendStructuralTag(nil, request.Engine().Constraint))
		for _, tool := range []string{"functions.left_click", "computer.left_click", "browser_.left_click", "browser_.navigate", "computer.key"} {
			if want := strings.Contains(" "+c.allowed+" ", " "+tool+" "); strings.Contains(tag, "to="+tool) != want {
				t.Errorf("%s of %s: may call %s: %v, in %s", c.name, c.tools, tool, !want, tag)
			}
		}

		gone := conversation(userHi+`,{"role":"system","content":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"`+c.name+`"}}]},`+userHi, rest)
		told := "do not call them: " + strings.ReplaceAll(c.allowed, " ", ", ") + "<|end|>"
		if shown := prompt(t, gone); !strings.Contains(shown, told) {
			t.Errorf("%s of %s is gone:\n%s", c.name, c.tools, shown)
		}
	}
	if _, err := newAPI(t, 1).Decode(context.Background(), []byte(ask(`,"tools":[`+computer+`],"tool_choice":{"type":"tool","name":"zoom"}`)), apitest.NewContext()); err == nil || err.Param != "tool_choice" {
		t.Errorf("a member that is off: %v", err)
	}

	for _, c := range []struct{ tools, param string }{
		{computer + "," + computer, "tools[1]"},
		{`{"type":"computer_toolset_20260801","configs":{"fly":{"enabled":true}}}`, "tools[0].configs"},
		{`{"type":"computer_toolset_20260801","configs":{"zoom":{"enabled":1}}}`, "tools[0].configs.enabled"},
	} {
		if _, err := newAPI(t, 1).Decode(context.Background(), []byte(ask(`,"tools":[`+c.tools+`]`)), apitest.NewContext()); err == nil || err.Param != c.param {
			t.Errorf("%s: %v", c.tools, err)
		}
	}
}
