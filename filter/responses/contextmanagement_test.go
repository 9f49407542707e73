package responses

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// newCompactingLoop is a loop that can compact.
func newCompactingLoop(t *testing.T) *loop {
	t.Helper()
	l := newLoop(t)
	l.rc.Tenant = "a"
	l.api.Compactor = newCompactor(t, 1).Compactor
	return l
}

// compactAt is the field that compacts prompts of more than 200 tokens, which history is.
const compactAt = `,"context_management":[{"type":"compaction","compact_threshold":200}]`

var wordy = strings.Repeat("word ", 300)

// worked is a conversation that is longer than the threshold of compactAt.
var worked = `{"role":"developer","content":"rule"},{"role":"user","content":"one"},{"role":"assistant","content":"` + wordy + `"},{"role":"user","content":"two"}`

// TestContextManagement shows a response whose prompt is longer than the threshold:
// streamed and not, its model calls, and how the conversation goes on from it, sent
// again and stored.
func TestContextManagement(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"", `,"stream":true`} {
		l := newCompactingLoop(t)
		object := l.play(t, `{"model":"m","input":[`+worked+`]`+compactAt+stream+`,"max_output_tokens":40}`, wroteSummary, doneText)
		if got := kinds(object); got != "compaction, message completed" || object.Get("status").Str != "completed" {
			t.Fatalf("the response is %s with %s", object.Get("status"), got)
		}
		if len(l.prompts) != 2 || !strings.HasSuffix(l.prompts[0], summaryDemand+"<|end|><|start|>assistant") {
			t.Fatalf("the first of %d prompts asks for no summary", len(l.prompts))
		}
		plain := apitest.Spell(t, mustDecode(t, `{"model":"m","input":[`+worked+`]}`).Engine().Prompt)
		if !strings.HasPrefix(l.prompts[0], strings.TrimSuffix(plain, "<|start|>assistant")) {
			t.Errorf("the prompt for the summary does not begin with that of the conversation: %s", l.prompts[0])
		}
		const after = "rule<|end|><|start|>user<|message|>one<|end|><|start|>user<|message|>two<|end|><|start|>user<|message|>" + summaryIntro + "one is done<|end|><|start|>assistant"
		if !strings.HasSuffix(l.prompts[1], after) || strings.Contains(l.prompts[1], wordy) {
			t.Errorf("the second prompt is %s", l.prompts[1])
		}
		prompts := 0
		for _, p := range l.prompts {
			prompts += len(apitest.Tokens(p))
		}
		written := len(apitest.Tokens(wroteSummary)) + len(apitest.Tokens(doneText))
		if u := object.Get("usage"); u.Get("input_tokens").Int() != int64(prompts) || u.Get("output_tokens").Int() != int64(written) {
			t.Errorf("the usage is %s, the model calls have %d and %d tokens", u, prompts, written)
		}
		next := `,"input":[{"role":"user","content":"three"}]`
		sent := `,"store":false,"input":[` + worked + `,` + elements(object.Get("output")) + `,{"role":"user","content":"three"}]`
		for name, members := range map[string]string{"stored": `,"previous_response_id":"` + object.Get("id").Str + `"` + next, "sent": sent} {
			request, err := l.api.decode([]byte(`{"model":"m"`+members+compactAt+`}`), l.rc)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if request.Turn == nil {
				t.Fatalf("%s: it is compacted again", name)
			}
			want := strings.TrimSuffix(l.prompts[1], "<|start|>assistant") + "<|start|>assistant<|channel|>final<|message|>done<|end|><|start|>user<|message|>three<|end|><|start|>assistant"
			if got := apitest.Spell(t, request.Engine().Prompt); got != want {
				t.Errorf("%s: the next prompt is\n%s\nwant\n%s", name, got, want)
			}
		}
	}
}

// TestCompactingEvents shows the events of the compaction, before those of the answer.
func TestCompactingEvents(t *testing.T) {
	t.Parallel()
	l := newCompactingLoop(t)
	request, err := l.api.decode([]byte(`{"model":"m","input":[`+worked+`]`+compactAt+`,"stream":true}`), l.rc)
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.reply(t, newReply(request, api.Loop), wroteSummary, doneText)
	if err != nil {
		t.Fatal(err)
	}
	final(t, request, string(out)) // checks the stream
	var events []string
	for line := range strings.Lines(string(out)) {
		data, ok := strings.CutPrefix(line, "data: ")
		e := gjson.Parse(data)
		if !ok || !e.IsObject() {
			continue
		}
		if kind := strings.TrimPrefix(e.Get("type").Str, "response."); e.Get("output_index").Exists() && e.Get("output_index").Int() == 0 {
			events = append(events, kind)
			if kind == "compaction.compacting" && e.Get("item_id").Str == "" {
				t.Errorf("the event is %s", e)
			}
		}
	}
	if want := []string{"output_item.added", "compaction.compacting", "output_item.done"}; !slices.Equal(slices.Compact(events), want) {
		t.Errorf("the events are %v, want %v", events, want)
	}
	if bytes.Contains(out, []byte("one is done")) {
		t.Error("the summary is shown")
	}
}

// TestContextManagementOfServers shows that the prompt has the tools of MCP servers when
// it is measured, and that a loop of tools goes on after the compaction.
func TestContextManagementOfServers(t *testing.T) {
	t.Parallel()
	l := newCompactingLoop(t)
	object := l.play(t, `{"model":"m","input":[`+worked+`],`+docsTool+compactAt+`}`, wroteSummary, searchCall("cats"), doneText)
	if got := kinds(object); got != "mcp_list_tools, compaction, reasoning completed, mcp_call completed, message completed" {
		t.Errorf("the response has %s", got)
	}
	if !strings.Contains(l.prompts[0], "namespace docs") || !strings.HasPrefix(l.prompts[2], l.prompts[1]) {
		t.Errorf("the prompts are %q", l.prompts)
	}
}

// TestSummaryIsNoAnswer shows that where the answer ends, and how long it is at least, is
// not about the summary.
func TestSummaryIsNoAnswer(t *testing.T) {
	t.Parallel()
	l := newCompactingLoop(t)
	request, err := l.api.decode([]byte(`{"model":"m","input":[`+worked+`]`+compactAt+`,"stop":["is"],"stop_token_ids":[7],"min_tokens":9}`), l.rc)
	if err != nil {
		t.Fatal(err)
	}
	r := newReply(request, api.Loop)
	out, err := l.reply(t, r, wroteSummary, "<|channel|>final<|message|>this stops<|return|>")
	if err != nil {
		t.Fatal(err)
	}
	if got := gjson.ParseBytes(out).Get("output.1.content.0.text").Str; !strings.HasSuffix(l.prompts[1], "one is done<|end|><|start|>assistant") || got != "th" {
		t.Errorf("the answer is %q, the prompt behind the summary %s", got, l.prompts[1])
	}
}

// TestContextTooLong shows that a conversation that is longer than the model's context is
// compacted where the request allows it, and is an error elsewhere.
func TestContextTooLong(t *testing.T) {
	t.Parallel()
	l := newCompactingLoop(t)
	model := *l.rc.Model
	model.ContextLength = 700
	l.rc.Model = &model
	long := strings.Replace(worked, wordy, strings.Repeat(wordy, 3), 1)
	if _, err := l.try(t, `{"model":"m","input":[`+long+`]}`); err == nil || err.Code != "context_length_exceeded" {
		t.Errorf("without context_management: %v", err)
	}
	if got := kinds(l.play(t, `{"model":"m","input":[`+long+`],"context_management":[{"type":"compaction"}]}`, wroteSummary, doneText)); got != "compaction, message completed" {
		t.Errorf("the response has %s", got)
	}
	if _, err := l.try(t, `{"model":"m","input":[`+long+`],"context_management":[{"type":"compaction"}]}`, `<|channel|>analysis<|message|>hm<|return|>`); err == nil || err.Code != "compaction_failed" {
		t.Errorf("without a summary: %v", err)
	}
	// One that is short enough goes on without its summary.
	object := l.play(t, `{"model":"m","input":[`+worked+`]`+compactAt+`}`, `<|channel|>analysis<|message|>hm<|return|>`, doneText)
	if got := kinds(object); got != "message completed" || !strings.Contains(l.prompts[len(l.prompts)-1], wordy) {
		t.Errorf("the response has %s", got)
	}
}

// TestNoContextManagement shows where nothing is compacted.
func TestNoContextManagement(t *testing.T) {
	t.Parallel()
	l := newCompactingLoop(t)
	without := *l.api
	without.Tools = nil
	for name, c := range map[string]struct {
		api           *API
		input, fields string
		ignored       bool
	}{
		"a prompt below the threshold":       {l.api, `{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"three"}`, compactAt, false},
		"nothing that a summary can replace": {l.api, `{"role":"user","content":"` + wordy + `"}`, compactAt, false},
		"no loopback listener":               {&without, worked, compactAt, true},
		"a reply with Harmony messages":      {l.api, worked, compactAt + `,"enable_response_messages":true`, true},
		"an empty list":                      {l.api, worked, `,"context_management":[]`, false},
	} {
		request, err := c.api.decode([]byte(`{"model":"m","input":[`+c.input+`]`+c.fields+`}`), l.rc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if request.Turn == nil || slices.Contains(request.Ignored(), "context_management") != c.ignored {
			t.Errorf("%s: it is compacted, or ignored is %v", name, request.Ignored())
		}
	}
	for fields, param := range map[string]string{
		`,"context_management":[{"type":"x"}]`:                                "context_management[0].type",
		`,"context_management":[{"type":"compaction","compact_threshold":0}]`: "context_management[0].compact_threshold",
		`,"context_management":{}`:                                            "context_management",
		`,"prompt_cache_options":{"mode":"x"}`:                                "prompt_cache_options.mode",
		`,"prompt_cache_options":{"ttl":"1h"}`:                                "prompt_cache_options.ttl",
		`,"prompt_cache_options":"x"`:                                         "prompt_cache_options",
		`,"prompt_cache_options":{"prewarm":1}`:                               "prompt_cache_options.prewarm",
	} {
		if _, err := l.api.decode([]byte(ask(fields)), l.rc); err == nil || err.Param != param {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

// TestCacheOptions shows that options of prompt caches are repeated, and that a
// breakpoint in a part changes nothing.
func TestCacheOptions(t *testing.T) {
	t.Parallel()
	request := mustDecode(t, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"Hi","prompt_cache_breakpoint":{"mode":"explicit"}}]}],"prompt_cache_options":{"ttl":"12h","prewarm":false}}`)
	object := gjson.Parse(run(t, request, apitest.Said(doneText).Chunks(apitest.Size(3))))
	if got := object.Get("prompt_cache_options").Raw; got != `{"mode":"implicit","ttl":"12h"}` {
		t.Errorf("the response has %s", got)
	}
	if text := apitest.Spell(t, request.Engine().Prompt); !strings.HasSuffix(text, "<|start|>user<|message|>Hi<|end|><|start|>assistant") {
		t.Errorf("the prompt is %s", text)
	}
	if plain := gjson.Parse(run(t, mustDecode(t, ask("")), apitest.Said(doneText).Chunks(apitest.Size(3)))); plain.Get("prompt_cache_options").Exists() {
		t.Error("a response has options that its request has not")
	}
}

// TestCompactionKeepsTools shows that the tools of items stay when the conversation
// before a compaction is left out.
func TestCompactionKeepsTools(t *testing.T) {
	t.Parallel()
	l := newCompactingLoop(t)
	l.play(t, `{"model":"m","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"one"}]},`+worked+`]`+compactAt+`}`, wroteSummary, doneText)
	if !strings.Contains(l.prompts[1], "type one =") || strings.Contains(l.prompts[1], wordy) {
		t.Errorf("the prompt behind the compaction is %s", l.prompts[1])
	}
}
