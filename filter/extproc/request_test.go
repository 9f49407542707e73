package extproc

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

func TestRequestGoesToTheEngine(t *testing.T) {
	t.Parallel()
	body := ask(`,"stream":true,"max_tokens":10`)
	script(t, nil, func(s *scripted) {
		s.post("accept-encoding=gzip")
		s.body(body[:20], false)
		s.body(body[20:], false)
		s.expect()
		s.notCalled()
		s.body("", true)
		if got := s.toEngine(); got.Get("max_tokens").Int() != 10 || s.call.path != "/v1/completions" || s.call.target.Engine != "main" {
			t.Errorf("%s of %s: %s", s.call.path, s.call.target.Engine, got.Raw)
		}
		if got := s.call.header.Get("accept-encoding"); got != "" {
			t.Errorf("the model call has accept-encoding: %s", got)
		}
	})
	script(t, direct, func(s *scripted) {
		s.post("accept-encoding=gzip")
		s.body(body[:20], false)
		s.body(body[20:], false)
		s.expect()
		s.body("", true)
		sent := s.expectLike("request headers :path=/v1/completions content-type=application/json content-length=", "request body ")
		for _, want := range []string{" x-harmony-engine=main", " -accept-encoding", " reroute"} {
			if !strings.Contains(sent[0], want) {
				t.Errorf("%q is not in %q", want, sent[0])
			}
		}
		if !strings.HasSuffix(sent[1], " END") {
			t.Errorf("the request does not end: %q", sent[1])
		}
	})
}

func TestRequestWithTrailers(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post()
		s.body(ask(""), false)
		s.notCalled()
		s.trailers()
		s.toEngine()
	})
	script(t, direct, func(s *scripted) {
		s.post()
		s.body(ask(""), false)
		s.trailers()
		sent := s.expectLike("request headers :path=", "request body ", "request trailers")
		if strings.HasSuffix(sent[1], " END") {
			t.Errorf("the body ends before the trailers: %q", sent[1])
		}
	})
}

func TestGzip(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post("content-encoding=gzip")
		s.body(gzipped(ask("")), true)
		s.toEngine()
	})
}

// A length far above the limit is refused before the body comes, unless the body may be for an
// upstream that is not known here.
func TestLengthIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *wiring){
		"no other upstream": func(*wiring) {},
		"an upstream":       func(w *wiring) { w.cfg.Responses.RelayUnknown = true },
		"another's Envoy":   func(w *wiring) { w.ownEnvoy = false },
	} {
		script(t, func(w *wiring) {
			w.cfg.Limits.MaxBodyBytes, w.ownEnvoy = 30, true
			change(w)
		}, func(s *scripted) {
			s.post("content-length=61")
			if name != "no other upstream" {
				s.expect()
				s.body(`{"model":"gpt-oss",`, false)
			}
			s.expectLike("immediate 413 The request body is larger than 30 bytes")
		})
	}
}

// A body that is too large, and not by far, is refused at its end: most clients do not read before. Nothing of
// it is kept meanwhile.
func TestTooLargeIsSaidAtTheEnd(t *testing.T) {
	t.Parallel()
	const begin, want = `{"model":"gpt-oss",`, "immediate 413 The request body is larger than 30 bytes"
	for name, drive := range map[string]func(s *scripted){
		"its length is known": func(s *scripted) {
			s.post("content-length=59")
			s.expect()
			s.body(begin, false)
			s.body(begin, false)
			s.expect()
			s.body("}", true)
		},
		"its length is not known": func(s *scripted) {
			s.post()
			s.body(begin, false)
			s.body(begin, false)
			s.expect()
			s.body("}", true)
		},
		"it ends with trailers": func(s *scripted) {
			s.post("content-length=31")
			s.body(strings.Repeat(" ", 31), false)
			s.expect()
			s.trailers()
		},
		"it is longer than it said": func(s *scripted) {
			s.post("content-length=31")
			s.body(strings.Repeat(" ", 60), false)
			s.expect()
			s.body(" ", false)
		},
		"it does not come": func(s *scripted) {
			s.post("content-length=31")
			s.wait(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, func(w *wiring) { w.cfg.Limits.MaxBodyBytes, w.ownEnvoy = 30, true }, func(s *scripted) {
				drive(s)
				s.expectLike(want)
				s.body("more", true) // in flight already: not answered
				s.expect()
				if n := s.inUse(); n != 0 {
					t.Errorf("%d bytes of the budget are held", n)
				}
			})
		})
	}
}

func TestRejections(t *testing.T) {
	t.Parallel()
	postBody := func(body string) func(s *scripted) {
		return func(s *scripted) { s.post(); s.body(body, true) }
	}
	for _, c := range []struct {
		name   string
		change func(*config.Config)
		drive  func(s *scripted)
		want   string
	}{
		{"buffered mode", nil, func(s *scripted) {
			s.message(requestHeaders(extprocfilterv3.ProcessingMode_BUFFERED, duplex, false, ":method=POST", ":path=/v1/chat/completions"))
		}, "immediate 500 Envoy's ext_proc filter has processing_mode.request_body_mode BUFFERED. Set it to FULL_DUPLEX_STREAMED"},
		{"one mode without bodies", nil, func(s *scripted) {
			s.message(requestHeaders(extprocfilterv3.ProcessingMode_NONE, duplex, false, ":method=POST", ":path=/v1/chat/completions"))
		}, "immediate 500 Envoy's ext_proc filter has processing_mode.request_body_mode NONE. Set it to FULL_DUPLEX_STREAMED"},
		{"websocket", nil, func(s *scripted) { s.request(false, ":method=GET", ":path=/v1/chat/completions", "upgrade=websocket") }, "immediate 426 "},
		{"websocket, a path without a model", nil, func(s *scripted) {
			s.request(false, ":method=GET", ":path=/v1/responses/resp_1", "upgrade=websocket")
		}, "immediate 426 /v1/responses/resp_1 is served over plain HTTP. Send the request without Upgrade."},
		{"body too large", func(c *config.Config) { c.Limits.MaxBodyBytes = 30 }, postBody(ask("")), "immediate 413 The request body is larger than 30 bytes"},
		{"a length that is too large", func(c *config.Config) { c.Limits.MaxBodyBytes = 30 }, func(s *scripted) {
			s.post("content-length=61", "content-encoding=gzip")
		}, "immediate 413 The request body is larger than 30 bytes"},
		{"the same, without a tenant", func(c *config.Config) { c.Limits.MaxBodyBytes, c.TenantHeader = 30, "x-tenant" }, func(s *scripted) {
			s.post("content-length=61", "content-encoding=gzip")
		}, "immediate 401 "},
		{"the same, once it is known whose", func(c *config.Config) { c.Limits.MaxBodyBytes = 30 }, func(s *scripted) {
			s.post("content-length=61")
			s.body(`{"model":"gpt-oss",`, false)
		}, "immediate 413 The request body is larger than 30 bytes"},
		{"decoded body too large", func(c *config.Config) { c.Limits.MaxBodyBytes = 3000 }, func(s *scripted) {
			s.post("content-encoding=gzip")
			s.body(gzipped(strings.Repeat(" ", 3001)), true)
		}, "immediate 413 The decoded request body is larger than 3000 bytes"},
		{"no room for the decoded body", func(c *config.Config) { c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes = 3000, 4*3000+100 }, func(s *scripted) {
			other := s.occupy(s.t, 101)
			defer other.close()
			s.post("content-encoding=gzip")
			s.body(gzipped(strings.Repeat(" ", 3000)), true)
		}, "immediate 503 retry-after=1 Too many requests"},
		{"not gzip", nil, func(s *scripted) { s.post("content-encoding=gzip"); s.body("{}", true) }, "immediate 400 The request body is not valid gzip"},
		{"no room", func(c *config.Config) { c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes = 30, 120 }, func(s *scripted) {
			other := s.occupy(s.t, 109)
			defer other.close()
			s.post()
			s.body("12345678901234567", false)
		}, "immediate 503 retry-after=1 Too many requests"},
		{"empty", nil, func(s *scripted) { s.request(true, ":method=POST", ":path=/v1/chat/completions") }, "immediate 400 "},
		{"no JSON", nil, postBody("{nonsense"), "immediate 400 "},
		{"no JSON for our model", nil, postBody(`{"model":"gpt-oss",`), "immediate 400 "},
		{"no model", nil, postBody(`{"messages":[{"role":"user","content":"Hi"}]}`), "immediate 400 "},
		{"model is a number", nil, postBody(`{"model":5,"messages":[{"role":"user","content":"Hi"}]}`), "immediate 400 "},
		{"model twice", nil, postBody(`{"model":"gpt-oss","model":"llama","messages":[]}`), `immediate 400 The request has two fields "model".`},
		{"tenant", func(c *config.Config) { c.TenantHeader = "x-tenant" }, postBody(ask("")), "immediate 401 The request does not say whose it is: the header x-tenant is missing"},
		{"two tenants", func(c *config.Config) { c.TenantHeader = "x-tenant" }, func(s *scripted) {
			s.post("x-tenant=victim", "x-tenant=a")
			s.body(ask(""), true)
		}, "immediate 401 The request does not say whose it is"},
		{"tenant, before the model", func(c *config.Config) { c.TenantHeader = "x-tenant" }, postBody("{nonsense"), "immediate 401 "},
		{"tenant, before the end of the body", func(c *config.Config) { c.TenantHeader = "x-tenant" }, func(s *scripted) { s.post(); s.body(`{"model":"gpt-oss",`, false) }, "immediate 401 "},
		{"encoding", nil, func(s *scripted) { s.post("content-encoding=br"); s.body("x", true) }, "immediate 415 "},
		{"slow body", nil, func(s *scripted) { s.post(); s.body("{", false); s.wait(time.Minute) }, "immediate 408 The request body did not arrive within 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			change := func(w *wiring) {
				if c.change != nil {
					c.change(w.cfg)
				}
			}
			script(t, change, func(s *scripted) {
				c.drive(s)
				s.expectLike(c.want)
				s.body("more", true) // in flight already: not answered
				s.expect()
				s.leave()
				if n := s.inUse(); n != 0 {
					t.Errorf("%d bytes of the budget are lost", n)
				}
			})
		})
	}
}

// The keys go with a request to the engine, under the names that are configured.
func TestKeysGoWithTheRequest(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
			routing := func(w *wiring) { w.cfg.Routing = config.Routing{PrefixHeader: tt.prefix, SessionHeader: tt.session} }
			var ofCall []string
			script(t, routing, func(s *scripted) {
				s.post("session_id=mine")
				s.body(ask(""), true)
				s.toEngine()
				for _, name := range []string{"x-p", "x-s"} {
					if value := s.call.header.Get(name); value != "" {
						ofCall = append(ofCall, name+"="+value)
					}
				}
			})
			script(t, func(w *wiring) { routing(w); w.direct = true }, func(s *scripted) {
				s.post("session_id=mine")
				s.body(ask(""), true)
				sent := s.expectLike("request headers", "request body ")[0]
				for _, key := range ofCall {
					if !strings.Contains(sent, " "+key+" ") {
						t.Errorf("a model call has %s, and the client's own request %s", key, sent)
					}
				}
				if (len(ofCall) == 0) != (tt.want == "") {
					t.Errorf("a model call has %q", ofCall)
				}
				if !regexp.MustCompile(tt.want).MatchString(sent) || tt.prefix == "" && strings.Contains(sent, "x-p") || tt.session == "" && strings.Contains(sent, "x-s=") {
					t.Errorf("%s", sent)
				}
			})
		})
	}
}

// TestSession shows which of a request's headers names the session.
func TestSession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		headers []string
		want    string
	}{
		{nil, ""},
		{[]string{"thread-id=t"}, "t"},
		{[]string{"thread-id=t", "conversation_id=c"}, "c"},
		{[]string{"conversation_id=c", "session_id=s"}, "s"},
		{[]string{"session_id=s", "session-id=n"}, "n"},
		{[]string{"x-claude-code-agent-id=a", "x-claude-code-session-id=parent"}, "parent"},
		{[]string{"x-claude-code-agent-id=a"}, ""},
	} {
		if got := session(headerMap(tt.headers), config.Defaults().Routing.SessionFrom); got != tt.want {
			t.Errorf("%v: %q", tt.headers, got)
		}
	}
	if got := session(headerMap([]string{"session-id=s", "x-mine=m"}), []string{"x-mine"}); got != "m" {
		t.Errorf("as configured: %q", got)
	}
}

// A session that Claude Code's header names chooses the replica, also of a sub-agent.
func TestSessionOfClaudeCode(t *testing.T) {
	t.Parallel()
	keys := map[string]string{}
	for name, fields := range map[string][]string{
		"agent":     {"x-claude-code-session-id=a"},
		"sub-agent": {"x-claude-code-session-id=a", "x-claude-code-agent-id=1"},
		"other":     {"x-claude-code-session-id=b"},
	} {
		script(t, nil, func(s *scripted) {
			s.post(fields...)
			s.body(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"`+name+`"}]}`, true)
			s.toEngine()
			keys[name] = s.call.header.Get("x-harmony-session")
		})
	}
	if keys["agent"] == "" || keys["agent"] != keys["sub-agent"] || keys["agent"] == keys["other"] {
		t.Errorf("keys %q", keys)
	}
}

// forged are headers of these names.
func forged(names []string) []string {
	fields := make([]string, len(names))
	for i, name := range names {
		fields[i] = name + "=forged"
	}
	return fields
}

// TestForwarded shows which of a client's headers go along with model calls.
func TestForwarded(t *testing.T) {
	t.Parallel()
	fields := slices.Concat(forged(header.Own()), []string{
		":method=POST", ":path=/v1/responses", ":authority=api.example", "content-length=5", "content-type=text/plain", "accept-encoding=gzip", "te=trailers",
		"x-request-id=abc", "traceparent=00-1", "authorization=Bearer secret", "x-envoy-attempt-count=1", "grpc-timeout=1n", "grpc-encoding=gzip", "grpc-accept-encoding=gzip", "x-data-parallel-rank=1",
	})
	want := http.Header{"Host": {"api.example"}, "X-Request-Id": {"abc"}, "Traceparent": {"00-1"}, "Authorization": {"Bearer secret"}, "User-Agent": {""}}
	if diff := cmp.Diff(want, forwarded(headerMap(fields))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	named := forwarded(headerMap([]string{"user-agent=curl"}))
	if diff := cmp.Diff(http.Header{"User-Agent": {"curl"}}, named); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An endpoint gets the request as it is, without the headers that only the filter
// may set.
func TestHTTPRequest(t *testing.T) {
	t.Parallel()
	var got *api.HTTPRequest
	endpoint := api.Endpoint{API: "test", Method: http.MethodPost, Pattern: "/test/{id}/items/{item}", NoModel: true, Handle: func(_ context.Context, r *api.HTTPRequest) api.Outcome {
		got = r
		return api.Answered([]byte("{}"), nil)
	}}
	change := func(w *wiring) {
		w.endpoints = []api.Endpoint{endpoint}
		w.cfg.TenantHeader, w.cfg.AllowOverride = "x-tenant", true
	}
	script(t, change, func(s *scripted) {
		s.request(false, ":method=POST", ":path=/test/a/items/b?limit=5&x=", ":authority=api.example", "x-request-id=abc", "x-tenant=acme", "session_id=mine", "authorization=Bearer k",
			header.Engine+"=b", "x-harmony-prefix=forged", header.Destination+"=forged", header.Codex+"=on")
		s.body(`{"a":`, false)
		s.body(`1}`, true)
		if status, body := s.answered(); status != 200 || body != "{}" {
			t.Errorf("status %d, %s", status, body)
		}
		rc := got.Context
		if rc.Tenant != "acme" || rc.RequestID != "abc" || rc.Session != "mine" || !got.Codex {
			t.Errorf("tenant %q, request %q, session %q, codex %t", rc.Tenant, rc.RequestID, rc.Session, got.Codex)
		}
		got.Context = nil
		want := &api.HTTPRequest{
			IDs: [2]string{"a", "b"}, Path: "/test/a/items/b", Query: map[string][]string{"limit": {"5"}, "x": {""}}, Body: []byte(`{"a":1}`), Codex: true,
			Header: http.Header{"Host": {"api.example"}, "X-Request-Id": {"abc"}, "X-Tenant": {"acme"}, "Session_id": {"mine"}, "Authorization": {"Bearer k"}, "User-Agent": {""}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		s.next()
		s.request(true, ":method=POST", ":path=/test/a/items/b?%zz", "x-tenant=acme")
		s.expectLike("immediate 400 The query of the path is malformed.")
	})
}

// Every endpoint asks for the tenant before anything else.
func TestTenantIsAskedFirst(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.cfg.TenantHeader = "x-tenant" }, func(s *scripted) {
		for _, e := range s.o.Endpoints {
			if e.Public || e.Header != "" {
				continue
			}
			for _, body := range []string{"", "{nonsense", "{}", `{"model":5}`, `{"model":"gpt-oss","model":"x"}`} {
				path := strings.NewReplacer("{id}", "x", "{item}", "y").Replace(e.Pattern)
				s.request(false, ":method="+e.Method, ":path="+path)
				s.body(body, true)
				got := s.sent()
				if len(got) != 1 || !strings.HasPrefix(got[0], "immediate 401 The request does not say whose it is") {
					t.Errorf("%s %s %s: %q", e.Method, path, body, got)
				}
				s.next()
			}
		}
	})
}

// A request's id is cut: in the reply, in the log and at the engine.
func TestLongRequestID(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		long := strings.Repeat("i", 50_000)
		s.request(false, ":method=POST", ":path=/v1/chat/completions", "x-request-id="+long)
		s.body(ask(`,"stream":true`), true)
		s.toEngine()
		s.answer(false, ":status=200", sse)
		s.answerBody(event("stop", tokens("<|channel|>final<|message|>Hello")...), true)
		if got := s.sent()[0]; !strings.HasSuffix(got, "x-request-id="+long[:maxIDBytes]) {
			t.Errorf("sent %.1000s", got)
		}
		if id := s.logLine().Get("request_id").Str; id != long[:maxIDBytes] {
			t.Errorf("%d bytes are logged", len(id))
		}
		s.begin()
		s.get("GET", "/"+long)
		s.leave()
		lines := s.lines(t)
		if path := lines[len(lines)-1].Get("path").Str; len(path) == 0 || len(path) > 2*maxIDBytes {
			t.Errorf("%d bytes of the path are logged", len(path))
		}
	})
}
