package chat

import (
	"context"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestFieldsAreHandled shows that every field does what its row says.
func TestFieldsAreHandled(t *testing.T) {
	t.Parallel()
	const (
		user = `{"role":"user","content":"Hi"}`
		tool = `{"type":"function","function":{"name":"f"}}`

		custom    = `{"type":"custom","custom":{"name":"c"}}`
		functions = `,"functions":[{"name":"f"}]`
	)
	request := func(messages, fields string) string {
		return `{"messages":[` + messages + `],"model":"m"` + fields + `}`
	}
	with := func(fields string) string { return request(user, fields) }
	testAPI.Handles(t, objects, map[string]string{
		"":                             with(`,%s`),
		"messages":                     request(user+`,{"role":"assistant","content":"x",%s},`+user, ""),
		"messages.content":             request(`{"role":"user","content":[{"type":"text","text":"x",%s}]}`, ""),
		"messages.content.image_url":   request(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"x",%s}}]}`, ""),
		"messages.tool_calls":          request(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"},%s}]},{"role":"tool","tool_call_id":"a","content":""}`, ""),
		"messages.tool_calls.function": request(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f",%s}}]},{"role":"tool","tool_call_id":"a","content":""}`, ""),
		"messages.tool_calls.custom":   request(`{"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{"name":"c",%s}}]},{"role":"tool","tool_call_id":"a","content":""}`, `,"tools":[`+custom+`]`),
		"messages.function_call":       request(`{"role":"assistant","function_call":{"name":"f",%s}},{"role":"function","name":"f","content":""}`, functions),
		"functions":                    with(`,"functions":[{"name":"f",%s}]`),
		"function_call":                with(functions + `,"function_call":{"name":"f",%s}`),
		"tools.custom":                 with(`,"tools":[{"type":"custom","custom":{"name":"c",%s}}]`),
		"tools.custom.format":          with(`,"tools":[{"type":"custom","custom":{"name":"c","format":{"type":"text",%s}}}]`),
		"tools.custom.format.grammar":  with(`,"tools":[{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"a",%s}}}}]`),
		"tool_choice.custom":           with(`,"tools":[` + custom + `],"tool_choice":{"type":"custom","custom":{"name":"c",%s}}`),
		"tools":                        with(`,"tools":[{"type":"function","function":{"name":"f"},%s}]`),
		"tools.function":               with(`,"tools":[{"type":"function","function":{"name":"f",%s}}]`),
		"tool_choice":                  with(`,"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"f"},%s}`),
		"tool_choice.function":         with(`,"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"f",%s}}`),
		"tool_choice.allowed_tools":    with(`,"tools":[` + tool + `],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` + tool + `],%s}}`),
		"stream_options":               with(`,"stream":true,"stream_options":{%s}`),
		"usage":                        with(`,"usage":{%s}`),
		"reasoning":                    with(`,"reasoning":{%s}`),
		"thinking":                     with(`,"thinking":{%s}`),
		"chat_template_kwargs":         with(`,"chat_template_kwargs":{%s}`),
		"response_format":              with(`,"response_format":{"type":"json_object",%s}`),
		"response_format.json_schema":  with(`,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},%s}}`),
		"structured_outputs":           with(`,"structured_outputs":{%s}`),
	})
}

// TestReasoningSwitches shows the many names of three things: whether the model reasons,
// how much, and whether the client sees it. An opt-out wins, wherever it stands.
func TestReasoningSwitches(t *testing.T) {
	t.Parallel()
	const low, medium, high = harmony.EffortLow, harmony.EffortMedium, harmony.EffortHigh
	for fields, want := range map[string]struct {
		effort harmony.Effort
		hidden bool
	}{
		`"user":"u"`: {medium, false},

		`"chat_template_kwargs":{"reasoning_effort":"high"}`:                          {high, false},
		`"chat_template_kwargs":{"reasoning_effort":"none"}`:                          {low, true},
		`"chat_template_kwargs":{"enable_thinking":false}`:                            {low, true},
		`"chat_template_kwargs":{"thinking":false,"unknown":1}`:                       {low, true},
		`"chat_template_kwargs":{"thinking":true,"enable_thinking":true}`:             {medium, false},
		`"chat_template_kwargs":{"thinking_mode":"off"}`:                              {low, true},
		`"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"high"`:  {low, true},
		`"reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false}`:  {low, true},
		`"reasoning_effort":"none","chat_template_kwargs":{"reasoning_effort":"max"}`: {low, true},

		`"thinking":{"type":"disabled"}`:                           {low, true},
		`"thinking":{"type":"disabled"},"reasoning_effort":"high"`: {low, true},
		`"thinking":{"type":"enabled","clear_thinking":false}`:     {medium, false},
		`"thinking":{"type":"adaptive"},"reasoning_effort":"high"`: {high, false},
		`"thinking":false`:                                {low, true},
		`"thinking":true`:                                 {medium, false},
		`"enable_thinking":false`:                         {low, true},
		`"enable_thinking":true,"reasoning_effort":"low"`: {low, false},
		`"think":false`:                                   {low, true},
		`"think":true`:                                    {medium, false},
		`"think":"high"`:                                  {high, false},
		`"disable_reasoning":true`:                        {low, true},
		`"disable_reasoning":false`:                       {medium, false},
		`"reasoning":{"reasoning_effort":"high","enable":true}`:          {high, false},
		`"reasoning":{"enable":false}`:                                   {low, true},
		`"reasoning":{"enabled":false}`:                                  {low, true},
		`"reasoning":{"effort":"high","exclude":true}`:                   {high, true},
		`"reasoning":{"enabled":true,"effort":"xhigh","summary":"auto"}`: {high, false},
		`"reasoning":{"effort":"none"},"reasoning_effort":"high"`:        {low, true},
		`"include_reasoning":false,"reasoning_effort":"high"`:            {high, true},
		`"reasoning_format":"hidden"`:                                    {medium, true},
		`"reasoning_format":"parsed"`:                                    {medium, false},
	} {
		r := mustDecode(t, ask(","+fields))
		prompt := apitest.Spell(t, r.Engine().Prompt)
		if !strings.Contains(prompt, "Reasoning: "+string(want.effort)+"\n") || r.options.hideReasoning != want.hidden {
			t.Errorf("%s: hidden %v\n%s", fields, r.options.hideReasoning, prompt)
		}
	}
	for fields, param := range map[string]string{
		`"chat_template_kwargs":{"reasoning_effort":"most"}`: "chat_template_kwargs.reasoning_effort",
		`"chat_template_kwargs":{"enable_thinking":1}`:       "chat_template_kwargs.enable_thinking",
		`"chat_template_kwargs":[]`:                          "chat_template_kwargs",
		`"thinking":{"type":"sometimes"}`:                    "thinking.type",
		`"reasoning_format":"raw"`:                           "reasoning_format",
		`"separate_reasoning":false`:                         "separate_reasoning",
		`"enable_thinking":false,"return_token_ids":true`:    "return_token_ids",
	} {
		if _, err := decode(ask("," + fields)); err == nil || err.Param != param {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

// TestFormatsOfOtherServers shows where other servers have the schema of an answer.
func TestFormatsOfOtherServers(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"city":{"type":"string"}}}`
	named := prompt(t, `"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":`+schema+`}}`)
	for _, fields := range []string{
		`"response_format":{"type":"json_object","schema":` + schema + `}`,
		`"response_format":{"type":"json_schema","schema":` + schema + `}`,
		`"response_format":{"type":"json_schema","name":"output","strict":false,"schema":` + schema + `}`,
		`"response_format":{"type":"json_object","json_schema":{"name":"output","schema":` + schema + `}}`,
		`"format":` + schema,
		`"json_schema":` + schema,
	} {
		if got := prompt(t, fields); got != named || !strings.Contains(got, "city") {
			t.Errorf("%s: %s", fields, got)
		}
	}
	if prompt(t, `"format":"json"`) != prompt(t, `"response_format":{"type":"json_object"}`) {
		t.Error("format json is not json_object")
	}
	for _, fields := range []string{`"response_format":{"type":"regex","pattern":"a+"}`, `"response_format":{"type":"grammar","grammar":"root ::= \"a\""}`, `"grammar":"root ::= \"a\""`} {
		if r := mustDecode(t, ask(","+fields)); r.Engine().Constraint == nil {
			t.Errorf("%s is not enforced", fields)
		}
	}
	if _, err := decode(ask(`,"response_format":{"type":"json_object","schema":[]}`)); err == nil || err.Param != "response_format.schema" {
		t.Error(err)
	}
}

// prompt is the prompt of a request with these fields.
func prompt(t *testing.T, fields string) string {
	t.Helper()
	return apitest.Spell(t, mustDecode(t, ask(","+fields)).Engine().Prompt)
}

// TestPrefix shows that the last message may say itself that it is continued.
func TestPrefix(t *testing.T) {
	t.Parallel()
	const messages = `{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"He"%s}]%s}`
	body := func(member, field string) string {
		return strings.Replace(strings.Replace(messages, "%s", member, 1), "%s", field, 1)
	}
	want := apitest.Spell(t, mustDecode(t, body("", `,"continue_final_message":true`)).Engine().Prompt)
	for _, member := range []string{`,"prefix":true`, `,"partial":true`} {
		if got := apitest.Spell(t, mustDecode(t, body(member, "")).Engine().Prompt); got != want {
			t.Errorf("%s: %s", member, got)
		}
	}
	if got := apitest.Spell(t, mustDecode(t, body(`,"prefix":false`, "")).Engine().Prompt); got == want {
		t.Error("continued")
	}
}

// TestReasoningOfOtherServers shows under which names the reasoning comes back.
func TestReasoningOfOtherServers(t *testing.T) {
	t.Parallel()
	history := func(member string) string {
		return `{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant",` + member + `,"tool_calls":[{"id":"a","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"a","content":"x"}]}`
	}
	want := apitest.Spell(t, mustDecode(t, history(`"reasoning":"Why."`)).Engine().Prompt)
	for _, member := range []string{
		`"reasoning_content":"Why."`, `"thinking":"Why."`, `"reasoning":"Why.","reasoning_details":[{"type":"reasoning.text","text":"More."}]`,
		`"reasoning_details":[{"type":"reasoning.encrypted","data":"s"},{"type":"reasoning.text","text":"Why."}]`,
		`"reasoning_details":[{"type":"reasoning.summary","summary":"Why."}]`,
		`"thinking_blocks":[{"type":"thinking","thinking":"Why.","signature":"s"}]`,
	} {
		if got := apitest.Spell(t, mustDecode(t, history(member)).Engine().Prompt); got != want || !strings.Contains(got, "Why.") {
			t.Errorf("%s: %s", member, got)
		}
	}
}

// TestVerbosity shows what the model is told, and that usual requests say nothing.
func TestVerbosity(t *testing.T) {
	t.Parallel()
	plain := prompt(t, `"user":"u"`)
	if prompt(t, `"verbosity":"medium"`) != plain {
		t.Error("medium is not as without")
	}
	for _, word := range []string{"low", "high"} {
		if got := prompt(t, `"verbosity":"`+word+`"`); !strings.Contains(got, "final answer") || !strings.Contains(got, "Hi") {
			t.Errorf("%s: %s", word, got)
		}
	}
}

// TestUsualFields are those that clients send with values that ask for nothing: they must
// go on working.
func TestUsualFields(t *testing.T) {
	t.Parallel()
	mustDecode(t, ask(`,"stream":true,"store":true,"parallel_tool_calls":true,"service_tier":"auto","user":"u","metadata":{"a":"b"},"n":1,"best_of":1,"echo":false,
		"logprobs":false,"prompt_logprobs":null,"length_penalty":1.0,"early_stopping":false,"use_beam_search":false,"ignore_eos":false,"skip_special_tokens":true,
		"bad_words":[],"logits_processors":[],"modalities":["text"],"include_reasoning":true,"separate_reasoning":true,"stream_reasoning":true,
		"stream_options":{"include_usage":true,"include_obfuscation":false},"usage":{"include":true},"transforms":[],"plugins":[],"provider":{"sort":"price"},
		"min_keep":0,"typical_p":1.0,"top_n_sigma":-1.0,"xtc_probability":0.0,"dry_multiplier":0.0,"mirostat":0,"repeat_last_n":-1,"cache_prompt":true,
		"samplers":[],"keep_alive":"5m","extra_body":{},"reasoning_format":"auto","moderation":{"model":"m"},"truncation":"disabled"`))
}

func decode(body string) (*Request, *apierror.Error) {
	return Decode(context.Background(), []byte(body), apitest.NewContext())
}
