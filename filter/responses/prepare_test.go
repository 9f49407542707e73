package responses

import (
	"context"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// A prompt without an answer is for connections only.
func TestPrepareOnly(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	body := []byte(`{"model":"m","generate":false,"stream":true,"store":false}`)
	reader := l.api.reader()
	if _, err := reader.Read(t.Context(), body, l.rc); err == nil || err.Param != "generate" {
		t.Errorf("over HTTP: %v", err)
	}

	ctx := store.WithLocal(context.Background(), store.NewLocal(1<<20, func(int) error { return nil }))
	q, err := reader.Read(ctx, body, l.rc)
	if err != nil {
		t.Fatal(err)
	}
	if !q.Options.PrepareOnly || !q.Storage.Local || q.Storage.Wanted {
		t.Errorf("over a connection: %+v, %+v", q.Options, q.Storage)
	}
	if _, err := reader.Read(ctx, []byte(strings.Replace(string(body), `"generate":false,`, "", 1)), l.rc); err == nil || err.Param != "input" {
		t.Errorf("an answer without input: %v", err)
	}
}
