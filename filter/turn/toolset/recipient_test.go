package toolset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestRespelled shows spellings that mean a tool, and some that do not.
func TestRespelled(t *testing.T) {
	t.Parallel()
	tools, err := newSet(append(functions("Tool_A", "get_weather", "delete_all", "wetter_ä", "погода", "天気.今日", "my tool", "functions"),
		harmony.Namespace{Name: "docs", Tools: []harmony.Tool{{Name: "read"}}}), builtins(), request.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}

	plain := func(name string) item.ToolName { return item.ToolName{Namespace: item.FunctionsNamespace, Name: name} }
	for recipient, want := range map[string]item.ToolName{
		`"functions.Tool_A"`: plain("Tool_A"), "'functions.Tool_A'": plain("Tool_A"), "`functions.Tool_A`": plain("Tool_A"),
		`functions."Tool_A"`: plain("Tool_A"), `"functions"."Tool_A"`: plain("Tool_A"), "<functions.Tool_A>": plain("Tool_A"),
		"[functions.Tool_A]": plain("Tool_A"), `"functions.Tool_A`: plain("Tool_A"), "“functions.Tool_A”": plain("Tool_A"),
		"functions/Tool_A": plain("Tool_A"), "functions:Tool_A": plain("Tool_A"), "functions::Tool_A": plain("Tool_A"),
		"functions@Tool_A": plain("Tool_A"), "@functions.Tool_A": plain("Tool_A"), "functions->Tool_A": plain("Tool_A"),
		"functions . Tool_A": plain("Tool_A"), "functions Tool_A": plain("Tool_A"), "functions..Tool_A": plain("Tool_A"),
		"functions.functions.Tool_A": plain("Tool_A"), "functions.Tool_A.Tool_A": plain("Tool_A"), "Tool_A.Tool_A": plain("Tool_A"),
		"functions.Tool_A.functions.Tool_A": plain("Tool_A"), "function.Tool_A": plain("Tool_A"), "tools.Tool_A": plain("Tool_A"),
		"tool.Tool_A": plain("Tool_A"), "namespace functions.Tool_A": plain("Tool_A"), "FUNCTIONS.tool_a": plain("Tool_A"),
		"tool_Tool_A": plain("Tool_A"), "functionsTool_A": plain("Tool_A"), "functions_Tool_A": plain("Tool_A"), "toola": plain("Tool_A"),
		"functions.Tool_A<|constrain|>json": plain("Tool_A"), "functions.Tool_A.json": plain("Tool_A"), "functions.Tool_Acommentary": plain("Tool_A"),
		"functions.get_weathe": plain("get_weather"),
		"functions.get_weath":  plain("get_weather"), "functions.wetter_ä": plain("wetter_ä"), "wetter_ä": plain("wetter_ä"),
		"functions.wetter_a\u0308": plain("wetter_ä"), "functions::Wetter_Ä": plain("wetter_ä"), `"погода"`: plain("погода"),
		"functions.Погода": plain("погода"), "functions.天気.今日": plain("天気.今日"), "functions.天気_今日": plain("天気.今日"),
		"functions.my tool": plain("my tool"), "functions.my_tool": plain("my tool"), `"my tool"`: plain("my tool"),
		"functions.functions": plain("functions"), "functions": plain("functions"), "functions.functions_": plain("functions"),
		"docs::read": {Namespace: "docs", Name: "read"}, "functions.docs.read": {Namespace: "docs", Name: "read"}, "docs.docs.read": {Namespace: "docs", Name: "read"},
		"docs.read.read": {Namespace: "docs", Name: "read"}, "tools.docs/read": {Namespace: "docs", Name: "read"},
		`"browser.search"`: {Namespace: "browser", Name: "search", Builtin: true}, "browser::open": {Namespace: "browser", Name: "open", Builtin: true}, `"python"`: {Namespace: "python", Builtin: true},
		"tools.python": {Namespace: "python", Builtin: true},
		// Other names.
		"functions.delete": {}, "functions.weather": {}, "functions.get": {}, "other.Tool_A": {}, "docs.Tool_A": {}, "functions.Tool_B": {},
		"functions.wetter_": {}, "functions.wetter": {}, "docs.____": {},
	} {
		got, found := tools.Resolve(recipient)
		if want == (item.ToolName{}) {
			if found != Unknown || got.Namespace != "" || tools.declares(got.Name) {
				t.Errorf("%q: %+v, %d", recipient, got, found)
			}
			continue
		}

		if got != want || found != Offered && found != Respelled {
			t.Errorf("%q: %+v, %d; want %+v", recipient, got, found, want)
		}
	}
}

// TestEquallyNear shows that a recipient that may mean two tools means neither.
func TestEquallyNear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names     []string
		recipient string
	}{
		{[]string{"get_weather", "getWeather"}, "functions.Get_Weather"},
		{[]string{"tool_search", "search"}, "tool.search"},
		{[]string{"read_files", "read_filed"}, "functions.read_file"},
		{[]string{"äÄ", "Ää"}, "functions.ää"},
		{[]string{"x", "functions.x"}, "Functions.functions.x"},
	} {
		tools, err := newSet(functions(c.names...), nil, request.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got, found := tools.Resolve(c.recipient); found != Unknown {
			t.Errorf("%q of %q: %+v, %d", c.recipient, c.names, got, found)
		}
	}
}

// TestOtherName shows names that look like damaged ones of the only tool, and are other names.
func TestOtherName(t *testing.T) {
	t.Parallel()
	for name, recipients := range map[string][]string{
		"delete": {
			"functions.delete_message", "functions.deleteMessage", "delete-channel", "functions.assistant_delete", "analysis_delete", "to_delete",
			// A word of the header that is one of names too.
			"functions.deletemessage", "functions.delete.message", "functions.deletechannel", "delete.channel", "functions.deletecode",
			"functions.delete.code", "functions.deletefinal", "functions.delete.final",
		},
		"get_page_10":  {"functions.get_page_1"},
		"delete_users": {"functions.delete_user"},
		"删除用户组":        {"functions.删除用户"},
		"사용자삭제취소":      {"functions.사용자삭제"},
		"☀️":           {"functions.🌧️", "functions"},
		"🚀":            {"functions.💥", "functions"},
	} {
		tools, err := newSet(functions(name), nil, request.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for _, recipient := range recipients {
			if got, found := tools.Resolve(recipient); found == Offered || found == Respelled {
				t.Errorf("%q of %q: %+v, %d", recipient, name, got, found)
			}
		}
	}

	for name, recipients := range map[string][]string{
		"delete":   {"functions.deletejson", "functions.delete.json", "functions.Delete.JSON"},
		"☀️":       {"functions.☀️", "functions.__"},
		"sunny_☀️": {"functions.sunny__", "functions.sunny_☀", "functions.sunny_☀️"},
	} {
		tools, err := newSet(functions(name), nil, request.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for _, recipient := range recipients {
			if got, _ := tools.Resolve(recipient); got.Name != name || got.Namespace == "" {
				t.Errorf("%q of %q: %+v", recipient, name, got)
			}
		}
	}
}

// TestResolveIsBounded shows that recipients cost about the same whatever is in them: a
// model can make thousands of calls.
func TestResolveIsBounded(t *testing.T) {
	t.Parallel()
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("%s_%d", strings.Repeat("name", 40), i)
	}

	tools, err := newSet(functions(names...), nil, request.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}

	for _, recipient := range []string{
		strings.Repeat("functions.", 1<<12), strings.Repeat("functions.x.", 1<<12), strings.Repeat("json", 1<<14), strings.Repeat("name", 1<<14),
		strings.Repeat("a.", 1<<14), strings.Repeat("\"", 1<<16), strings.Repeat("a\u0308", 1<<14), "functions." + strings.Repeat("name", 40),
	} {
		if forms := tools.spellings; forms != nil {
			if n := len(forms.forms(recipientWords(recipient))); n > 4*maxPrefixes {
				t.Errorf("%.20s…: %d forms", recipient, n)
			}
		}
		got, found := tools.Resolve(recipient)
		if found != Unknown && found != NoRecipient || len(got.Name) > item.MaxNameBytes+1 {
			t.Errorf("%.20s…: %.40v, %d", recipient, got, found)
		}
	}
}

func BenchmarkResolveUnknown(b *testing.B) {
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("%s_%d", strings.Repeat("name", 40), i)
	}
	tools, err := newSet(functions(names...), nil, request.DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	for name, recipient := range map[string]string{
		"short": "functions.nope", "cut": "functions." + strings.Repeat("name", 40), "prefixes": strings.Repeat("functions.x.", 100),
		"json": strings.Repeat("json", 300), "words": strings.Repeat("a.", 600),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				tools.Resolve(recipient)
			}
		})
	}
}

// TestResolve shows which recipients mean a tool of the request.
func TestResolve(t *testing.T) {
	t.Parallel()
	tools, err := newSet(append(functions("search", "get_weather", "a.b", "twice", "final"),
		harmony.Namespace{Name: "mcp__x", Tools: []harmony.Tool{{Name: "echo"}, {Name: "twice"}}}), nil, request.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}

	for recipient, want := range map[string]struct {
		tool item.ToolName
		Address
	}{
		"functions.search":                {item.ToolName{Namespace: "functions", Name: "search"}, Offered},
		"mcp__x.twice":                    {item.ToolName{Namespace: "mcp__x", Name: "twice"}, Offered},
		"search":                          {item.ToolName{Namespace: "functions", Name: "search"}, Offered},
		"functions.echo":                  {item.ToolName{Namespace: "mcp__x", Name: "echo"}, Offered},
		"final":                           {item.ToolName{Namespace: "functions", Name: "final"}, Offered},
		"Functions.getWeather":            {item.ToolName{Namespace: "functions", Name: "get_weather"}, Respelled},
		"functions.get_weather.json":      {item.ToolName{Namespace: "functions", Name: "get_weather"}, Respelled},
		"functions.get_weathercommentary": {item.ToolName{Namespace: "functions", Name: "get_weather"}, Respelled},
		"functions.a.b":                   {item.ToolName{Namespace: "functions", Name: "a.b"}, Respelled},
		"mcp_x.Echo":                      {item.ToolName{Namespace: "mcp__x", Name: "echo"}, Respelled},
		"functions.Twice":                 {item.ToolName{Namespace: "functions", Name: "twice"}, Respelled},
		"twice":                           {item.ToolName{Namespace: "", Name: "twice_"}, Unknown},
		"browser.search":                  {item.ToolName{Namespace: "", Name: "browser_search"}, Unknown},
		"browser.Search":                  {item.ToolName{Namespace: "", Name: "browser_Search"}, Unknown},
		"mcp__x.search":                   {item.ToolName{Namespace: "", Name: "mcp__x_search"}, Unknown},
		"mcp__y.echo":                     {item.ToolName{Namespace: "", Name: "mcp__y_echo"}, Unknown},
		"functions.nope":                  {item.ToolName{Namespace: "", Name: "nope"}, Unknown},
		"python":                          {item.ToolName{Namespace: "", Name: "python"}, Unknown},
		"assistant":                       {item.ToolName{}, NoRecipient},
		"functions.":                      {item.ToolName{}, NoRecipient},
		"<|channel|>commentary":           {item.ToolName{}, NoRecipient},
	} {
		if got, how := tools.Resolve(recipient); got != want.tool || how != want.Address {
			t.Errorf("%q: %+v, %d; want %+v, %d", recipient, got, how, want.tool, want.Address)
		}
	}
}

// TestResolveBuiltins shows which recipients mean a built-in tool, with and
// without functions of the client that have the same names.
func TestResolveBuiltins(t *testing.T) {
	t.Parallel()
	search, find, python := item.ToolName{Namespace: "browser", Name: "search", Builtin: true}, item.ToolName{Namespace: "browser", Name: "find", Builtin: true}, item.ToolName{Namespace: "python", Builtin: true}
	type found struct {
		tool item.ToolName
		Address
	}

	for recipient, want := range map[string][2]found{ // without, and with functions search and python
		"browser.search":     {{search, Offered}, {search, Offered}},
		"browser.Search":     {{search, Respelled}, {search, Respelled}},
		"browser_search":     {{search, Respelled}, {search, Respelled}},
		"search":             {{search, Offered}, {item.ToolName{Namespace: "functions", Name: "search"}, Offered}},
		"functions.search":   {{search, Offered}, {item.ToolName{Namespace: "functions", Name: "search"}, Offered}},
		"find":               {{find, Offered}, {find, Offered}},
		"functions.find":     {{find, Offered}, {find, Offered}},
		"python":             {{python, Offered}, {python, Offered}},
		"Python":             {{python, Respelled}, {python, Respelled}},
		"python.":            {{python, Respelled}, {python, Respelled}},
		"python.run":         {{python, Respelled}, {python, Respelled}},
		"python.exec.run":    {{python, Respelled}, {python, Respelled}},
		"pythoncode":         {{python, Respelled}, {python, Respelled}},
		"functions.python":   {{python, Offered}, {item.ToolName{Namespace: "functions", Name: "python"}, Respelled}},
		"functions.python_":  {{python, Respelled}, {item.ToolName{Namespace: "functions", Name: "python"}, Offered}},
		"browser":            {{item.ToolName{Name: "browser"}, Unknown}, {item.ToolName{Name: "browser"}, Unknown}},
		"browser.click":      {{item.ToolName{Name: "browser_click"}, Unknown}, {item.ToolName{Name: "browser_click"}, Unknown}},
		"repo_browser.find":  {{item.ToolName{Name: "repo_browser_find"}, Unknown}, {item.ToolName{Name: "repo_browser_find"}, Unknown}},
		"container.exec":     {{item.ToolName{Namespace: "container", Name: "exec", Builtin: true}, Offered}, {item.ToolName{Namespace: "container", Name: "exec", Builtin: true}, Offered}},
		"assistant":          {{item.ToolName{}, NoRecipient}, {item.ToolName{}, NoRecipient}},
		"functions.get_time": {{item.ToolName{Name: "get_time"}, Unknown}, {item.ToolName{Name: "get_time"}, Unknown}},
	} {
		for i, own := range [][]harmony.Namespace{nil, functions("search", "python")} {
			tools, err := newSet(own, builtins(), request.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			if got, how := tools.Resolve(recipient); got != want[i].tool || how != want[i].Address {
				t.Errorf("%q, %d: %+v, %d; want %+v, %d", recipient, i, got, how, want[i].tool, want[i].Address)
			}
		}
	}
}

var container = harmony.Namespace{Name: "container", Description: "Utilities for a container.", Tools: []harmony.Tool{{
	Name: "exec", Description: "Runs a command.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"cmd":{"type":"array","items":{"type":"string"}}},"required":["cmd"]}`),
}}}

func functions(names ...string) []harmony.Namespace {
	ns := harmony.Namespace{Name: item.FunctionsNamespace}
	for _, name := range names {
		ns.Tools = append(ns.Tools, harmony.Tool{Name: name})
	}
	return []harmony.Namespace{ns}
}

func builtins() []harmony.Namespace {
	return []harmony.Namespace{harmony.BrowserNamespace(), harmony.PythonNamespace(), container}
}
