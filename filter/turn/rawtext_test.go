package turn

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A bare text becomes the only parameter of a tool if any text follows the tool's schema.
func TestTextsOfSchemas(t *testing.T) {
	t.Parallel()
	for parameters, wrapped := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string","description":"d"}},"required":["a"],"additionalProperties":false}`: true,
		`{"properties":{"a":{"type":"string","title":"A","default":"x"}}}`:                                                       true,
		`{"properties":{"a":{"type":"string","const":"x"}}}`:                                                                     false,
		`{"properties":{"a":{"type":"string","enum":["x"]}}}`:                                                                    false,
		`{"properties":{"a":{"type":"string","pattern":"^x$"}}}`:                                                                 false,
		`{"properties":{"a":{"type":"string","format":"uri"}}}`:                                                                  false,
		`{"properties":{"a":{"type":"string","maxLength":2}}}`:                                                                   false,
		`{"properties":{"a":{"type":"string"}},"allOf":[{"required":["b"]}]}`:                                                    false,
		`{"properties":{"a":{"type":"string","allOf":[{"maxLength":1}]}}}`:                                                       false,
		`{"properties":{"a":{"type":"string"}},"additionalProperties":{"type":"string"}}`:                                        false,
		`{"properties":{"a":{"type":"string"}},"additionalProperties":true}`:                                                     false,
		`{"properties":{"a":{"type":"string"}},"patternProperties":{"^b":{}}}`:                                                   false,
		`{"properties":{"a":{"type":["string","null"]}}}`:                                                                        false,
		`{"properties":{"a":{"type":"string"}},"required":["a","b"]}`:                                                            false,
	} {
		rc, _ := newContext()
		in := &Input{Items: []Item{userHi}, Tools: []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: []byte(parameters)}}}}}
		text := ""
		r := prepare(t, rc, in).NewReader(func(e Event) {
			if e.Step == Delta && e.Kind == Call {
				text += string(e.Text)
			}
		})
		if _, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>commentary to=functions.f<|message|>some text<|call|>")}); err != nil {
			t.Errorf("%s: %v", parameters, err)
		}
		want := "some text"
		if wrapped {
			want = `{"a":"some text"}`
		}
		if text != want {
			t.Errorf("%s: %s, want %s", parameters, text, want)
		}
	}
}
