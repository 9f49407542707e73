package responses

import (
	"bytes"
	"net/http"
	"sort"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

const (
	// summaryDemand ends the demand for a summary.
	summaryDemand = "Leave out everything else. Write the summary only."
	// summaryIntro is before a summary in the conversation that continues from it.
	summaryIntro = "The conversation up to here was shortened to the following summary, which you wrote. Go on from it.\n\n"
)

// newCompactor is a server that can compact.
func newCompactor(t *testing.T, key byte) *server {
	t.Helper()
	s := newServer()
	var err error
	if s.Compactor, err = seal.NewSealer([][]byte{bytes.Repeat([]byte{key}, seal.KeyBytes)}, zeros{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// zeros is a source of randomness that is not random.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (s *server) decodeCompact(members string) (*write.Request, *apierror.Error) {
	return requestOf(s.outcome(http.MethodPost, CompactPath, []byte(`{`+members+`}`), s.rc))
}

// summarise compacts a conversation, and returns the answer and the prompt.
func (s *server) summarise(t *testing.T, members, output string) (got gjson.Result, prompt string) {
	t.Helper()
	request, err := s.decodeCompact(`"model":"gpt-oss-20b"` + members)
	if err != nil {
		t.Fatalf("%s: %v (param %q)", members, err, err.Param)
	}
	if info := request.Info(); info.Stream || info.Background != nil || info.Lock != nil {
		t.Error("a compaction is streamed, in the background, or locks something")
	}
	r := newReply(request, api.SingleCall)
	var out []byte
	all := apitest.Said(output).Chunks(apitest.Size(3))
	for i := range all {
		if out, err = r.Push(out, &all[i]); err != nil {
			t.Fatal(err)
		}
	}
	out = mustEnd(t, r, out)
	if _, err := responsestest.Compaction(out); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return gjson.ParseBytes(out), apitest.Spell(t, request.Engine().Prompt)
}

// elements are the elements of an array, with commas between them.
func elements(list gjson.Result) string { return strings.Trim(list.Raw, "[]") }

const (
	longHistory = `{"role":"developer","content":"rule"},{"role":"user","id":"msg_one","content":"one"},
		{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"thought"}]},
		{"type":"function_call","call_id":"x","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"x","output":"found"},
		{"role":"assistant","content":"reply"},{"role":"user","content":[{"type":"input_text","text":"two"}]}`
	wroteSummary = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>one is done<|return|>"
)

// TestCompact compacts a conversation and goes on from it.
func TestCompact(t *testing.T) {
	t.Parallel()
	s := newCompactor(t, 1)
	got, prompt := s.summarise(t, `,"instructions":"be brief","input":[`+longHistory+`]`, wroteSummary)
	for _, part := range []string{"be brief", "rule", "one", "found", "reply", "two", summaryDemand + "<|end|><|start|>assistant"} {
		if !strings.Contains(prompt, part) {
			t.Errorf("%q is not in the prompt:\n%s", part, prompt)
		}
	}
	if texts := got.Get("output.#.content.0.text").Raw; texts != `["rule","one","two"]` {
		t.Errorf("the messages that stay: %s", texts)
	}
	if got.Get("output.1.id").Str != "msg_one" || got.Get("usage.output_tokens_details.reasoning_tokens").Int() != 1 || strings.Contains(got.Raw, "done") {
		t.Errorf("%s", got.Raw)
	}
	if _, err := s.do("GET", "/v1/responses/"+got.Get("id").Str); err == nil {
		t.Error("a compaction is stored")
	}

	after := elements(got.Get("output")) + `,{"role":"user","content":"three"}`
	want := "rule<|end|><|start|>user<|message|>one<|end|><|start|>user<|message|>two<|end|><|start|>user<|message|>" + summaryIntro + "one is done<|end|>" +
		"<|start|>user<|message|>three<|end|><|start|>assistant"
	if prompt := s.prompt(t, `,"input":[`+after+`]`); !strings.HasSuffix(prompt, want) {
		t.Errorf("the prompt after it:\n%s", prompt)
	}
	item := got.Get("output.3").Raw
	if prompt := s.prompt(t, `,"input":[`+longHistory+`,`+item+`,{"role":"user","content":"three"}]`); !strings.HasSuffix(prompt, want) {
		t.Errorf("the prompt with what it replaces:\n%s", prompt)
	}

	other := strings.Replace(item, `"type":"compaction"`, `"type":"context_compaction"`, 1)
	if prompt := s.prompt(t, `,"input":[`+longHistory+`,`+other+`,{"role":"user","content":"three"}]`); !strings.HasSuffix(prompt, want) {
		t.Errorf("the prompt with the compaction under its other name:\n%s", prompt)
	}
	first := s.create(t, `,"input":[`+longHistory+`]`, said)
	second := s.create(t, previous(first)+`,"input":"more"`, said)
	replica, _ := s.replica()
	third := replica.create(t, previous(second)+`,"input":[`+other+`]`, said)
	if prompt := s.prompt(t, previous(third)+`,"input":"next"`); !strings.Contains(prompt, "one is done") || strings.Count(prompt, "<|message|>one<|end|>") != 1 {
		t.Errorf("the prompt of a chain with it:\n%s", prompt)
	}

	again, prompt := s.summarise(t, `,"input":[`+after+`]`, strings.Replace(wroteSummary, "one is", "all is", 1))
	if !strings.Contains(prompt, "one is done") || again.Get("output.#").Int() != 5 {
		t.Errorf("compacted again: %s\n%s", again.Raw, prompt)
	}
	prompt = s.prompt(t, `,"input":[`+after+`,`+again.Get("output.4").Raw+`]`)
	if strings.Contains(prompt, "one is done") || !strings.Contains(prompt, "all is done") {
		t.Errorf("the prompt after a second compaction has the first:\n%s", prompt)
	}
}

// TestCompactionIsSealed shows which compactions are refused.
func TestCompactionIsSealed(t *testing.T) {
	t.Parallel()
	s := newCompactor(t, 1)
	s.Sealer = s.Compactor
	got, _ := s.summarise(t, `,"input":"one"`, wroteSummary)
	item := got.Get("output.1")
	s.prompt(t, `,"input":[`+item.Raw+`]`)
	reasoning, err := s.Sealer.Seal(seal.Reasoning, "a", []byte("thought"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, s *server, sealed string) {
		t.Helper()
		if err := s.fails(t, `,"input":[{"type":"compaction","encrypted_content":"`+sealed+`"}]`); err.Status != 400 || err.Param != "input[0].encrypted_content" {
			t.Errorf("%s: %v", what, err)
		}
	}
	sealed := item.Get("encrypted_content").Str
	refused("sealed reasoning", s, reasoning)
	refused("a tampered one", s, "B"+sealed[1:])
	refused("another key's", newCompactor(t, 2), sealed)
	refused("no key", newServer(), sealed)
	if prompt := s.prompt(t, `,"input":[{"type":"reasoning","summary":[],"encrypted_content":"`+sealed+`"},{"role":"user","content":"two"}]`); strings.Contains(prompt, "all is done") {
		t.Errorf("a compaction is opened as reasoning:\n%s", prompt)
	}
	s.rc.Tenant = "b"
	refused("another tenant's", s, sealed)
}

// TestCompactPrevious compacts a chain, and continues a chain in which a
// compaction is.
func TestCompactPrevious(t *testing.T) {
	t.Parallel()
	for what, chains := range map[string]*read.Chains{"read": nil, "remembered": read.NewChains(1 << 20)} {
		s := newCompactor(t, 1)
		s.Chains = chains
		first := s.create(t, `,"input":"one"`, said)
		got, prompt := s.summarise(t, `,"previous_response_id":"`+first.Get("id").Str+`"`, wroteSummary)
		if !strings.Contains(prompt, "one<|end|><|start|>assistant<|channel|>final<|message|>answer<|end|>") || got.Get("output.#").Int() != 2 || got.Get("output.0.content.0.text").Str != "one" {
			t.Errorf("%s: %s\n%s", what, got.Raw, prompt)
		}
		second := s.create(t, `,"previous_response_id":"`+first.Get("id").Str+`","input":[{"type":"compaction_trigger"}]`, wroteSummary)
		third := s.create(t, `,"previous_response_id":"`+second.Get("id").Str+`","input":"two"`, said)
		beyond := s.create(t, `,"previous_response_id":"`+third.Get("id").Str+`","input":[{"type":"compaction_trigger"}]`, strings.Replace(wroteSummary, "one is", "all is", 1))
		for id, want := range map[string]string{
			second.Get("id").Str: "<|start|>user<|message|>one<|end|><|start|>user<|message|>" + summaryIntro + "one is done<|end|>",
			third.Get("id").Str:  "one is done<|end|><|start|>user<|message|>two<|end|><|start|>assistant<|channel|>final<|message|>answer<|end|>",
			beyond.Get("id").Str: "<|start|>user<|message|>one<|end|><|start|>user<|message|>two<|end|><|start|>user<|message|>" + summaryIntro + "all is done<|end|>",
		} {
			if prompt := s.prompt(t, `,"previous_response_id":"`+id+`","input":"next"`); !strings.HasSuffix(prompt, want+"<|start|>user<|message|>next<|end|><|start|>assistant") {
				t.Errorf("%s: the prompt of a chain with a compaction:\n%s", what, prompt)
			}
		}
	}
}

// TestCompactionTrigger makes a compaction the output of a response.
func TestCompactionTrigger(t *testing.T) {
	t.Parallel()
	s := newCompactor(t, 1)
	for _, stream := range []string{"true", "false"} {
		got := s.create(t, `,"parallel_tool_calls":false,"input":[`+longHistory+`,{"type":"compaction_trigger"}],"stream":`+stream+weatherTool, wroteSummary)
		if got.Get("output.#.type").Raw != `["compaction"]` || got.Get("status").Str != "completed" || !got.Get("store").Bool() {
			t.Errorf("%s", got.Raw)
		}
		listed, err := s.do("GET", "/v1/responses/"+got.Get("id").Str+"/input_items?order=asc")
		if err != nil || gjson.Get(listed, "data.#").Int() != 7 {
			t.Errorf("its input: %s, %v", listed, err)
		}
	}
	id, path := s.conversation(t, `{"items":[`+longHistory+`]}`)
	made := s.create(t, `,"conversation":"`+id+`","input":[{"type":"compaction_trigger"}]`, wroteSummary)
	if item := s.must(t, "GET", path+"/items/"+made.Get("output.0.id").Str, ""); item.Raw != made.Get("output.0").Raw {
		t.Errorf("a conversation's compaction: %s", item.Raw)
	}
	if prompt := s.prompt(t, `,"store":false,"conversation":"`+id+`","input":"go on"`); strings.Contains(prompt, "found") || !strings.Contains(prompt, "one is done") {
		t.Errorf("the prompt of a compacted conversation:\n%s", prompt)
	}
}

// TestCompactionFails shows what becomes of a model's turn that is no summary.
func TestCompactionFails(t *testing.T) {
	t.Parallel()
	s := newCompactor(t, 1)
	for text, finish := range map[string]engine.Finish{
		"<|channel|>analysis<|message|>hm<|end|>":                                                  engine.FinishStop,
		"<|channel|>final<|message|> \n<|return|>":                                                 engine.FinishStop,
		" to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>":                 engine.FinishStop,
		"<|channel|>final<|message|>half a summ":                                                   engine.FinishLength,
		"<|channel|>final<|message|>a summary<|end|><|start|>assistant<|channel|>final<|message|>": engine.FinishLength,
	} {
		for _, stream := range []bool{false, true} {
			body := `{"model":"gpt-oss-20b","input":[` + longHistory + `,{"type":"compaction_trigger"}]` + weatherTool + `}`
			request, err := s.decode([]byte(apitest.With(t, body, "stream", stream)), s.rc)
			if err != nil {
				t.Fatal(err)
			}
			r := newReply(request, api.SingleCall)
			out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(text), Finish: finish})
			if err != nil {
				t.Fatal(err)
			}
			out, err = apitest.End(t, r, out)
			if !stream {
				if err == nil || err.Status != 502 || err.Code != "compaction_failed" {
					t.Fatalf("%s: %v", text, err)
				}
				continue
			}
			if got := gjson.Parse(final(t, request, string(out))); got.Get("status").Str != "failed" || got.Get("error.code").Str != "server_error" || got.Get("output.#").Int() != 0 {
				t.Errorf("%s: %s", text, got.Raw)
			}
		}
	}
	preamble, _ := s.summarise(t, `,"input":"one"`, "<|channel|>commentary<|message|>all of it<|end|>")
	if prompt := s.prompt(t, `,"input":[`+elements(preamble.Get("output"))+`]`); !strings.Contains(prompt, "all of it<|end|>") {
		t.Errorf("a summary that is a preamble:\n%s", prompt)
	}
}

func TestCompactRefuses(t *testing.T) {
	t.Parallel()
	s := newCompactor(t, 1)
	for members, param := range map[string]string{
		`"input":"x"`:                                       "model",
		`"model":"gpt-oss"`:                                 "input",
		`"model":"gpt-oss","input":[]`:                      "input",
		`"model":"gpt-oss","input":"x","stream":true`:       "stream",
		`"model":"gpt-oss","input":"x","background":true`:   "background",
		`"model":"gpt-oss","input":[` + longHistory + `,7]`: "input[7]",
		`"model":"gpt-oss","input":"x","truncation":"some"`: "truncation",
	} {
		if _, err := s.decodeCompact(members); err == nil || err.Status != 400 || err.Param != param {
			t.Errorf("%s: %v", members, err)
		}
	}
}

// TestCompactTooLong compacts conversations that the model's context has little
// or no room for.
func TestCompactTooLong(t *testing.T) {
	t.Parallel()
	s := newCompactor(t, 1)
	const context = 4000
	s.rc.Model = &turn.Model{ContextLength: context}
	calls := func(n int, output string) string {
		items := make([]string, 0, n)
		for i := range n {
			id := apitest.Quote(strings.Repeat("c", i+1))
			items = append(items, `{"type":"function_call","call_id":`+id+`,"name":"f"},{"type":"function_call_output","call_id":`+id+`,"output":`+apitest.Quote(output)+`}`)
		}
		return strings.Join(items, ",")
	}
	long := strings.Repeat("long été ", 10_000)
	for what, c := range map[string]struct{ items, has, hasNot string }{
		"long outputs":   {`{"role":"user","content":"first"},` + calls(2, long), "first", ""},
		"a long text":    {`{"role":"user","content":` + apitest.Quote(long) + `},{"role":"assistant","content":"reply"}`, "reply", ""},
		"nearly fits":    {`{"role":"user","content":"first"},` + calls(1, strings.Repeat("word ", 3300)), "first", ""},
		"many outputs":   {`{"role":"user","content":"first"},` + calls(60, strings.Repeat("x y ", 200)) + `,{"role":"assistant","content":"reply"},{"role":"user","content":"last"}`, "last", "first"},
		"short as it is": {`{"role":"user","content":"first"},` + calls(1, "result"), "result", "left out"},
	} {
		_, prompt := s.summarise(t, `,"truncation":"auto","input":[`+c.items+`]`, wroteSummary)
		if !strings.Contains(prompt, c.has) || c.hasNot != "" && strings.Contains(prompt, c.hasNot) || !strings.Contains(prompt, summaryDemand) {
			t.Errorf("%s: the prompt is\n%.3000s", what, prompt)
		}
		if n := len(apitest.Tokens(prompt)); n > context*7/8 {
			t.Errorf("%s: %d tokens of %d", what, n, context)
		}
	}
	request, err := s.decode([]byte(apitest.With(t, askItems(`{"role":"user","content":"one"},{"type":"compaction_trigger"}`), "max_output_tokens", 50)), s.rc)
	if err != nil || request.Engine().MaxTokens != 50 {
		t.Errorf("max_output_tokens: %v", err)
	}
	count, err := s.serve("POST", InputTokensPath, []byte(askItems(`{"role":"user","content":`+apitest.Quote(long)+`},{"type":"compaction_trigger"}`)), s.rc)
	if err != nil || gjson.GetBytes(count, "input_tokens").Int() < context {
		t.Errorf("the count of a prompt that is too long: %s, %v", count, err)
	}
}

// TestCompactionOfUsers compacts what users' messages alone make too long, and
// shows which of them stay.
func TestCompactionOfUsers(t *testing.T) {
	t.Parallel()
	for what, chains := range map[string]*read.Chains{"read": nil, "remembered": read.NewChains(1 << 20)} {
		s := newCompactor(t, 1)
		s.Chains = chains
		s.rc.Model = &turn.Model{ContextLength: 4096}
		long := strings.Repeat("log line ", 900)
		members := previous(s.create(t, `,"input":[{"role":"developer","content":"rule"},{"role":"user","content":"begin0"}]`, said))
		for _, begin := range []string{"begin1 ", "begin2 "} {
			members = previous(s.create(t, members+`,"truncation":"auto","input":"`+begin+long+`end"`, said))
		}
		members = previous(s.create(t, members+`,"input":[{"role":"user","content":"short"},{"type":"compaction_trigger"}]`, wroteSummary))
		prompt := s.prompt(t, members+`,"input":"go on"`)
		_, users, _ := strings.Cut(prompt, "<|start|>user<|message|>")
		if !strings.HasPrefix(users, "begin2 log") || !strings.Contains(prompt, "rule<|end|>") ||
			!strings.HasSuffix(prompt, "end<|end|><|start|>user<|message|>short<|end|><|start|>user<|message|>"+summaryIntro+"one is done<|end|><|start|>user<|message|>go on<|end|><|start|>assistant") {
			t.Errorf("%s: the prompt:\n%s", what, prompt)
		}
		if n := len(users); n < 1800 || n > 2048+512 {
			t.Errorf("%s: %d bytes of users' messages and summary, want about an eighth of the context", what, n)
		}

		// What stays is dropped before the summary where the rest needs it.
		prompt = s.prompt(t, members+`,"truncation":"auto","input":"`+strings.Repeat("new text ", 1560)+`"`)
		if strings.Contains(prompt, "log line") || !strings.Contains(prompt, "one is done") || !strings.Contains(prompt, "rule<|end|>") {
			t.Errorf("%s: the prompt of a longer turn:\n%s", what, prompt)
		}

		// Another model goes on with the same conversation.
		s.rc.Model = &turn.Model{}
		if other := s.prompt(t, members+`,"input":"go on"`); !strings.Contains(other, users) {
			t.Errorf("%s: another model gets\n%s", what, other)
		}
	}
}

// TestManyCompactions has conversations of as many compactions as instructions, stored
// and sent. Each compaction replaces what is before it, but only the last one of them is
// work: the steps grow with the items, not with their square.
func TestManyCompactions(t *testing.T) {
	t.Parallel()
	s := newCompactor(t, 1)
	got, _ := s.summarise(t, `,"input":"one"`, wroteSummary)
	compaction := got.Get("output.1").Raw
	many := func(n int) string {
		items := strings.Repeat(`{"role":"developer","content":"rule"},`, n) + strings.Repeat(compaction+`,`, n)
		return strings.ReplaceAll(items, got.Get("output.1.id").Str, "") + `{"role":"user","content":"go on"}`
	}

	const plenty = 1 << 40
	steps := func(members string) int {
		t.Helper()
		account := work.New(t.Context(), plenty)
		s.rc.Work = account
		prompt := s.prompt(t, members)
		if strings.Count(prompt, "one is done") != 1 || !strings.Contains(prompt, "rule") || !strings.Contains(prompt, "go on") {
			t.Errorf("the prompt:\n%.2000s", prompt)
		}
		return sort.Search(plenty, func(n int) bool { return !account.Affords(plenty - n) }) - 1
	}

	for what, members := range map[string]func(n int) string{
		"sent": func(n int) string { return `,"store":false,"input":[` + many(n) + `]` },
		"stored": func(n int) string {
			s.rc.Work = nil
			return previous(s.create(t, `,"input":[`+many(n)+`]`, said))
		},
	} {
		few, twice := steps(members(400)), steps(members(800))
		if few == 0 || twice > few*5/2 {
			t.Errorf("%s: %d steps, for twice the items %d", what, few, twice)
		}
	}
}

// TestStoredItemsAreWork names a conversation that takes more steps to read than a
// request has.
func TestStoredItemsAreWork(t *testing.T) {
	t.Parallel()
	s := newServer()
	first := s.create(t, `,"input":"`+strings.Repeat("word ", 10_000)+`"`, said)

	s.Chains = nil // what is remembered is not read
	s.rc.Work = work.New(t.Context(), 1000)
	err := s.fails(t, previous(first)+`,"input":"next"`)
	if err.Status != http.StatusBadRequest || err.Code != turn.CodeTooCostly || err.Param != "previous_response_id" {
		t.Errorf("the error is %v (param %q)", err, err.Param)
	}
}
