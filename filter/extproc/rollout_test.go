package extproc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/rollout"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// rolledOutTo changes a server so that it handles a percentage of the sessions.
func rolledOutTo(percent int) func(*wiring) {
	return func(w *wiring) { w.cfg.Rollout = []config.Rollout{{Percent: &percent}} }
}

// sessionAt50 is a session that is, or is not, in at 50 %.
func sessionAt50(in bool) string {
	for i := 0; ; i++ {
		if s := "s" + strconv.Itoa(i); rollout.Named("", s).In(50) == in {
			return s
		}
	}
}

// textAt50 is a user's text with which a conversation is, or is not, in at 50 %.
func textAt50(in bool) string {
	for i := 0; ; i++ {
		text := "Hi " + strconv.Itoa(i)
		r := rollout.Read([]byte(`{"input":"` + text + `"}`))
		if r.Beginning("", "gpt-oss-20b").In(50) == in {
			return text
		}
	}
}

// expectSide checks on which side the request is, that it is unchanged there, and
// how it is counted.
func (s *scripted) expectSide(in bool, body string, counted float64) {
	s.t.Helper()
	side := "upstream"
	if in {
		side = "filter"
		s.toEngine()
	} else {
		s.expect("request headers", "request body "+body+" END")
	}
	s.leave()
	if got := s.counted(s.t, "harmony_rollout_total", "match= side="+side+" tenant="); got != counted {
		s.t.Errorf("%v requests are counted for the %s, want %v", got, side, counted)
	}
}

// With 0 and 100 the model alone decides: nothing more of the body is awaited.
func TestRolloutToNoneAndAll(t *testing.T) {
	t.Parallel()
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		script(t, rolledOutTo(0), func(s *scripted) {
			s.post()
			s.body(`{"model":"gpt-oss-20b",`, false)
			s.expect("request headers", `request body {"model":"gpt-oss-20b",`)
			s.body(`"messages":`, false)
			s.body(`[]}`, true)
			s.expect(`request body "messages":`, "request body []} END")
			s.leave()
			if got := s.counted(t, "harmony_passthrough_total", ""); got != 1 {
				t.Errorf("%v requests passed through", got)
			}
			line := s.lines(t)[0]
			s.checkFields(s.lines(t))
			s.expectFields(line, map[string]any{"harmony": false, "rollout": "upstream", "msg": "passed through"})
		})
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		script(t, rolledOutTo(100), func(s *scripted) {
			s.complete()
			s.expectFields(s.logLine(), map[string]any{"harmony": true, "rollout": "filter"})
		})
	})
}

// The first of the things that name a session decides.
func TestRolloutBySession(t *testing.T) {
	t.Parallel()
	for _, in := range []bool{true, false} {
		session, other, text := sessionAt50(in), sessionAt50(!in), textAt50(in)
		for name, c := range map[string]struct {
			path, body string
			fields     []string
		}{
			"header":                      {"/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"x"}]}`, []string{"session-id=" + session}},
			"header before body":          {"/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"x"}],"prompt_cache_key":"` + other + `"}`, []string{"session-id=" + session}},
			"header, responses":           {"/v1/responses", `{"model":"gpt-oss-20b","input":"x"}`, []string{"session_id=" + session}},
			"cache key":                   {"/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"x"}],"prompt_cache_key":"` + session + `"}`, nil},
			"cache key, responses":        {"/v1/responses", `{"prompt_cache_key":"` + session + `","model":"gpt-oss-20b","input":"x"}`, nil},
			"beginning":                   {"/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"` + text + `"}]}`, nil},
			"beginning, later turn":       {"/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"` + text + `"},{"role":"assistant","content":"a"},{"role":"user","content":"b"}]}`, nil},
			"beginning, responses":        {"/v1/responses", `{"model":"gpt-oss-20b","input":[{"role":"user","content":[{"type":"input_text","text":"` + text + `"}]}]}`, nil},
			"beginning, model named last": {"/v1/responses", `{"input":"` + text + `","model":"gpt-oss-20b"}`, nil},
		} {
			t.Run(fmt.Sprintf("%s, in: %t", name, in), func(t *testing.T) {
				t.Parallel()
				script(t, rolledOutTo(50), func(s *scripted) {
					s.postTo(c.path, c.body, c.fields...)
					s.expectSide(in, c.body, 1)
				})
			})
		}
	}
}

// A chat whose session a header names passes through as soon as its model is known.
func TestRolloutByHeaderNeedsNoBody(t *testing.T) {
	t.Parallel()
	script(t, rolledOutTo(50), func(s *scripted) {
		s.post("session-id=" + sessionAt50(false))
		s.body(`{"model":"gpt-oss-20b","x":`, false)
		s.expect("request headers", `request body {"model":"gpt-oss-20b","x":`)
	})
}

// What arrives in pieces, compressed or with trailers passes through as it came.
func TestRolloutPassesThroughUnchanged(t *testing.T) {
	t.Parallel()
	body := `{"model":"gpt-oss-20b", "messages" : [{"role":"user","content":"` + textAt50(false) + `"}]}`
	t.Run("pieces and trailers", func(t *testing.T) {
		t.Parallel()
		script(t, rolledOutTo(50), func(s *scripted) {
			s.post()
			s.body(body[:30], false)
			s.body(body[30:], false)
			s.expect()
			s.trailers()
			s.expect("request headers", "request body "+body, "request trailers")
			s.envoyAnswer(false, ":status=200", sse)
			s.envoyAnswerBody("data: x", true)
			s.expect("response headers", "response body data: x END")
			if n := s.inUse(); n != 0 {
				t.Errorf("%d bytes are still counted", n)
			}
		})
	})
	t.Run("gzip", func(t *testing.T) {
		t.Parallel()
		script(t, rolledOutTo(50), func(s *scripted) {
			s.post("content-encoding=gzip")
			s.body(gzipped(body), true)
			s.expect("request headers", "request body "+gzipped(body)+" END")
		})
	})
}

// The limits for the filter's own requests hold for those only that are known to be
// its own.
func TestRolloutOfWhatIsNotCollected(t *testing.T) {
	t.Parallel()
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		script(t, func(w *wiring) {
			rolledOutTo(50)(w)
			w.cfg.Limits.MaxBodyBytes = 50
		}, func(s *scripted) {
			long := strings.Repeat("a", 50)
			s.post()
			s.body(`{"model":"gpt-oss-20b","x":"`, false)
			s.body(long, false)
			s.expect("request headers", `request body {"model":"gpt-oss-20b","x":"`, "request body "+long)
			s.body(`"}`, true)
			s.expect(`request body "} END`)
			s.next()
			s.post()
			s.body(`{"x":"`+long, true)
			s.expectLike("immediate 413")
		})
	})
	t.Run("no room", func(t *testing.T) {
		t.Parallel()
		script(t, func(w *wiring) {
			rolledOutTo(50)(w)
			w.cfg.Limits.MaxBodyBytes, w.cfg.Limits.MaxInflightBytes = 50, 200
		}, func(s *scripted) {
			other := s.occupy(s.t, 150)
			defer other.close()
			s.post()
			s.body(`{"model":"gpt-oss-20b",`, false)
			first := s.fakeEnvoy
			defer first.leave()
			s.begin()
			s.post()
			s.body(`{"model":"gpt-oss-20b","messages":[]}`, true)
			s.expect("request headers", `request body {"model":"gpt-oss-20b","messages":[]} END`)
			s.next()
			s.post()
			s.body(`{"messages":["a","b","c","d"`, false)
			s.expectLike("immediate 503") // its model is not known yet
		})
	})
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		script(t, rolledOutTo(50), func(s *scripted) {
			s.post()
			s.body(`{"model":"gpt-oss-20b",`, false)
			s.expect()
			s.wait(time.Hour)
			s.expect("request headers", `request body {"model":"gpt-oss-20b",`)
		})
	})
}

// A request that continues what is stored goes where it is stored, whatever its
// session.
func TestRolloutOfStoredConversations(t *testing.T) {
	t.Parallel()
	script(t, rolledOutTo(50), func(s *scripted) {
		in, out := sessionAt50(true), sessionAt50(false)
		id := s.respond("session-id=" + in)
		s.next()
		s.postTo("/v1/conversations", "{}")
		_, conversation := s.answered()
		conversation = `"conversation":` + conversation[:strings.Index(conversation, ",")] + "}"
		for _, c := range []struct {
			continues string
			here      bool
		}{
			{`"previous_response_id":"` + id + `"`, true},
			{conversation, true},
			{`"previous_response_id":"resp_elsewhere"`, false},
			{`"conversation":"conv_elsewhere"`, false},
			{`"previous_response_id":"resp_elsewhere","prompt":{"id":"p"}`, false}, // a field that the filter rejects
		} {
			for _, session := range []string{in, out} {
				s.next()
				body := `{"model":"gpt-oss-20b","input":"more",` + c.continues + `}`
				s.postTo("/v1/responses", body, "session-id="+session)
				if c.here {
					s.toEngine()
				} else {
					s.expect("request headers", "request body "+body+" END")
				}
			}
		}
		s.envoyAnswer(false, ":status=404") // of the last one
		s.expectLike("immediate 400 The response that the request continues is not stored")
		s.leave()
		for side, want := range map[string]float64{"filter": 5, "upstream": 6} {
			if got := s.counted(t, "harmony_rollout_total", "match= side="+side+" tenant="); got != want {
				t.Errorf("%v requests are counted for the %s, want %v", got, side, want)
			}
		}
	})
}

// Stored objects can be read whatever the rollout.
func TestRolloutLeavesStoredObjects(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		id := s.respond()
		none := 0
		s.wire.cfg.Rollout = []config.Rollout{{Percent: &none}}
		s.next()
		s.get("GET", "/v1/responses/"+id)
		if status, _ := s.answered(); status != 200 {
			t.Errorf("status %d", status)
		}
	})
}

// brokenStore is a store that cannot be reached.
type brokenStore struct{ store.Store }

func (brokenStore) Head(context.Context, string, string) (store.Head, error) {
	return store.Head{}, errors.New("unreachable")
}

func (brokenStore) Chain(context.Context, string, string) ([]*store.Response, error) {
	return nil, errors.New("unreachable")
}

// While the store fails, a request that continues something is not passed on: it may
// be the filter's.
func TestRolloutWithoutStore(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) {
		rolledOutTo(50)(w)
		w.store = brokenStore{newStore()}
	}, func(s *scripted) {
		s.postTo("/v1/responses", `{"model":"gpt-oss-20b","input":"more","previous_response_id":"resp_1"}`)
		s.expectLike("immediate 503")
	})
}

func TestRolloutByModelAndTenant(t *testing.T) {
	t.Parallel()
	change := func(w *wiring) {
		all, none := 100, 0
		w.cfg.TenantHeader, w.cfg.AllowOverride = "x-tenant", true
		w.cfg.Rollout = []config.Rollout{{Match: "=gpt-oss-120b", Tenant: "acme", Percent: &all}, {Match: "120b", Percent: &none}, {Tenant: "other", Percent: &none}}
	}
	for _, c := range []struct {
		model, tenant, override string
		in                      bool
	}{
		{"gpt-oss-120b", "acme", "", true},
		{"gpt-oss-120b", "b", "", false},
		{"gpt-oss-20b", "acme", "", true},
		{"gpt-oss-20b", "other", "", false},
		{"gpt-oss-20b", "other", "on", true},
		{"gpt-oss-120b", "acme", "off", false},
	} {
		t.Run(strings.Join([]string{c.model, c.tenant, c.override}, " "), func(t *testing.T) {
			t.Parallel()
			script(t, change, func(s *scripted) {
				s.post("x-tenant="+c.tenant, "x-envoy-harmony="+c.override)
				s.body(`{"model":"`+c.model+`","messages":[{"role":"user","content":"x"}]}`, true)
				if in := len(s.loopback.waiting()) == 1; in != c.in {
					t.Errorf("in: %t, want %t: %q", in, c.in, s.sent())
				}
			})
		})
	}
}
