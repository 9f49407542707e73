package extproc

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestErrorsInStream shows that each error of the server in a stream has, in every API
// and once, the words by which clients decide to send the request again.
func TestErrorsInStream(t *testing.T) {
	t.Parallel()
	for _, a := range []struct{ name, path, body, message string }{
		{"chat", "/v1/chat/completions", ask(`,"stream":true`), "error.message"},
		{"Responses", "/v1/responses", strings.Replace(responsesQuestion, `{`, `{"stream":true,`, 1), "response.error.message"},
		{"Messages", messagesPath, strings.Replace(messagesQuestion, `,`, `,"stream":true,`, 1), "error.message"},
	} {
		for _, f := range []struct {
			name string
			fail func(s *scripted)
		}{
			{"an error of the engine", func(s *scripted) {
				s.answerBody(`data: {"error":{"message":"x","code":500}}`+"\n\n", false)
			}},
			{"an engine that is not available", func(s *scripted) {
				s.answerBody(`data: {"error":{"message":"x","code":503}}`+"\n\n", false)
			}},
			{"an engine that stops", func(s *scripted) { s.answerBody("", true) }},
			{"a stream that ends early", func(s *scripted) { s.answerBody(doneEvent, true) }},
			{"garbage", func(s *scripted) { s.answerBody("data: {]\n\n", false) }},
			{"an abort", func(s *scripted) { s.answerBody(event("abort"), false) }},
			{"a deadline", func(s *scripted) { s.wait(s.o.Config.Limits.IdleTimeout.Duration) }},
		} {
			t.Run(a.name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				script(t, nil, func(s *scripted) {
					s.postTo(a.path, a.body)
					s.toEngine()
					s.answer(false, ":status=200", sse)
					s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
					s.sent()
					f.fail(s)
					var message string
					for _, part := range s.sent() {
						for line := range strings.Lines(part) {
							line = strings.TrimPrefix(line, "local body ")
							if m := gjson.Get(strings.TrimPrefix(line, "data: "), a.message); strings.HasPrefix(line, "data: ") && m.Type == gjson.String {
								message = m.Str
							}
						}
					}
					if strings.Count(message, "server error") != 1 || strings.Count(message, "connection") != 1 {
						t.Errorf("the error is %q", message)
					}
				})
			})
		}
	}
}
