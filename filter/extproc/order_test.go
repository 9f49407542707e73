package extproc

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Messages in an order that Envoy does not send end the stream, by name, whatever the
// exchange is doing.
func TestMessagesOutOfOrderEndTheStream(t *testing.T) {
	t.Parallel()
	post := func(s *scripted) { s.post() }
	foreign := func(s *scripted) {
		s.get("GET", "/v1/files")
		s.expect("request headers")
	}
	for name, c := range map[string]struct {
		before func(s *scripted)
		last   func(s *scripted)
		code   codes.Code
		want   string
	}{
		"request headers behind response headers": {func(s *scripted) { s.envoyAnswer(false, ":status=200", sse) }, post, codes.InvalidArgument, "request headers came behind response headers"},
		"a request body behind response headers":  {func(s *scripted) { s.envoyAnswer(false, ":status=200", sse) }, func(s *scripted) { s.body("{}", true) }, codes.FailedPrecondition, "request_header_mode"},
		"request headers twice":                   {post, post, codes.InvalidArgument, "request headers came twice"},
		"request headers twice, passed through":   {foreign, post, codes.InvalidArgument, "request headers came twice"},
		"request headers twice, in a run":         {func(s *scripted) { s.posted("") }, post, codes.InvalidArgument, "request headers came twice"},
		"response headers twice, passed through": {func(s *scripted) {
			foreign(s)
			s.envoyAnswer(false, ":status=200")
		}, func(s *scripted) { s.envoyAnswer(false, ":status=200") }, codes.InvalidArgument, "response headers came twice"},
		"response headers twice, in a run": {func(s *scripted) {
			s.posted("")
			s.envoyAnswer(false, ":status=200", sse)
		}, func(s *scripted) { s.envoyAnswer(false, ":status=200", sse) }, codes.InvalidArgument, "response headers came twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				c.before(s)
				c.last(s)
				err := s.result()
				if status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v", err)
				}
				if n := s.inUse(); n != 0 {
					t.Errorf("%d bytes of the budget are lost", n)
				}
				if l := s.lines(t); len(l) == 0 || !strings.HasPrefix(l[len(l)-1].Get("code").Str, "ext_proc_") {
					t.Errorf("logged %s", s.testServer.log)
				}
			})
		})
	}
}
