package extproc

import (
	"strings"
	"testing"
	"unicode/utf16"
)

// A body that is not sent as JSON does not pass the filter.
func TestOtherContentTypesAreRejected(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{
		"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "application/json, text/plain", "json",
		"application/json; charset=utf-16", "application/json; charset=utf-7", ";",
	} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			script(t, nil, func(s *scripted) {
				s.request(false, ":method=POST", ":path=/v1/chat/completions", "content-type="+contentType)
				s.expectLike("immediate 415 ")
				s.body(ask(""), true)
				s.expect()
			})
		})
	}
}

func TestTwoContentTypesAreRejected(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.request(false, ":method=POST", ":path=/v1/chat/completions", "content-type=application/json", "content-type=text/plain")
		s.expectLike("immediate 415 ")
	})
}

// What clients send as JSON, and requests without a body, whatever they say of it.
func TestContentTypesOfJSON(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"application/json", "Application/JSON; charset=UTF-8", "application/vnd.api+json", "application/json; charset=iso-8859-1", " "} {
		script(t, nil, func(s *scripted) {
			s.request(false, ":method=POST", ":path=/v1/chat/completions", "content-type="+contentType)
			s.body(ask(""), true)
			s.toEngine()
		})
	}
	script(t, nil, func(s *scripted) {
		s.request(true, ":method=GET", ":path=/v1/responses/resp_1", "content-type=text/plain")
		s.expectLike("immediate 404 ")
	})
}

// twoModels are bodies of which another reader takes another model than the filter.
var twoModels = map[string]struct{ body, want string }{
	"foreign first": {`{"model":"llama","model":"gpt-oss-20b","messages":[]}`, `immediate 400 The request has two fields "model".`},
	"foreign last":  {`{"model":"gpt-oss-20b","messages":[],"model":"llama"}`, `immediate 400 The request has two fields "model".`},
	"escaped":       {`{"model":"llama","messages":[],"mod\u0065l":"gpt-oss-20b"}`, `immediate 400 The request has two fields "model".`},
	"no string":     {`{"model":null,"model":"gpt-oss-20b"}`, `immediate 400 The request has two fields "model".`},
	"three":         {`{"model":"a","model":"b","model":"gpt-oss-20b"}`, `immediate 400 The request has two fields "model".`},
	"UTF-16":        {inUTF16(`{"x":"` + swapped(`"model":"llama",`) + `","model":"gpt-oss-20b"}`), "immediate 400 The request body has a zero byte"},
}

// inUTF16 is a text in UTF-16, little endian.
func inUTF16(text string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(text)) {
		b.WriteByte(byte(u))
		b.WriteByte(byte(u >> 8))
	}
	return b.String()
}

// swapped is a text that is, in UTF-16, the bytes of another one in ASCII.
func swapped(ascii string) string {
	var units []uint16
	for i := 0; i+1 < len(ascii); i += 2 {
		units = append(units, uint16(ascii[i])|uint16(ascii[i+1])<<8)
	}
	return string(utf16.Decode(units))
}

// A body with two models is rejected before the upstream has the end of it, however
// it arrives.
func TestTwoModelsAreRejected(t *testing.T) {
	t.Parallel()
	for name, c := range twoModels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, piece := range []int{len(c.body), 20, 1} {
				script(t, nil, func(s *scripted) {
					s.post()
					for rest := c.body; rest != ""; {
						n := min(piece, len(rest))
						s.body(rest[:n], n == len(rest))
						rest = rest[n:]
					}
					sent := s.sent()
					if last := sent[len(sent)-1]; !strings.HasPrefix(last, c.want) || strings.Contains(strings.Join(sent, "\n"), " END") {
						t.Errorf("in pieces of %d: %q", piece, sent)
					}
				})
			}
			script(t, nil, func(s *scripted) {
				s.post("content-encoding=gzip")
				s.body(gzipped(c.body), true)
				s.expectLike(c.want)
			})
		})
	}
}

// A second encoding is not overlooked.
func TestTwoEncodingsAreRejected(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post("content-encoding=identity", "content-encoding=gzip")
		s.body(gzipped(ask("")), true)
		s.expectLike("immediate 415 ")
	})
}

// An upstream that has answered before the end of the body does not get its second
// model either.
func TestSecondModelAfterTheReply(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post()
		s.body(`{"model":"llama",`, false)
		s.envoyAnswer(false, ":status=200")
		s.sent()
		s.body(`"model":"gpt-oss-20b"}`, true)
		s.expectLike("immediate 400 ")
	})
}

// Where Envoy does not normalize paths, other spellings of the filter's paths do not
// pass either.
func TestOtherSpellingsAreRejected(t *testing.T) {
	t.Parallel()
	for path, passes := range map[string]bool{
		"/v1/%63hat/completions": false, "/v1/chat%2fcompletions": false, "/v1//chat/completions": false, "/v1/./chat/completions": false,
		"/v1/audio/../chat/completions": false, `/v1/audio/..\chat/completions`: false, "/v1/audio/%2e%2e/chat/completions": false,
		"/v1/chat/completions/": false, "/v1/responses/": false, "/v1/embeddings/": true, "/v1/files/a%20b": true,
	} {
		script(t, nil, func(s *scripted) {
			s.request(false, ":method=POST", ":path="+path, "content-type=application/json")
			want := "immediate 404 The path is another spelling"
			if passes {
				want = "request headers"
			}
			s.expectLike(want)
		})
	}
}
