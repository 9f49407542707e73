package filter

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// recorded asks a service that records, and returns the records.
func recorded(t *testing.T) (cfg *config.Config, records []*record.Record) {
	t.Helper()
	folder := t.TempDir()
	s, _, configure := newReloading(t)
	_ = s
	cfg = configure(func(c *config.Config) {
		c.Record.Percent, c.Record.Content, c.Record.Folder = 100, true, folder
	})
	log := logrus.New()
	log.SetOutput(io.Discard)
	recording, err := New(cfg, Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	first := ask(t, recording, "/v1/responses", `{"model":"gpt-oss-20b","input":"one","store":true}`, nil)
	var response struct{ ID string }
	if err := json.Unmarshal(first.body.Bytes(), &response); err != nil || response.ID == "" {
		t.Fatalf("no response: %s", &first.body)
	}
	for _, c := range []struct{ path, body string }{
		{"/v1/responses", `{"model":"gpt-oss-20b","input":"two","stream":true,"previous_response_id":"` + response.ID + `"}`},
		{"/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"three"}],"stream":true}`},
		{"/v1/messages", `{"model":"gpt-oss-20b","max_tokens":50,"messages":[{"role":"user","content":"four"}]}`},
		{"/v1/chat/completions", `{"model":"gpt-oss-20b","messages":"no list"}`},
		{"/v1/responses/input_tokens", `{"model":"gpt-oss-20b","input":"five"}`},
		// What decides them is in members that are not at the top.
		{"/v1/messages", `{"model":"gpt-oss-20b","max_tokens":50,"messages":[{"role":"user","content":"six"}],"mcp_servers":[{"type":"url","url":"http://127.0.0.1:1/","name":"m"}],` +
			`"tools":[{"type":"mcp_toolset","mcp_server_name":"m","default_config":{"enabled":false},"configs":{"search":{"enabled":true}}}]}`},
		{"/v1/messages", `{"model":"gpt-oss-20b","max_tokens":50,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"abc"}}]}]}`},
		{"/v1/responses", `{"model":"gpt-oss-20b","input":"x","tools":[{"type":"shell","environment":{"type":"local","skills":[{"name":"a","description":"b","path":"p"}]}}]}`},
	} {
		ask(t, recording, c.path, c.body, nil)
	}
	if err := recording.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := record.Files([]string{folder})
	if err != nil || len(files) != 9 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		if err := record.ReadFile(file, func(r *record.Record) { records = append(records, r) }); err != nil {
			t.Fatal(err)
		}
	}
	return cfg, records
}

// What was recorded is replayed without a difference.
func TestReplay(t *testing.T) {
	cfg, records := recorded(t)
	player, err := NewPlayer(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if played := player.Play(t.Context(), r); played.Skipped != "" || len(played.Differences) > 0 {
			t.Errorf("%s %s: %q %v", r.Request.Path, r.Request.Body, played.Skipped, played.Differences)
		}
	}
}

// A version that writes another prompt, reads the output in another way, or makes other
// accesses to the store is found, by its cause.
func TestReplayFindsChanges(t *testing.T) {
	cfg, records := recorded(t)
	player, err := NewPlayer(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	find := func(cause string, change func(r *record.Record)) {
		t.Helper()
		text, err := json.Marshal(records[1]) // the response that continues one
		if err != nil {
			t.Fatal(err)
		}
		var r record.Record
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		change(&r)
		played := player.Play(t.Context(), &r)
		causes := make([]string, 0, len(played.Differences))
		for _, d := range played.Differences {
			causes = append(causes, d.Cause)
		}
		if all := strings.Join(causes, " ") + played.Skipped; !strings.Contains(all, cause) {
			t.Errorf("want %q, got %q", cause, all)
		}
	}
	event := func(r *record.Record, kind string) *record.Event {
		for i := range r.Events {
			if r.Events[i].Kind == kind {
				return &r.Events[i]
			}
		}
		t.Fatalf("no %s", kind)
		return nil
	}
	find("prompt", func(r *record.Record) { r.Settings.Model.Identity = "You are another model." })
	find("prompt", func(r *record.Record) { event(r, record.KindCall).Call.Prompt[20]++ })
	find("call", func(r *record.Record) { event(r, record.KindCall).Call.Options = []byte(`{"temperature":2}`) })
	find("reply", func(r *record.Record) { event(r, record.KindTokens).Tokens.IDs[4]++ })
	find("reply", func(r *record.Record) { event(r, record.KindSent).Text = record.NewText([]byte("other")) })
	find("reply", func(r *record.Record) { event(r, record.KindHeaders).Header["content-type"] = "text/plain" })
	find("store", func(r *record.Record) { event(r, record.KindStore).Store.Operation = "put_other" })
	find("ids", func(r *record.Record) { event(r, record.KindID).Text = record.NewText([]byte("other_1")) })
	find("redacted", func(r *record.Record) { *r = record.Redact(r) })
	find("cut", func(r *record.Record) { r.Cut = true })
}

// The records of testdata are replayed without a difference. "envoy-harmony inspect
// -record" writes more.
func TestReplayRecords(t *testing.T) {
	files, err := filepath.Glob("testdata/records/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no records: %v", err)
	}
	for _, file := range files {
		err := record.ReadFile(file, func(r *record.Record) {
			cfg, err := config.Parse(file, []byte(r.Config))
			if err != nil {
				t.Fatal(err)
			}
			cfg.Responses.SealKeys = []string{"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="} // which no record has
			player, err := NewPlayer(cfg, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if played := player.Play(t.Context(), r); played.Skipped != "" || len(played.Differences) > 0 {
				t.Errorf("%s: %q %v", file, played.Skipped, played.Differences)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}
