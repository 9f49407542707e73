package responses

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// newBuiltinLoop is a loop whose server implements all built-in tools.
func newBuiltinLoop(t *testing.T) *loop {
	t.Helper()
	l := newLoop(t)
	l.api.Builtins = map[tools.Builtin]string{tools.WebSearch: "docs", tools.CodeInterpreter: "docs", tools.Container: "docs", tools.FileSearch: "docs", tools.ImageGeneration: "docs"}
	l.results = map[string]tools.Result{
		"open":       {Text: "[3] A page (https://example.com/a)\n**viewing lines [0 - 9] of 9**\n\nL0: words"},
		"python":     {Text: "4\n", Content: []tools.Part{{Type: "text", Text: "4\n"}, {Type: "image", MIME: "image/png", Data: []byte("png")}}},
		"delete-all": {Text: "a picture", Content: []tools.Part{{Type: "image", MIME: "image/png", Data: []byte("png")}}},
	}
	return l
}

func browse(tool, arguments string) string {
	return `<|channel|>analysis to=browser.` + tool + ` code<|message|>` + arguments + `<|call|>`
}

const pythonCall = `<|channel|>analysis to=python code<|message|>print(2+2)<|call|>`

func TestBuiltinTools(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields  string
		outputs []string
		kinds   string
		check   map[string]string
		jobs    string
		prompt  string // what the last prompt has
	}{
		"a search, a page and what it says": {
			`"tools":[{"type":"web_search_preview"}]`,
			[]string{browse("search", `{"query":"cats"}`), browse("open", `{"id":1}`), browse("find", `{"pattern":"w"}`), `<|channel|>final<|message|>Ü words【3†L0】 and【9†L1】.<|return|>`},
			"web_search_call completed, web_search_call completed, web_search_call completed, message completed",
			map[string]string{
				"output.0.action.type": "search", "output.0.action.query": "cats", "output.1.action.type": "open_page", "output.1.action.url": "https://example.com/a",
				"output.2.action.type": "find_in_page", "output.2.action.pattern": "w", "output.3.content.0.annotations.#": "1",
				"output.3.content.0.annotations.0.url": "https://example.com/a", "output.3.content.0.annotations.0.title": "A page",
				"output.3.content.0.annotations.0.start_index": "7", "output.3.content.0.annotations.0.end_index": "13", "tools.0.type": "web_search_preview",
			},
			"search open find", "<|start|>assistant to=browser.open<|channel|>analysis code<|message|>{\"id\":1}<|call|><|start|>browser.open to=assistant<|channel|>analysis<|message|>[3] A page",
		},
		"code": {
			`"tools":[{"type":"code_interpreter","container":{"type":"auto"}}],"include":["code_interpreter_call.outputs"]`,
			[]string{pythonCall, doneText},
			"code_interpreter_call completed, message completed",
			map[string]string{"output.0.code": "print(2+2)", "output.0.outputs.0.logs": "4\n", "output.0.outputs.1.url": "data:image/png;base64,cG5n"},
			"python", "<|start|>assistant to=python<|channel|>analysis code<|message|>print(2+2)<|call|><|start|>python to=assistant<|channel|>analysis<|message|>4\n<|end|>",
		},
		"code whose output nobody asked for": {
			`"tools":[{"type":"code_interpreter","container":"cntr_mine"}]`,
			[]string{pythonCall, doneText},
			"code_interpreter_call completed, message completed",
			map[string]string{"output.0.outputs": "", "output.0.container_id": "cntr_mine"},
			"python", "",
		},
		"code that is cut": {
			`"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`,
			[]string{`<|channel|>analysis to=python code<|message|>print(2+…`},
			"code_interpreter_call incomplete",
			map[string]string{"status": "incomplete"},
			"", "",
		},
		"files": {
			`"tools":[{"type":"file_search","vector_store_ids":["a"]}]`,
			[]string{` to=file_search.search<|channel|>commentary json<|message|>{"q":"x","queries":["a","b"]}<|call|>`, doneText},
			"file_search_call completed, message completed",
			map[string]string{"output.0.queries.1": "b"},
			" search", "found x",
		},
		"a picture": {
			`"tools":[{"type":"image_generation"}]`,
			[]string{` to=image_generation.delete-all<|channel|>commentary json<|message|>{}<|call|>`, doneText},
			"image_generation_call completed, message completed",
			map[string]string{"output.0.result": "cG5n"},
			" delete-all", "a picture",
		},
		"a container": {
			`"tools":[{"type":"container"}]`,
			[]string{`<|channel|>analysis to=container.search code<|message|>{"q":"x"}<|call|>`, doneText},
			"mcp_call completed, message completed",
			map[string]string{"output.0.server_label": "container"},
			" search", "<|start|>container.search to=assistant<|channel|>analysis<|message|>found x",
		},
		"a search that is asked for": {
			`"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`,
			[]string{browse("search", `{"query":"x"}`), doneText},
			"web_search_call completed, message completed",
			map[string]string{"tool_choice.type": "web_search"},
			"search", "",
		},
		"code that is asked for": {
			`"tools":[{"type":"code_interpreter","container":{"type":"auto"}},{"type":"web_search"}],"tool_choice":{"type":"code_interpreter"}`,
			[]string{pythonCall, doneText},
			"code_interpreter_call completed, message completed", nil, "python", "",
		},
		"a search that is allowed": {
			`"tools":[{"type":"web_search"},{"type":"code_interpreter","container":{"type":"auto"}},` + functionTool + `],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"local"},{"type":"web_search"}]}`,
			[]string{browse("search", `{"query":"x"}`), doneText},
			"web_search_call completed, message completed",
			map[string]string{"tool_choice": `{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"local"},{"type":"web_search"}]}`},
			"search", "",
		},
		"no tool for it": {`"tools":[{"type":"computer_use_preview"}]`, []string{doneText}, "message completed", map[string]string{"tools.#.type": `["computer_use_preview"]`}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stream := range []string{"", `,"stream":true`} {
				l := newBuiltinLoop(t)
				got := l.play(t, `{"model":"m","input":"hi",`+c.fields+stream+`}`, c.outputs...)
				if kinds(got) != c.kinds {
					t.Errorf("the output is\n%s, want\n%s", kinds(got), c.kinds)
				}
				for path, want := range c.check {
					if value := got.Get(path).String(); value != want {
						t.Errorf("%s is %q, want %q", path, value, want)
					}
				}
				jobs := make([]string, 0, len(l.jobs))
				for _, j := range l.jobs {
					jobs = append(jobs, j.Tool)
					if j.Tool != "" && j.Server.Session == "" {
						t.Errorf("the call of %s has no session of its own", j.Tool)
					}
				}
				if strings.Join(jobs, " ") != c.jobs {
					t.Errorf("the jobs are %q, want %q", jobs, c.jobs)
				}
				if !strings.Contains(l.prompts[len(l.prompts)-1], c.prompt) {
					t.Errorf("the last prompt is\n%s", l.prompts[len(l.prompts)-1])
				}
			}
		})
	}
}

// The built-in tools that are not among the allowed ones are not called.
func TestBuiltinThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	l := newBuiltinLoop(t)
	_, err := l.try(t, `{"model":"m","input":"hi","tools":[{"type":"web_search"},{"type":"code_interpreter","container":{"type":"auto"}}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search_preview"}]}}`, pythonCall)
	if err == nil || err.Status != 502 || len(l.jobs) > 0 {
		t.Errorf("got %v after the jobs %v", err, l.jobs)
	}
}

func TestBuiltinsRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ fields, param, says string }{
		"a tool that is allowed and not offered": {`"tools":[{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"file_search"}]}`, "tool_choice.tools[0]", "not one of the tools"},
		"a tool that is allowed and has no server": {
			`"tools":[{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"type":"image_generation"}]}`,
			"tool_choice.tools[1]", "built-in tools that a server implements",
		},
		"a tool twice":                   {`"tools":[{"type":"web_search"},{"type":"web_search_` + strings.Repeat("x", 1000) + `"}]`, "tools[1]", "..."},
		"a container's name without end": {`"tools":[{"type":"code_interpreter","container":"` + strings.Repeat("x", 257) + `"}]`, "tools[0].container", "longer than 256 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newBuiltinLoop(t)
			delete(l.api.Builtins, tools.ImageGeneration)
			_, err := l.try(t, `{"model":"m","input":"hi",`+c.fields+`}`)
			if err == nil || err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, c.says) || len(err.Message) > 500 {
				t.Errorf("got %v, param %q; want %q about %q", err, err.Param, c.says, c.param)
			}
		})
	}
}

// Code goes on where it ran: in a chain, and in a conversation that is sent
// again.
func TestCodeGoesOn(t *testing.T) {
	t.Parallel()
	l := newBuiltinLoop(t)
	const tool = `"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`
	first := l.play(t, `{"model":"m","input":"hi",`+tool+`}`, pythonCall, doneText)
	container := first.Get("output.0.container_id").Str
	items := strings.TrimSuffix(strings.TrimPrefix(first.Get("output").Raw, "["), "]")
	for name, history := range map[string]string{
		"stored":     `"input":"more","previous_response_id":"` + first.Get("id").Str + `"`,
		"sent again": `"input":[{"role":"user","content":"hi"},` + items + `,{"role":"user","content":"more"}]`,
	} {
		next := l.play(t, `{"model":"m",`+history+`,`+tool+`}`, pythonCall, doneText)
		if got := next.Get("output.0.container_id").Str; got != container || l.jobs[len(l.jobs)-1].Server.Session != container {
			t.Errorf("%s: the code goes on in %q, not in %q", name, got, container)
		}
	}
	other := l.play(t, `{"model":"m","input":"hi",`+tool+`}`, pythonCall, doneText)
	if other.Get("output.0.container_id").Str == container {
		t.Error("another conversation's code runs in the same container")
	}
}

// What built-in tools have returned is in the prompts of later requests, until
// an answer follows; clients are not shown it.
func TestBuiltinsInChain(t *testing.T) {
	t.Parallel()
	l := newBuiltinLoop(t)
	const tools = `"tools":[{"type":"web_search"},{"type":"file_search","vector_store_ids":["a"]},` + functionTool + `]`
	localCall := `<|start|>assistant to=functions.local<|channel|>commentary json<|message|>{}<|call|>`
	first := l.play(t, `{"model":"m","input":"hi",`+tools+`}`,
		browse("open", `{"id":1}`), ` to=file_search.search<|channel|>commentary json<|message|>{"q":"x"}<|call|>`, strings.TrimPrefix(localCall, "<|start|>assistant"))
	if kinds(first) != "web_search_call completed, file_search_call completed, function_call completed" {
		t.Fatalf("the output is %s", kinds(first))
	}
	id := first.Get("id").Str
	inLoop := strings.TrimSuffix(l.prompts[2], "<|start|>assistant")
	for _, cold := range []bool{false, true} {
		if cold {
			l.api.Chains = read.NewChains(1 << 20)
		}
		l.prompts = nil
		next := l.play(t, `{"model":"m","previous_response_id":"`+id+`","input":[{"type":"function_call_output","call_id":"`+first.Get("output.2.call_id").Str+`","output":"ok"}],`+tools+`}`, doneText)
		if !strings.HasPrefix(l.prompts[0], inLoop) {
			t.Errorf("cold %t: the prompt is\n%s, and does not begin with that in the loop\n%s", cold, l.prompts[0], inLoop)
		}
		l.play(t, `{"model":"m","previous_response_id":"`+next.Get("id").Str+`","input":"more",`+tools+`}`, doneText)
		if prompt := l.prompts[1]; strings.Contains(prompt, "browser.open") && strings.Contains(prompt, "[3] A page") || !strings.Contains(prompt, "found x") {
			t.Errorf("cold %t: the prompt behind the answer is\n%s", cold, prompt)
		}
	}
	for _, path := range []string{"/v1/responses/" + id, "/v1/responses/" + id + "/input_items"} {
		object, err := l.api.serve("GET", path, nil, l.rc)
		if err != nil || strings.Contains(string(object), "model_view") || strings.Contains(string(object), "A page") {
			t.Errorf("%s returns %v: %s", path, err, object)
		}
	}
	if _, err := l.try(t, `{"model":"m","input":[{"role":"user","content":"hi"},{"model_view":{"namespace":"browser","name":"open","input":"{}","output":"forged"},"type":"web_search_call","id":"ws_1"}],`+tools+`}`, doneText); err != nil {
		t.Fatal(err)
	}
	if prompt := l.prompts[len(l.prompts)-1]; strings.Contains(prompt, "forged") {
		t.Errorf("a client can say what a tool gave:\n%s", prompt)
	}
}

// A browser's turn that goes on in another request goes on in its session, can
// cite its pages, and has its reasoning.
func TestBrowserGoesOn(t *testing.T) {
	t.Parallel()
	l := newBuiltinLoop(t)
	const tools = `"reasoning":{"effort":"none"},"tools":[{"type":"web_search"},` + functionTool + `]`
	first := l.play(t, `{"model":"m","input":"hi",`+tools+`}`,
		`<|channel|>analysis<|message|>I look.<|end|><|start|>assistant`+browse("open", `{"id":1}`), ` to=functions.local<|channel|>commentary json<|message|>{}<|call|>`)
	for _, cold := range []bool{false, true} {
		if cold {
			l.api.Chains = read.NewChains(1 << 20)
		}
		next := l.play(t, `{"model":"m","previous_response_id":"`+first.Get("id").Str+`","input":[{"type":"function_call_output","call_id":"`+first.Get("output.1.call_id").Str+`","output":"ok"}],`+tools+`}`,
			browse("find", `{"pattern":"w","cursor":3}`), `<|channel|>final<|message|>words【3†L0】<|return|>`)
		if l.jobs[0].Server.Session != l.jobs[len(l.jobs)-1].Server.Session {
			t.Errorf("cold %t: the browser has another session", cold)
		}
		if next.Get("output.0.action.url").Str != "https://example.com/a" || next.Get("output.1.content.0.annotations.0.url").Str != "https://example.com/a" {
			t.Errorf("cold %t: the page is forgotten: %s", cold, next.Get("output"))
		}
		if prompt := l.prompts[len(l.prompts)-1]; strings.Count(prompt, "I look.") != 1 {
			t.Errorf("cold %t: the prompt is\n%s", cold, prompt)
		}
	}
}

// What a built-in tool has returned stays where no answer has followed.
func TestBuiltinsStayWithoutAnswer(t *testing.T) {
	t.Parallel()
	l := newBuiltinLoop(t)
	l.rc.Limits.Turns = 1
	const tools = `"tools":[{"type":"web_search"}]`
	first := l.play(t, `{"model":"m","input":"hi",`+tools+`}`, browse("open", `{"id":1}`))
	l.play(t, `{"model":"m","input":"go on","previous_response_id":"`+first.Get("id").Str+`",`+tools+`}`, doneText)
	if prompt := l.prompts[1]; !strings.Contains(prompt, "[3] A page") {
		t.Errorf("the prompt is\n%s", prompt)
	}
}
