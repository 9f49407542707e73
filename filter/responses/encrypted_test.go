package responses

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
)

// TestUnopenedContent shows what becomes of encrypted content that no key opens: the
// item counts as one without it, the client is told, and the text is counted.
func TestUnopenedContent(t *testing.T) {
	t.Parallel()
	gone, err := mustSealer(t, "g").Seal(seal.Reasoning, "", []byte("sealed"))
	if err != nil {
		t.Fatal(err)
	}
	const call = `,{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"x"}`
	for name, c := range map[string]struct {
		item, thought string
	}{
		"the content":              {`"summary":[],"content":[{"type":"reasoning_text","text":"content"}]`, "content"},
		"the summary":              {`"summary":[{"type":"summary_text","text":"summary"}]`, "summary"},
		"the content of both":      {`"summary":[{"type":"summary_text","text":"summary"}],"content":[{"type":"reasoning_text","text":"content"}]`, "content"},
		"neither, and it is gone":  {`"summary":[]`, ""},
		"empty parts, and is gone": {`"summary":[],"content":[]`, ""},
	} {
		for kind, sealed := range map[string]string{"key gone": gone, "foreign": "gAAAAABo-not-ours==", "changed": gone[:len(gone)-4] + "AAAA"} {
			for _, sealer := range []*seal.Sealer{nil, mustSealer(t, "k")} {
				unopened := 0
				if sealer != nil {
					sealer.Unopened = func() { unopened++ }
				}
				a := &API{Sealer: sealer}
				request, err := a.decode([]byte(askItems(`{"role":"user","content":"Hi"},{"type":"reasoning",`+c.item+`,"encrypted_content":"`+sealed+`"}`+call)), apitest.NewContext())
				if err != nil {
					t.Fatalf("%s, %s: %v", name, kind, err)
				}
				prompt := apitest.Spell(t, request.Engine().Prompt)
				if got := strings.Contains(prompt, "<|channel|>analysis<|message|>"+c.thought+"<|end|>"); got != (c.thought != "") {
					t.Errorf("%s, %s: the prompt is\n%s", name, kind, prompt)
				}
				if got := request.Ignored(); !slices.Equal(got, []string{"input.encrypted_content"}) {
					t.Errorf("%s, %s: ignored %v", name, kind, got)
				}
				if sealer != nil && unopened != 1 {
					t.Errorf("%s, %s: counted %d times", name, kind, unopened)
				}
			}
		}
	}
}
