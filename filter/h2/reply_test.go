package h2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// Lengths of texts at which their encoding changes.
func TestAppendField(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 126, 127, 128, 254, 255, 256, 1000, 20000} {
		text := strings.Repeat("v", n)
		for _, f := range []Field{{"name", text}, {text, "value"}, {text, text}} {
			got, err := hpack.NewDecoder(0, nil).DecodeFull(appendField(nil, f))
			if err != nil || len(got) != 1 || got[0] != (hpack.HeaderField{Name: f.Name, Value: f.Value}) {
				t.Errorf("lengths %d and %d: %.100v, %v", len(f.Name), len(f.Value), got, err)
			}
		}
		block := appendText([]byte{statusName}, text)
		if got, err := hpack.NewDecoder(0, nil).DecodeFull(block); err != nil || len(got) != 1 || got[0].Name != ":status" || got[0].Value != text {
			t.Errorf("length %d: %.100v, %v", n, got, err)
		}
		if !bytes.HasPrefix(appendText([]byte("before"), text), []byte("before")) {
			t.Error("what was before is lost")
		}
	}
}

// random is a reply that is written at random, and what is known of it.
type random struct {
	*rung
	id      uint32
	written []byte
	asked   bool
	ended   bool
	caught  int // how often it has caught up
}

// waiting is how many bytes have not come.
func (r *random) waiting(a *asker) int {
	if !r.asked {
		return len(r.written)
	}
	return len(r.written) - len(a.streams[r.id].body)
}

// randomly does something with a connection.
type randomly struct {
	*asker
	source  *rand.ChaCha8
	rand    *rand.Rand
	replies []*random
}

func newRandomly(t *testing.T, seed int) *randomly {
	g := &randomly{asker: newAsker(t, 1<<20).greet(), source: rand.NewChaCha8([32]byte{byte(seed)})}
	g.rand = rand.New(g.source)
	for range 1 + g.rand.IntN(4) {
		r := &random{rung: g.prepare(), id: uint32(2*len(g.replies) + 1)}
		r.Begin(nil)
		g.replies = append(g.replies, r)
	}
	return g
}

// bytes is a number of bytes, of one of several orders.
func (g *randomly) bytes() int { return g.rand.IntN(1 << (1 + g.rand.IntN(16))) }

// act does one thing. Requests come in the order of their ids.
func (g *randomly) act() {
	g.take()
	r := g.replies[g.rand.IntN(len(g.replies))]
	g.size = 1 + g.bytes()
	behind := make([]bool, len(g.replies))
	for i, r := range g.replies {
		behind[i] = r.Behind()
	}
	switch g.rand.IntN(6) {
	case 0, 1:
		g.write(r)
	case 2:
		g.open(0, 1+g.bytes())
	case 3:
		if r.asked && !g.streams[r.id].ended {
			g.open(r.id, 1+g.bytes())
		}
	case 4:
		g.windows(g.bytes())
	case 5:
		g.ask()
	}
	for i, r := range g.replies {
		if behind[i] && !r.Behind() {
			r.caught++
		}
	}
}

func (g *randomly) write(r *random) {
	if r.ended {
		return
	}
	p := make([]byte, g.bytes())
	_, _ = g.source.Read(p)
	r.written = append(r.written, p...)
	r.Write(p)
	clear(p) // it is not kept
	if g.rand.IntN(20) == 0 {
		r.ended = true
		r.End(Field{"x", "1"})
	}
	g.take()
}

// ask sends the next request, if there is one.
func (g *randomly) ask() {
	for _, r := range g.replies {
		if !r.asked {
			r.asked = true
			g.request(r.id, r.Key())
			g.step()
			return
		}
	}
}

// check compares what has come with what was written.
func (g *randomly) check(when string) {
	g.t.Helper()
	for _, r := range g.replies {
		waits := r.waiting(g.asker)
		if r.Behind() != (waits >= replyAhead) || r.bells != r.caught {
			g.t.Fatalf("%s: stream %d: behind %t with %d bytes; the bell rang %d times, not %d", when, r.id, r.Behind(), waits, r.bells, r.caught)
		}
		if !r.asked {
			continue
		}
		st := g.streams[r.id]
		if !bytes.HasPrefix(r.written, st.body) {
			g.t.Fatalf("%s: stream %d: other bytes", when, r.id)
		}
		if waits > 0 && st.window > 0 && g.window > 0 {
			g.t.Fatalf("%s: stream %d: %d bytes wait; the windows are %d and %d", when, r.id, waits, st.window, g.window)
		}
		if st.ended != (r.ended && waits == 0) {
			g.t.Fatalf("%s: stream %d: %d bytes wait; the end was written: %t, it has come: %t", when, r.id, waits, r.ended, st.ended)
		}
	}
}

// The bytes that come are those that were written, in order and as far as the windows
// allow; the end is the last. The asker checks the windows.
func TestReplyProperty(t *testing.T) {
	t.Parallel()
	for seed := range 200 {
		g := newRandomly(t, seed)
		for i := range 150 {
			g.act()
			g.check(fmt.Sprintf("seed %d, step %d", seed, i))
		}
		for range g.replies {
			g.ask()
		}
		for _, r := range g.replies {
			if !r.ended {
				r.ended = true
				r.End(Field{"x", "1"})
			}
			if g.take(); !g.streams[r.id].ended {
				g.open(r.id, maxWindow/4)
			}
		}
		g.open(0, maxWindow/2)
		for _, r := range g.replies {
			if st := g.streams[r.id]; !st.ended || !bytes.Equal(st.body, r.written) {
				t.Fatalf("seed %d: stream %d: %d bytes of %d, ended %t", seed, r.id, len(st.body), len(r.written), st.ended)
			}
		}
		if len(g.serving.replies) > 0 || len(g.serving.blocked) > 0 || len(g.server.waiting) > 0 {
			t.Fatalf("seed %d: replies are kept", seed)
		}
	}
}

// updates is after how many writes the windows are opened again.
const updates = 20

// steady returns a write of a reply that the peer takes. After some of them, what was
// written is taken and the windows are opened again.
func steady(tb testing.TB) (write func()) {
	a := newAsker(tb, 1<<20).greet()
	r := a.asked(1)
	r.begin("")
	a.take()
	piece := make([]byte, 230)
	in := appendWord(nil, frameWindow, 0, uint32(updates*len(piece)))
	in = appendWord(in, frameWindow, 1, uint32(updates*len(piece)))
	n := 0
	var buf []byte
	return func() {
		r.Write(piece)
		if n++; n%updates != 0 {
			return
		}
		if buf = a.serving.take(buf, writeBytes); len(buf) != updates*(frameHead+len(piece)) {
			tb.Fatalf("%d bytes", len(buf))
		}
		if _, _, err := a.serving.receive(in); err != nil {
			tb.Fatal(err)
		}
	}
}

// A Write allocates nothing while the peer takes what is written. Other tests that run
// meanwhile would be counted, so this one is not parallel.
func TestReplyWriteAllocations(t *testing.T) {
	write := steady(t)
	turn := func() {
		for range updates {
			write()
		}
	}
	turn()
	turn() // each of the two buffers has grown
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations for %d writes", n, updates)
	}
}

func BenchmarkReplyWrite(b *testing.B) {
	write := steady(b)
	b.ReportAllocs()
	for b.Loop() {
		write()
	}
}
