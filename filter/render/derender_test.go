package render

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const (
	thought = "<|channel|>analysis<|message|>Paris?<|end|>"
	call    = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Paris\"}<|call|>"
	said    = "<|start|>assistant<|channel|>final<|message|>It is 20 °C, naïve 🙂.<|return|>"
)

// TestGolden compares what is made of the same output for each API with golden files.
func TestGolden(t *testing.T) {
	t.Parallel()
	for path, request := range requests {
		name := strings.ReplaceAll(strings.TrimPrefix(path, "/v1/"), "/", "_")
		for what, text := range map[string]string{"call": thought + call, "answer": thought + said} {
			o := apitest.Said(text)
			apitest.Compare(t, filepath.Join("testdata", name+"_"+what+".json"), apitest.Indent(t, ask(t, path+derenderSuffix, whole(path, request, []apitest.Output{o}, ""))))
			apitest.Compare(t, filepath.Join("testdata", name+"_"+what+".sse"), ask(t, path+derenderSuffix, whole(path, request, []apitest.Output{o}, `,"stream":true`)))
			var b strings.Builder
			for _, a := range chunked(t, path, request, o.Chunks(apitest.Size(7))) {
				fmt.Fprintln(&b, a.Raw)
			}
			apitest.Compare(t, filepath.Join("testdata", name+"_"+what+".chunks"), b.String())
		}
	}
}

// TestAsTheFilter shows that an object and a stream are byte for byte what the filter
// makes of the same tokens of one model call, whatever they are.
func TestAsTheFilter(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	finishes := []engine.Finish{engine.FinishStop, engine.FinishLength}
	for path, request := range requests {
		for range 300 {
			outputs := []apitest.Output{{Tokens: apitest.Model{}.Generate(rng), Finish: finishes[rng.IntN(2)]}}
			body := request
			if path == "/v1/chat/completions" && rng.IntN(2) == 0 {
				body = apitest.With(t, request, "n", 2, "stop", []string{"world"})
				outputs = append(outputs, apitest.Output{Index: 1, Tokens: apitest.Model{}.Generate(rng), Finish: engine.FinishStop})
			}
			outputs[0].Tokens = inVocabulary(outputs[0].Tokens)
			if slices.ContainsFunc(outputs, func(o apitest.Output) bool { return len(o.Tokens) == 0 }) {
				continue // no engine's answer
			}
			chunks := apitest.Chunks(outputs, apitest.Size(1<<20))
			for _, stream := range []bool{false, true} {
				got := ask(t, path+derenderSuffix, whole(path, body, outputs, fmt.Sprintf(`,"stream":%v`, stream)))
				if diff := cmp.Diff(filtered(t, path, body, stream, api.SingleCall, chunks), got); diff != "" {
					t.Fatalf("%s, stream %v of %v (-filter +derendered):\n%s", path, stream, outputs, diff)
				}
			}
		}
	}
}

// TestAsTheLoop shows the same where the filter makes the model calls itself.
func TestAsTheLoop(t *testing.T) {
	t.Parallel()
	for path, request := range requests {
		for _, text := range []string{thought + call, thought + said, said, call} {
			outputs := []apitest.Output{apitest.Said(text)}
			for _, stream := range []bool{false, true} {
				got := ask(t, path+derenderSuffix, whole(path, request, outputs, fmt.Sprintf(`,"stream":%v`, stream)))
				if diff := cmp.Diff(filtered(t, path, request, stream, api.Loop, apitest.Chunks(outputs, apitest.Size(1<<20))), got); diff != "" {
					t.Errorf("%s, stream %v (-filter +derendered):\n%s", path, stream, diff)
				}
			}
		}
	}
}

// inVocabulary replaces the tokens that no engine generates.
func inVocabulary(tokens []harmony.Token) []harmony.Token {
	for i := range tokens {
		tokens[i] %= harmony.LastToken
	}
	return tokens
}

// TestAnyChunking shows that what is derendered chunk by chunk is what the filter
// streams for the same chunks, and adds up to the whole reply, however the tokens are
// cut.
func TestAnyChunking(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for path, request := range requests {
		for round := range 40 {
			o := apitest.Output{Tokens: inVocabulary(apitest.Model{}.Generate(rng)), Finish: engine.FinishStop}
			if round%3 == 0 {
				o.Finish = engine.FinishLength
			}
			chunks := o.Chunks(func() int { return rng.IntN(6) })
			want := filtered(t, path, request, true, api.SingleCall, chunks)
			answers := chunked(t, path, request, chunks)
			object := gjson.Parse(ask(t, path+derenderSuffix, whole(path, request, []apitest.Output{o}, "")))
			if path == "/v1/chat/completions" {
				if diff := cmp.Diff(foldChat(t, apitest.Events(t, want)), foldChat(t, chunksOf(answers))); diff != "" {
					t.Fatalf("%v (-filter +derendered):\n%s", o, diff)
				}
				checkChat(t, object, foldChat(t, chunksOf(answers)))
				continue
			}
			if diff := cmp.Diff(dataOf(want), eventsOf(answers)); diff != "" {
				t.Fatalf("%s of %v (-filter +derendered):\n%s", path, o, diff)
			}
			if path == "/v1/responses" {
				events := eventsOf(answers)
				if last := gjson.Get(events[len(events)-1], "response.output").Raw; last != object.Get("output").Raw {
					t.Fatalf("the last event has\n%s\nthe object has\n%s", last, object.Get("output").Raw)
				}
			}
		}
	}
}

// dataOf returns the objects of a stream's events.
func dataOf(stream string) []string {
	var all []string
	for line := range strings.Lines(stream) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data[0] == '{' {
			all = append(all, strings.TrimSuffix(data, "\n"))
		}
	}
	return all
}

// eventsOf returns the events of the answers to chunks.
func eventsOf(answers []gjson.Result) []string {
	var all []string
	for _, a := range answers {
		for _, e := range a.Get("events").Array() {
			all = append(all, e.Raw)
		}
	}
	return all
}

// chunksOf returns the chunks of Chat Completions of the answers to chunks.
func chunksOf(answers []gjson.Result) []gjson.Result {
	all := make([]gjson.Result, 0, len(answers))
	for _, a := range answers {
		all = append(all, a.Get("chunk"))
	}
	return all
}

// chatReply is what a client has of a stream of Chat Completions.
type chatReply struct {
	Heads              map[string]bool // id, object, created and model
	Role, Finish       string
	Content, Reasoning string
	HasContent         bool
	Calls              [][3]string // id, name and arguments
}

func foldChat(t testing.TB, chunks []gjson.Result) chatReply {
	t.Helper()
	r := chatReply{Heads: map[string]bool{}}
	for _, c := range chunks {
		r.Heads[c.Get("id").Raw+c.Get("object").Raw+c.Get("created").Raw+c.Get("model").Raw] = true
		choice := c.Get("choices.0")
		delta := choice.Get("delta")
		r.Role += delta.Get("role").Str
		r.Finish += choice.Get("finish_reason").Str
		r.Content += delta.Get("content").Str
		r.HasContent = r.HasContent || delta.Get("content").Type == gjson.String
		if r.Reasoning += delta.Get("reasoning").Str; delta.Get("reasoning").Str != delta.Get("reasoning_content").Str {
			t.Errorf("the fields of reasoning differ: %s", delta.Raw)
		}
		for _, call := range delta.Get("tool_calls").Array() {
			if i := call.Get("index").Int(); i == int64(len(r.Calls)) {
				r.Calls = append(r.Calls, [3]string{call.Get("id").Str, call.Get("function.name").Str})
			} else if i > int64(len(r.Calls)) || call.Get("id").Exists() {
				t.Fatalf("call %s follows %d others", call.Raw, len(r.Calls))
			}
			r.Calls[call.Get("index").Int()][2] += call.Get("function.arguments").Str
		}
	}
	return r
}

// checkChat compares what a stream adds up to with the object of the same output.
func checkChat(t testing.TB, object gjson.Result, r chatReply) {
	t.Helper()
	choice := object.Get("choices.0")
	m := choice.Get("message")
	calls := make([][3]string, 0, 2)
	for _, c := range m.Get("tool_calls").Array() {
		calls = append(calls, [3]string{c.Get("id").Str, c.Get("function.name").Str, c.Get("function.arguments").Str})
	}
	want := chatReply{
		Heads: r.Heads, Role: m.Get("role").Str, Finish: choice.Get("finish_reason").Str, Content: m.Get("content").Str,
		HasContent: m.Get("content").Type == gjson.String, Reasoning: m.Get("reasoning").Str, Calls: calls,
	}
	if diff := cmp.Diff(want, r, cmpopts.EquateEmpty()); diff != "" || len(r.Heads) != 1 {
		t.Fatalf("the chunks are not the object (-object +chunks):\n%s\nheads %v", diff, r.Heads)
	}
}

// TestChoices shows that each choice has a state of its own, and keeps its index.
func TestChoices(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	request := apitest.With(t, requests[path], "n", 3, "stream_options.include_usage", true)
	second := apitest.Said(said)
	second.Index = 2
	for _, a := range chunked(t, path, request, second.Chunks(apitest.Size(3))) {
		if index := a.Get("chunk.choices.0.index"); !index.Exists() || index.Int() != 2 {
			t.Fatalf("a chunk of another choice: %s", a.Raw)
		}
	}
}

// TestUsage shows that vLLM's last chunk, which has the usage only, becomes the usage
// of the choice, and changes nothing else.
func TestUsage(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	answers := chunked(t, path, requests[path], apitest.Said(said).Chunks(apitest.Size(5)))
	for _, a := range answers {
		if u := a.Get("chunk.usage"); u.Raw != "null" {
			t.Errorf("a chunk without usage has %s", u.Raw)
		}
	}
	state := answers[len(answers)-1].Get("stream_state").Raw
	ask := func(chunk string) gjson.Result {
		return gjson.Parse(ask(t, path+derenderSuffix, `{"stream":true,"prompt_tokens":50,"generate_chunk":`+chunk+`,"stream_state":`+state+`,"chat_request":`+requests[path]+`}`))
	}
	got := ask(`{"request_id":"x","choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":32}}}`)
	tokens := len(apitest.Said(said).Tokens)
	want := fmt.Sprintf(`{"prompt_tokens":50,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":32},"completion_tokens_details":{"reasoning_tokens":0}}`, tokens, 50+tokens)
	if u := got.Get("chunk.usage").Raw; u != want || got.Get("chunk.choices").Raw != "[]" || got.Get("stream_state").Raw != state {
		t.Errorf("usage %s, want %s, in\n%s", u, want, got.Raw)
	}
	if late := ask(generated(apitest.Said("more"))); late.Get("chunk.choices.0.delta").Raw != "{}" || late.Get("stream_state").Raw != state {
		t.Errorf("what follows the end is shown: %s", late.Raw)
	}
}

// TestPrompt shows which prompt the usage counts.
func TestPrompt(t *testing.T) {
	t.Parallel()
	for path, field := range map[string]string{"/v1/chat/completions": "usage.prompt_tokens", "/v1/responses": "usage.input_tokens", "/v1/messages": "usage.input_tokens"} {
		own := gjson.Get(ask(t, path+renderSuffix, requests[path]), "token_count").Int()
		for members, want := range map[string]int64{"": own, `,"prompt_tokens":7`: 7, `,"prompt_token_ids":[1,2,3]`: 3, `,"prompt_token_ids":[1,2,3],"prompt_tokens":5`: 5} {
			if got := gjson.Get(ask(t, path+derenderSuffix, whole(path, requests[path], []apitest.Output{apitest.Said(said)}, members)), field).Int(); got != want {
				t.Errorf("%s with %s: %d tokens of prompt, want %d", path, members, got, want)
			}
		}
	}
	body := apitest.With(t, requests["/v1/chat/completions"], "return_token_ids", true)
	if got := gjson.Get(ask(t, "/v1/chat/completions/derender", whole("/v1/chat/completions", body, []apitest.Output{apitest.Said(said)}, `,"prompt_token_ids":[1,2,3]`)), "prompt_token_ids").Raw; got != "[1,2,3]" {
		t.Errorf("the prompt is %s", got)
	}
}

// TestLogprobs shows that log probabilities become those of the answer's tokens.
func TestLogprobs(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	request := apitest.With(t, requests[path], "logprobs", true, "top_logprobs", 1)
	tokens := apitest.Tokens("<|channel|>final<|message|>Hi")
	entries := make([]string, 0, len(tokens))
	for _, id := range tokens {
		entries = append(entries, fmt.Sprintf(`{"token_id":%d,"logprob":-0.5,"rank":1,"top_logprobs":[{"token_id":%d,"logprob":-0.5,"rank":1}]}`, id, id))
	}
	ids := strings.ReplaceAll(fmt.Sprint(tokens), " ", ",")
	response := `{"request_id":"1","choices":[{"index":0,"finish_reason":"stop","token_ids":` + ids + `,"logprobs":{"content":[` + strings.Join(entries, ",") + `]}}]}`
	const want = `[{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105]}]}]`
	object := ask(t, path+derenderSuffix, `{"generate_response":`+response+`,"chat_request":`+request+`}`)
	if got := gjson.Get(object, "choices.0.logprobs.content").Raw; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	chunk := ask(t, path+derenderSuffix, `{"stream":true,"generate_chunk":`+response+`,"chat_request":`+request+`}`)
	if got := gjson.Get(chunk, "chunk.choices.0.logprobs.content").Raw; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestRoundTrip shows that a rendered request is one for the generate endpoint, and
// that the answer, with its id, becomes the reply to it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for path, request := range requests {
		rendered := gjson.Parse(ask(t, path+renderSuffix, request))
		id := rendered.Get("request_id").Str
		if !strings.HasPrefix(id, kindOf(path).prefix) || rendered.Get("token_ids.#").Int() == 0 || !rendered.Get("sampling_params.max_tokens").Exists() {
			t.Fatalf("%s: %s", path, rendered.Raw)
		}
		response := strings.Replace(generated(apitest.Said(said)), "chatcmpl-1", engineIDPrefix+id, 1)
		object := gjson.Parse(ask(t, path+derenderSuffix, `{"generate_response":`+response+`,"`+kindOf(path).request+`":`+request+`}`))
		if path != "/v1/responses" && object.Get("id").Str != id { // the id of a response is the response's own
			t.Errorf("%s: the id is %s, want %s", path, object.Get("id").Str, id)
		}
	}
}

// TestNeedsModel shows where the model has to be named beside the request.
func TestNeedsModel(t *testing.T) {
	t.Parallel()
	strict := Endpoints(Options{Stateless: stateless, NeedsModel: true})
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions/derender", `{"generate_response":` + generated(apitest.Said(said)) + `,"chat_request":` + requests["/v1/chat/completions"] + `}`},
		{TokenizePath, `{"prompt":"a"}`},
		{TokenizePath, `{"messages":[{"role":"user","content":"a"}]}`},
		{DetokenizePath, `{"tokens":[1]}`},
	} {
		if _, err := answer(t, strict, c.path, c.body, apitest.NewContext()); err == nil || err.Param != "model" || err.Status != 400 {
			t.Errorf("%s: %v", c.path, err)
		}
		ask(t, c.path, c.body)
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	want := []string{
		"chat /v1/chat/completions/render", "responses /v1/responses/render", "messages /v1/messages/render", "chat /v1/chat/completions/derender",
		"tokenize /tokenize", "tokenize /detokenize", "responses /v1/responses/derender", "messages /v1/messages/derender",
	}
	got := make([]string, 0, len(service))
	for _, e := range service {
		got = append(got, e.API+" "+e.Pattern)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	e, _ := api.Match(service, "POST", "/v1/messages/derender")
	_, err := answer(t, service, "/v1/messages/derender", "{}", apitest.NewContext())
	if _, object := e.Error(err, "r"); gjson.GetBytes(object, "type").Str != "error" {
		t.Errorf("not Anthropic's error: %s", object)
	}
}
