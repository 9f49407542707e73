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

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// queue begins a background response and gives its reply, begun.
func (s *server) queue(t *testing.T) (*Call, *Reply) {
	t.Helper()
	call, apiErr := s.Decode(context.Background(), []byte(`{"model":"gpt-oss","input":"hi","background":true}`), s.scope)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	_, object, apiErr := call.Queue(context.Background(), "me", time.Minute)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if err := responsestest.Object(object); err != nil || gjson.GetBytes(object, "status").Str != "queued" {
		t.Fatalf("%v: queued as %s", err, object)
	}
	reply := call.NewReply()
	reply.Start()
	return call, reply
}

// keep stores events as the filter does.
func (s *server) keep(t *testing.T, call *Call, first int, reply *Reply, sse []byte, end bool) error {
	t.Helper()
	return s.Store.Append(context.Background(), s.scope.Tenant, call.ID(), "me", store.Batch{First: first, Last: reply.Sequence() - 1, SSE: sse, End: end})
}

// readAll follows a response to its end.
func readAll(t *testing.T, f *Follower) string {
	t.Helper()
	var all strings.Builder
	for range 100 {
		sse, end, err := f.Next(context.Background())
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
	call, reply := s.queue(t)
	sse, apiErr := reply.Push(nil, &engine.Chunk{Tokens: tokens("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hello<|return|>"), Finish: engine.FinishStop})
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if err := s.keep(t, call, call.queued, reply, sse, false); err != nil {
		t.Fatal(err)
	}
	first := reply.Sequence()
	if err := s.keep(t, call, first, reply, reply.End(nil), true); err != nil {
		t.Fatal(err)
	}
	whole := readAll(t, call.Follow())
	object, err := responsestest.Stream([]byte(whole))
	if err != nil {
		t.Fatalf("%v in\n%s", err, whole)
	}
	stored, apiErr := s.do("GET", "/v1/responses/"+call.ID())
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if diff := cmp.Diff(gjson.ParseBytes(object).Value(), gjson.Parse(stored).Value()); diff != "" {
		t.Errorf("stored (-last event +GET):\n%s", diff)
	}
	for n := range strings.Count(whole, "\nevent: ") {
		f, apiErr := s.Stream(context.Background(), "GET", "/v1/responses/"+call.ID(), fmt.Sprint("stream=true&starting_after=", n), nil, s.scope)
		if apiErr != nil {
			t.Fatal(apiErr)
		}
		if want := strings.Join(strings.SplitAfter(whole, "\n\n")[n+1:], ""); readAll(t, f) != want {
			t.Errorf("resumed after %d it is another stream", n)
		}
	}
}

func TestStreamRefusesNumbers(t *testing.T) {
	t.Parallel()
	s := newServer()
	call, _ := s.queue(t)
	for _, n := range []string{"-1", "x", "1.5", "99999999999", "99999999999999999999"} {
		if _, err := s.Stream(context.Background(), "GET", "/v1/responses/"+call.ID(), "stream=true&starting_after="+n, nil, s.scope); err == nil || err.Param != "starting_after" {
			t.Errorf("starting_after=%s: %v", n, err)
		}
	}
}

// Whoever ends a response first has the last word.
func TestBackgroundCancelBeatsItsMaker(t *testing.T) {
	t.Parallel()
	s := newServer()
	call, reply := s.queue(t)
	first := reply.Sequence()
	sse, _ := reply.Push(nil, &engine.Chunk{Tokens: tokens("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hel")})
	if err := s.keep(t, call, first, reply, sse, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, apiErr := s.do("POST", "/v1/responses/"+call.ID()+"/cancel")
		if apiErr != nil || gjson.Get(got, "status").Str != "cancelled" || gjson.Get(got, "output.#").Int() != 1 {
			t.Fatalf("cancel: %v, %s", apiErr, got)
		}
	}
	first = reply.Sequence()
	if end := reply.End(nil); len(end) > 0 || reply.Sequence() != first || !errors.Is(reply.Lost(), store.ErrConflict) {
		t.Errorf("the maker says %q, number %d, lost %v", end, reply.Sequence(), reply.Lost())
	}
	whole := readAll(t, call.Follow())
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
	now := s.scope.Now()
	s.Store = store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, Now: func() time.Time { return now }})
	call, reply := s.queue(t)
	first := reply.Sequence()
	sse, _ := reply.Push(nil, &engine.Chunk{Tokens: tokens("<|channel|>analysis<|message|>hm<|end|>")})
	if err := s.keep(t, call, first, reply, sse, false); err != nil {
		t.Fatal(err)
	}
	path := "/v1/responses/" + call.ID()
	if got, _ := s.do("GET", path); gjson.Get(got, "status").Str != "in_progress" {
		t.Errorf("while it is made: %s", got)
	}
	now = now.Add(2 * time.Minute)
	whole := readAll(t, call.Follow())
	object, err := responsestest.Stream([]byte(whole))
	if err != nil || gjson.GetBytes(object, "status").Str != "failed" {
		t.Errorf("%v in\n%s", err, whole)
	}
	got, _ := s.do("GET", path)
	if gjson.Get(got, "status").Str != "failed" || gjson.Get(got, "output.0.type").Str != "reasoning" {
		t.Errorf("afterwards: %s", got)
	}
}
