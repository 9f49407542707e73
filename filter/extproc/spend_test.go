package extproc

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// budgeted has one token budget.
func budgeted(b config.TokenBudget) func(*wiring) {
	return func(w *wiring) {
		b.Name, b.Window = "minute", config.Duration{Duration: time.Minute}
		w.cfg.TokenBudgets = []config.TokenBudget{b}
	}
}

// A request that names no limit of its output is sent to the engine with one: what is reserved
// for it. The metadata for Envoy has it too.
func TestRequestWithoutLimitGetsOne(t *testing.T) {
	t.Parallel()
	budget := budgeted(config.TokenBudget{Tokens: 100_000})
	script(t, budget, func(s *scripted) {
		s.post()
		s.body(ask(""), true)
		body := s.toEngine()
		prompt := len(body.Get("prompt").Array())
		if got, want := body.Get("max_tokens").Int(), int64(100_000-prompt)/8; prompt == 0 || got != want {
			t.Errorf("the engine is told %d tokens, want %d: %.300s", got, want, body.Raw)
		}
		s.answer(false, ":status=200", sse)
		s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello<|return|>")...)+usageEvent+doneEvent, true)
		if got := s.metadata["max_tokens"]; got != float64((100_000-prompt)/8) {
			t.Errorf("the metadata has %v", got)
		}
	})
}

// A refused request is told whether to come again.
func TestRefusalSaysWhetherToComeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tokens int64
		retry  string
	}{"never": {2000, "false"}, "the next window": {3000, "true"}} {
		script(t, budgeted(config.TokenBudget{Tokens: c.tokens}), func(s *scripted) {
			s.post()
			s.body(ask(`,"max_tokens":1500`), true) // which is not answered yet
			defer s.leave()
			s.begin()
			s.post()
			s.body(ask(""), true)
			status, body := s.answered()
			fields := map[string]string{}
			for _, h := range s.immediate.GetHeaders().GetSetHeaders() {
				fields[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
			}
			after, _ := strconv.Atoi(fields["retry-after"])
			if status != 429 || fields["x-should-retry"] != c.retry || (after > 0) != (c.retry == "true") || after > 60 ||
				!strings.Contains(body, "names no limit of its output") {
				t.Errorf("%s: %d %v %s", name, status, fields, body)
			}
		})
	}
}
