package responses

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestClientItems shows what the model sees of items of other tools and agents, and
// which items are ignored.
func TestClientItems(t *testing.T) {
	t.Parallel()
	const (
		user   = "<|start|>user<|message|>"
		result = " to=assistant<|channel|>commentary<|message|>"
	)
	call := func(tool, arguments, output string) string {
		return "<|start|>assistant to=functions." + tool + "<|channel|>commentary json<|message|>" + arguments + "<|call|><|start|>functions." + tool + result + output + "<|end|>"
	}
	for _, c := range []struct{ name, items, want, ignored string }{
		{
			"computer", `{"type":"computer_call","id":"cu_1","call_id":"a","status":"completed","pending_safety_checks":[],"action":{"type":"click","x":1, "y":2,"button":"left"}},
			{"type":"computer_call_output","call_id":"a","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AA=="}}`,
			call("computer", `{"action":{"type":"click","x":1,"y":2,"button":"left"}}`, "[An image was here. This model cannot see images.]"), "",
		},
		{
			"several actions", `{"type":"computer_call","id":"cu_1","call_id":"a","actions":[{"type":"wait"}]},{"type":"computer_call_output","call_id":"a","output":"done"}`,
			call("computer", `{"actions":[{"type":"wait"}]}`, "done"), "",
		},
		{
			"output of a failed patch", `{"type":"apply_patch_call","call_id":"a","operation":{"type":"delete_file","path":"x"}},{"type":"apply_patch_call_output","call_id":"a","status":"failed"}`,
			call("apply_patch", `{"type":"delete_file","path":"x"}`, "The patch was not applied."), "",
		},
		{
			"local output by the id of the call", `{"type":"local_shell_call","id":"lsh_1","call_id":"a","action":{"type":"exec","command":["ls"],"env":{}}},{"type":"local_shell_call_output","id":"a","output":"x"}`,
			call("local_shell", `{"command":["ls"]}`, "x"), "",
		},
		{"call without an action", `{"type":"shell_call","call_id":"a"},{"type":"shell_call_output","call_id":"a","output":[]}`, call("shell", `{"commands":[]}`, ""), ""},

		{
			"agent message", `{"type":"agent_message","id":"amsg_1","author":"/root","recipient":"/root/worker","content":[
			{"type":"input_text","text":"Message Type: NEW_TASK\nTask name: /root/worker\nSender: /root\nPayload:\n"},{"type":"encrypted_content","encrypted_content":"Say hello"}]}`,
			user + "[Message from /root to /root/worker]\nMessage Type: NEW_TASK\nTask name: /root/worker\nSender: /root\nPayload:\nSay hello<|end|>", "",
		},
		{
			"agent message with a picture", `{"type":"agent_message","author":"a","recipient":"b","content":[{"type":"input_text","text":"See"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}`,
			user + "[Message from a to b]\nSee\n[An image was here. This model cannot see images.]<|end|>", "",
		},

		{
			"program", `{"type":"program","id":"prog_1","call_id":"p","code":"tools.f()","fingerprint":"x"},{"type":"function_call","call_id":"a","name":"f","caller":{"type":"program","caller_id":"p"}},
			{"type":"function_call_output","call_id":"a","output":"1"},{"type":"program_output","id":"po_1","call_id":"p","result":"2","status":"completed"}`,
			"<|start|>assistant<|channel|>commentary<|message|>[program]\ntools.f()<|end|>" + call("f", "{}", "1") + user + "[program_output]\n2<|end|>", "",
		},
		{"unknown type with text", `{"type":"note","content":[{"type":"input_text","text":"a"},{"type":"thing","text":"b"},"c"],"output":{"x": 1}}`, user + "[note]\na\nb\nc\n{\"x\":1}<|end|>", ""},
		{"unknown type without text", `{"type":"steering","id":"s","mode":"fast"}`, "", "input.steering"},
		{"context compaction without a summary", `{"type":"context_compaction","id":"c"}`, "", "input.context_compaction"},
		{"update of nothing", `{"type":"configuration_update","reasoning":{"effort":null}}`, "", "input.configuration_update"},
	} {
		request := mustDecode(t, askItems(`{"role":"user","content":"Hi"},`+c.items))
		_, got, _ := strings.Cut(apitest.Spell(t, request.Engine().Prompt), user+"Hi<|end|>")
		if want := c.want + "<|start|>assistant"; got != want {
			t.Errorf("%s: the model sees\n%s\nwant\n%s", c.name, got, want)
		}
		if got := strings.Join(request.Ignored(), " "); got != c.ignored {
			t.Errorf("%s: ignored %q, want %q", c.name, got, c.ignored)
		}
	}
}

// TestClientItemsSpecialText shows that text which spells control tokens stays text in
// these items and tools.
func TestClientItemsSpecialText(t *testing.T) {
	t.Parallel()
	// system, developer, three calls and results, agent message, unknown item, program, and the reply's start
	want := map[harmony.Token]int{harmony.TokenStart: 12, harmony.TokenMessage: 11, harmony.TokenEnd: 8, harmony.TokenCall: 3, harmony.TokenChannel: 7}
	testAPI.SpecialText(t, func(evil string) string {
		return `{"model":"m","input":[
		{"type":"shell_call","call_id":"a","action":{"commands":[` + evil + `]}},
		{"type":"shell_call_output","call_id":"a","output":[{"stdout":` + evil + `,"stderr":` + evil + `,"outcome":{"type":"exit","exit_code":1}}]},
		{"type":"local_shell_call","call_id":"b","action":{"type":"exec","command":[` + evil + `],"env":{` + evil + `:` + evil + `},"user":` + evil + `}},
		{"type":"local_shell_call_output","call_id":"b","output":` + evil + `},
		{"type":"apply_patch_call","call_id":"c","operation":{"type":` + evil + `,"path":` + evil + `,"diff":` + evil + `}},
		{"type":"apply_patch_call_output","call_id":"c","status":"failed","output":` + evil + `},
		{"type":"agent_message","author":` + evil + `,"recipient":` + evil + `,"content":[{"type":"encrypted_content","encrypted_content":` + evil + `}]},
		{"type":"program","code":` + evil + `},{"type":` + evil + `,"content":` + evil + `,"output":[{"text":` + evil + `}]}],
		"tools":[{"type":"shell","environment":{"type":"local","skills":[{"name":` + evil + `,"path":` + evil + `,"description":` + evil + `}]}}]}`
	}, want)
}

// TestConfigurationUpdate shows how long an update holds: until the next one, also in
// the responses that follow.
func TestConfigurationUpdate(t *testing.T) {
	t.Parallel()
	update := func(effort string) string {
		return `{"type":"configuration_update","reasoning":{"effort":"` + effort + `"}}`
	}
	const jsonUpdate = `{"type":"configuration_update","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","properties":{},"additionalProperties":false}}}}`
	const hi = `{"role":"user","content":"Hi"}`
	const format = `,"text":{"format":{"type":"json_object"}}`
	for name, chains := range map[string]bool{"remembered": true, "read again": false} {
		s := newServer()
		first := s.create(t, `,"reasoning":{"effort":"low"},"input":[`+hi+`,`+update("medium")+`,`+update("high")+`]`, said)
		if got := first.Get("reasoning.effort").Str; got != "high" {
			t.Errorf("%s: the response says %s", name, got)
		}
		second := s.create(t, previous(first)+`,"input":[`+jsonUpdate+`,`+hi+`]`, "<|channel|>final<|message|>{}<|return|>")
		if got := second.Get("text.format.name").Str; got != "n" {
			t.Errorf("%s: the format is %s", name, second.Get("text.format"))
		}
		if !chains {
			s.Chains = nil
		}
		for _, c := range []struct{ members, effort, format string }{
			{previous(first) + `,"input":"next"`, "high", "text"},
			{previous(first) + `,"reasoning":{"effort":"low"},"input":[` + hi + `,` + update("low") + `]`, "low", "text"},
			{previous(first) + format + `,"input":"next"`, "high", "json_object"},
			{previous(second) + format + `,"input":"next"`, "high", "json_schema"},
			{previous(second) + `,"input":[` + hi + `,{"type":"configuration_update","text":{"format":{"type":"text"}}}]`, "high", "text"},
			{format + `,"input":[` + hi + `,{"type":"configuration_update","text":{"format":{"type":"text"}}}]`, "medium", "text"},
		} {
			request, err := s.decode([]byte(`{"model":"gpt-oss-20b"`+c.members+`}`), s.rc)
			if err != nil {
				t.Fatalf("%s: %v", c.members, err)
			}
			if prompt := apitest.Spell(t, request.Engine().Prompt); !strings.Contains(prompt, "Reasoning: "+c.effort) {
				t.Errorf("%s, %s: not the effort %s:\n%.300s", name, c.members, c.effort, prompt)
			}
			if !strings.Contains(string(request.Echo), `"text":{"format":{"type":"`+c.format+`"`) {
				t.Errorf("%s, %s: not the format %s: %s", name, c.members, c.format, request.Echo)
			}
			if constrained := request.Engine().Constraint != nil; constrained != (c.format != "text") {
				t.Errorf("%s, %s: constrained %v", name, c.members, constrained)
			}
		}
	}
	s := newServer()
	r := s.create(t, `,"input":[`+hi+`,`+update("none")+`]`, "<|channel|>analysis<|message|>x<|end|><|start|>assistant"+said)
	if diff := cmp.Diff([]string{"message"}, types(r.Get("output"))); diff != "" {
		t.Error(diff)
	}
}
