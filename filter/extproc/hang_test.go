package extproc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// hangTime is how long an access to a store that hangs takes.
const hangTime = 30 * time.Second

// hangingStore is a store that can hang, in the accesses that a request needs.
type hangingStore struct {
	store.Store
	hangs atomic.Bool
	deaf  bool          // the end of their context does not end the accesses
	takes time.Duration // how long an access takes that succeeds in the end; 0: none does
}

var errHung = errors.New("the store did not answer")

func (s *hangingStore) access(ctx context.Context) error {
	if !s.hangs.Load() {
		return nil
	}
	if s.deaf {
		ctx = context.Background()
	}
	if s.takes > 0 {
		time.Sleep(s.takes)
		return nil
	}
	select {
	case <-time.After(hangTime):
		return errHung
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *hangingStore) Put(ctx context.Context, tenant string, r *store.Response) error {
	if err := s.access(ctx); err != nil {
		return err
	}
	return s.Store.Put(ctx, tenant, r)
}

func (s *hangingStore) Get(ctx context.Context, tenant, id string) (*store.Response, error) {
	if err := s.access(ctx); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, tenant, id)
}

func (s *hangingStore) Chain(ctx context.Context, tenant, id string) ([]*store.Response, error) {
	if err := s.access(ctx); err != nil {
		return nil, err
	}
	return s.Store.Chain(ctx, tenant, id)
}

func (s *hangingStore) Head(ctx context.Context, tenant, id string) (store.Head, error) {
	if err := s.access(ctx); err != nil {
		return store.Head{}, err
	}
	return s.Store.Head(ctx, tenant, id)
}

func (s *hangingStore) Conversation(ctx context.Context, tenant, id string) (*store.Conversation, error) {
	if err := s.access(ctx); err != nil {
		return nil, err
	}
	return s.Store.Conversation(ctx, tenant, id)
}

func (s *hangingStore) Lock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	if err := s.access(ctx); err != nil {
		return err
	}
	return s.Store.Lock(ctx, tenant, id, holder, lease)
}

// A store that hangs delays the end of a reply, and nothing else: meanwhile the
// exchange keeps its client's stream alive, receives from Envoy, and keeps its deadlines.
func TestStoreThatHangs(t *testing.T) {
	t.Parallel()
	const keepAlive = "local body : keep-alive\n"
	decoding := func(s *scripted) { // a request that has to be read from the store
		s.hang()
		s.postTo("/v1/responses", `{"model":"gpt-oss","previous_response_id":"resp_1","input":"Hi"}`)
		s.expect()
	}
	ending := func(s *scripted) { // a stream that is complete except for its end
		s.postTo("/v1/responses", `{"model":"gpt-oss","input":"Hi","stream":true}`)
		s.toEngine()
		s.answer(false, ":status=200", sse)
		s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
		s.hang()
		s.answerBody(event("stop", tokens("<|return|>")...)+usageEvent+doneEvent, true)
		if got := strings.Join(s.sent(), "\n"); !strings.Contains(got, "response.output_text.delta") || strings.Contains(got, " END") {
			s.t.Fatalf("sent %s", got)
		}
	}
	leaves := func(s *scripted) {
		begun := time.Now()
		s.leave()
		if took := time.Since(begun); took > 0 { // on the fake clock
			s.t.Errorf("the exchange ends %s after its client has left", took)
		}
	}
	for name, drive := range map[string]func(s *scripted){
		"at the end: comments": func(s *scripted) {
			ending(s)
			s.wait(4 * time.Second)
			s.expect(keepAlive, keepAlive, keepAlive, keepAlive)
			s.wait(hangTime)
			got := s.sent()
			if last := got[len(got)-1]; !strings.Contains(last, "response.completed") || !strings.HasSuffix(last, doneEvent+" END") {
				s.t.Errorf("no end: %q", got)
			}
		},
		"at the end: the client leaves": func(s *scripted) {
			ending(s)
			s.wait(time.Second)
			leaves(s)
		},
		"at the end: the total timeout": func(s *scripted) {
			s.o.Env.Limits.Total = 3 * time.Second
			ending(s)
			s.wait(3 * time.Second)
			got := s.sent()
			if last := got[len(got)-1]; !strings.Contains(last, "response.failed") || !strings.Contains(last, "not complete within 3s") || !strings.HasSuffix(last, doneEvent+" END") {
				s.t.Errorf("no error at the end: %q", got)
			}
		},
		"while the failed reply is stored": func(s *scripted) {
			s.o.Env.Limits.Total = 3 * time.Second
			s.postTo("/v1/responses", `{"model":"gpt-oss","input":"Hi","stream":true}`)
			s.toEngine()
			s.answer(false, ":status=200", sse)
			s.answerBody(event("", tokens("<|channel|>final<|message|>Hello")...), false)
			s.hang()
			s.wait(3*time.Second + 10*time.Second)
			got := s.sent()
			if last := got[len(got)-1]; !strings.Contains(last, "response.failed") || !strings.Contains(last, "not complete within 3s") || !strings.HasSuffix(last, doneEvent+" END") {
				s.t.Errorf("no error at the end: %q", got)
			}
		},
		"at the end: the process drains": func(s *scripted) {
			ending(s)
			s.Drain()
			s.wait(time.Second)
			s.expect(keepAlive) // it goes on until the gRPC server stops
			leaves(s)
			begun := time.Now()
			soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			s.o.Env.Workers.Wait(soon)
			if took := time.Since(begun); took > 10*time.Second { // on the fake clock
				s.t.Errorf("the server ends after %s", took)
			}
		},
		"while decoding: an error in time": func(s *scripted) {
			decoding(s)
			s.wait(handleTimeout + handleGrace)
			s.expectLike("immediate 503")
			s.wait(time.Hour)
			s.expect()
		},
		"while decoding: the client leaves": func(s *scripted) {
			decoding(s)
			s.wait(time.Second)
			leaves(s)
		},
		"while decoding: Envoy answers by itself": func(s *scripted) {
			decoding(s)
			s.envoyAnswer(true, ":status=504")
			s.expectLike("immediate 504")
			s.wait(time.Minute)
			s.expect()
		},
	} {
		for _, deaf := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", until its context ends", true: ", whatever its context"}[deaf], func(t *testing.T) {
				t.Parallel()
				change := func(w *wiring) {
					w.store = &hangingStore{Store: newStore(), deaf: deaf}
					w.cfg.Limits.KeepAlive.Duration = time.Second
				}
				script(t, change, func(s *scripted) {
					drive(s)
					s.leave()
					if n := s.inUse(); n != 0 {
						t.Errorf("%d bytes of the budget are lost", n)
					}
				})
			})
		}
	}
}

// hang lets the store hang from now on.
func (s *scripted) hang() { s.store.(*hangingStore).hangs.Store(true) }
