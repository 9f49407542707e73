package output

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func TestHasCall(t *testing.T) {
	t.Parallel()
	const (
		call   = "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
		answer = "<|start|>assistant<|channel|>final<|message|>The answer"
	)
	for name, tt := range map[string]struct {
		prefix, output string
		want           bool
	}{
		"a call":                             {"", call, true},
		"a call that is not complete":        {"", "<|channel|>commentary to=functions.f<|message|>{", false},
		"a text":                             {"", "<|channel|>final<|message|>to=functions.f<|end|>", false},
		"a text that goes on":                {answer, " to=functions.f is this<|end|>", false},
		"a call after a text that goes on":   {answer, " is:<|end|><|start|>assistant" + call, true},
		"a text that goes on about a header": {answer, "commentary to=functions.f<|message|>{}<|end|>", false},
	} {
		plan := &Plan{Header: harmony.AppendEncodeSpecial(nil, tt.prefix)}
		if got := plan.HasCall(harmony.AppendEncodeSpecial(nil, tt.output)); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
