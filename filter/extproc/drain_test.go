package extproc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// stuckFollower is a stream of a store that does not respect the end of a context.
type stuckFollower struct{}

func (stuckFollower) Next(context.Context, func(int) *apierror.Error) (sse []byte, end bool, err *apierror.Error) {
	time.Sleep(time.Hour)
	return nil, true, nil
}

func (stuckFollower) Fail(*apierror.Error) []byte { return []byte("failed") }

// drained are the three APIs, and where their errors say what to do.
var drained = []struct {
	name, path, body  string
	message, inStream string // paths in an error, and in an event of a stream
	status            int
}{
	{"chat", "/v1/chat/completions", ask(""), "error.message", "error.message", 503},
	{"Responses", "/v1/responses", responsesQuestion, "error.message", "response.error.message", 503},
	{"Messages", messagesPath, messagesQuestion, "error.message", "error.message", 529},
}

func streamed(body string) string { return strings.Replace(body, `{`, `{"stream":true,`, 1) }

// When the time of the drain is over, a stream ends with one error event of its API,
// which says that the request may be sent again.
func TestAbortEndsStreams(t *testing.T) {
	t.Parallel()
	for _, a := range drained {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				s.postTo(a.path, streamed(a.body))
				s.toEngine()
				s.answer(false, ":status=200", sse)
				s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
				s.sent()
				s.Drain()
				s.wait(0)
				s.expect()
				s.Abort()
				s.Abort()
				s.wait(0)
				got := strings.Join(s.sent(), "\n")
				if !strings.HasSuffix(got, " END") {
					t.Errorf("the stream has no end: %s", got)
				}
				var messages []string
				for line := range strings.Lines(got) {
					if m := gjson.Get(strings.TrimPrefix(strings.TrimPrefix(line, "local body "), "data: "), a.inStream); m.Type == gjson.String {
						messages = append(messages, m.Str)
					}
				}
				const want = "The service was shut down before the reply was complete. Send the request again. (server error: the connection ended before the reply was complete)"
				if len(messages) != 1 || messages[0] != want {
					t.Errorf("the errors are %q", messages)
				}
				s.leave()
				s.drains(1)
			})
		})
	}
}

// drains checks how many requests the log and the metrics say the drain has ended.
func (s *scripted) drains(want int) {
	s.t.Helper()
	n := 0
	for _, l := range s.lines(s.t) {
		if l.Get("outcome").Str == "drain" && l.Get("level").Str == "warning" && l.Get("code").Str == "shutdown" && l.Get("status").Int() == 503 {
			n++
		}
	}
	counted := 0.0
	for _, api := range []string{"chat", "messages", "responses"} {
		for _, model := range []string{"", "other", "gpt-oss-20b", "openai/gpt-oss-20b", "gpt-oss"} {
			counted += s.counted(s.t, "harmony_requests_total", "api="+api+" model="+model+" outcome=drain")
		}
	}
	if n != want || counted != float64(want) {
		s.t.Errorf("%d requests logged and %v counted as ended by the drain, want %d:\n%s", n, counted, want, s.testServer.log)
	}
}

// A request whose reply has not begun gets a status and the error of its API,
// wherever it is: while its body arrives, while it is decoded, while the engine
// generates, and when it comes after the time is over.
func TestAbortAnswersRequests(t *testing.T) {
	t.Parallel()
	for _, a := range drained {
		for _, stage := range []struct {
			name  string
			drive func(s *scripted)
		}{
			{"the body arrives", func(s *scripted) {
				s.request(false, ":method=POST", ":path="+a.path, "content-type=application/json", "x-request-id=abc")
				s.body(a.body[:len(a.body)-1], false)
				s.Abort()
			}},
			{"the engine generates", func(s *scripted) {
				s.postTo(a.path, a.body)
				s.toEngine()
				s.answer(false, ":status=200", sse)
				s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
				s.expect()
				s.Abort()
			}},
			{"the engine has not begun a stream", func(s *scripted) {
				s.postTo(a.path, streamed(a.body))
				s.toEngine()
				s.Abort()
			}},
			{"after the end", func(s *scripted) {
				s.Abort()
				s.postTo(a.path, a.body)
			}},
		} {
			t.Run(a.name+"/"+stage.name, func(t *testing.T) {
				t.Parallel()
				script(t, nil, func(s *scripted) {
					stage.drive(s)
					s.wait(0)
					status, body := s.answered()
					if status != a.status || !strings.Contains(gjson.Get(body, a.message).Str, "Send the request again.") || !strings.Contains(body, `"shutdown"`) {
						t.Errorf("status %d, %s", status, body)
					}
					s.leave()
					s.drains(1)
				})
			})
		}
	}
}

// A store that hangs does not hold up the end: neither of a request that is read
// from it, nor of a stream whose failure is stored.
func TestAbortWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		hanging := func(w *wiring) { w.store = &hangingStore{Store: newStore(), deaf: deaf} }
		script(t, hanging, func(s *scripted) {
			s.hang()
			s.postTo("/v1/responses", `{"model":"gpt-oss","previous_response_id":"resp_1","input":"Hi"}`)
			s.expect()
			s.Abort()
			s.wait(0)
			s.expectLike("immediate 503 retry-after=1 The service was shut down")
			s.leave()
			s.drains(1)
		})
		script(t, hanging, func(s *scripted) {
			s.postTo("/v1/responses", `{"model":"gpt-oss","input":"Hi","stream":true}`)
			s.toEngine()
			s.answer(false, ":status=200", sse)
			s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
			s.sent()
			s.hang()
			s.Abort()
			s.wait(abortTimeout)
			if got := strings.Join(s.sent(), "\n"); !strings.Contains(got, "response.failed") || !strings.HasSuffix(got, " END") {
				t.Errorf("after %s the client has got %q", abortTimeout, got)
			}
			s.leave()
			s.drains(1)
		})
	}
}

// A response that is complete, and is being stored, is not failed.
func TestAbortWhileTheEndIsStored(t *testing.T) {
	t.Parallel()
	ending := func(s *scripted) {
		s.postTo("/v1/responses", `{"model":"gpt-oss","input":"Hi","stream":true}`)
		s.toEngine()
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.hang()
		s.answerBody(event("stop", tokens("<|return|>")...)+usageEvent+doneEvent, true)
		s.sent()
		s.Abort()
	}
	hanging := func(w *wiring) { w.store = &hangingStore{Store: newStore(), takes: abortTimeout / 2} }
	script(t, hanging, func(s *scripted) {
		ending(s)
		s.wait(abortTimeout)
		if got := strings.Join(s.sent(), "\n"); !strings.Contains(got, "response.completed") || !strings.HasSuffix(got, " END") {
			t.Errorf("the client has got %q", got)
		}
		s.leave()
		s.drains(0)
	})
	script(t, func(w *wiring) { w.store = &hangingStore{Store: newStore()} }, func(s *scripted) {
		ending(s)
		s.wait(abortTimeout)
		if got := strings.Join(s.sent(), "\n"); !strings.Contains(got, "shut down before") || !strings.HasSuffix(got, " END") {
			t.Errorf("the client has got %q", got)
		}
		s.leave()
		s.drains(1)
	})
}

// A stream of the store that is followed ends when the read that is under way does,
// which the end of the drain's time cancels.
func TestAbortOfAFollowedStream(t *testing.T) {
	t.Parallel()
	follower := endpointOf(func(context.Context) api.Outcome { return api.Streamed(&scriptedFollower{}) })
	script(t, follower, func(s *scripted) {
		s.postTest()
		s.expect(localStream)
		s.Abort()
		s.wait(0)
		s.expect("local body failed END")
	})
}

// Requests that are not the filter's pass through to the last.
func TestAbortLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.get("GET", "/v1/files")
		s.expect("request headers")
		s.Abort()
		s.wait(0)
		s.envoyAnswer(false, ":status=200")
		s.envoyAnswerBody("x", true)
		s.expect("response headers", "response body x END")
		s.leave()
		s.drains(0)
	})
}
