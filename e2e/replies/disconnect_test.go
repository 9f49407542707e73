package replies

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// If a client disconnects, the request at the engine is cancelled.
func TestDisconnect(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, model := range stack.HarmonyModels {
		for _, tt := range []struct{ name, content, more string }{
			{"while tokens come", "NOTHINK\nWORDS 1000000 5", `,"stream":true`},
			{"before the first token", "SAY late\nSIM first=1h", `,"stream":true`},
			{"while a whole reply is made", "NOTHINK\nWORDS 1000000 5", ""},
		} {
			t.Run(model+"/"+tt.name, func(t *testing.T) {
				id := strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, model, tt.content, tt.more)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-Request-Id", id)

				ended, first := make(chan struct{}), make(chan string, 1)
				go func() {
					defer close(ended)
					defer close(first)
					resp, err := d.Client.Do(req)
					if err != nil {
						return // the client has disconnected
					}
					defer resp.Body.Close()
					line, _ := bufio.NewReader(resp.Body).ReadString('\n') // the client may disconnect before
					first <- line
					<-ctx.Done()
				}()

				d.AwaitEngine(t, id, stack.StateRunning)
				if strings.HasPrefix(tt.name, "while tokens") {
					if line := stack.Receive(t, first, "the first line"); !strings.HasPrefix(line, "data: ") {
						t.Errorf("the stream starts with %q", line)
					}
				}

				leave()
				<-ended
				d.AwaitEngine(t, id, stack.StateCancelled)
			})
		}
	}
}
