package tools_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// A trace continues at a server of the configuration, in the HTTP headers and in
// _meta. A server of a request learns nothing of it.
func TestTrace(t *testing.T) {
	type key struct{}
	for _, isTrusted := range []bool{true, false} {
		var mu sync.Mutex
		var seen []string // method, and where the field is
		f := newFixture().streamable()
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			q.Body = io.NopCloser(bytes.NewReader(body))
			mu.Lock()

			for _, method := range []string{"tools/list", "tools/call"} {
				if bytes.Contains(body, []byte(method)) {
					seen = append(seen, strings.TrimSpace(method+" "+q.Header.Get("Traceparent")))
				}
			}

			if gjson.GetBytes(body, "params._meta.traceparent").Str == "job" {
				seen = append(seen, "meta")
			}

			mu.Unlock()
			f.ServeHTTP(w, q)
		}))

		var ended []string
		c := newClient(t, tools.Options{
			AllowedHosts: hosts(t, url), AllowedNetworks: networks(t, "127.0.0.0/8"),
			Trace: tools.Trace{
				Begin: func(ctx context.Context, j tools.Job) (context.Context, func(time.Duration, tools.Result)) {
					return context.WithValue(ctx, key{}, "job"), func(_ time.Duration, r tools.Result) { ended = append(ended, j.Tool+" "+r.Text) }
				},
				Inject: func(ctx context.Context, set func(name, value string)) {
					if value, ok := ctx.Value(key{}).(string); ok {
						set("traceparent", value)
					}
				},
			},
		})

		s := &tools.Server{Label: "fixture", URL: url, Trusted: isTrusted}
		do(t, c, s, "", "")
		do(t, c, s, "echo", "{}")
		want := []string{"meta", "tools/call job", "tools/list job"}
		if !isTrusted {
			want = []string{"tools/call", "tools/list"}
		}

		mu.Lock()
		slices.Sort(seen)
		seen = slices.Compact(seen) // the list has pages
		if !slices.Equal(seen, want) || !slices.Equal(ended, []string{" ", "echo {}"}) {
			t.Errorf("trusted %t: the server gets %q, ended %q", isTrusted, seen, ended)
		}

		mu.Unlock()
	}
}
