package messages

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
)

const (
	compacts = `,"compaction":{"type":"summarize"}`
	summed   = `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>The user said "hi".<|return|>`
	summing  = "The conversation up to here was shortened to the following summary, which you wrote. Go on from it.\n\n"
	talk     = `{"role":"system","content":"Be terse."},` + userHi + `,` + callA + `,` + resultA + `,{"role":"assistant","content":"It is sunny."}`
)

// TestCompaction shows that the reply to a compaction is the summary alone, and that later
// requests go on from it.
func TestCompaction(t *testing.T) {
	t.Parallel()
	s := newService(t)
	message := s.play(t, conversation(talk, weatherTool+compacts+`,"thinking":{"type":"adaptive"},"stop_sequences":["said"],"tool_choice":{"type":"any"},"max_tokens":2000`), summed)
	block := message.Get("content.0")
	if message.Get("content.#").Int() != 1 || block.Get("type").Str != "compaction" || block.Get("content").Str != `The user said "hi".` || block.Get("signature").Str == "" || block.Get("tool_changes").Raw != "[]" {
		t.Fatalf("the message is %s", message.Raw)
	}
	if message.Get("stop_reason").Str != "compaction" || message.Get("usage.output_tokens").Int() == 0 || message.Get("usage.input_tokens").Int() == 0 {
		t.Errorf("the message is %s", message.Raw)
	}
	if !strings.HasSuffix(s.prompts[0], "It is sunny.<|end|><|start|>user<|message|>"+compaction.Ask("")+"<|end|><|start|>assistant") || !strings.Contains(s.prompts[0], "type get_weather") {
		t.Errorf("the prompt is\n%s", s.prompts[0])
	}

	for name, c := range map[string]struct{ messages, want string }{
		"of the assistant": {`{"role":"assistant","content":[` + block.Raw + `]},{"role":"user","content":"Go on."}`, "<|start|>user<|message|>" + summing + `The user said "hi".<|end|><|start|>user<|message|>Go on.<|end|>`},
		"of the user":      {`{"role":"user","content":[` + block.Raw + `,{"type":"text","text":"Go on."}]}`, `The user said "hi".<|end|><|start|>user<|message|>Go on.<|end|>`},
		"alone":            {`{"role":"assistant","content":[` + block.Raw + `]}`, `The user said "hi".<|end|><|start|>assistant`},
		"behind what it replaces": {
			talk + `,{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}},{"type":"text","text":"gone"},` + block.Raw + `,{"type":"text","text":"So."}]},{"role":"user","content":"Go on."}`,
			"# Instructions\n\nBe terse.<|end|><|start|>user<|message|>" + summing + `The user said "hi".<|end|><|start|>assistant<|channel|>final<|message|>So.<|end|><|start|>user<|message|>Go on.<|end|>`,
		},
		"one that has failed": {talk + `,{"role":"assistant","content":[{"type":"compaction","content":null}]},` + userHi, "It is sunny.<|end|><|start|>user<|message|>Hi<|end|>"},
		"one of Anthropic's":  {`{"role":"assistant","content":[{"type":"compaction","content":"S.","encrypted_content":"x","signature":"abc"}]},` + userHi, summing + "S.<|end|>"},
	} {
		if shown := prompt(t, conversation(c.messages, "")); !strings.Contains(shown, c.want) || strings.Contains(shown, "gone") {
			t.Errorf("%s: the prompt has no %q:\n%s", name, c.want, shown)
		}
	}
}

// TestCompactionOfOneCall shows that a compaction needs no more than the model call that is
// being made already.
func TestCompactionOfOneCall(t *testing.T) {
	t.Parallel()
	for _, mode := range []api.Mode{api.SingleCall, api.Loop} {
		for _, stream := range []string{"", `,"stream":true`} {
			request := mustDecode(t, conversation(talk, weatherTool+compacts+stream))
			reply := apitest.Play(t, request, mode, apitest.Said(summed).Chunks(apitest.Size(2)))
			if stream != "" {
				content, _ := json.Marshal(fold(t, reply).Content)
				reply = `{"content":` + string(content) + `}`
			}
			if block := gjson.Get(reply, "content.0"); block.Get("type").Str != "compaction" || block.Get("content").Str != `The user said "hi".` {
				t.Errorf("mode %v, stream %q: %s", mode, stream, reply)
			}
		}
	}
}

// TestCompactionAsks shows the instructions of a compaction, and that a count is not one.
func TestCompactionAsks(t *testing.T) {
	t.Parallel()
	for instructions, want := range map[string]string{`"Only names."`: "Only names.", `" \n"`: compaction.Ask(""), `null`: compaction.Ask("")} {
		shown := prompt(t, conversation(talk, `,"compaction":{"type":"summarize","instructions":`+instructions+`}`))
		if !strings.HasSuffix(shown, "<|start|>user<|message|>"+want+"<|end|><|start|>assistant") {
			t.Errorf("%s: the prompt is\n%s", instructions, shown)
		}
	}
	count := func(members string) string {
		counted, err := newAPI(t, 1).CountTokens(context.Background(), []byte(conversation(userHi, members)), apitest.NewContext())
		if err != nil {
			t.Fatal(err)
		}
		return string(counted)
	}
	if a, b := count(""), count(compacts); a != b {
		t.Errorf("%s tokens, with a compaction %s", a, b)
	}
}

// TestCompactionOfTooMuch shows that a conversation without room for its summary is shortened.
func TestCompactionOfTooMuch(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.rc.Model.ContextLength = 2000
	long := `{"role":"user","content":"` + strings.Repeat("a cat ", 20_000) + `"}`
	if _, err := s.try(t, conversation(long, "")); err == nil || err.Code != "context_length_exceeded" {
		t.Errorf("a prompt beyond the context: %v", err)
	}
	message := s.play(t, conversation(long, compacts), summed)
	if message.Get("stop_reason").Str != "compaction" || !strings.Contains(s.prompts[0], "bytes are left out here]") {
		t.Errorf("%s\n%s", message.Raw, s.prompts[0])
	}
}

// TestCompactionFails has compactions that are refused, and summaries that are not written.
func TestCompactionFails(t *testing.T) {
	t.Parallel()
	s := newService(t)
	block := s.play(t, conversation(talk, weatherTool+compacts), summed).Get("content.0").Raw
	with := func(change, to string) string {
		return conversation(`{"role":"assistant","content":[`+strings.Replace(block, change, to, 1)+`]},`+userHi, "")
	}
	for _, c := range []struct{ name, body, param, code string }{
		{"another type", ask(`,"compaction":{"type":"x"}`), "compaction.type", ""},
		{"no type", ask(`,"compaction":{}`), "compaction.type", ""},
		{"nothing said", conversation(`{"role":"system","content":"Be terse."}`, compacts), "messages", "compaction_nothing_to_summarize"},
		{"an open call", conversation(userHi+`,`+callA, weatherTool+compacts), "messages[1].content[0]", ""},
		{"another text", with("The user", "Somebody"), "messages[0].content[0].content", "compaction_content_mismatch"},
		{"an empty text", with(`"The user said \"hi\"."`, `""`), "messages[0].content[0].content", ""},
		{"a text of the system", conversation(`{"role":"system","content":[`+block+`]},`+userHi, ""), "messages[0].content[0].type", "compaction_block_misplaced"},
		{"changes of another type", with(`"tool_changes":[]`, `"tool_changes":[{"type":"text","text":"a"}]`), "messages[0].content[0].tool_changes[0].type", ""},
	} {
		_, err := newAPI(t, 1).Decode(context.Background(), []byte(c.body), apitest.NewContext())
		if err == nil || err.Status != 400 || err.Param != c.param || c.code != "" && err.Code != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	rc := apitest.NewContext()
	rc.Tenant = "other"
	if _, err := newAPI(t, 1).Decode(context.Background(), []byte(with("", "")), rc); err == nil || err.Code != "compaction_signature_invalid" {
		t.Errorf("another tenant's: %v", err)
	}

	for name, o := range map[string]apitest.Output{
		"no text": apitest.Said(`<|channel|>analysis<|message|>Hm.<|end|>`),
		"cut":     apitest.Cut(`<|channel|>final<|message|>The user`),
	} {
		if _, err := s.try(t, conversation(talk, weatherTool+compacts), o); err == nil || err.Code != compaction.Code || err.Status != http.StatusBadGateway {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCompactionTools shows that a compaction keeps what the conversation has changed of the
// tools.
func TestCompactionTools(t *testing.T) {
	t.Parallel()
	s := newService(t)
	messages := userHi + `,` + changing(addition(named("later")), addition(inlineF)) + `,` + changing(removal(named("get_weather")), removal(named("later"))) + `,` + changing(addition(named("later")))
	block := s.play(t, conversation(messages, changedList+compacts), summed).Get("content.0")
	want := "[" + addition(inlineF) + "," + removal(named("get_weather")) + "," + addition(named("later")) + "]"
	if got := block.Get("tool_changes").Raw; got != want {
		t.Errorf("the changes are\n%s, want\n%s", got, want)
	}

	later := conversation(`{"role":"assistant","content":[`+block.Raw+`]},{"role":"user","content":"Go on."}`, changedList)
	s.play(t, later, answered)
	for _, part := range []string{"type f = (_:", "type later =", "not available any more, do not call them: functions.get_weather<|end|>"} {
		if !strings.Contains(s.prompts[0], part) {
			t.Errorf("the prompt has no %q:\n%s", part, s.prompts[0])
		}
	}
	// A tool that the client has dropped since is no error.
	s.play(t, conversation(`{"role":"assistant","content":[`+block.Raw+`]},{"role":"user","content":"Go on."}`, ""), answered)

	// What a search has found is there again.
	found := s.play(t, conversation(userHi, searchedTools("tool_search_tool_bm25")), callOf("tool_search_tool_bm25", `{"query":"weather"}`), answered)
	content, _ := json.Marshal(json.RawMessage(found.Get("content").Raw))
	block = s.play(t, conversation(userHi+`,{"role":"assistant","content":`+string(content)+`}`, searchedTools("tool_search_tool_bm25")+compacts), summed).Get("content.0")
	if got := block.Get("tool_changes").Raw; got != "["+addition(`{"type":"tool_reference","name":"get_weather"}`)+"]" {
		t.Errorf("the changes are %s", got)
	}

	// Servers are asked for their tools first, so that the prompt begins as the ones before.
	if message := s.play(t, conversation(userHi, docsServer+compacts), summed); message.Get("content.0.type").Str != "compaction" || !strings.Contains(s.prompts[0], "look_up") {
		t.Errorf("with a server: %s\n%s", message.Raw, s.prompts[0])
	}
}
