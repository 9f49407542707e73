package replies

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

func TestBackground(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(stack.NotFound)
	c := d.CheckedOpenAI(t)

	for _, model := range stack.HarmonyModels {
		t.Run(model+"/polled", func(t *testing.T) {
			r := stack.AwaitBackground(t, c, stack.BeginBackground(t, c, model, "THINK Hm.\nSAY hello").ID)
			if r.Status != "completed" || r.OutputText() != "hello" || r.Usage.OutputTokens == 0 || !r.Background {
				t.Errorf("response %s", r.RawJSON())
			}

			next := stack.Asking(model, "SAY more")
			next.PreviousResponseID = openai.String(r.ID)
			if _, err := c.Responses.New(t.Context(), next); err != nil {
				t.Errorf("continue: %v", err)
			}

			again, err := c.Responses.Cancel(t.Context(), r.ID)
			if err != nil || again.Status != "completed" {
				t.Errorf("cancel of a complete response: %v, %v", again, err)
			}
		})

		t.Run(model+"/streamed and resumed", func(t *testing.T) {
			_, sse := d.Respond(t, model, "THINK Hm.\nWORDS 30\nSIM delay=2ms", `,"stream":true,"background":true`)
			object, err := responsestest.Stream([]byte(sse))
			if err != nil {
				t.Fatalf("%v in\n%s", err, sse)
			}

			id := gjson.GetBytes(object, "id").Str
			if status := gjson.GetBytes(object, "status").Str; status != "completed" {
				t.Errorf("status %s", status)
			}

			if diff := cmp.Diff(sse, d.Resume(t, id, "")); diff != "" {
				t.Errorf("resumed from the beginning (-want +got):\n%s", diff)
			}
			for _, n := range []int{0, 1, 7, 20, strings.Count(sse, "\nevent: ") - 1} {
				if diff := cmp.Diff(stack.EventsAfter(t, sse, n), d.Resume(t, id, fmt.Sprint("&starting_after=", n))); diff != "" {
					t.Errorf("resumed after %d (-want +got):\n%s", n, diff)
				}
			}
		})

		t.Run(model+"/resumed by openai-go", func(t *testing.T) {
			r := stack.BeginBackground(t, c, model, "SAY hello")
			stream := c.Responses.GetStreaming(t.Context(), r.ID, responses.ResponseGetParams{StartingAfter: openai.Int(2)})
			defer func() { _ = stream.Close() }()

			var text strings.Builder
			last := ""
			for stream.Next() {
				text.WriteString(stream.Current().Delta)
				last = stream.Current().Type
			}
			if err := stream.Err(); err != nil || !strings.HasSuffix(text.String(), "hello") || last != "response.completed" {
				t.Errorf("%v: %q, then %s", err, &text, last)
			}
		})

		t.Run(model+"/engine fails", func(t *testing.T) {
			r := stack.AwaitBackground(t, c, stack.BeginBackground(t, c, model, "SIM status=500").ID)
			if r.Status != "failed" || r.Error.Code != "server_error" {
				t.Errorf("response %s", r.RawJSON())
			}

			r = stack.AwaitBackground(t, c, stack.BeginBackground(t, c, model, slowWords+"cut@40").ID)
			if items := stack.ItemsOf(r); r.Status != "failed" || len(items) != 1 || !strings.HasPrefix(items[0].Text, "w1 w2") {
				t.Errorf("response %s", r.RawJSON())
			}
		})
	}

	t.Run("a stream that is resumed after its end is not empty", func(t *testing.T) {
		r := stack.AwaitBackground(t, c, stack.BeginBackground(t, c, stack.VLLMModel, "SAY hello").ID)
		for _, n := range []string{"1000", "100000"} {
			if got := d.Resume(t, r.ID, "&starting_after="+n); got != "data: [DONE]\n\n" {
				t.Errorf("after %s: %q", n, got)
			}
		}
	})

	t.Run("not stored", func(t *testing.T) {
		p := stack.Asking(stack.SGLangModel, "SAY x")
		p.Background, p.Store = openai.Bool(true), openai.Bool(false)
		_, err := c.Responses.New(t.Context(), p)
		stack.WantError(t, "store: false", err, http.StatusBadRequest, "", "background")
	})
}

// A background response continues after its client has disconnected. Another client
// can follow it.
func TestBackgroundAfterDisconnect(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(stack.NotFound)
	c := d.CheckedOpenAI(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()

	body := `{"model":"gpt-oss-20b","input":"NOTHINK\nWORDS 100\nSIM delay=10ms","stream":true,"background":true}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/responses", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")

	resp, err := d.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	id, seen := "", strings.Builder{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan() && !strings.Contains(seen.String(), "output_text.delta"); {
		seen.WriteString(lines.Text() + "\n")
		if found := gjson.Get(strings.TrimPrefix(lines.Text(), "data: "), "response.id").Str; found != "" {
			id = found
		}
	}

	leave()
	live := d.Resume(t, id, "")
	if !strings.HasPrefix(live, strings.TrimRight(seen.String(), "\n")) {
		t.Errorf("the resumed stream has another beginning:\n%s", live[:min(len(live), 2000)])
	}

	if _, err := responsestest.Stream([]byte(live)); err != nil {
		t.Error(err)
	}
	if r := stack.AwaitBackground(t, c, id); r.Status != "completed" || !strings.HasSuffix(r.OutputText(), "w100") {
		t.Errorf("response %s", r.RawJSON())
	}
}

func TestBackgroundCancel(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(stack.NotFound)
	c := d.CheckedOpenAI(t)

	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) {
			r := stack.BeginBackground(t, c, model, "THINK Hm.\nWORDS 1000000\nSIM delay=5ms", option.WithHeader("X-Request-Id", "cancel-"+model))
			stream := make(chan string, 1)
			go func() { stream <- d.Resume(t, r.ID, "") }()

			d.AwaitEngine(t, "cancel-"+model, stack.StateRunning)
			for range 2 { // the second request finds the response cancelled
				got, err := c.Responses.Cancel(t.Context(), r.ID)
				if err != nil || got.Status != "cancelled" {
					t.Fatalf("cancelled: %v, %v", got, err)
				}
			}

			d.AwaitEngine(t, "cancel-"+model, stack.StateCancelled)
			sse := stack.Receive(t, stream, "the stream's end")
			object, err := responsestest.Stream([]byte(sse))
			if err != nil || gjson.GetBytes(object, "status").Str != "cancelled" {
				t.Errorf("%v: the stream ends with %s", err, object)
			}

			if got := stack.AwaitBackground(t, c, r.ID); got.Status != "cancelled" {
				t.Errorf("response %s", got.RawJSON())
			}
		})
	}

	t.Run("deleted", func(t *testing.T) {
		r := stack.BeginBackground(t, c, stack.VLLMModel, "WORDS 1000000\nSIM delay=5ms", option.WithHeader("X-Request-Id", "deleted"))
		d.AwaitEngine(t, "deleted", stack.StateRunning)
		if err := c.Responses.Delete(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}

		_, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
		stack.WantStatus(t, err, http.StatusNotFound)
		d.AwaitEngine(t, "deleted", stack.StateCancelled)
	})
}
