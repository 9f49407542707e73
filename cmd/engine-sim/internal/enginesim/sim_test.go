package enginesim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func readAll(t testing.TB, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

const (
	thought = "<|channel|>analysis<|message|>The user wants a reply.<|end|><|start|>assistant"
	final   = "<|channel|>final<|message|>"
)

// TestHeaderForms shows in which forms the headers of calls are written.
func TestHeaderForms(t *testing.T) {
	forms := []string{
		"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
		" to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
		"<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
		" to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
	}
	output := func(directives string, messages int) string {
		t.Helper()
		text := strings.Repeat("<|start|>user<|message|>Hi<|end|>", messages) + "<|start|>user<|message|>NOTHINK\nCALL f {}<|end|><|start|>assistant"
		seq, err := New(Options{}).plan(&modelRequest{prompt: harmony.AppendEncodeSpecial(nil, text)}, directives, "")
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]harmony.Token, len(seq.ids))
		for i, id := range seq.ids {
			ids[i] = harmony.Token(id)
		}
		return show(ids)
	}

	for i, want := range forms {
		if got := output("headers="+strconv.Itoa(i+1), 0); got != want {
			t.Errorf("form %d: %s", i+1, got)
		}
	}
	if got := output("", 0); got != forms[0] {
		t.Errorf("by default: %s", got)
	}

	seen := map[string]bool{}
	for messages := range 40 {
		got := output("headers=seed seed=7", messages)
		if got != output("seed=7 headers=seed", messages) {
			t.Error("the same seed has two forms")
		}
		seen[got] = true
	}
	if len(seen) != 3 || seen[forms[3]] {
		t.Errorf("the forms by seed: %v", seen)
	}

	for _, wrong := range []string{"0", "5", "x", ""} {
		if _, err := (Behavior{}).With("headers=" + wrong); err == nil {
			t.Errorf("headers=%s is accepted", wrong)
		}
	}
}

// TestModel checks the output of the scripted model in both APIs.
func TestModel(t *testing.T) {
	const developer = "<|start|>developer<|message|># Instructions\n\nBe terse.\n\n# Tools\n\n## functions\n\nnamespace functions {\n\n// Weather\n// of a place\n" +
		"type get_weather = (_: {\n// where\nlocation: string,\nunit?: \"c\" | \"f\",\ndays: number[],\nkind: \"a\" | \"b\",\nsub: {\nx: boolean,\n},\n}) => any;\n\n" +
		"type get_time = () => any;\n\n} // namespace functions<|end|>"
	const called = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>" +
		"<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sunny<|end|>"
	const searched = "<|start|>assistant to=browser.search<|channel|>analysis code<|message|>{}<|call|>" +
		"<|start|>browser.search to=assistant<|channel|>analysis<|message|>[0] a<|end|>"
	system := withBuiltins(t)
	const arguments = `{"location": "San Francisco, CA", "days": [1], "kind": "a", "sub": {"x": true}}`
	for _, c := range []struct{ name, before, user, after, want string }{
		{"default", "", "hi", "", thought + final + "Hello there friend.<|return|>"},
		{"say", "", "SAY hé 😀 <|end|>", "", thought + final + "hé 😀 <|end|><|return|>"},
		{"nothink", "", "NOTHINK\nSAY x", "", final + "x<|return|>"},
		{"json before say", "", "SAY a\nJSON {\"b\":1}", "", thought + final + `{"b":1}<|return|>`},
		{"words", "", "WORDS 3", "", thought + final + "w1 w2 w3<|return|>"},
		{"call", "", "THINK a b\nCOMMENTARY look\nCALL get_time {}", "", "<|channel|>analysis<|message|>a b<|end|><|start|>assistant<|channel|>commentary<|message|>look<|end|>" +
			"<|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}<|call|>"},
		{"second call, dotted", "", "CALL get_weather {}\nCALL a.b {\"q\":1}\nSAY z", called, thought + `<|channel|>commentary to=a.b <|constrain|>json<|message|>{"q":1}<|call|>`},
		{"call with what a tool answered", "", "CALL f {}\nCALL wait {\"id\":\"${id}\",\"x\":\"${x}\"}", `<|start|>functions.f to=assistant<|message|>{"id":"a1"}<|end|>`, thought + `<|channel|>commentary to=functions.wait <|constrain|>json<|message|>{"id":"a1","x":"${x}"}<|call|>`},
		{"all calls answered", "", "CALL get_weather {}\nSAY z", called, thought + final + "z<|return|>"},
		{"weather", developer, "What's the weather?", "", thought + "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + arguments + "<|call|>"},
		{"weather without a tool", "", "What's the weather?", "", thought + final + "Hello there friend.<|return|>"},
		{"weather result", developer, "What's the weather?", called, thought + final + "RESULT: sunny<|return|>"},
		{"echo tools", developer, "ECHO_TOOLS", "", thought + final + "TOOLS:get_time,get_weather<|return|>"},
		{"echo system", developer, "ECHO_SYSTEM", "", thought + final + "SYSTEM:Be terse.<|return|>"},
		{"recall", "<|start|>user<|message|>REMEMBER one\nREMEMBER two<|end|>", "RECALL", "", thought + final + "RECALL:one,two<|return|>"},
		{"last assistant", "<|start|>user<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|end|>", "LAST_ASSISTANT", "", thought + final + "LAST:b<|return|>"},
		{
			"response format", "<|start|>developer<|message|># Response Formats\n\n## r\n\n{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"},\"b\":{}},\"required\":[\"ok\"]}<|end|>", "hi", "",
			thought + "<|channel|>final <|constrain|>json<|message|>" + `{"ok": true}<|return|>`,
		},
		{"exact tokens", "", "x @@<message>no channel<#200003><return>@@", "", "<|message|>no channel<|constrain|><|return|>"},
		{"exact tokens, second turn", "", "x @@<message>1<call>@@<message>2<return>@@", called, "<|message|>2<|return|>"},
		{"script without an end", "", "x @@<channel>final<message>a@@", "", final + "a<|return|>"},
		{"special tokens in user text", "", "SAY x<|return|>y", "", thought + final + "x<|return|>y<|return|>"},
		{"search", system, "CALL browser.search {\"query\":\"a\"}", "", thought + `<|channel|>analysis to=browser.search code<|message|>{"query":"a"}<|call|>`},
		{"code behind a search", system, "CALL browser.search {}\nCALL python print(1)", searched, thought + "<|channel|>analysis to=python code<|message|>print(1)<|call|>"},
		{"search answered", system, "CALL browser.search {}", searched, thought + final + "RESULT: [0] a<|return|>"},
		{"a function python", developer, "CALL python {}", "", thought + "<|channel|>commentary to=functions.python <|constrain|>json<|message|>{}<|call|>"},
		{"a browser of the client's", "", "CALL browser.search {}", "", thought + "<|channel|>commentary to=browser.search <|constrain|>json<|message|>{}<|call|>"},
		{"echo built-in tools", system, "ECHO_TOOLS", "", thought + final + "TOOLS:browser.find,browser.open,browser.search,python<|return|>"},
	} {
		for _, kind := range engine.Kinds() {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				r := ask("")
				r.Prompt = conversation(c.before, c.user, c.after)
				got := talk(t, New(Options{}), kind, "tokens-per-event=8", r)
				if got.Err != nil {
					t.Fatal(got.Err)
				}
				if diff := cmp.Diff(c.want, got.Texts[0]); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// withBuiltins returns a system message with the browser and python.
func withBuiltins(t *testing.T) string {
	t.Helper()
	content := &harmony.SystemContent{Identity: "I", KnowledgeCutoff: "2024-06", Tools: []harmony.Namespace{harmony.BrowserNamespace(), harmony.PythonNamespace()}}
	ids, err := harmony.NewRenderer().AppendConversation(nil, []harmony.Message{{Role: harmony.RoleSystem, Content: []harmony.Content{content}}})
	if err != nil {
		t.Fatal(err)
	}
	return show(ids)
}

// TestUserTextStaysText checks that <|return|> in a text is not the token.
func TestUserTextStaysText(t *testing.T) {
	seq := planFor(userPrompt("SAY x<|return|>"))
	ends := 0
	for _, id := range seq.ids {
		if id == int32(harmony.TokenReturn) {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d return tokens", ends)
	}
}

// TestPrefill continues a reply that the prompt has begun.
func TestPrefill(t *testing.T) {
	for _, c := range []struct{ user, begun, want string }{
		{"SAY t", "<|channel|>final<|message|>", "t<|return|>"},
		{"SAY t", "<|channel|>final", "<|message|>t<|return|>"},
		{"SAY t", "<|channel|>analysis", "<|message|>The user wants a reply.<|end|><|start|>assistant<|channel|>final<|message|>t<|return|>"},
		{"SAY t", "<|channel|>analysis<|message|>", "The user wants a reply.<|end|><|start|>assistant<|channel|>final<|message|>t<|return|>"},
		{"SAY t", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", "{}<|call|>"},
		{"CALL f {\"a\":1}", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", `{"a":1}<|call|>`},
	} {
		ids := append(userPrompt(c.user), encodeHeader(c.begun)...)
		seq := planFor(ids)
		if got := showSigned(seq.ids); got != c.want {
			t.Errorf("%s, begun %s:\ngot  %s\nwant %s", c.user, c.begun, got, c.want)
		}
	}
	seq := planFor(encodeHeader("<|start|>user<|message|>SAY t<|end|>"))
	if got := showSigned(seq.ids); !strings.HasPrefix(got, "<|start|>assistant<|channel|>analysis") {
		t.Errorf("nothing begun: %s", got)
	}
}

func showSigned(ids []int32) string {
	unsigned := make([]harmony.Token, 0, len(ids))
	for _, id := range ids {
		unsigned = append(unsigned, harmony.Token(id))
	}
	return show(unsigned)
}

func TestLimits(t *testing.T) {
	for _, kind := range engine.Kinds() {
		t.Run(kind, func(t *testing.T) {
			s := New(Options{ContextLength: 100})
			play := func(r *engine.Request) answer {
				t.Helper()
				got := talk(t, s, kind, "", r)
				if got.Err != nil {
					t.Fatalf("%s does not answer: %v", kind, got.Err)
				}
				return got
			}
			got := play(ask("WORDS 90", func(r *engine.Request) { r.MaxTokens = 10 }))
			if got.Finishes[0] != engine.FinishLength || got.Output != 10 {
				t.Errorf("max_tokens: %+v", got)
			}
			if kind != "llamacpp" { // it has no min_tokens
				got = play(ask("NOTHINK\nSAY a", func(r *engine.Request) { r.MaxTokens, r.MinTokens = 50, 20 }))
				if got.Finishes[0] != engine.FinishStop || got.Output != 21 {
					t.Errorf("min_tokens: %+v", got)
				}
			}
			got = play(ask("NOTHINK\nSAY one two three", func(r *engine.Request) {
				r.MaxTokens, r.StopTokens = 50, encode(" two")
			}))
			if !strings.HasSuffix(got.Texts[0], "one two") || got.Finishes[0] != engine.FinishStop {
				t.Errorf("stop token: %+v", got)
			}
			got = talk(t, s, kind, "", ask(strings.Repeat("long ", 200), func(r *engine.Request) { r.MaxTokens = 1 }))
			most := "is 100 tokens"
			if kind == "sglang-grpc" {
				most = "is 94 tokens" // it keeps six free of a prompt
			}
			if got.Err == nil || got.Err.Status != 400 || got.Err.Code != "context_length_exceeded" || !strings.Contains(got.Err.Message, most) {
				t.Errorf("too long: %+v", got.Err)
			}
		})
	}
}

// TestOutputBeyondContext checks limits of output tokens that exceed the context.
// vLLM's completions API rejects a limit above the whole context, and SGLang's HTTP
// API one that does not fit after the prompt. The others end the output with the
// context.
func TestOutputBeyondContext(t *testing.T) {
	const size = 100
	for _, tt := range []struct {
		maxTokens int
		refuse    []string
	}{
		{size, []string{"sglang"}},
		{size + 1, []string{"sglang", "vllm"}},
	} {
		for _, kind := range engine.Kinds() {
			r := ask("WORDS 90", func(r *engine.Request) { r.MaxTokens = tt.maxTokens })
			got := talk(t, New(Options{ContextLength: size}), kind, "", r)
			if slices.Contains(tt.refuse, kind) {
				if got.Err == nil || got.Err.Status != 400 || got.Err.Code != "context_length_exceeded" || !strings.Contains(got.Err.Message, "is 100 tokens") {
					t.Errorf("%s, %d tokens: %+v", kind, tt.maxTokens, got.Err)
				}
				continue
			}
			if got.Err != nil || got.Finishes[0] != engine.FinishLength || got.Output != size-len(r.Prompt) {
				t.Errorf("%s, %d tokens: %d of output, %q, %v", kind, tt.maxTokens, got.Output, got.Finishes, got.Err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	bad := -1.0
	for _, kind := range engine.Kinds() {
		got := talk(t, New(Options{}), kind, "", ask("x", func(r *engine.Request) { r.Temperature = &bad }))
		if kind == "llamacpp" || kind == "sglang-grpc" { // one takes it for 0, the other as it is
			if got.Err != nil {
				t.Errorf("%s: %+v", kind, got.Err)
			}
			continue
		}
		if got.Err == nil || got.Err.Status != 400 || got.Err.Param != "temperature" {
			t.Errorf("%s: %+v", kind, got.Err)
		}
	}
	got := talk(t, New(Options{}), "vllm", "", ask("x", func(r *engine.Request) { r.Model = "nope" }))
	if got.Err == nil || got.Err.Status != 404 || got.Err.Code != "model_not_found" {
		t.Errorf("model: %+v", got.Err)
	}
	got = talk(t, New(Options{}), "vllm", "no=such", ask("x"))
	if got.Err == nil || got.Err.Status != 400 {
		t.Errorf("directive: %+v", got.Err)
	}
	w := httptest.NewRecorder()
	New(Options{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"gpt-oss-20b","prompt":[200006,-1],"structured_outputs":null}`)))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "200006") {
		t.Errorf("the error does not repeat the bad prompt like real engines do: %d %s", w.Code, w.Body)
	}
}

func TestStatus(t *testing.T) {
	for _, body := range []string{"json", "detail", "envoy", "html", "empty"} {
		got := talk(t, New(Options{}), "vllm", "status=429 retry-after=2 body="+body, ask("x"))
		if got.Err == nil || got.Err.Status != 429 || got.Err.RetryAfter != 2*time.Second {
			t.Errorf("%s: %+v", body, got.Err)
		}
	}
	got := talk(t, New(Options{}), "sglang", "", ask("SIM status=503 body=envoy\nSAY x"))
	if got.Err == nil || got.Err.Status != 503 {
		t.Errorf("line: %+v", got.Err)
	}
}

func TestCache(t *testing.T) {
	s := New(Options{BlockSize: 8})
	cached := func(salt string) int {
		r := ask("SAY " + strings.Repeat("x ", 50))
		r.CacheSalt = salt
		return talk(t, s, "vllm", "", r).Usage.CachedTokens
	}
	size := len(ask("SAY " + strings.Repeat("x ", 50)).Prompt)
	if first, again, other := cached(""), cached(""), cached("tenant"); first != 0 || again != (size-1)/8*8 || other != 0 {
		t.Errorf("cached %d, %d, with another salt %d; the prompt has %d", first, again, other, size)
	}
}

// TestCacheOfCalls shows that an output that ends in a call is cached too, as a prompt goes on with it.
func TestCacheOfCalls(t *testing.T) {
	s := New(Options{BlockSize: 8})
	r := ask("CALL f {\"x\":\"" + strings.Repeat("x ", 50) + "\"}")
	output := harmony.AppendEncodeSpecial(nil, talk(t, s, "vllm", "", r).Texts[0])
	computed := len(r.Prompt) + len(output) - 1
	next := *r
	next.Prompt = slices.Concat(r.Prompt, output, r.Prompt)
	if got := talk(t, s, "vllm", "", &next).Usage.CachedTokens; got != computed/8*8 {
		t.Errorf("cached %d of %d", got, computed)
	}
}

func TestWhole(t *testing.T) {
	s := New(Options{})
	body, err := json.Marshal(map[string]any{"model": "gpt-oss-20b", "prompt": userPrompt("NOTHINK\nSAY hi"), "max_tokens": 50, "return_token_ids": true})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", bytes.NewReader(body)))
	var reply struct {
		Choices []struct {
			Text   string          `json:"text"`
			Finish string          `json:"finish_reason"`
			IDs    []harmony.Token `json:"token_ids"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil {
		t.Fatal(err)
	}
	if len(reply.Choices) != 1 || reply.Choices[0].Text != final+"hi" || show(reply.Choices[0].IDs) != final+"hi<|return|>" || reply.Choices[0].Finish != "stop" {
		t.Errorf("%+v", reply)
	}
	body, err = json.Marshal(map[string]any{"input_ids": userPrompt("NOTHINK\nSAY hi")})
	if err != nil {
		t.Fatal(err)
	}
	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/generate", bytes.NewReader(body)))
	var native struct {
		IDs []harmony.Token `json:"output_ids"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &native); err != nil || show(native.IDs) != final+"hi<|return|>" {
		t.Errorf("%s: %v", w.Body, err)
	}
}

// TestTextPrompt sends a prompt that is not a conversation and gets words until
// max_tokens.
func TestTextPrompt(t *testing.T) {
	w := httptest.NewRecorder()
	New(Options{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"gpt-oss-20b","prompt":"Once upon","max_tokens":5}`)))
	var reply struct {
		Choices []struct {
			Text   string `json:"text"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil {
		t.Fatal(err)
	}
	if reply.Usage.Completion != 5 || reply.Choices[0].Finish != "length" || !strings.HasPrefix(reply.Choices[0].Text, " ") {
		t.Errorf("%s", w.Body)
	}
}

// open starts a stream on a real server and returns after its headers have arrived.
func open(t *testing.T, url, kind, user string, change ...func(*engine.Request)) (resp *http.Response, leave func()) {
	t.Helper()
	dialect, _ := engine.ByKind(kind)
	r := ask(user, change...)
	out, failed := dialect.Encode(r)
	if failed != nil {
		t.Fatal(failed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+out.Path, bytes.NewReader(out.Body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err = http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp, func() {
		cancel()
		_ = resp.Body.Close() // the request is cancelled
	}
}

func serve(t *testing.T, s *Sim) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return server.URL
}

func TestClientLeaves(t *testing.T) {
	for _, kind := range engine.Kinds() {
		for _, user := range []string{"SIM delay=10s\nSAY x", "SIM fault=hang@3\nSAY x", "SIM first=10s\nSAY x"} {
			s := New(Options{})
			_, leave := open(t, serve(t, s), kind, user)
			leave()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			rec, err := s.Await(ctx, func(r Record) bool { return r.State != StateRunning })
			cancel()
			if err != nil || rec.State != StateCancelled {
				t.Errorf("%s, %q: %v, state %q", kind, user, err, rec.State)
			}
		}
	}
}

func TestAbortRequest(t *testing.T) {
	s := New(Options{})
	url := serve(t, s)
	resp, leave := open(t, url, "sglang", "SIM fault=hang@3\nSAY x")
	defer leave()
	var head strings.Builder
	lines := bufio.NewReader(resp.Body)
	for strings.Count(head.String(), "data:") < 3 {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		head.WriteString(line)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(head.String()), lines), resp.Body}
	abort, err := http.Post(url+"/abort_request", "application/json", strings.NewReader(`{"rid":"5feceb66-1-chatcmpl-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, abort)
	got := decode(t, "sglang", ask(""), []byte(readAll(t, resp)), nil, 100)
	if got.Err != nil || got.Finishes[0] != engine.FinishAbort ||
		// With the token that was being computed.
		got.Texts[0] != "<|channel|>analysis<|message|>The" {
		t.Errorf("%+v", got)
	}
}

// TestAbortByPrefix: an abort ends every request whose id begins with the id of the aborted one,
// and no other, be it running or waiting, by HTTP and by gRPC. A client that leaves is one.
func TestAbortByPrefix(t *testing.T) {
	for _, kind := range []string{"sglang", "sglang-grpc"} {
		for _, other := range []string{"SIM fault=hang@3\nSAY x", "SIM first=1h\nSAY x"} {
			s := New(Options{})
			url := serve(t, s)
			id := func(text string) func(*engine.Request) {
				return func(r *engine.Request) { r.ID.Request = text }
			}
			_, leave := open(t, url, kind, "SIM fault=hang@3\nSAY x", id("a"))
			second, _ := open(t, url, kind, other, id("a-c1"))
			third, _ := open(t, url, kind, "SAY x", id("b"))
			leave()
			body := []byte(readAll(t, second))
			if got := decode(t, kind, ask(""), body, trailersOf(second), 100); got.Err != nil || got.Finishes[0] != engine.FinishAbort {
				t.Errorf("%s, %q: %+v", kind, other, got)
			}
			body = []byte(readAll(t, third))
			if got := decode(t, kind, ask(""), body, trailersOf(third), 100); got.Err != nil || got.Finishes[0] != engine.FinishStop {
				t.Errorf("%s: another request: %+v", kind, got)
			}
		}
	}
}

// TestDuplicateID: a second request with an id that runs is refused as SGLang refuses it, and ends
// the first.
func TestDuplicateID(t *testing.T) {
	url := serve(t, New(Options{}))
	first, _ := open(t, url, "sglang", "SIM fault=hang@3\nSAY x")
	second, _ := open(t, url, "sglang", "SAY x")
	want := `data: {"error":{"message":"Duplicate request ID detected: 5feceb66-1-chatcmpl-1","type":"invalid_request_error","code":400,"retryable":false}}` +
		"\n\ndata: [DONE]\n\n"
	if got := readAll(t, second); second.StatusCode != http.StatusOK || got != want {
		t.Errorf("status %d: %s", second.StatusCode, got)
	}
	if got := decode(t, "sglang", ask(""), []byte(readAll(t, first)), nil, 100); got.Err != nil || got.Finishes[0] != engine.FinishAbort {
		t.Errorf("the first: %+v", got)
	}
}

// TestAbortBeforeGrammar: a request that is aborted while its grammar is compiled has a status.
func TestAbortBeforeGrammar(t *testing.T) {
	s := New(Options{})
	url := serve(t, s)
	spec := constraint.Spec{Answer: constraint.AnswerRegex("x")}
	resp, _ := open(t, url, "sglang", "SIM first=1h\nSAY x", func(r *engine.Request) { r.Constraint = spec.Format(nil) })
	abort, err := http.Post(url+"/abort_request", "application/json", strings.NewReader(`{"abort_all":true}`))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, abort)
	want := `"finish_reason":{"type":"abort","message":"Aborted by AbortReq.","status_code":400,"err_type":"BadRequestError"}`
	if got := readAll(t, resp); !strings.Contains(got, want) {
		t.Error(got)
	}
}

func TestCutConnection(t *testing.T) {
	resp, leave := open(t, serve(t, New(Options{})), "vllm", "SIM fault=cut@3\nSAY x")
	defer leave()
	body, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the body ended with %v", err)
	}
	if n := bytes.Count(body, []byte("data: ")); n != 3 {
		t.Errorf("%d events before the cut", n)
	}
}

func TestRecords(t *testing.T) {
	s := New(Options{Records: 2, Now: fixedTime})
	for _, user := range []string{"SAY 1", "SAY 2", "SAY 3"} {
		talk(t, s, "vllm", "", ask(user))
	}
	records := s.Requests()
	if len(records) != 2 || records[1].Number != 3 {
		t.Fatalf("%+v", records)
	}
	got := records[1]
	if got.State != StateFinished || got.Status != 200 || got.RequestID != "5feceb66-1-chatcmpl-1" || got.Header["content-type"] != "application/json" {
		t.Errorf("%+v", got)
	}
	if want := "<|start|>user<|message|>SAY 3<|end|><|start|>assistant"; !strings.HasSuffix(got.Prompt(), want) {
		t.Errorf("prompt %q", got.Prompt())
	}
	if want := thought + final + "3<|return|>"; got.Output(0) != want {
		t.Errorf("output %q", got.Output(0))
	}
	var params map[string]any
	if err := json.Unmarshal(got.Params, &params); err != nil || params["max_tokens"] != 200.0 || params["prompt"] != nil {
		t.Errorf("params %v: %v", params, err)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/sim/requests", nil))
	var listed []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &listed); err != nil || len(listed) != 2 || listed[1]["output"] == nil {
		t.Errorf("%s: %v", w.Body, err)
	}
}

func TestForeign(t *testing.T) {
	s := New(Options{Now: fixedTime})
	url := serve(t, s)
	big := bytes.Repeat([]byte("0123456789"), 200_000)
	resp, err := http.Post(url+"/sim/echo", "application/octet-stream", bytes.NewReader(big))
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp); got != string(big) {
		t.Errorf("echo: %d bytes", len(got))
	}
	for _, c := range []struct{ path, body, want string }{
		{"/v1/embeddings", `{"model":"e","input":"x"}`, `"object":"embedding"`},
		{"/v1/chat/completions", `{"model":"another-model","stream":true}`, "word19"},
		{"/v1/chat/completions", `{"model":"another-model"}`, "another model"},
		{"/v1/chat/completions", `{"model":"gpt-oss-20b"}`, "another model"}, // where the filter is off
		{"/v1/chat/completions", `{"model":"gpt-os"}`, "The model `gpt-os` does not exist."},
		{"/v1/chat/completions", `{"model":"gpt-os","stream":true}`, `"type":"NotFoundError","param":"model","code":404`},
		{"/v1/nothing", `{}`, `{"detail":"Not Found"}`},
	} {
		resp, err := http.Post(url+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.path, got)
		}
	}
	if n := len(s.Requests()); n != 8 {
		t.Errorf("%d records", n)
	}
}

func TestBehavior(t *testing.T) {
	got, err := Behavior{}.With("tokens-per-event=random:4 cut=7 delay=5ms rate=50 start=1000001 first=1s seed=9 output-ids=cumulative crlf=true status=503 retry-after=2 body=envoy fault=error@5")
	if err != nil {
		t.Fatal(err)
	}
	want := Behavior{
		TokensPerEvent: Count{4, true}, Cut: Count{N: 7}, Delay: 5 * time.Millisecond, Rate: 50, Start: time.UnixMicro(1000001), First: time.Second, Seed: 9, Cumulative: true,
		CRLF: true, Status: 503, RetryAfter: 2, Body: "envoy", Fault: "error", FaultAt: 5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"x", "x=1", "delay=5", "rate=0", "rate=x", "rate=NaN", "start=now", "tokens-per-event=0", "status=42", "fault=no@3", "fault=error@x", "output-ids=all", "body=x", "fault=abortx"} {
		if _, err := (Behavior{}).With(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// FuzzPlan sends arbitrary prompts to the model.
func FuzzPlan(f *testing.F) {
	f.Add("SAY x", "<|start|>assistant<|channel|>final")
	f.Add("CALL f {}\nWORDS 3 1", "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\ntype a = (_: {\nb: (string)[],\n}) => any;\n\n} // namespace functions<|end|>")
	f.Add("weather", "<|start|>developer<|message|>namespace w {\ntype weather = (_: {a: {a: {a?: Array<string | number>}}}) => any;\n} // namespace w<|end|>")
	f.Fuzz(func(_ *testing.T, user, after string) {
		if len(user)+len(after) > 1<<12 {
			return
		}
		seq := planFor(conversation("", user, after))
		c := newChoice(0, seq, limits{maxTokens: 50, stops: eos}, 1)
		for c.finish == "" {
			c.step()
		}
	})
}

// BenchmarkStream streams 1,000 tokens in as many events over a real connection.
func BenchmarkStream(b *testing.B) {
	server := httptest.NewServer(New(Options{Records: -1}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for _, kind := range engine.Kinds() {
		b.Run(kind, func(b *testing.B) {
			dialect, _ := engine.ByKind(kind)
			for b.Loop() {
				r := ask("x @@<rand 1000>@@", func(r *engine.Request) { r.ID, r.MaxTokens = engine.CallID{}, 1000 })
				out, failed := dialect.Encode(r)
				if failed != nil {
					b.Fatal(failed)
				}
				resp, err := http.Post(server.URL+out.Path, "application/json", bytes.NewReader(out.Body))
				if err != nil {
					b.Fatal(err)
				}
				if n := strings.Count(readAll(b, resp), "data: "); n < 1000 {
					b.Fatalf("%d events", n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/token")
		})
	}
}

// planFor is the output for a prompt.
func planFor(ids []harmony.Token) sequence { return readPrompt(ids).plan() }
