package run

import (
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// message is a request for a message.
func message(t *testing.T, fields string) api.Request {
	t.Helper()
	body := `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]` + fields + `}`
	outcome := (&messages.API{}).Endpoints()[0].Handle(t.Context(), &api.HTTPRequest{
		Body: []byte(body),
		Context: &turn.RequestContext{
			Env: &turn.Env{
				Renderer: harmony.NewRenderer(), Now: func() time.Time { return testStart },
				NewID: func(prefix string) string { return prefix + "id" }, Limits: turn.DefaultLimits(),
			},
			Model: &turn.Model{}, RequestID: "abc",
		},
	})
	if outcome.Request == nil {
		t.Fatalf("%+v", outcome)
	}
	return outcome.Request
}

// Where a token budget ends the output, the context has room: a client that compacts a full
// conversation must not do it then.
func TestMessageEndsWithTheBudget(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{``, `,"max_tokens":1000000`} {
		request := message(t, fields)
		prompt := len(request.Engine().Prompt)
		r := startBudgeted(t, request, budget.Budget{Tokens: int64(prompt) + 100, End: true, Reserve: 100})
		r.feed(ok(), bytesOf(event("", tokens("<|channel|>final<|message|>")...)), piece(95))
		r.do(&r.executor.beside)
		if text := r.downstream.text.String(); !r.Ended() || !strings.Contains(text, `"stop_reason":"max_tokens"`) {
			t.Errorf("%s: %s", fields, text)
		}
	}
}
