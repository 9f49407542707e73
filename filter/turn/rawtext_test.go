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

// rawHeaders are headers of calls of functions.run, and whether the body behind each need not be JSON.
var rawHeaders = map[string]bool{
	"<|channel|>commentary to=functions.run code<|message|>":                true,
	"<|channel|>analysis to=functions.run code<|message|>":                  true,
	" to=functions.run<|channel|>commentary code<|message|>":                true,
	"<|channel|>commentary to=functions.run <|constrain|>code<|message|>":   true,
	"<|channel|>commentary to=functions.run<|message|>":                     true,
	" to=functions.run<|channel|>commentary<|message|>":                     true,
	"<|channel|>commentary to=functions.run <|constrain|>text<|message|>":   true,
	"<|channel|>commentary to=functions.run <|constrain|>python<|message|>": true,
	"<|channel|>commentary to=run code<|message|>":                          true,
	"<|channel|>commentary to=functions.run json<|message|>":                false,
	"<|channel|>commentary to=functions.run <|constrain|>json<|message|>":   false,
	" to=functions.run<|channel|>commentary <|constrain|>JSON<|message|>":   false,
	"<|channel|>commentary to=functions.runjson<|message|>":                 false,
}

// called returns the arguments of the only call in an output, whose tokens come in chunks of some
// sizes, and the repairs.
func called(t *testing.T, turn *Turn, output string, size int) (string, map[string]int) {
	t.Helper()
	text := ""
	r := turn.NewReader(func(e Event) {
		if e.Step == Delta && e.Kind == Call {
			text += string(e.Text)
		}
	})
	tokens := harmony.AppendEncodeSpecial(nil, output)
	for len(tokens) > 0 {
		n := min(size, len(tokens))
		if _, err := r.Push(&engine.Chunk{Tokens: tokens[:n]}); err != nil {
			t.Fatal(err)
		}
		tokens = tokens[n:]
	}
	if err := r.Close(); err != nil || r.Calls() != 1 {
		t.Fatalf("%d calls, %v", r.Calls(), err)
	}
	var s Summary
	r.AddTo(&s)
	return text, s.Repairs
}

// The content type of a header decides what the only text of a tool is: with json it is read
// strictly, and without it a text is a text, whatever it looks like.
func TestRawTextByContentType(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	in := &Input{Items: []Item{userHi}, Tools: []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{
		Name: "run", Parameters: []byte(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`),
	}}}}}
	turn := prepare(t, rc, in)

	for header, free := range rawHeaders {
		for _, c := range []struct{ text, free, strict string }{
			{"print(1)", `{"code":"print(1)"}`, "print(1)"},
			{"ls -l", `{"code":"ls -l"}`, `{"code":"ls -l"}`},
			{"print(\"a\"", `{"code":"print(\"a\""}`, `print("a"`},
			{"x = [1]\n", `{"code":"x = [1]\n"}`, "x = [1]\n"},
			{`{"x":1}`, `{"code":"{\"x\":1}"}`, `{"x":1}`},
			{`[1]`, `{"code":"[1]"}`, `[1]`},
			{`"a"`, `{"code":"\"a\""}`, `{"code":"a"}`},
			{`{}`, `{"code":"{}"}`, `{}`},
			{`{"code":"a"}`, `{"code":"a"}`, `{"code":"a"}`},
			{`{'code': 'a'}`, `{"code": "a"}`, `{"code": "a"}`},
			{``, `{}`, `{}`},
		} {
			want := c.strict
			if free {
				want = c.free
			}
			for _, size := range []int{1, 3, 1 << 20} {
				if got, repairs := called(t, turn, header+c.text+"<|call|>", size); got != want {
					t.Errorf("%s%s in chunks of %d is %s, want %s; repairs %v", header, c.text, size, got, want, repairs)
				}
			}
		}
	}
}

// A call may leave a parameter out that is not required.
func TestRawTextOptional(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	in := &Input{Items: []Item{userHi}, Tools: []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{
		Name: "run", Parameters: []byte(`{"type":"object","properties":{"code":{"type":"string"}}}`),
	}}}}}
	if got, _ := called(t, prepare(t, rc, in), " to=functions.run<|channel|>commentary code<|message|>{}<|call|>", 1); got != "{}" {
		t.Error(got)
	}
}

// What is a text is no reason to ask for arguments again.
func TestRawTextIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	rc.Model.ToolArguments = ArgumentsRetry
	in := &Input{Items: []Item{userHi}, Tools: []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{
		Name: "run", Parameters: []byte(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`),
	}}}}}
	turn := prepare(t, rc, in)
	for contentType, passes := range map[string]bool{"code": true, "": true, "json": false} {
		call := "<|channel|>commentary to=functions.run " + contentType + "<|message|>x = [1]<|call|>"
		if _, why := turn.NewWatcher().Push(harmony.AppendEncodeSpecial(nil, call)); (why == NotInterrupted) != passes {
			t.Errorf("%q: %q", contentType, why)
		}
	}
}
