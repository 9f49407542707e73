package extproc

import (
	"testing"

	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
)

// Of several things that are to be said of a request's headers, the first one in the list of
// checks is said.
func TestHeaderChecksHaveAnOrder(t *testing.T) {
	t.Parallel()
	const jsonType, plainType = "content-type=application/json", "content-type=text/plain"
	post := func(path string, fields ...string) func(s *scripted) {
		return func(s *scripted) { s.request(false, append([]string{":method=POST", ":path=" + path}, fields...)...) }
	}
	for name, c := range map[string]struct {
		drive func(s *scripted)
		want  string
	}{
		"the mode before the owner": {func(s *scripted) {
			s.message(requestHeaders(extprocfilterv3.ProcessingMode_BUFFERED, duplex, false, ":method=POST", ":path=/v1/files"))
		}, "immediate 500 Envoy's ext_proc filter has"},
		"the upgrade before the method": {func(s *scripted) {
			s.request(false, ":method=GET", ":path=/v1/chat/completions", "upgrade=websocket")
		}, "immediate 426 "},
		"the spelling before the closed path": {post("/v1/chat/completions/", jsonType), "immediate 404 The path is another spelling"},
		"the closed path before the owner":    {post("/v1/chat/completions/x", jsonType), "immediate 404 There is no such path"},
		"the owner before the type":           {post("/v1/files", plainType), "request headers"},
		"the owner before the length":         {post("/v1/files", jsonType, "content-length=1000000000"), "request headers"},
		"the type before the length": {
			post("/v1/chat/completions", plainType, "content-length=1000000000"), "immediate 415 ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, func(w *wiring) { w.ownEnvoy = true }, func(s *scripted) {
				c.drive(s)
				s.expectLike(c.want)
			})
		})
	}
}
