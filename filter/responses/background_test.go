package responses

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// queue begins a background response, and returns its reply, begun.
func (s *server) queue(t *testing.T) (*write.Request, *write.Reply) {
	t.Helper()
	request, apiErr := s.decode([]byte(`{"model":"gpt-oss","input":"hi","background":true}`), s.rc)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	_, object, apiErr := request.Queue(context.Background(), "me", time.Minute)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if err := responsestest.Object(object); err != nil || gjson.GetBytes(object, "status").Str != "queued" {
		t.Fatalf("%v: queued as %s", err, object)
	}
	reply := newReply(request, api.SingleCall)
	reply.Start()
	return request, reply
}

// keep stores events as the filter does.
func (s *server) keep(t *testing.T, request *write.Request, first int, reply *write.Reply, sse []byte, end bool) error {
	t.Helper()
	return s.Store.Append(context.Background(), s.rc.Tenant, request.ResponseID, "me", store.Batch{First: first, Last: reply.Sequence() - 1, SSE: sse, End: end})
}

// unbounded is a budget without a bound.
func unbounded(int) *apierror.Error { return nil }

// readAll follows a response to its end.
func readAll(t *testing.T, f api.Follower) string {
	t.Helper()
	var all strings.Builder
	for range 100 {
		sse, end, err := f.Next(context.Background(), unbounded)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(sse)
		if end {
			return all.String()
		}
	}
	t.Fatalf("the stream does not end:\n%s", &all)
	return ""
}

func TestBackgroundStream(t *testing.T) {
	t.Parallel()
	s := newServer()
	request, reply := s.queue(t)
	queued := reply.Sequence()
	sse, apiErr := reply.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hello<|return|>"), Finish: engine.FinishStop})
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if err := s.keep(t, request, queued, reply, sse, false); err != nil {
		t.Fatal(err)
	}
	first := reply.Sequence()
	if err := s.keep(t, request, first, reply, mustEnd(t, reply, nil), true); err != nil {
		t.Fatal(err)
	}
	whole := readAll(t, request.Follow())
	object, err := responsestest.Stream([]byte(whole))
	if err != nil {
		t.Fatalf("%v in\n%s", err, whole)
	}
	stored, apiErr := s.do("GET", "/v1/responses/"+request.ResponseID)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if diff := cmp.Diff(gjson.ParseBytes(object).Value(), gjson.Parse(stored).Value()); diff != "" {
		t.Errorf("stored (-last event +GET):\n%s", diff)
	}
	for n := range strings.Count(whole, "\nevent: ") {
		resumed := s.outcome("GET", "/v1/responses/"+request.ResponseID+fmt.Sprint("?stream=true&starting_after=", n), nil, s.rc)
		if resumed.Stream == nil {
			t.Fatalf("%+v", resumed)
		}
		if want := strings.Join(strings.SplitAfter(whole, "\n\n")[n+1:], ""); readAll(t, resumed.Stream) != want {
			t.Errorf("resumed after %d it is another stream", n)
		}
	}
}

func TestStreamRefusesNumbers(t *testing.T) {
	t.Parallel()
	s := newServer()
	request, _ := s.queue(t)
	for _, n := range []string{"-1", "x", "1.5", "99999999999", "99999999999999999999"} {
		if _, err := s.do("GET", "/v1/responses/"+request.ResponseID+"?stream=true&starting_after="+n); err == nil || err.Param != "starting_after" {
			t.Errorf("starting_after=%s: %v", n, err)
		}
	}
}

// The first end of a response that is stored counts.
func TestBackgroundCancelBeatsItsMaker(t *testing.T) {
	t.Parallel()
	s := newServer()
	request, reply := s.queue(t)
	first := reply.Sequence()
	sse, _ := reply.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hel")})
	if err := s.keep(t, request, first, reply, sse, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, apiErr := s.do("POST", "/v1/responses/"+request.ResponseID+"/cancel")
		if apiErr != nil || gjson.Get(got, "status").Str != "cancelled" || gjson.Get(got, "output.#").Int() != 1 {
			t.Fatalf("cancel: %v, %s", apiErr, got)
		}
	}
	_, step, _ := reply.Step(nil) // ends the item, of which nothing can be stored any more
	first = reply.Sequence()
	result, _ := step.Jobs[0].Do(context.Background())
	reply.JobDone(nil, 0, result, nil)
	if end := mustEnd(t, reply, nil); len(end) > 0 || reply.Sequence() != first || !errors.Is(reply.Lost(), store.ErrConflict) {
		t.Errorf("the maker says %q, number %d, lost %v", end, reply.Sequence(), reply.Lost())
	}
	whole := readAll(t, request.Follow())
	object, err := responsestest.Stream([]byte(whole))
	if err != nil || gjson.GetBytes(object, "status").Str != "cancelled" {
		t.Errorf("%v in\n%s", err, whole)
	}
}

// A response whose maker has died fails for all who ask, and the items that
// were complete are there.
func TestBackgroundMakerDies(t *testing.T) {
	t.Parallel()
	s := newServer()
	now := s.rc.Now()
	s.Store = store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, Now: func() time.Time { return now }})
	request, reply := s.queue(t)
	first := reply.Sequence()
	sse, _ := reply.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>analysis<|message|>hm<|end|>")})
	if err := s.keep(t, request, first, reply, sse, false); err != nil {
		t.Fatal(err)
	}
	path := "/v1/responses/" + request.ResponseID
	if got, _ := s.do("GET", path); gjson.Get(got, "status").Str != "in_progress" {
		t.Errorf("while it is made: %s", got)
	}
	now = now.Add(2 * time.Minute)
	whole := readAll(t, request.Follow())
	object, err := responsestest.Stream([]byte(whole))
	if err != nil || gjson.GetBytes(object, "status").Str != "failed" {
		t.Errorf("%v in\n%s", err, whole)
	}
	if message := gjson.GetBytes(object, "error.message").Str; strings.Count(message, "server error") != 1 || strings.Count(message, "connection") != 1 {
		t.Errorf("clients do not know that they can try again: %q", message)
	}
	got, _ := s.do("GET", path)
	if gjson.Get(got, "status").Str != "failed" || gjson.Get(got, "output.0.type").Str != "reasoning" {
		t.Errorf("afterwards: %s", got)
	}
}
