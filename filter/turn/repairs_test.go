package turn

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The arguments of a tool are repaired unless the tool is strict, is read as it is, or the
// model's setting says so; and not if they are cut.
func TestArgumentsAreRepaired(t *testing.T) {
	t.Parallel()
	const output = "<|channel|>commentary to=functions.f<|message|>{'a':1,}<|call|>"
	name := ToolName{Namespace: FunctionsNamespace, Name: "f"}
	tools := []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: []byte(`{"type":"object","properties":{"a":{"type":"integer"}}}`)}}}}

	for what, c := range map[string]struct {
		setting string
		change  func(in *Input)
		output  string
		want    string
	}{
		"repaired":     {"", func(*Input) {}, output, `{"a":1}`},
		"strict":       {"", func(in *Input) { in.Strict = map[ToolName]bool{name: true} }, output, `{'a':1,}`},
		"as it is":     {"", func(in *Input) { in.AsIs = map[ToolName]bool{name: true} }, output, `{'a':1,}`},
		"passed":       {ArgumentsPass, func(*Input) {}, output, `{'a':1,}`},
		"another text": {"", func(*Input) {}, "<|channel|>commentary to=functions.f<|message|>paris<|call|>", `paris`},
	} {
		rc, _ := newContext()
		model := *rc.Model
		model.ToolArguments = c.setting
		rc.Model, rc.Checked = &model, false
		in := &Input{Items: []Item{userHi}, Tools: tools}
		c.change(in)
		text := ""
		r := prepare(t, rc, in).NewReader(func(e Event) {
			if e.Step == Delta && e.Kind == Call {
				text += string(e.Text)
			}
		})

		for _, token := range harmony.AppendEncodeSpecial(nil, c.output) {
			_, _ = r.Push(&engine.Chunk{Tokens: []harmony.Token{token}}) // a strict tool's are refused at the end
		}

		if diff := cmp.Diff(c.want, text); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}
