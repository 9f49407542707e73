package stack

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// BeginBackground creates a background response.
func BeginBackground(t *testing.T, c openai.Client, model, text string, o ...option.RequestOption) *responses.Response {
	t.Helper()
	p := Asking(model, text)
	p.Background = openai.Bool(true)
	r, err := c.Responses.New(t.Context(), p, o...)
	if err != nil {
		t.Fatal(err)
	}

	// The answer comes before the first model call, so that nothing of the reply can be in it.
	if r.Status != "queued" || !r.Background || len(r.Output) > 0 {
		t.Fatalf("response %s", r.RawJSON())
	}
	return r
}

// AwaitBackground polls a response until it is neither queued nor in progress.
func AwaitBackground(t *testing.T, c openai.Client, id string) *responses.Response {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		r, err := c.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != "queued" && r.Status != "in_progress" {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %s", r.RawJSON())
		}
	}
}

// Resume reads a stored stream to its end.
func (d *Dataplane) Resume(t *testing.T, id, query string) string {
	t.Helper()
	resp := d.Do(t, http.MethodGet, "/v1/responses/"+id+"?stream=true"+query, "", http.NoBody)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v, after %s", resp.StatusCode, err, text)
	}
	return string(text)
}

// EventsAfter returns the events of a stream that follow the event with a sequence
// number.
func EventsAfter(t *testing.T, sse string, number int) string {
	t.Helper()
	// Events have the numbers 0, 1, … in their order.
	rest := sse
	for n := 0; n <= number; n++ {
		_, next, ok := strings.Cut(rest, "\n\n")
		if !ok {
			t.Fatalf("there is no event %d in\n%s", number, sse)
		}
		rest = next
	}
	return rest
}
