package messages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
)

// searchedTools are a search and tools that it can find.
func searchedTools(kind string) string {
	return `,"tools":[{"type":"` + kind + `","name":"x"},{"name":"f","input_schema":{"type":"object"}},
		{"name":"get_weather","description":"The weather of a city.","input_schema":{"type":"object","properties":{"city":{"type":"string"}}},"defer_loading":true},
		{"name":"send_mail","description":"Sends a mail.","input_schema":{"type":"object"},"defer_loading":true,"strict":true}]`
}

func callOf(name, arguments string) string {
	return `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.` + name + `<|channel|>commentary json<|message|>` + arguments + `<|call|>`
}

const answered = `<|channel|>final<|message|>Done.<|return|>`

// TestToolSearch shows that a search for deferred tools runs here, that what it finds can be
// called in the same reply and in the next one, and that no prompt moves what came before.
func TestToolSearch(t *testing.T) {
	t.Parallel()
	for kind, arguments := range map[string]string{
		"tool_search_tool_bm25_20251119":  `{"query":"weather of the city"}`,
		"tool_search_tool_bm25":           `{"query":"weather","limit":1}`,
		"tool_search_tool_regex_20251119": `{"pattern":"get_.*"}`,
		"tool_search_tool_regex":          `{"query":"weather"}`,
		"tool_search_tool_regex_20990101": `{"pattern":"WEATHER"}`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := names.SearchOf(kind)
			s := newService(t)
			message := s.play(t, conversation(userHi, searchedTools(kind)+`,"thinking":{"type":"adaptive"}`),
				callOf(name, arguments), callOf("get_weather", `{"city":"Paris"}`))

			blocks := message.Get("content").Array()
			types := make([]string, 0, len(blocks))
			for _, b := range blocks {
				types = append(types, b.Get("type").Str)
			}
			if want := []string{"thinking", "server_tool_use", "tool_search_tool_result", "thinking", "tool_use"}; !slices.Equal(types, want) {
				t.Fatalf("the blocks are %v, want %v", types, want)
			}
			call, result := message.Get("content.1"), message.Get("content.2")
			if call.Get("name").Str != name || !strings.HasPrefix(call.Get("id").Str, "srvtoolu_") || call.Get("input").Raw != arguments {
				t.Errorf("the search is %s", call.Raw)
			}
			if want := `{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"get_weather"}]}`; result.Get("tool_use_id").Str != call.Get("id").Str || result.Get("content").Raw != want {
				t.Errorf("its result is %s", result.Raw)
			}
			if reason := message.Get("stop_reason").Str; reason != "tool_use" {
				t.Errorf("the message ends with %s", reason)
			}
			if len(s.prompts) != 2 || !strings.HasPrefix(s.prompts[1], strings.TrimSuffix(s.prompts[0], "<|start|>assistant")) {
				t.Fatalf("the prompt moves:\n%q", s.prompts)
			}
			if strings.Contains(s.prompts[0], "type get_weather") || !strings.Contains(s.prompts[0], "- get_weather: The weather of a city.") {
				t.Errorf("the first prompt is\n%s", s.prompts[0])
			}
			if !strings.Contains(s.prompts[1], "1 tools were found, and can be called now: functions.get_weather<|end|><|start|>developer<|message|># Tools") {
				t.Errorf("the second prompt is\n%s", s.prompts[1])
			}

			// The next request repeats the message, and goes on with its prompt.
			next := conversation(userHi+`,{"role":"assistant","content":`+message.Get("content").Raw+`},{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+message.Get("content.4.id").Str+`","content":"sunny"}]}`, searchedTools(kind))
			last := s.prompts[1]
			s.play(t, next, answered)
			if !strings.HasPrefix(s.prompts[0], strings.TrimSuffix(last, "<|start|>assistant")) {
				t.Errorf("the prompt of the next request moves:\n%s\n\n%s", last, s.prompts[0])
			}
			// A second search does not find what the model has.
			again := s.play(t, next, callOf(name, arguments), answered)
			if refs := again.Get("content.1.content.tool_references").Raw; refs != "[]" {
				t.Errorf("the search finds %s again", refs)
			}
			if !strings.Contains(s.prompts[1], "No tools were found") {
				t.Errorf("the prompt after it is\n%s", s.prompts[1])
			}
		})
	}
}

// TestToolSearchOdd shows searches that find nothing, are none, or come too often.
func TestToolSearchOdd(t *testing.T) {
	t.Parallel()
	const regex = "tool_search_tool_regex"
	s := newService(t)
	s.rc.Limits.Turns = 100

	message := s.play(t, conversation(userHi, searchedTools(regex)), callOf(regex, `{"pattern":"("}`), answered)
	if got := message.Get("content.1.content"); got.Get("type").Str != "tool_search_tool_result_error" || got.Get("error_code").Str != "invalid_tool_input" {
		t.Errorf("the result of an expression that is none is %s", got.Raw)
	}
	shown := gjson.Get(message.Raw, "content.1.content.error_message").Str
	if !strings.Contains(s.prompts[1], shown) {
		t.Errorf("the model sees\n%s", s.prompts[1])
	}
	later := prompt(t, conversation(userHi+`,{"role":"assistant","content":`+message.Get("content").Raw+`},`+userHi, searchedTools(regex)))
	if !strings.Contains(later, shown) {
		t.Errorf("the model sees later\n%s", later)
	}

	// A search whose arguments are no JSON.
	lax := strings.Replace(searchedTools("tool_search_tool_bm25"), `,"strict":true`, "", 1)
	if message := s.play(t, conversation(userHi, lax), callOf("tool_search_tool_bm25", `weather`), answered); message.Get("content.1.content.tool_references.#").Int() != 1 {
		t.Errorf("the reply is %s", message.Raw)
	}

	// Many searches in one turn.
	request, err := s.Decode(context.Background(), []byte(conversation(userHi, searchedTools(regex))), s.rc)
	if err != nil || request.Bytes() < request.Turn.Bytes()+len("The weather of a city.") {
		t.Errorf("the definitions are not counted: %v", err)
	}
	var many strings.Builder
	for i := range 70 {
		many.WriteString(strings.Replace(callOf(regex, fmt.Sprintf(`{"pattern":"no%d"}`, i)), `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant`, "", 1) + "<|start|>assistant")
	}
	message = s.play(t, conversation(userHi, searchedTools(regex)), strings.TrimSuffix(many.String(), "<|start|>assistant"), answered)
	if n := strings.Count(message.Raw, `"error_code":"too_many_requests"`); n != 6 {
		t.Errorf("%d of 70 searches are refused: %s", n, message.Raw)
	}
}

// TestToolSearchChoice shows tool_choice with deferred tools.
func TestToolSearchChoice(t *testing.T) {
	t.Parallel()
	const bm25 = "tool_search_tool_bm25"
	s := newService(t)
	named := s.play(t, conversation(userHi, searchedTools(bm25)+`,"tool_choice":{"type":"tool","name":"get_weather"}`), callOf("get_weather", `{"city":"Rome"}`))
	if !strings.Contains(s.prompts[0], "type get_weather") || named.Get("content.0.name").Str != "get_weather" {
		t.Errorf("a deferred tool that is demanded: %s\n%s", named.Raw, s.prompts[0])
	}
	required := s.play(t, conversation(userHi, `,"tools":[{"type":"`+bm25+`"},{"name":"g","input_schema":{},"defer_loading":true}],"tool_choice":{"type":"any"}`), callOf(bm25, `{"query":"g"}`), answered)
	if required.Get("stop_reason").Str != "end_turn" {
		t.Errorf("a search that is demanded: %s", required.Raw)
	}
	if _, err := s.try(t, conversation(userHi, `,"tools":[{"type":"`+bm25+`"},{"type":"`+bm25+`_20251119"}]`)); err == nil || err.Param != "tools[1]" {
		t.Errorf("a search twice: %v", err)
	}
}

// TestToolSearchAlone shows that deferred tools are offered at once where nothing can search
// for them, and that a client which searches itself still defers them.
func TestToolSearchAlone(t *testing.T) {
	t.Parallel()
	request := mustDecode(t, conversation(userHi, searchedTools("tool_search_tool_bm25")))
	shown := apitest.Spell(t, request.Engine().Prompt)
	for _, name := range []string{"f", "get_weather", "send_mail"} {
		if !strings.Contains(shown, "type "+name+" =") {
			t.Errorf("%s is not offered:\n%s", name, shown)
		}
	}
	if want := []string{"tools.tool_search_tool_bm25", "tools.defer_loading"}; !slices.Equal(request.Ignored(), want) {
		t.Errorf("ignored are %v", request.Ignored())
	}
	if request.Engine().Constraint == nil {
		t.Error("the strict one of them has no grammar")
	}

	if shown := prompt(t, conversation(userHi, searchedTools("custom"))); strings.Contains(shown, "get_weather") {
		t.Errorf("without a search here a deferred tool is shown:\n%s", shown)
	}
}
