package extproc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// testBudget is a budget of 128 MiB with bodies of up to 8 MiB, on a clock that the
// test moves.
type testBudget struct {
	t *testing.T
	memoryBudget
	at      time.Time
	dropped []string // names of requests, in the order in which they made room
}

func newTestBudget(t *testing.T) *testBudget {
	t.Helper()
	b := &testBudget{t: t, at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	l := config.Defaults().Limits
	l.MaxInflightBytes, l.MaxBodyBytes, l.MaxConversationBytes = 128*mib, 8*mib, 8*mib
	b.memoryBudget = newMemoryBudget(&l, func() time.Time { return b.at }, newHoldings())
	return b
}

// upload begins a request whose body has arrived as far as n bytes.
func (b *testBudget) upload(name, party string, n int64) *memoryShare {
	b.t.Helper()
	s := b.open(party, func(err *apierror.Error) { b.dropped = append(b.dropped, name+": "+err.Code) })
	if err := s.arrive(n); err != nil {
		b.t.Fatalf("%s: %s", name, err)
	}
	return s
}

// refused expects that a body gets no further.
func (b *testBudget) refused(s *memoryShare, n int64, code string) {
	b.t.Helper()
	if err := s.arrive(n); err == nil || err.Code != code {
		b.t.Errorf("%v, want %s", err, code)
	}
}

// made expects the requests that have made room.
func (b *testBudget) made(want ...string) {
	b.t.Helper()
	if got := strings.Join(b.dropped, ", "); got != strings.Join(want, ", ") {
		b.t.Errorf("room was made by %q, want %q", got, want)
	}
	b.dropped = nil
}

const mib = 1 << 20

func TestBudget(t *testing.T) {
	for name, drive := range map[string]func(b *testBudget){
		"small requests have a part of their own": func(b *testBudget) {
			for range 3 {
				if err := b.upload("whole", "", 37*mib).complete(); err != nil {
					b.t.Error(err)
				}
			}
			b.refused(b.upload("grows", "", smallBytes), 2*mib, "overloaded")
			for range 10 {
				b.upload("small", "", smallBytes)
			}
			b.made()
		},
		"what a connection holds makes no room, and what arrives at it does": func(b *testBudget) {
			connection := Holding{b.open("a", nil)}
			_ = connection.share.complete()
			if err := connection.Take(30 * mib); err != nil {
				b.t.Error(err)
			}
			message := connection.Receive(func(*apierror.Error) { b.dropped = append(b.dropped, "message") })
			message.GoesOn(1)
			if err := message.Take(30 * mib); err != nil {
				b.t.Error(err)
			}

			if err := b.upload("mine", "b", 55*mib).complete(); err != nil {
				b.t.Error(err)
			}
			b.made("message")
			if err := message.Take(1); err == nil {
				b.t.Error("it takes more")
			}
			message.Close()
			connection.Close()
			if b.held.bytes != 55*mib {
				b.t.Errorf("%d bytes are held", b.held.bytes)
			}
		},
		"what is kept makes room for every request, no more than is needed": func(b *testBudget) {
			forgets := func(name string) func(bytes int64) {
				return func(bytes int64) { b.dropped = append(b.dropped, fmt.Sprintf("%s: %d", name, bytes/mib)) }
			}
			first, second, other := b.keeps("a", forgets("first")), b.keeps("a", forgets("second")), b.keeps("b", forgets("other"))
			for i, k := range []*memoryShare{first, second, other} {
				b.at = b.at.Add(time.Second)
				k.use()
				if err := k.take(int64(10-4*(i/2)) * mib); err != nil {
					b.t.Error(err)
				}
			}

			// A quarter can be kept. The party with the most gives up, and of it what was unused for longest.
			b.at = b.at.Add(time.Second)
			first.use()
			if err := other.take(9 * mib); err != nil {
				b.t.Error(err)
			}
			b.made("second: 3")

			// It goes before bodies that are arriving, and is not closed.
			b.upload("arriving", "c", 60*mib)
			b.upload("arriving", "d", 30*mib)
			b.made("second: 7", "other: 3")
			if err := first.take(mib); err != nil {
				b.t.Error(err)
			}

			// Where a party has no room, what others keep stays. What is kept takes no room of requests.
			if err := b.upload("mine", "b", 5*mib).complete(); err != nil {
				b.t.Error(err)
			}
			b.dropped = nil
			if err := second.take(33 * mib); err == nil {
				b.t.Error("more than a quarter is kept")
			}
			b.made()
			for _, k := range []*memoryShare{first, second, other} {
				k.close()
			}
			if b.held.kept != 0 || len(b.held.keepers) != 0 || b.held.bytes != 95*mib {
				b.t.Errorf("%d bytes are kept, %d are held", b.held.kept, b.held.bytes)
			}
		},
		"the largest body makes room for smaller ones": func(b *testBudget) {
			b.upload("large", "", 40*mib)
			b.upload("larger", "", 60*mib)
			small := b.upload("mine", "", 12*mib)
			if err := small.arrive(mib); err != nil {
				b.t.Error(err)
			}
			b.made("larger: overloaded")
		},
		"nothing is given up for a request that has no room all the same": func(b *testBudget) {
			for _, party := range []string{"a", "b", "c"} {
				if err := b.upload("whole", party, 32*mib).complete(); err != nil {
					b.t.Error(err)
				}
			}
			stalled := b.upload("stalled", "d", 7*mib)
			b.at = b.at.Add(time.Hour)
			b.refused(b.upload("inflated", "e", 0), 31*mib, "overloaded")
			b.made()
			if err := stalled.arrive(1); err != nil {
				b.t.Error(err)
			}
		},
		"a stalled body makes room for others of its party": func(b *testBudget) {
			b.upload("stalled", "a", b.party/2+mib)
			b.upload("too", "a", b.party/2-mib)
			b.at = b.at.Add(time.Hour)
			if err := b.upload("small", "a", 0).arrive(1024); err != nil {
				b.t.Error(err)
			}
			b.made("stalled: request_timeout")
		},
		"a large body does not make larger ones": func(b *testBudget) {
			b.upload("small", "", 10*mib)
			b.upload("smaller", "", 2*mib)
			b.refused(b.upload("large", "", 95*mib), 6*mib, "overloaded")
			b.made()
		},
		"a stalled body makes room for larger ones": func(b *testBudget) {
			b.upload("stalled", "", 20*mib)
			b.at = b.at.Add(slack + time.Millisecond)
			large := b.upload("large", "", 90*mib)
			if err := large.arrive(6 * mib); err != nil {
				b.t.Error(err)
			}
			b.made("stalled: request_timeout")
		},
		"a body that trickles is stalled": func(b *testBudget) {
			trickles := b.upload("trickles", "", 20*mib)
			for range 600 { // a byte every 10 ms
				b.at = b.at.Add(10 * time.Millisecond)
				if err := trickles.arrive(1); err != nil {
					b.t.Error(err)
				}
			}
			b.at = b.at.Add(10 * time.Millisecond)
			if err := b.upload("large", "", 90*mib).arrive(6 * mib); err != nil {
				b.t.Error(err)
			}
			b.made("trickles: request_timeout")
		},
		"a body at the least rate is not": func(b *testBudget) {
			steady := b.upload("steady", "", 20*mib)
			for range 60 {
				b.at = b.at.Add(time.Second)
				if err := steady.arrive(leastRate); err != nil {
					b.t.Error(err)
				}
			}
			b.refused(b.upload("large", "", 87*mib), 6*mib, "overloaded")
			b.made()
		},
		"a body that is complete makes no room": func(b *testBudget) {
			whole := b.upload("whole", "", 60*mib)
			if err := whole.complete(); err != nil {
				b.t.Error(err)
			}
			b.at = b.at.Add(time.Minute)
			b.refused(b.upload("large", "", 50*mib), 6*mib, "overloaded")
			b.made()
		},
		"a tenant takes half": func(b *testBudget) {
			b.upload("a1", "a", 32*mib)
			b.refused(b.upload("a2", "a", 32*mib), 1, "rate_limit_exceeded")
			b.upload("b1", "b", 32*mib)
			b.made()
		},
		"the tenant that holds the most makes room": func(b *testBudget) {
			for range 6 {
				b.upload("a", "a", 10*mib)
			}
			b.upload("b", "b", 30*mib)
			c := b.upload("c", "c", 21*mib)
			if err := c.arrive(6 * mib); err != nil { // larger than each of a
				b.t.Error(err)
			}
			b.made("a: overloaded")
		},
		"a tenant's large body makes room for its small one": func(b *testBudget) {
			b.upload("a1", "a", 40*mib)
			b.upload("b1", "b", 36*mib)
			b.upload("c1", "c", 30*mib)
			if err := b.upload("a2", "a", 6*mib).arrive(mib); err != nil {
				b.t.Error(err)
			}
			b.made("a1: overloaded")
		},
		"a request that made room has nothing more": func(b *testBudget) {
			slow := b.upload("slow", "", 60*mib)
			b.at = b.at.Add(time.Minute)
			b.upload("next", "", 60*mib)
			b.made("slow: request_timeout")
			b.refused(slow, 1, "request_timeout")
			if err := slow.complete(); err == nil || err.Code != "request_timeout" {
				b.t.Errorf("complete: %v", err)
			}
			slow.close()
		},
		"everything comes back": func(b *testBudget) {
			s := b.upload("a", "a", 10*mib)
			moved := s.move()
			s.close()
			if b.held.bytes != 10*mib || b.held.parties["a"] != 10*mib {
				b.t.Errorf("%+v", b.held)
			}
			moved.close()
			if err := moved.take(1); err == nil {
				b.t.Error("something was taken after the end")
			}
			if b.held.bytes != 0 || len(b.held.parties) != 0 || len(b.held.yielding) != 0 {
				b.t.Errorf("left: %+v", b.held)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { drive(newTestBudget(t)) })
	}
}

// Every request that the other limits allow fits into the budget, however small it is.
func TestBudgetHasRoomForOneRequest(t *testing.T) {
	for _, inflight := range []int64{32 << 20, 33 << 20, 64 << 20, 65 << 20, 1 << 30} {
		l := config.Defaults().Limits
		l.MaxInflightBytes = inflight
		b := newMemoryBudget(&l, time.Now, newHoldings())
		most := min(inflight, madeOf*(l.MaxBodyBytes+int64(l.MaxConversationBytes)))
		if err := b.open("a", nil).take(most); err != nil {
			t.Errorf("%d bytes: %s", inflight, err)
		}
	}
}

// Uploads that stall fill the budget. Other requests get in all the same, at once.
func TestStalledUploads(t *testing.T) {
	t.Parallel()
	change := func(w *wiring) {
		w.cfg.Limits.MaxBodyBytes, w.cfg.Limits.MaxConversationBytes, w.cfg.Limits.MaxInflightBytes = 1_000_000, 1, 4_560_000
		w.cfg.Limits.BodyTimeout.Duration = 20 * time.Second
	}
	script(t, change, func(s *scripted) {
		stalled := make([]*fakeEnvoy, 0, 5)
		begun := `{"model":"gpt-oss","messages":[{"role":"user","content":"`
		for range 5 {
			s.post()
			s.body(begun+strings.Repeat("x", 1_000_000-len(begun)), false)
			stalled = append(stalled, s.fakeEnvoy)
			s.begin()
		}
		s.posted("")
		s.next()
		s.post()
		s.body(ask(`,"metadata":{"x":"`+strings.Repeat("x", 900_000)), false)
		s.expect() // a large one goes on too
		s.leave()
		var lost []string
		for _, e := range stalled {
			lost = append(lost, e.sent()...)
			e.leave()
		}
		// One has not found room beside the part for small requests, one has made room.
		if len(lost) != 2 || !strings.HasPrefix(lost[0], "immediate 503") || !strings.HasPrefix(lost[1], "immediate 503") {
			t.Errorf("lost: %q", lost)
		}
		if n := s.inUse(); n != 0 {
			t.Errorf("%d bytes of the budget are lost", n)
		}
		s.begin()
	})
}

// A body that has made room is refused, also if its end comes at the same time.
func TestUploadThatMadeRoom(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.post()
		s.body(`{"model":"gpt-oss",`, false)
		s.wait(slack + time.Second)
		slow := s.fakeEnvoy
		s.begin()
		other := s.memory.open("", nil)
		if err := other.take(s.memory.limit - s.memory.small); err != nil {
			t.Fatal(err)
		}
		s.wait(0)
		if got := slow.sent(); len(got) != 1 || !strings.HasPrefix(got[0], "immediate 408 The request body arrived too slowly") {
			t.Errorf("sent %q", got)
		}
		other.close()
		slow.leave()
	})
}

func TestParty(t *testing.T) {
	from := func(address string) *extprocv3.ProcessingRequest {
		fields, err := structpb.NewStruct(map[string]any{"source.address": address})
		if err != nil {
			t.Fatal(err)
		}
		return &extprocv3.ProcessingRequest{Attributes: map[string]*structpb.Struct{attributes: fields}}
	}
	plain := newServer(t, nil)
	tenants := newServer(t, func(w *wiring) { w.cfg.TenantHeader = "x-tenant" })
	for _, c := range []struct {
		name   string
		server *testServer
		m      *extprocv3.ProcessingRequest
		want   string
	}{
		{"the tenant", tenants, from("10.0.0.1:5"), "acme"},
		{"an address", plain, from("10.0.0.1:5"), "10.0.0.1"},
		{"another port", plain, from("10.0.0.1:6"), "10.0.0.1"},
		{"a network", plain, from("[2001:db8::1:2:3:4]:5"), "2001:db8::/64"},
		{"a mapped address", plain, from("[::ffff:10.0.0.1]:5"), "10.0.0.1"},
		{"an address without port", plain, from("10.0.0.1"), "10.0.0.1"},
		{"a network without port", plain, from("2001:db8::1:2:3:4"), "2001:db8::/64"},
		{"an address with a zone", plain, from("[fe80::1%eth0]:5"), "fe80::/64"},
		{"a Unix socket", plain, from("@"), ""},
		{"a Unix socket with a name", plain, from("/run/envoy"), ""},
		{"nothing is known", plain, &extprocv3.ProcessingRequest{}, ""},
	} {
		if got := c.server.party("acme", c.m); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A client that does not read a stored answer makes room for others, as a body does that
// does not arrive. One that reads keeps it.
func TestUnreadAnswersMakeRoom(t *testing.T) {
	b := newTestBudget(t)
	reader := func(name, party string, n int64) *memoryShare {
		s := b.upload(name, party, 0)
		if err := s.complete(); err != nil {
			t.Fatal(err)
		}
		if err := s.take(n); err != nil {
			t.Fatal(err)
		}
		s.reading()
		return s
	}
	unread, read := reader("unread", "a", 30*mib), reader("read", "a", 34*mib)
	b.refused(b.upload("another", "b", 0), 60*mib, "overloaded")
	b.made()
	for range 6 {
		b.at = b.at.Add(time.Second)
		read.goesOn(leastRate)
	}
	if err := b.upload("large", "b", 0).arrive(60 * mib); err != nil {
		t.Error(err)
	}
	b.made("unread: overloaded")
	if err := unread.take(1); err == nil || !strings.Contains(err.Message, "read too slowly") {
		t.Errorf("more is taken: %v", err)
	}
	if err := read.take(1); err != nil {
		t.Error(err)
	}
}

// A request that can never have room is told so: it is not to be sent again as it is.
func TestRequestWithoutAnyRoom(t *testing.T) {
	b := newTestBudget(t)
	if err := b.open("", nil).take(b.limit + 1); err == nil || err.Status != 413 || err.RetryAfter != 0 {
		t.Errorf("%v", err)
	}
}

// Keep returns what is not needed any more, and takes nothing.
func TestKeep(t *testing.T) {
	b := newTestBudget(t)
	s := b.upload("a", "a", 10*mib)
	if missing := s.keep(4 * mib); missing != 0 || s.bytes != 4*mib || b.held.bytes != 4*mib {
		t.Errorf("%d are missing, %d held", missing, s.bytes)
	}
	if missing := s.keep(6 * mib); missing != 2*mib || s.bytes != 4*mib {
		t.Errorf("%d are missing, %d held", missing, s.bytes)
	}
}

// The least budget that a configuration may have takes the largest body that it allows,
// plain and encoded. An encoded body for another model takes no more than it has to.
func TestLargestBodyFits(t *testing.T) {
	t.Parallel()
	const largest = 1 << 20
	change := func(w *wiring) {
		w.cfg.Limits.MaxBodyBytes, w.cfg.Limits.MaxInflightBytes = largest, config.BytesOfBody*largest
	}
	padded := func(model string) string {
		text := `{"model":"` + model + `","messages":[{"role":"user","content":"Hi"}],"metadata":{"x":"`
		return text + strings.Repeat("x", largest-len(text)-len(`"}}`)) + `"}}`
	}
	script(t, change, func(s *scripted) {
		for _, encoded := range []bool{false, true} {
			send := func(body string) {
				if encoded {
					s.post("content-encoding=gzip")
					body = gzipped(body)
				} else {
					s.post()
				}
				s.body(body, true)
			}
			send(padded("gpt-oss"))
			s.toEngine()
			s.next()

			other := s.occupy(s.t, largest)
			send(padded("llama"))
			if got := s.sent(); len(got) < 2 || got[0] != "request headers" {
				t.Errorf("encoded %t: a request for another model got %q", encoded, got)
			}
			other.close()
			s.next()
		}
	})
}

// TestRoomIsMadeWhileTheBodyEnds shows that a request may go on while it makes room for another one. The
// race detector looks.
func TestRoomIsMadeWhileTheBodyEnds(t *testing.T) {
	t.Parallel()
	b := newTestBudget(t)
	for range 100 {
		victim := b.open("", func(*apierror.Error) {})
		if err := victim.arrive(100 * mib); err != nil {
			t.Fatal(err)
		}
		other := b.open("", func(*apierror.Error) {})
		var beside sync.WaitGroup
		beside.Go(func() { _ = other.take(mib * 60) })
		_ = victim.complete()
		beside.Wait()
		victim.close()
		other.close()
	}
}
