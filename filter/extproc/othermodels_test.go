package extproc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// marking has the header of replies to requests that were passed on.
func marking(w *wiring) { w.cfg.ReplyHeaders = []string{header.Passed} }

// named asks for a model.
func named(model string) string { return fmt.Sprintf(`{"model":%q,"messages":[]}`, model) }

// A request for another model passes as it is. Its name is in the log, once, with what to do, and
// the reply says that the filter did not take it.
func TestOtherModelsLeaveATrace(t *testing.T) {
	t.Parallel()
	script(t, marking, func(s *scripted) {
		for _, model := range []string{"gpt-4o", "", "gpt-4o", "llama3"} {
			s.post()
			s.body(named(model), true)
			s.expect("request headers", "request body "+named(model)+" END")
			s.envoyAnswer(false, ":status=200", "content-type=application/json")
			s.envoyAnswerBody("theirs", true)
			s.expect("response headers x-harmony-passed=model", "response body theirs END")
			s.next()
		}

		var warned []string
		for line := range strings.Lines(s.testServer.log.String()) {
			if gjson.Get(line, "level").Str == "warning" {
				warned = append(warned, gjson.Get(line, "msg").Str+gjson.Get(line, "message").Str)
			}
		}
		for i, want := range []string{
			`the model "gpt-4o", which harmony_models does not have: it was passed on without Harmony. If an engine serves ` +
				`gpt-oss under this name, set harmony_models: ["gpt-oss", "=gpt-4o"].`,
			`the model "", which`, `"=llama3"`,
		} {
			if i >= len(warned) || !strings.Contains(warned[i], want) {
				t.Errorf("there is no warning %d with %s in %q", i, want, warned)
			}
		}
		if len(warned) != 3 {
			t.Errorf("%d warnings: %q", len(warned), warned)
		}
	})
}

// Names that clients make up do not fill the log.
func TestOtherModelsAreBounded(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		for i := range 3 * maxOthers {
			s.post()
			s.body(named(fmt.Sprint("made-up-", i, strings.Repeat("x", 400))), true)
			s.next()
		}
		log := s.testServer.log.String()
		if n := strings.Count(log, "which harmony_models does not have"); n != maxOthers || !strings.Contains(log, "the next ones are not logged") {
			t.Errorf("%d names are in the log", n)
		}
		if strings.Contains(log, strings.Repeat("x", maxLoggedName)) {
			t.Error("a name is in the log as a whole")
		}
	})
}

// Where Envoy sends what it is asked for, nothing of the reply is asked for.
func TestOtherModelsOnDemand(t *testing.T) {
	t.Parallel()
	script(t, marking, func(s *scripted) {
		s.onDemand(false, chatHeaders...)
		s.body(`{"model":"llama"`, false)
		s.expect("mode"+requestOnly, "request headers"+requestOnly, `request body {"model":"llama"`)
	})
}

// Where nobody serves other models, a request for one is a 404 with those that there are, in the
// form of its API; also of a compressed body.
func TestOtherModelsAreRejected(t *testing.T) {
	t.Parallel()
	change := func(w *wiring) {
		w.cfg.UnknownModels, w.cfg.TenantHeader = config.UnknownReject, "x-tenant"
		w.cfg.HarmonyModels = []string{"gpt-oss", "=local"}
		w.cfg.Aliases = []config.Alias{{Name: "gpt-5", Model: "gpt-oss-20b"}}
	}
	const want = `There is no model "gpt-4o" here. Known models: local, gpt-5.`
	script(t, change, func(s *scripted) {
		s.post("x-tenant=a")
		s.body(`{"model":"gpt-4o","messages":`, false)
		if status, body := s.answered(); status != 404 || gjson.Get(body, "error.message").Str != want || gjson.Get(body, "error.code").Str != "model_not_found" {
			t.Errorf("%d %s", status, body)
		}

		s.next()
		s.request(false, ":method=POST", ":path=/v1/messages", "content-type=application/json", "x-tenant=a", "content-encoding=gzip")
		s.body(gzipped(named("gpt-4o")), true)
		if status, body := s.answered(); status != 404 || gjson.Get(body, "error.message").Str != want || gjson.Get(body, "error.type").Str != "not_found_error" {
			t.Errorf("%d %s", status, body)
		}

		s.next()
		s.post()
		s.body(named("gpt-4o"), true)
		if status, body := s.answered(); status != 401 {
			t.Errorf("without a tenant: %d %s", status, body)
		}
	})
	script(t, func(w *wiring) { w.cfg.UnknownModels = config.UnknownReject }, func(s *scripted) {
		s.post()
		s.body(named("gpt-4o"), true)
		if _, body := s.answered(); !strings.Contains(body, "Names of models have one of these: gpt-oss.") {
			t.Error(body)
		}
	})
}

// A Harmony model that the engine does not have is named in the error, with those that there are.
func TestUnknownModelOfTheEngine(t *testing.T) {
	t.Parallel()
	change := func(w *wiring) { w.cfg.Aliases = []config.Alias{{Name: "gpt-5", Model: "gpt-oss-20b"}} }
	script(t, change, func(s *scripted) {
		s.post()
		s.body(strings.Replace(ask(""), "openai/gpt-oss-20b", "gpt-oss-zzz", 1), true)
		s.toEngine()
		s.answer(false, ":status=404", "content-type=application/json")
		s.answerBody(`{"error":{"message":"The model gpt-oss-zzz does not exist.","param":"model"}}`, true)
		status, body := s.answered()
		if want := `The engine does not serve the model "gpt-oss-zzz". Known models: gpt-5.`; status != 404 || gjson.Get(body, "error.message").Str != want {
			t.Errorf("%d %s", status, body)
		}
	})
}
