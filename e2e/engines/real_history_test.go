//go:build engines

package engines

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// callHeaders are the forms of a call's header, as script.py and engine-sim number them: gpt-oss's own, and
// last that of OpenAI's library.
var callHeaders = []string{
	"<|channel|>commentary to=functions.write <|constrain|>json<|message|>",
	" to=functions.write<|channel|>commentary <|constrain|>json<|message|>",
	"<|channel|>commentary to=functions.write json<|message|>",
	" to=functions.write<|channel|>commentary json<|message|>",
}

// realHistory plays a turn of tools with each form of a call's header, and both forms of the history. vLLM has
// as many tokens of each prompt in its cache as the prompt shares with what vLLM has read and written, in
// whole blocks: with the exact history all of them, with the canonical one those before the header differs.
// Arguments are as the canonical form has them, so nothing else differs.
func realHistory(t *testing.T, d *stack.Dataplane, e realEngine, block int) {
	for i := range callHeaders {
		for _, suffix := range []string{"", "-canonical"} {
			t.Run(fmt.Sprintf("form %d%s", i+1, suffix), func(t *testing.T) {
				playHistory(t, d, e, stack.ModelOf(e.kind)+suffix, i, block)
			})
		}
	}
}

// playHistory plays a turn of three calls and an answer.
func playHistory(t *testing.T, d *stack.Dataplane, e realEngine, model string, form, block int) {
	exact := !strings.HasSuffix(model, "-canonical")
	script := fmt.Sprintf("SIM headers=%d\nTHINK I write the file.\nSAY done", form+1)
	text := strings.Repeat(`func area(w, h float64) float64 { return w * h } // m²\n`, 12)
	for i := range 3 {
		script += fmt.Sprintf("\nCALL write {\"text\":\"%s\",\"path\":\"%d.go\"}", text, i)
	}

	messages := []any{stack.Object{"role": "user", "content": script}}
	tools := json.RawMessage(`[{"type":"function","function":{"name":"write","parameters":
		{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}}}}}]`)
	hits := metric("vllm:prefix_cache_hits_total")

	// vLLM has nothing of other turns, nor of an earlier run of the test.
	salt := rand.Text()

	// What vLLM has read and written, and how much of it the next prompt has: want, if all goes well.
	var seen []harmony.Token
	want := 0
	for step := 0; ; step++ {
		body, err := json.Marshal(stack.Object{
			"model": model, "messages": messages, "tools": tools, "return_token_ids": true, "cache_salt": salt,
		})
		if err != nil {
			t.Fatal(err)
		}

		before := hits(t, e)
		reply := gjson.Parse(d.Answer(t, "/v1/chat/completions", string(body)))
		prompt, output := idsOf(reply.Get("prompt_token_ids")), idsOf(reply.Get("choices.0.token_ids"))
		cached := int(reply.Get("usage.prompt_tokens_details.cached_tokens").Int())
		if counted := hits(t, e) - before; counted != cached {
			t.Errorf("step %d: %d tokens are cached, vLLM counts %d", step, cached, counted)
		}

		// vLLM has written the token that ended its output, and not read it.
		shared := sharedIDs(seen, prompt)
		if shared != want {
			t.Errorf("step %d: the prompt shares %d tokens, want %d", step, shared, want)
		}
		if whole := max(min(shared, len(seen)-1), 0) / block * block; cached != whole {
			t.Errorf("step %d: %d tokens are cached, want %d", step, cached, whole)
		}
		t.Logf("step %d: %d tokens of the prompt, of %d seen %d shared: %d cached, %d computed",
			step, len(prompt), len(seen), shared, cached, len(prompt)-cached)

		message := reply.Get("choices.0.message")
		call := message.Get("tool_calls.0")
		if !call.Exists() {
			if step != 3 {
				t.Errorf("%d calls: %s", step, reply.Raw)
			}
			return
		}

		// The last message of the output is the call, with the header of this form.
		header := harmony.AppendEncodeSpecial(nil, callHeaders[form])
		at := lastStart(output) + 2
		if !slices.Equal(output[at:min(at+len(header), len(output))], header) {
			t.Fatalf("step %d: the output is %s", step, spelled(t, output))
		}
		seen = slices.Concat(prompt, output)
		want = len(seen)
		if library := harmony.AppendEncodeSpecial(nil, callHeaders[3]); !exact && form != 3 {
			want = len(prompt) + at + sharedIDs(header, library)
		}

		// Agents leave reasoning out.
		messages = append(messages,
			stack.Object{"role": "assistant", "content": nil, "tool_calls": message.Get("tool_calls").Value()},
			stack.Object{"role": "tool", "tool_call_id": call.Get("id").Str, "content": "ok"})
	}
}

func idsOf(list gjson.Result) (ids []harmony.Token) {
	for _, id := range list.Array() {
		ids = append(ids, harmony.Token(id.Uint()))
	}
	return ids
}

// sharedIDs returns how many tokens two prompts have in common at their beginning.
func sharedIDs(a, b []harmony.Token) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// lastStart returns where the last message of an output begins, whose role is one token.
func lastStart(output []harmony.Token) int {
	for i, id := range slices.Backward(output) {
		if id == harmony.TokenStart {
			return i
		}
	}
	return -2 // the prompt has begun it
}
