package responses

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
)

func mustSealer(t testing.TB, keys ...string) *seal.Sealer {
	t.Helper()
	list := make([][]byte, len(keys))
	for i, k := range keys {
		list[i] = bytes.Repeat([]byte(k), seal.KeyBytes)
	}
	s, err := seal.NewSealer(list, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEncryptedContent shows a tool turn of a client that stores nothing here
// and sends back only what was sealed.
func TestEncryptedContent(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.Sealer = mustSealer(t, "k")
	const want = `,"include":["reasoning.encrypted_content"],"store":false`
	first := s.create(t, `,"input":"one"`+want+weatherTool, "<|channel|>analysis<|message|>a \"thought\"<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>")
	sealed := first.Get("output.0.encrypted_content").Str
	if sealed == "" || first.Get("output.0.content.0.text").Str != `a "thought"` {
		t.Fatalf("the reasoning: %s", first.Get("output.0").Raw)
	}
	call := first.Get("output.1")
	back := func(sealed string) string {
		return want + `,"input":[{"role":"user","content":"one"},{"type":"reasoning","summary":[],"encrypted_content":"` + sealed + `"},` + call.Raw +
			`,{"type":"function_call_output","call_id":"` + call.Get("call_id").Str + `","output":"sunny"}]`
	}
	if prompt := s.prompt(t, back(sealed)); !strings.Contains(prompt, "<|channel|>analysis<|message|>a \"thought\"<|end|>") {
		t.Errorf("the reasoning is lost:\n%s", prompt)
	}
	s.rc.Tenant = "b"
	if err := s.fails(t, back(sealed)); err.Status != 400 || err.Param != "input[1].encrypted_content" || !strings.Contains(err.Message, "another tenant") {
		t.Errorf("another tenant's content: %v", err)
	}

	s.rc.Tenant = "a"
	if got := s.create(t, `,"input":"one"`, "<|channel|>analysis<|message|>x<|end|><|start|>assistant"+said); got.Get("output.0.encrypted_content").Exists() {
		t.Error("content is sealed unasked")
	}
	stored := s.create(t, `,"input":"one","include":["reasoning.encrypted_content"]`+weatherTool, "<|channel|>analysis<|message|>kept<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>")
	s.Sealer = mustSealer(t, "l")
	prompt := s.prompt(t, `,"previous_response_id":"`+stored.Get("id").Str+`","input":[{"type":"function_call_output","call_id":"`+stored.Get("output.1.call_id").Str+`","output":"x"}]`)
	if !strings.Contains(prompt, "<|message|>kept<|end|>") {
		t.Errorf("what is stored is gone with its key:\n%s", prompt)
	}
}

// TestSealFails shows that a reply without random bytes still has its content.
func TestSealFails(t *testing.T) {
	t.Parallel()
	sealer, err := seal.NewSealer([][]byte{make([]byte, seal.KeyBytes)}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	request, apiErr := (&API{Sealer: sealer}).decode([]byte(ask(`,"include":["reasoning.encrypted_content"]`)), apitest.NewContext())
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	r := newReply(request, api.SingleCall)
	out, _ := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>analysis<|message|>x<|end|>"), Finish: engine.FinishStop})
	got := gjson.Parse(final(t, request, string(mustEnd(t, r, out))))
	if got.Get("output.0.content.0.text").Str != "x" || got.Get("output.0.encrypted_content").Exists() || r.Fault() == nil {
		t.Errorf("%s, %v", got.Raw, r.Fault())
	}
}
