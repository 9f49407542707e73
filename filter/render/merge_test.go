package render

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

const chatPath = "/v1/chat/completions"

// chatVariants are requests whose chunks have all kinds of members.
func chatVariants(t testing.TB) map[string]string {
	t.Helper()
	plain := requests[chatPath]
	bare := `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]}`
	function := map[string]any{"name": "get_weather", "parameters": map[string]any{"type": "object"}}

	return map[string]string{
		"plain":             plain,
		"counts":            apitest.With(t, plain, "stream_options.include_usage", true, "stream_options.continuous_usage_stats", true),
		"log probabilities": apitest.With(t, plain, "logprobs", true, "top_logprobs", 2),
		"token ids":         apitest.With(t, plain, "return_token_ids", true),
		"a stop string":     apitest.With(t, plain, "stop", []string{"world"}),
		"a stop token":      apitest.With(t, plain, "stop_token_ids", []int{2375}),
		"a custom tool": apitest.With(t, bare, "tools", []any{
			map[string]any{"type": "custom", "custom": map[string]any{"name": "get_weather"}},
		}),
		"functions": apitest.With(t, bare, "functions", []any{function}),
	}
}

// chatOutput is an output of the model with all kinds of parts.
func chatOutput(rng *rand.Rand) apitest.Output {
	output := apitest.Said([]string{thought + call, call + call, thought + said, said}[rng.IntN(4)])
	if rng.IntN(3) == 0 {
		output.Tokens = inVocabulary(apitest.Model{}.Generate(rng))
	}
	return output
}

// saidBy returns what chunks say together, by the path of each member. A null says nothing in a
// delta, and elsewhere that there is no value yet. Elements with an index are a member each, others
// follow one another. A text in a delta is the next piece, except for those that come at once.
func saidBy(chunks ...gjson.Result) map[string]string {
	all := map[string]string{}
	var read func(path, name string, v gjson.Result, delta bool)
	read = func(path, name string, v gjson.Result, delta bool) {
		switch {
		case v.IsObject():
			delete(all, path)
			all[path+"{}"] = ""
			v.ForEach(func(key, child gjson.Result) bool {
				read(path+"."+key.Str, key.Str, child, delta || key.Str == "delta")
				return true
			})
		case v.IsArray():
			all[path+"[]"] += ""
			for _, element := range v.Array() {
				if index := element.Get("index"); index.Exists() {
					read(path+"["+index.Raw+"]", name, element, delta)
				} else {
					all[path+"[]"] += element.Raw + ","
				}
			}
		case v.Type == gjson.Null:
			if _, object := all[path+"{}"]; !delta && !object && all[path] == "" {
				all[path] = "null"
			}
		case v.Type == gjson.String && delta && !slices.Contains([]string{"role", "id", "type", "name"}, name):
			all[path] += v.Str
		default:
			all[path] = v.Raw
		}
	}
	for _, chunk := range chunks {
		read("", "", chunk, false)
	}
	return all
}

// without returns what is said except of the members below a path.
func without(all map[string]string, path string) map[string]string {
	for name := range all {
		if strings.HasPrefix(name, path) {
			delete(all, name)
		}
	}
	return all
}

// objectsOf returns the paths of the objects in an object to which a member can be added.
func objectsOf(v gjson.Result, path string) []string {
	var all []string
	v.ForEach(func(key, child gjson.Result) bool {
		below := path + key.String()
		if child.IsObject() {
			all = append(all, below+".")
		}
		if child.IsObject() || child.IsArray() && child.Get("0.index").Exists() {
			all = append(all, objectsOf(child, below+".")...)
		}
		return true
	})
	return all
}

// TestMergedChunkLosesNothing shows that one chunk says all that several say, also members that
// package chat does not have yet, of any kind and in any place.
func TestMergedChunkLosesNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	added := map[string]any{
		"new_text": "a \"b\" é\n", "new_number": 7.5, "new_switch": true, "new_list": []any{1, "x"},
		"new_object": map[string]any{"name": "y", "text": "z"}, "new_indexed": []any{map[string]any{"index": 3, "text": "w"}},
	}
	names := []string{"new_text", "new_number", "new_switch", "new_list", "new_object", "new_indexed"}

	for variant, request := range chatVariants(t) {
		for range 60 {
			chunks := chatOutput(rng).Chunks(func() int { return 1 + rng.IntN(6) })
			for i := range chunks {
				chunks[i].Logprobs = apitest.Logprobs(chunks[i].Tokens)
				chunks[i].Fingerprint = "fp"
			}
			events := apitest.Events(t, filtered(t, chatPath, request, true, api.SingleCall, chunks))

			// Only events with a choice are merged here: what has none is the service's to say.
			events = slices.DeleteFunc(events, func(e gjson.Result) bool { return !e.Get("choices.0").Exists() })
			from := rng.IntN(len(events))
			run := events[from : from+1+rng.IntN(len(events)-from)]
			for i := range run {
				if rng.IntN(2) == 0 {
					places := append(objectsOf(run[i], ""), "")
					name := names[rng.IntN(len(names))]
					run[i] = gjson.Parse(apitest.With(t, run[i].Raw, places[rng.IntN(len(places))]+name, added[name]))
				}
			}

			m := merged{
				id: run[0].Get("id").Str, created: run[0].Get("created").Int(), model: run[0].Get("model").Str,
				choice: true, usage: true,
			}
			for _, e := range run {
				m.add(e)
			}
			got := string(m.append(nil))
			// vLLM's chunks have a usage of null where there is none.
			want := saidBy(append([]gjson.Result{gjson.Parse(`{"usage":null}`)}, run...)...)
			if diff := cmp.Diff(want, saidBy(gjson.Parse(got))); diff != "" || !gjson.Valid(got) {
				t.Fatalf("%s: (-chunks +merged):\n%s\nof\n%v\nin\n%s", variant, diff, run, got)
			}
		}
	}
}

// TestChunksLoseNothing shows that the chunks of the service say together all that the filter
// streams, whatever the request wants.
func TestChunksLoseNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	for variant, request := range chatVariants(t) {
		// The usage is in the answer to the engine's own: see TestUsage. So are log probabilities
		// in an engine's chunk: see TestLogprobs.
		if variant == "log probabilities" {
			continue
		}
		for range 20 {
			o := chatOutput(rng)
			o.Finish = []engine.Finish{engine.FinishStop, engine.FinishLength}[rng.IntN(2)]
			chunks := o.Chunks(func() int { return rng.IntN(6) })
			want := without(saidBy(apitest.Events(t, filtered(t, chatPath, request, true, api.SingleCall, chunks))...), ".usage")
			got := without(saidBy(chunksOf(chunked(t, chatPath, request, chunks))...), ".usage")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s of %v (-filter +derendered):\n%s", variant, o, diff)
			}
		}
	}
}

// TestVariantsHaveAllMembers shows that the tests of merged chunks have every member that a chunk
// can have.
func TestVariantsHaveAllMembers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(15, 16))
	seen := map[string]bool{}
	for _, request := range chatVariants(t) {
		for range 40 {
			chunks := chatOutput(rng).Chunks(apitest.Size(4))
			for i := range chunks {
				chunks[i].Logprobs = apitest.Logprobs(chunks[i].Tokens)
			}
			for path := range saidBy(apitest.Events(t, filtered(t, chatPath, request, true, api.SingleCall, chunks))...) {
				seen[path] = true
			}
		}
	}

	for _, path := range []string{
		".choices[0].delta.role", ".choices[0].delta.content", ".choices[0].delta.reasoning", ".choices[0].delta.reasoning_content",
		".choices[0].delta.tool_calls[0].function.arguments", ".choices[0].delta.tool_calls[1].id", ".choices[0].delta.tool_calls[0].custom.input",
		".choices[0].delta.function_call.arguments", ".choices[0].logprobs.content[]", ".choices[0].matched_stop", ".choices[0].token_ids[]",
		".choices[0].finish_reason", ".prompt_token_ids[]", ".usage.completion_tokens",
	} {
		if !seen[path] {
			t.Errorf("no chunk has %s", path)
		}
	}
}
