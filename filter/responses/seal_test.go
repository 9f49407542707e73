package responses

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

func mustSealer(t testing.TB, keys ...string) *Sealer {
	t.Helper()
	list := make([][]byte, len(keys))
	for i, k := range keys {
		list[i] = bytes.Repeat([]byte(k), SealKeyBytes)
	}
	s, err := NewSealer(list, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealer(t *testing.T) {
	t.Parallel()
	const text = "a thought, naïve 🙂"
	sealer := mustSealer(t, "b", "a")
	old, err := mustSealer(t, "a").Seal("t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := sealer.Seal("t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := sealer.Seal("t", []byte(text)); again == sealed || strings.Contains(sealed, text) {
		t.Error("a text is sealed the same way twice, or not at all")
	}
	for _, s := range []string{old, sealed} {
		if got, err := sealer.Open("t", s); err != nil || string(got) != text {
			t.Errorf("Open: %q, %v", got, err)
		}
		if _, err := sealer.Open("other", s); err == nil {
			t.Error("another tenant can open it")
		}
	}
	if _, err := mustSealer(t, "a").Open("t", sealed); err == nil {
		t.Error("another key opens it")
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if _, err := sealer.Open("t", base64.RawURLEncoding.EncodeToString(bad)); err == nil {
			t.Errorf("byte %d can be changed", i)
		}
		if _, err := sealer.Open("t", base64.RawURLEncoding.EncodeToString(raw[:i])); err == nil {
			t.Errorf("it can be cut after %d bytes", i)
		}
	}
	for _, keys := range [][][]byte{nil, {make([]byte, 16)}, {make([]byte, 32), nil}} {
		if _, err := NewSealer(keys, rand.Reader); err == nil {
			t.Errorf("keys %v are accepted", keys)
		}
	}
	broken, err := NewSealer([][]byte{make([]byte, 32)}, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Seal("", nil); err == nil {
		t.Error("sealed without random bytes")
	}
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
	if err := s.fails(t, back(sealed[:len(sealed)-4]+"AAAA")); err.Status != 400 || err.Param != "input[1].encrypted_content" {
		t.Errorf("tampered content: %v", err)
	}
	s.rc.Tenant = "b"
	if err := s.fails(t, back(sealed)); err.Status != 400 {
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
	sealer, err := NewSealer([][]byte{make([]byte, SealKeyBytes)}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	request, apiErr := (&API{Sealer: sealer}).decode([]byte(ask(`,"include":["reasoning.encrypted_content"]`)), apitest.NewContext())
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	r := request.newReply(api.SingleCall)
	out, _ := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>analysis<|message|>x<|end|>"), Finish: engine.FinishStop})
	got := gjson.Parse(final(t, request, string(mustEnd(t, r, out))))
	if got.Get("output.0.content.0.text").Str != "x" || got.Get("output.0.encrypted_content").Exists() || r.Fault() == nil {
		t.Errorf("%s, %v", got.Raw, r.Fault())
	}
}

// FuzzOpen shows that no content that was not sealed here can be opened.
func FuzzOpen(f *testing.F) {
	salt := strings.NewReader(strings.Repeat("s", sealSalt)) // every worker seals the same
	sealer, err := NewSealer([][]byte{make([]byte, SealKeyBytes)}, salt)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := sealer.Seal("t", []byte("text"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := sealer.Open("t", s); err == nil && (s != sealed || string(got) != "text") {
			t.Errorf("%q is opened: %q", s, got)
		}
	})
}
