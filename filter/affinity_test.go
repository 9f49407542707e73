package filter

import (
	"regexp"
	"strings"
	"testing"
)

// The keys go with the request where Envoy sends it on itself, and only under
// names that are configured.
func TestKeysGoWithTheRequest(t *testing.T) {
	for _, tt := range []struct {
		name            string
		prefix, session string
		want            string
	}{
		{"both", "x-p", "x-s", ` x-p=[0-9a-f]{32} x-s=[0-9a-f]{32} `},
		{"prefix", "x-p", "", ` x-p=[0-9a-f]{32} `},
		{"session", "", "x-s", ` x-s=[0-9a-f]{32} `},
		{"none", "", "", ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, func(c *Config) { c.Routing = Routing{PrefixHeader: tt.prefix, SessionHeader: tt.session} })
			s.post("session_id=mine")
			s.body(ask(""), true)
			sent := s.expectLike("request headers", "request body ")[0]
			if !regexp.MustCompile(tt.want).MatchString(sent) || tt.prefix == "" && strings.Contains(sent, "x-p") || tt.session == "" && strings.Contains(sent, "x-s=") {
				t.Errorf("%s", sent)
			}
		})
	}
}

// Nobody else may choose an engine's replica.
func TestForgedKeysAreTakenOut(t *testing.T) {
	s := newScript(t, nil)
	s.request(false, ":method=POST", ":path=/v1/completions", "x-harmony-prefix=a", "x-harmony-session=b")
	s.expect("request headers -x-harmony-prefix -x-harmony-session")
}

// TestSession shows which of a request's headers names the session.
func TestSession(t *testing.T) {
	for _, tt := range []struct {
		headers []string
		want    string
	}{
		{nil, ""},
		{[]string{"thread-id=t"}, "t"},
		{[]string{"thread-id=t", "conversation_id=c"}, "c"},
		{[]string{"conversation_id=c", "session_id=s"}, "s"},
		{[]string{"session_id=s", "session-id=n"}, "n"},
	} {
		if got := session(headerMap(tt.headers)); got != tt.want {
			t.Errorf("%v: %q", tt.headers, got)
		}
	}
}
