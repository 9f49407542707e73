package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A list has the first words of what the user asked last, in one line, and bounded.
func TestQuestion(t *testing.T) {
	t.Parallel()
	const system, end = "<|start|>system<|message|>You.<|end|>", "<|end|>"
	long := strings.Repeat("wörd ", 1000)
	for _, c := range []struct{ name, prompt, want string }{
		{"one", system + "<|start|>user<|message|>Why is\n\n the sky <b>blue</b>?" + end + "<|start|>assistant", "Why is the sky <b>blue</b>?"},
		{"the last one", "<|start|>user<|message|>One" + end + "<|start|>assistant<|channel|>final<|message|>1" + end + "<|start|>user<|message|>Two" + end + "<|start|>assistant", "Two"},
		{"before a tool's answer", "<|start|>user<|message|>Sun?" + end + "<|start|>functions.f to=assistant<|channel|>commentary<|message|>user" + end + "<|start|>assistant", "Sun?"},
		{"a long one", "<|start|>user<|message|>" + long + end, string([]rune(long)[:maxQuestion]) + "…"},
		{"behind much white space", "<|start|>user<|message|>" + strings.Repeat("\n ", 100) + "Sun?" + end, "Sun?"},
		{"no user", system + "<|start|>assistant", ""},
		{"cut", system + "<|start|>user", ""},
		{"nothing", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tape := record.NewTape(record.Record{Started: started}, 1<<20, func() time.Time { return started })
			tape.Call(&engine.Request{Prompt: harmony.AppendEncodeSpecial(nil, c.prompt), N: 1}, 0)
			r := tape.Ended(record.Result{Outcome: "ok"})
			if got := question(&r); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}

			// What a record does not keep is not shown.
			redacted := record.Redact(&r)
			if got := question(&redacted); got != "" {
				t.Errorf("of a redacted record: %q", got)
			}
		})
	}
}
