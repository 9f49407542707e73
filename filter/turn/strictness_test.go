package turn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestAdviceIsNotVerified shows that a reply of an engine that does not enforce what the operator asks for is read
// as if nobody had asked: the client has not.
func TestAdviceIsNotVerified(t *testing.T) {
	t.Parallel()
	for _, output := range []string{
		"<|channel|>commentary to=functions.unknown<|message|>{}<|call|>",
		"<|channel|>commentary to=functions.f<|message|>{\"a\":<|call|>",
		"<|channel|>commentary to=functions.f json<|message|>[1]<|call|>",
		"<|channel|>final<|message|>Hello.<|return|>",
		"Hello.<|return|>",
	} {
		events := func(level string) []string {
			rc, _ := newContext()
			rc.Model.ToolStrictness = level
			turn := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")})
			if on := turn.Engine.Constraint != nil; on != turn.Engine.Advised || on != (level != request.StrictnessNone) {
				t.Fatalf("%s: a constraint: %t, advised: %t", level, on, turn.Engine.Advised)
			}
			if turn.NewCheck() != nil {
				t.Errorf("%s: the reply is held back", level)
			}
			got, _ := readOutput(t, turn, output, engine.FinishStop)
			return got
		}
		want := events(request.StrictnessNone)
		for _, level := range []string{request.StrictnessNames, request.StrictnessArguments, request.StrictnessAll} {
			if diff := cmp.Diff(want, events(level)); diff != "" {
				t.Errorf("%s: %s: %s", level, output, diff)
			}
		}
	}
}

// TestAdviceHindersNothing shows that an output is continued without the advice where what is left of it cannot be
// stated, and with it elsewhere.
func TestAdviceHindersNothing(t *testing.T) {
	t.Parallel()
	const header = "<|channel|>commentary to=functions.f json<|message|>"
	for _, c := range []struct {
		level, output string
		// What follows has a constraint.
		kept bool
	}{
		{request.StrictnessNames, header, true},
		{request.StrictnessNames, header + `{"a`, true},
		{request.StrictnessNames, "<|channel|>commentary to=functions.unknown<|message|>", false},
		{request.StrictnessArguments, header, true},
		{request.StrictnessArguments, header + `{"a`, false},
	} {
		rc, _ := newContext()
		rc.Model.ToolStrictness = c.level
		tools := functions("f")
		tools[0].Tools[0].Parameters = []byte(`{"type":"object","properties":{"a":{"type":"integer"}}}`)
		turn := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: tools})
		rest := turn.Engine.Continued(nil, harmony.AppendEncodeSpecial(nil, c.output))
		switch {
		case rest == nil:
			t.Errorf("%s, after %s: nothing follows", c.level, c.output)
		case (rest.Constraint != nil) != c.kept:
			t.Errorf("%s, after %s: a constraint: %t", c.level, c.output, !c.kept)
		}
	}
}

// TestAdviceRefusesNothing shows that schemas that take too much work to be enforced are not, if only the operator
// asks for it: the request is accepted as without, and has most of its work left.
func TestAdviceRefusesNothing(t *testing.T) {
	t.Parallel()
	const steps = 20_000_000
	tools := make([]harmony.Tool, 0, 60)
	for i := range cap(tools) {
		pattern := strings.Repeat(fmt.Sprintf("(a%d|b[c-x]{1,9})", i), 120)
		tools = append(tools, harmony.Tool{
			Name: fmt.Sprintf("f%d", i), Parameters: []byte(`{"type":"object","properties":{"a":{"type":"string","pattern":"` + pattern + `"}}}`),
		})
	}
	for _, level := range []string{request.StrictnessNone, request.StrictnessAll} {
		rc, _ := newContext()
		rc.Model.ToolStrictness = level
		rc.Work = work.New(t.Context(), steps)
		in := &Input{Items: []Item{userHi}, Tools: []harmony.Namespace{{Name: FunctionsNamespace, Tools: tools}}}
		if _, err := Prepare(t.Context(), rc, in); err != nil {
			t.Errorf("%s: %v", level, err)
		}
		if !rc.Work.Affords(steps / 2) {
			t.Errorf("%s: less than half of the request's work is left", level)
		}
	}
}
