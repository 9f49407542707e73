package responses

import (
	"context"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// generate is a member of a connection's events only; prompt_cache_options.prewarm says the same everywhere, and
// more than generate does.
func TestPrepareOnly(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	body := []byte(`{"model":"m","generate":false,"stream":true,"store":false}`)
	reader := l.api.reader()
	if _, err := reader.Read(t.Context(), body, l.rc); err == nil || err.Param != "generate" {
		t.Errorf("over HTTP: %v", err)
	}

	for _, members := range []string{
		`"input":"x","prompt_cache_options":{"prewarm":true}`,
		`"prompt_cache_options":{"prewarm":true},"input":"x","max_output_tokens":900,"min_tokens":5`,
	} {
		q, err := reader.Read(t.Context(), []byte(`{"model":"m","store":false,`+members+`}`), l.rc)
		if err != nil || !q.Options.PrepareOnly || q.Turn.Engine.MaxTokens != 1 || q.Turn.Engine.MinTokens != 0 {
			t.Errorf("%s: %+v, %v", members, q, err)
			continue
		}
		// The response repeats what the client has sent.
		if limited := strings.Contains(members, "900"); limited != strings.Contains(string(q.Echo), `"max_output_tokens":900`) {
			t.Errorf("%s: the response has %s", members, q.Echo)
		}
	}
	for _, c := range []struct{ members, param string }{
		{`"input":"x","background":true,"store":false`, "background"},
		{`"input":"x","background":true,"enable_response_messages":true`, "enable_response_messages"},
		{`"input":[{"role":"user","content":"x"},{"type":"compaction_trigger"}]`, "prompt_cache_options.prewarm"},
	} {
		body := `{"model":"m","prompt_cache_options":{"prewarm":true},` + c.members + `}`
		if _, err := reader.Read(t.Context(), []byte(body), l.rc); err == nil || err.Param != c.param {
			t.Errorf("%s: %v", c.members, err)
		}
	}
	if q, err := reader.Read(t.Context(), []byte(`{"model":"m","input":"x","store":false,"prompt_cache_options":{"prewarm":false}}`), l.rc); err != nil || q.Options.PrepareOnly {
		t.Errorf("with an answer: %+v, %v", q, err)
	}

	ctx := store.WithLocal(context.Background(), store.NewLocal(1<<20, func(int) error { return nil }))
	q, err := reader.Read(ctx, body, l.rc)
	if err != nil {
		t.Fatal(err)
	}
	if !q.Options.PrepareOnly || !q.Storage.Local || q.Storage.Wanted {
		t.Errorf("over a connection: %+v, %+v", q.Options, q.Storage)
	}
	summary := []byte(`{"model":"m","generate":false,"stream":true,"input":[{"role":"user","content":"x"},{"type":"compaction_trigger"}]}`)
	if _, err := reader.Read(ctx, summary, l.rc); err == nil || err.Param != "generate" {
		t.Errorf("a summary that nobody gets: %v", err)
	}
	if _, err := reader.Read(ctx, []byte(strings.Replace(string(body), `"generate":false,`, "", 1)), l.rc); err == nil || err.Param != "input" {
		t.Errorf("an answer without input: %v", err)
	}
}
