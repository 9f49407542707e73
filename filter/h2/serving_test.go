package h2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

const keyField = "x-key"

// asker scripts the peer of a serving. It checks that frames come in order, that the
// serving wakes its writer for them, and that data is within the windows.
type asker struct {
	*peer
	server  *Server
	serving *serving
	size    int // of the pieces in which frames are delivered
	woken   bool
	decoder *hpack.Decoder
	block   []byte // of fields, of which parts are missing
	window  int    // of the connection: bytes that may come
	initial int    // window of a new stream
	streams map[uint32]*taken
	log     []string // of the frames that came
}

// taken is what has come of a reply.
type taken struct {
	window       int // bytes that may come
	body         []byte
	begun, ended bool
}

func newAsker(t testing.TB, size int) *asker {
	a := &asker{peer: &peer{t: t}, size: size, window: defaultWindow, initial: defaultWindow, streams: map[uint32]*taken{}}
	keys := 0
	a.server = NewServer(keyField, func() string {
		keys++
		return fmt.Sprint("k", keys)
	})
	a.serving = newServing(keyField, a.server.claim, func() { a.woken = true })
	a.side, a.woken = a.serving, true // a connection writes its beginning without being woken
	a.encoder = hpack.NewEncoder(&a.fields)
	a.decoder = hpack.NewDecoder(4096, nil)
	return a
}

// greet sends the beginning of a connection.
func (a *asker) greet() *asker {
	a.in = append(a.in, preface...)
	a.frame(frameSettings, 0, 0, "")
	a.step()
	a.log = nil
	return a
}

// rung is a reply, and how often its bell rang.
type rung struct {
	*Reply
	bells int
}

func (a *asker) prepare() *rung {
	r := &rung{}
	r.Reply = a.server.Prepare(func() { r.bells++ })
	return r
}

// request sends the header of a request.
func (a *asker) request(id uint32, key string) {
	a.streams[id] = &taken{window: a.initial}
	a.head(id, flagEnd, ":method", "GET", ":path", "/", keyField, key)
}

// asked is a reply whose request has come.
func (a *asker) asked(id uint32) *rung {
	r := a.prepare()
	a.request(id, r.Key())
	a.step()
	return r
}

// open adds n bytes to the window of a stream, or of the connection.
func (a *asker) open(id uint32, n int) {
	if id == 0 {
		a.window += n
	} else {
		a.streams[id].window += n
	}
	a.frame(frameWindow, 0, id, word(uint32(n)))
	a.step()
}

// windows sets the initial window of streams.
func (a *asker) windows(n int) {
	a.take()
	for _, st := range a.streams {
		st.window += n - a.initial
	}
	a.initial = n
	a.frame(frameSettings, 0, 0, "\x00\x04"+word(uint32(n)))
	a.step()
}

// step delivers what is to be sent, and takes what comes.
func (a *asker) step() {
	a.t.Helper()
	if err := a.deliver(a.size); err != nil {
		a.t.Fatal(err)
	}
	a.take()
}

// take takes the frames that come.
func (a *asker) take() {
	out := a.serving.take(nil, writeBytes)
	if len(out) > 0 && !a.woken {
		a.t.Errorf("the writer sleeps, and %d bytes wait", len(out))
	}
	a.woken = false
	for len(out) > 0 {
		f, n, err := nextFrame(out)
		if err != nil || n == 0 {
			a.t.Fatalf("a frame that is none: %x, %v", out, err)
		}
		out = out[n:]
		if text := a.came(&f); text != "" {
			a.log = append(a.log, text)
		}
	}
}

// came takes a frame, and returns it as text.
func (a *asker) came(f *frame) string {
	if a.block != nil && f.kind != frameContinuation {
		a.t.Errorf("a frame of kind %d within a block of fields", f.kind)
	}
	switch f.kind {
	case frameSettings:
		return [...]string{"settings", "ack"}[f.flags&flagEnd]
	case framePing:
		return fmt.Sprintf("pong %s", f.payload)
	}
	st := a.streams[f.stream]
	if st == nil || st.ended {
		a.t.Fatalf("a frame of kind %d for stream %d, which is not open", f.kind, f.stream)
	}
	st.ended = f.flags&flagEnd != 0 && f.kind != frameContinuation
	switch f.kind {
	case frameData:
		return a.data(st, f)
	case frameHeaders, frameContinuation:
		return a.headers(st, f)
	case frameReset:
		st.ended = true
		return fmt.Sprintf("%d reset %d", f.stream, binary.BigEndian.Uint32(f.payload))
	}
	a.t.Errorf("a frame of kind %d", f.kind)
	return ""
}

func (a *asker) data(st *taken, f *frame) string {
	n := len(f.payload)
	st.window -= n
	a.window -= n
	if st.window < 0 || a.window < 0 || n == 0 || !st.begun {
		a.t.Errorf("stream %d: %d bytes, begun %t, windows %d and %d after them", f.stream, n, st.begun, st.window, a.window)
	}
	if st.body = append(st.body, f.payload...); n > 20 {
		return fmt.Sprintf("%d data (%d bytes)", f.stream, n)
	}
	return fmt.Sprintf("%d data %s", f.stream, f.payload)
}

func (a *asker) headers(st *taken, f *frame) string {
	if a.block = append(a.block, f.payload...); f.flags&flagEndHeaders == 0 {
		return ""
	}
	fields, err := a.decoder.DecodeFull(a.block)
	if err != nil {
		a.t.Errorf("fields %x: %v", a.block, err)
	}
	a.block, st.begun = nil, true
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", f.stream, map[bool]string{false: "head", true: "end"}[st.ended])
	for _, h := range fields {
		if len(h.Value) > 100 {
			h.Value = fmt.Sprintf("(%d bytes)", len(h.Value))
		}
		fmt.Fprintf(&b, " %s=%s", h.Name, h.Value)
	}
	return b.String()
}

// begin and finish are the beginning and the end of a reply.
func (r *rung) begin(t string) {
	r.Begin([]Field{{"a", "b"}})
	if t != "" {
		r.text(t)
	}
}
func (r *rung) text(t string)   { r.Write([]byte(t)) }
func (r *rung) bytes(n int)     { r.Write(make([]byte, n)) }
func (r *rung) finish(t string) { r.End(Field{"x", t}) }

const (
	head1 = "1 head :status=200 a=b"
	piece = "1 data (16384 bytes)"
)

// scripted is a case of a table. The script's frames are delivered whole, and byte by
// byte.
type scripted struct {
	name   string
	script func(a *asker)
	want   []string // the frames that come
}

func runScripts(t *testing.T, cases []scripted) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1 << 20, 1} {
				a := newAsker(t, size).greet()
				tt.script(a)
				a.step()
				if got, want := strings.Join(a.log, "; "), strings.Join(tt.want, "; "); got != want {
					t.Errorf("in pieces of %d bytes\n%s\nwant\n%s", size, got, want)
				}
			}
		})
	}
}

// Replies come to the requests that name them.
func TestServing(t *testing.T) {
	t.Parallel()
	runScripts(t, []scripted{
		{"written before the request", func(a *asker) {
			r := a.prepare()
			r.begin("he")
			r.text("llo")
			r.finish("1")
			a.request(1, r.Key())
		}, []string{head1, "1 data hello", "1 end x=1"}},
		{"written after the request", func(a *asker) {
			r := a.asked(1)
			r.begin("")
			r.text("he")
			a.take()
			r.text("llo")
			r.finish("1")
		}, []string{head1, "1 data he", "1 data llo", "1 end x=1"}},
		{"written before and after", func(a *asker) {
			r := a.prepare()
			r.begin("he")
			a.request(1, r.Key())
			a.step()
			r.text("llo")
			r.finish("")
		}, []string{head1, "1 data he", "1 data llo", "1 end x="}},
		{"no body", func(a *asker) {
			r := a.asked(1)
			r.begin("")
			r.text("")
			r.finish("1")
		}, []string{head1, "1 end x=1"}},
		{"nothing yet", func(a *asker) { a.asked(1) }, nil},
		{"head of two frames", func(a *asker) {
			r := a.asked(1)
			r.Begin([]Field{{"a", strings.Repeat("v", maxFrame)}})
			r.text("x")
		}, []string{"1 head :status=200 a=(16384 bytes)", "1 data x"}},
		{"two at once", func(a *asker) {
			q, r := a.asked(1), a.asked(3)
			r.begin("r")
			q.begin("q")
			r.finish("r")
			q.finish("q")
		}, []string{"3 head :status=200 a=b", "3 data r", head1, "1 data q", "3 end x=r", "1 end x=q"}},
		{"unknown key", func(a *asker) { a.request(1, "k") }, []string{"1 end :status=503"}},
		{"no key", func(a *asker) {
			a.request(1, "k1")
			a.step()
			a.prepare() // k1
			a.streams[3] = &taken{}
			a.head(3, flagEnd, ":method", "GET")
		}, []string{"1 end :status=503", "3 end :status=503"}},
		{"a key is taken once", func(a *asker) {
			r := a.asked(1)
			a.request(3, r.Key())
			a.step()
			r.begin("x")
		}, []string{"3 end :status=503", head1, "1 data x"}},
	})
}

// What else a peer may send comes to nothing, or is answered.
func TestServingOtherFrames(t *testing.T) {
	t.Parallel()
	runScripts(t, []scripted{
		{"the request has a body and trailers", func(a *asker) {
			r := a.prepare()
			a.streams[1] = &taken{window: a.initial}
			a.head(1, 0, keyField, r.Key()).frame(frameData, 0, 1, "abc").head(1, flagEnd, keyField, "k")
			a.step()
			r.begin("x")
		}, []string{head1, "1 data x"}},
		{"padding and priority", func(a *asker) {
			r := a.prepare()
			r.begin("x")
			a.request(1, r.Key())
			block := string(a.in[frameHead:])
			a.in = nil
			a.frame(frameHeaders, flagPadded|flagPriority|flagEndHeaders, 1, "\x02\x00\x00\x00\x00\x00"+block+"\x00\x00")
		}, []string{head1, "1 data x"}},
		{"continuation", func(a *asker) {
			r := a.prepare()
			r.begin("x")
			a.request(1, r.Key())
			block := string(a.in[frameHead:])
			a.in = nil
			a.frame(frameHeaders, flagEnd, 1, "").frame(frameContinuation, 0, 1, block[:3]).frame(frameContinuation, flagEndHeaders, 1, block[3:])
		}, []string{head1, "1 data x"}},
		{"ping", func(a *asker) { a.frame(framePing, 0, 0, "12345678") }, []string{"pong 12345678"}},
		{"answers", func(a *asker) {
			a.frame(framePing, flagEnd, 0, "12345678").frame(frameSettings, flagEnd, 0, "")
		}, nil},
		{"frames without an answer", func(a *asker) {
			a.frame(framePriority, 0, 1, "\x00\x00\x00\x00\x00").frame(frameGoAway, 0, 0, word(0)+word(0)).frame(0x77, 0, 1, "x")
			a.frame(frameReset, 0, 1, word(8)).frame(frameWindow, 0, 1, word(9)).frame(frameWindow, 0, 1, word(0))
		}, nil},
		{"other settings", func(a *asker) {
			a.frame(frameSettings, 0, 0, "\x00\x03"+word(0)+"\xf7\xe1"+word(1<<31))
			a.asked(1).begin("x")
		}, []string{"ack", head1, "1 data x"}},
	})
}

// Data is sent as the windows allow.
func TestServingWindows(t *testing.T) {
	t.Parallel()
	runScripts(t, []scripted{
		{"of a stream", func(a *asker) {
			a.windows(10)
			r := a.asked(1)
			r.begin("0123456789abcde")
			a.take()
			r.text("f")
			a.open(1, 3)
			a.open(1, 4)
			r.text("g")
		}, []string{"ack", head1, "1 data 0123456789", "1 data abc", "1 data def", "1 data g"}},
		{"of the connection", func(a *asker) {
			a.windows(maxWindow)
			q, r := a.asked(1), a.asked(3)
			q.begin("")
			q.bytes(defaultWindow - 1)
			r.begin("ab")
			q.text("c")
			a.open(0, 1)
			a.open(0, 10)
		}, []string{"ack", head1, piece, piece, piece, "1 data (16382 bytes)", "3 head :status=200 a=b", "3 data a", "3 data b", "1 data c"}},
		{"of both", func(a *asker) {
			r := a.asked(1)
			r.begin("")
			r.bytes(defaultWindow)
			r.text("ab")
			a.open(0, 100)
			a.open(1, 1)
			a.open(1, 1)
		}, []string{head1, piece, piece, piece, "1 data (16383 bytes)", "1 data a", "1 data b"}},
		{"before the request", func(a *asker) {
			a.windows(3)
			r := a.prepare()
			r.begin("abcde")
			a.request(1, r.Key())
			a.step()
			a.open(1, 9)
		}, []string{"ack", head1, "1 data abc", "1 data de"}},
		{"the longest frame", func(a *asker) {
			r := a.asked(1)
			r.begin("")
			r.bytes(2*maxFrame + 1)
			r.bytes(maxFrame)
		}, []string{head1, piece, piece, "1 data \x00", piece}},
	})
}

// A change of the initial window is one of all streams, whose windows may become
// negative.
func TestServingInitialWindow(t *testing.T) {
	t.Parallel()
	runScripts(t, []scripted{
		{"rises", func(a *asker) {
			a.windows(2)
			r := a.asked(1)
			r.begin("abcdef")
			a.windows(5)
			a.windows(100)
			a.asked(3).begin("0123456789")
		}, []string{"ack", head1, "1 data ab", "1 data cde", "ack", "1 data f", "ack", "3 head :status=200 a=b", "3 data 0123456789"}},
		{"falls", func(a *asker) {
			a.windows(10)
			r := a.asked(1)
			r.begin("0123456789")
			a.windows(4)
			r.text("abc")
			a.open(1, 6)
			a.open(1, 1)
			a.windows(0)
			a.open(1, 4)
			a.windows(1)
		}, []string{"ack", head1, "1 data 0123456789", "ack", "1 data a", "ack", "1 data b", "ack"}},
		{"twice in a frame", func(a *asker) {
			a.windows(3)
			r := a.asked(1)
			r.begin("abcde")
			a.take()
			a.streams[1].window++
			a.frame(frameSettings, 0, 0, "\x00\x04"+word(0)+"\x00\x04"+word(4))
		}, []string{"ack", head1, "1 data abc", "1 data d", "ack"}},
	})
}

// The end of a reply comes behind all of its body.
func TestServingEnd(t *testing.T) {
	t.Parallel()
	runScripts(t, []scripted{
		{"behind a stream's window", func(a *asker) {
			a.windows(2)
			r := a.asked(1)
			r.begin("abcd")
			r.finish("1")
			a.open(1, 1)
			a.open(1, 1)
		}, []string{"ack", head1, "1 data ab", "1 data c", "1 data d", "1 end x=1"}},
		{"behind the connection's window", func(a *asker) {
			a.windows(maxWindow)
			r := a.asked(1)
			r.begin("")
			r.bytes(defaultWindow)
			r.text("ab")
			r.finish("1")
			a.open(0, 1)
			a.open(0, 1)
		}, []string{"ack", head1, piece, piece, piece, "1 data (16383 bytes)", "1 data a", "1 data b", "1 end x=1"}},
		{"needs no window", func(a *asker) {
			a.windows(0)
			r := a.asked(1)
			r.begin("")
			r.finish("1")
		}, []string{"ack", head1, "1 end x=1"}},
		{"is the last", func(a *asker) {
			r := a.asked(1)
			r.begin("a")
			r.finish("1")
			r.text("b")
			r.finish("2")
			a.open(1, 1)
			a.frame(frameReset, 0, 1, word(8))
		}, []string{head1, "1 data a", "1 end x=1"}},
	})
}

// Close breaks a reply off that has no end.
func TestReplyClose(t *testing.T) {
	t.Parallel()
	runScripts(t, []scripted{
		{"before the request", func(a *asker) {
			r := a.prepare()
			r.begin("x")
			r.Close()
			a.request(1, r.Key())
		}, []string{"1 end :status=503"}},
		{"while the request comes", func(a *asker) {
			r := a.prepare()
			a.streams[1] = &taken{}
			claimed := a.server.claim(r.Key())
			r.Close()
			claimed.attach(a.serving, 1, defaultWindow)
			r.text("x")
			r.Close()
		}, []string{"1 reset 2"}},
		{"after the request", func(a *asker) { a.asked(1).Close() }, []string{"1 reset 2"}},
		{"in the body", func(a *asker) {
			r := a.asked(1)
			r.begin("x")
			r.Close()
			r.text("y")
			r.finish("1")
			r.Close()
		}, []string{head1, "1 data x", "1 reset 2"}},
		{"the end waits for a window", func(a *asker) {
			a.windows(1)
			r := a.asked(1)
			r.begin("xy")
			r.finish("1")
			r.Close()
			a.streams[1].window++
			a.frame(frameWindow, 0, 1, word(1))
		}, []string{"ack", head1, "1 data x", "1 reset 2"}},
		{"after the end", func(a *asker) {
			r := a.asked(1)
			r.begin("x")
			r.finish("1")
			r.Close()
		}, []string{head1, "1 data x", "1 end x=1"}},
		{"after the peer has ended it", func(a *asker) {
			r := a.asked(1)
			r.begin("x")
			a.frame(frameReset, 0, 1, word(8))
			a.step()
			r.Close()
		}, []string{head1, "1 data x"}},
	})
}

// Close keeps nothing of the reply, and its bell does not ring.
func TestReplyCloseReleases(t *testing.T) {
	t.Parallel()
	for _, wait := range waits {
		t.Run(wait.name, func(t *testing.T) {
			t.Parallel()
			a := newAsker(t, 1<<20).greet()
			r := wait.behind(a)
			r.Close()
			a.take()
			checkReleased(a, r, 0)
			if len(a.server.waiting) != 0 {
				t.Errorf("%d replies wait for requests", len(a.server.waiting))
			}
		})
	}
}

// waits are what a reply that is behind may wait for.
var waits = []struct {
	name   string
	behind func(a *asker) *rung
}{
	{"stream", func(a *asker) *rung {
		r := a.asked(1)
		r.begin("")
		r.bytes(defaultWindow + replyAhead)
		a.open(0, defaultWindow)
		return r
	}},
	{"connection", func(a *asker) *rung {
		a.windows(maxWindow)
		r := a.asked(1)
		r.begin("")
		r.bytes(defaultWindow + replyAhead)
		a.take()
		return r
	}},
	{"stream, with an end", func(a *asker) *rung {
		r := a.asked(1)
		r.begin("")
		r.bytes(defaultWindow + replyAhead)
		r.finish("1")
		a.take()
		return r
	}},
	{"request", func(a *asker) *rung {
		r := a.prepare()
		r.begin("")
		r.bytes(replyAhead)
		return r
	}},
}

// checkReleased checks that nobody takes a reply, and that nothing is kept of it.
func checkReleased(a *asker, r *rung, bells int) {
	a.t.Helper()
	a.log = nil
	r.bytes(replyAhead)
	behind := r.Behind()
	r.finish("1")
	r.Begin([]Field{{"a", "b"}})
	r.Close()
	a.take()
	if r.bells != bells || behind || len(a.log) > 0 {
		a.t.Errorf("the bell rang %d times, behind %t, frames %q", r.bells, behind, a.log)
	}
	if r.head != nil || r.rest != nil || r.trailer != nil || len(a.serving.replies) > 0 {
		a.t.Errorf("%d, %d and %d bytes and %d replies are kept", len(r.head), cap(r.rest), len(r.trailer), len(a.serving.replies))
	}
	if len(a.serving.blocked) > 0 {
		a.t.Error("the connection's window is waited for")
	}
}

// A reply that nobody takes is not behind any more.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	for _, wait := range waits {
		for _, end := range []struct {
			name string
			lose func(a *asker, r *rung)
		}{
			{"reset", func(a *asker, _ *rung) {
				a.frame(frameReset, 0, 1, word(8)).frame(frameReset, 0, 1, word(8))
				a.step()
			}},
			{"failed", func(a *asker, _ *rung) {
				a.serving.fail(errGone)
				a.serving.fail(errGone)
			}},
		} {
			t.Run(wait.name+" "+end.name, func(t *testing.T) {
				t.Parallel()
				a := newAsker(t, 1).greet()
				r := wait.behind(a)
				if !r.Behind() || r.bells > 0 {
					t.Fatalf("behind %t, the bell rang %d times", r.Behind(), r.bells)
				}
				if end.lose(a, r); r.serving == nil {
					if !r.Behind() {
						t.Error("it is not behind before its request has come")
					}
					a.serving.fail(errGone)
					a.request(1, r.Key())
					a.step()
				}
				checkReleased(a, r, 1)
			})
		}
	}
}

// The bell of a reply that is not behind does not ring when nobody takes it.
func TestReplyLostInTime(t *testing.T) {
	t.Parallel()
	a := newAsker(t, 1<<20).greet()
	q, r := a.asked(1), a.asked(3)
	q.begin("x")
	r.begin("x")
	a.frame(frameReset, 0, 1, word(8))
	a.step()
	a.serving.fail(errGone)
	checkReleased(a, q, 0)
	checkReleased(a, r, 0)
}

// The bell of a reply rings when enough was taken for more to be sent.
func TestReplyBehind(t *testing.T) {
	t.Parallel()
	a := newAsker(t, 1).greet()
	r := a.prepare()
	check := func(when string, behind bool, bells int) {
		t.Helper()
		if r.Behind() != behind || r.bells != bells {
			t.Errorf("%s: behind %t, the bell rang %d times", when, r.Behind(), r.bells)
		}
	}
	r.begin("")
	r.bytes(replyAhead - 1)
	check("before the limit", false, 0)
	r.bytes(1)
	check("at the limit", true, 0)
	a.request(1, r.Key())
	a.step()
	check("the request has come", false, 1)
	r.bytes(defaultWindow - replyAhead)
	check("the window is used", false, 1)
	r.bytes(replyAhead - 1)
	check("before the limit again", false, 1)
	r.bytes(2)
	check("above the limit", true, 1)
	a.open(1, 1)
	check("the connection's window is not open", true, 1)
	a.open(0, 1)
	check("at the limit again", true, 1)
	a.open(0, 1)
	check("the stream's window is not open", true, 1)
	a.open(1, 1)
	check("taken", false, 2)
	a.open(1, 1)
	a.open(0, 1)
	check("taken further", false, 2)
	r.bytes(defaultWindow)
	check("another time", true, 2)
	a.windows(defaultWindow + 2*replyAhead)
	check("only settings", true, 2)
	a.open(0, defaultWindow)
	check("taken by the initial window", true, 2)
}

// The replies that wait for the connection's window take turns.
func TestServingTurns(t *testing.T) {
	t.Parallel()
	a := newAsker(t, 1<<20).greet()
	a.windows(maxWindow)
	ids := []uint32{1, 3, 5}
	replies := make([]*rung, 0, len(ids))
	for _, id := range ids {
		r := a.asked(id)
		r.begin("")
		replies = append(replies, r)
	}
	replies[0].bytes(defaultWindow)
	for _, r := range replies {
		r.bytes(5000)
	}
	replies[0].bytes(5000) // does not make it wait twice
	a.take()
	a.streams[1].body = nil
	for range 3 * len(ids) {
		a.open(0, 100)
	}
	for _, id := range ids {
		if n := len(a.streams[id].body); n != 300 {
			t.Errorf("stream %d has got %d bytes of 900", id, n)
		}
	}
	if a.open(0, 1<<20); len(a.streams[1].body)+len(a.streams[3].body)+len(a.streams[5].body) != 20_000 {
		t.Error("some bytes do not come")
	}
}

// broken is a case of a table: what is delivered whole and byte by byte ends the
// connection.
type broken struct {
	name   string
	script func(a *asker)
	want   Code
}

func runBroken(t *testing.T, cases []broken) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1 << 20, 1} {
				a := newAsker(t, size).greet()
				if tt.script(a); len(a.in) > 100_000 {
					size = max(size, 1000)
				}
				err := a.deliver(size)
				if bad := (*ConnectionError)(nil); !errors.As(err, &bad) || bad.Code != tt.want {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// What is no HTTP/2 ends the connection.
func TestServingErrors(t *testing.T) {
	t.Parallel()
	runBroken(t, []broken{
		{"even number", func(a *asker) { a.head(2, flagEnd, keyField, "k") }, CodeProtocol},
		{"request of the connection", func(a *asker) { a.head(0, flagEnd, keyField, "k") }, CodeProtocol},
		{"push", func(a *asker) { a.frame(framePush, 0, 1, word(2)) }, CodeProtocol},
		{"frame within a block", func(a *asker) { a.frame(frameHeaders, 0, 1, "\x82").frame(framePing, 0, 0, "12345678") }, CodeProtocol},
		{"request within a block", func(a *asker) { a.frame(frameHeaders, 0, 1, "\x82").frame(frameHeaders, flagEndHeaders, 3, "\x82") }, CodeProtocol},
		{"continuation of nothing", func(a *asker) { a.frame(frameContinuation, flagEndHeaders, 1, "\x82") }, CodeProtocol},
		{"continuation of a whole block", func(a *asker) {
			a.asked(1)
			a.frame(frameContinuation, flagEndHeaders, 1, "\x82")
		}, CodeProtocol},
		{"continuation of another", func(a *asker) {
			a.frame(frameHeaders, 0, 1, "\x82").frame(frameContinuation, flagEndHeaders, 3, "\x82")
		}, CodeProtocol},
		{"empty continuation", func(a *asker) { a.frame(frameHeaders, 0, 1, "\x82").frame(frameContinuation, 0, 1, "") }, CodeProtocol},
		{"broken fields", func(a *asker) { a.frame(frameHeaders, flagEndHeaders, 1, "\xff") }, CodeCompression},
		{"half a field", func(a *asker) { a.frame(frameHeaders, flagEndHeaders, 1, "\x00\x05x") }, CodeCompression},
		{"long padding", func(a *asker) { a.frame(frameHeaders, flagPadded|flagEndHeaders, 1, "\x05ab") }, CodeProtocol},
		{"short priority", func(a *asker) { a.frame(frameHeaders, flagPriority|flagEndHeaders, 1, "abcd") }, CodeFrameSize},
		{"long block", func(a *asker) {
			a.frame(frameHeaders, 0, 1, "")
			for range headerLimit/maxFrame + 1 {
				a.frame(frameContinuation, 0, 1, strings.Repeat("\x82", maxFrame))
			}
		}, CodeCalm},
		{"long fields", func(a *asker) { // a field of the table, repeated
			a.fields.Reset()
			for range 300 {
				_ = a.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("v", 3900)})
			}
			a.frame(frameHeaders, flagEndHeaders, 1, a.fields.String())
		}, CodeCalm},
		{"long frame", func(a *asker) { a.frame(frameData, 0, 1, strings.Repeat("x", maxFrame+1)) }, CodeFrameSize},
		{"settings of a stream", func(a *asker) { a.frame(frameSettings, 0, 1, "") }, CodeFrameSize},
		{"short settings", func(a *asker) { a.frame(frameSettings, 0, 0, "\x00\x04\x00\x00\x00") }, CodeFrameSize},
		{"short ping", func(a *asker) { a.frame(framePing, 0, 0, "1234567") }, CodeFrameSize},
		{"ping of a stream", func(a *asker) { a.frame(framePing, 0, 1, "12345678") }, CodeFrameSize},
		{"short reset", func(a *asker) { a.frame(frameReset, 0, 1, "abc") }, CodeFrameSize},
		{"short window update", func(a *asker) { a.frame(frameWindow, 0, 0, "abc") }, CodeFrameSize},
	})
}

// Windows that overflow, and floods of what is to be answered, end the connection.
func TestServingOverflows(t *testing.T) {
	t.Parallel()
	runBroken(t, []broken{
		{"window of 0", func(a *asker) { a.frame(frameWindow, 0, 0, word(0)) }, CodeFlowControl},
		{"window overflow", func(a *asker) { a.frame(frameWindow, 0, 0, word(maxWindow-defaultWindow+1)) }, CodeFlowControl},
		{"window overflow of a stream", func(a *asker) {
			a.asked(1)
			a.frame(frameWindow, 0, 1, word(maxWindow-defaultWindow+1))
		}, CodeFlowControl},
		{"initial window overflow", func(a *asker) { a.frame(frameSettings, 0, 0, "\x00\x04"+word(maxWindow+1)) }, CodeFlowControl},
		{"initial window overflow of a stream", func(a *asker) {
			a.asked(1)
			a.open(1, maxWindow-defaultWindow)
			a.frame(frameSettings, 0, 0, "\x00\x04"+word(defaultWindow+1))
		}, CodeFlowControl},
		{"flood of pings", func(a *asker) {
			for range maxControl/17 + 1 {
				a.frame(framePing, 0, 0, "12345678")
			}
		}, CodeCalm},
		{"flood of settings", func(a *asker) {
			for range maxControl/frameHead + 1 {
				a.frame(frameSettings, 0, 0, "")
			}
		}, CodeCalm},
		{"flood of unknown keys", func(a *asker) {
			for i := range uint32(maxControl/(frameHead+5) + 1) {
				a.frame(frameHeaders, flagEnd|flagEndHeaders, 2*i+1, "")
			}
		}, CodeCalm},
	})
}

// What a peer may send up to a limit is no error.
func TestServingLimits(t *testing.T) {
	t.Parallel()
	a := newAsker(t, 1000).greet()
	a.open(0, maxWindow-defaultWindow)
	a.asked(1)
	a.open(1, maxWindow-defaultWindow)
	for range 2 { // the answers are taken in between
		for range maxControl / 17 {
			a.frame(framePing, 0, 0, "12345678")
		}
		a.step()
	}
	a.frame(frameData, 0, 1, strings.Repeat("x", maxFrame)).frame(frameHeaders, 0, 3, "")
	for range headerLimit/maxFrame/32 - 1 {
		a.frame(frameContinuation, 0, 3, strings.Repeat("\x82", maxFrame))
	}
	a.streams[3] = &taken{}
	a.frame(frameContinuation, flagEndHeaders, 3, "\x82")
	a.step()
	for id := uint32(5); id < 50; id += 2 { // each has its own limit
		a.streams[id] = &taken{}
		a.head(id, flagEnd, "a", strings.Repeat("v", headerLimit/20))
		a.in = nil
		block := a.fields.String()
		a.frame(frameHeaders, flagEnd, id, block[:maxFrame])
		for block = block[maxFrame:]; len(block) > maxFrame; block = block[maxFrame:] {
			a.frame(frameContinuation, 0, id, block[:maxFrame])
		}
		a.frame(frameContinuation, flagEndHeaders, id, block)
		a.step()
	}
}

// A connection begins with its preface.
func TestServingPreface(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1 << 20, 1} {
		a := newAsker(t, size)
		a.in = []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if bad := (*ConnectionError)(nil); !errors.As(a.deliver(size), &bad) || bad.Code != CodeProtocol {
			t.Errorf("error %v", bad)
		}
		a = newAsker(t, size)
		a.in = []byte(preface)
		a.frame(frameSettings, 0, 0, "\x00\x04"+word(5)).frame(framePing, 0, 0, "12345678")
		a.initial = 5
		a.asked(1).begin("0123456789")
		a.take()
		if got := strings.Join(a.log, "; "); got != "settings; ack; pong 12345678; "+head1+"; 1 data 01234" {
			t.Error(got)
		}
	}
}

// What a peer may send never fails the process, comes to the same in any pieces, and
// makes the serving keep no more than the windows and maxControl allow.
func FuzzServing(f *testing.F) {
	f.Add([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01"))
	seed := &asker{peer: &peer{t: f}, streams: map[uint32]*taken{}}
	seed.encoder = hpack.NewEncoder(&seed.fields)
	seed.request(1, "k1")
	seed.request(3, "k2")
	seed.frame(frameWindow, 0, 1, word(10)).frame(frameWindow, 0, 0, word(1000)).frame(frameSettings, 0, 0, "\x00\x04"+word(1<<20))
	f.Add(seed.in)
	seed.frame(frameReset, 0, 1, word(8)).frame(framePing, 0, 0, "12345678").head(1, flagEnd, "a", "b")
	f.Add(seed.in)
	seed.in = nil
	for i := range uint32(10_000) {
		seed.frame(frameHeaders, flagEndHeaders, 2*i+1, "")
	}
	f.Add(seed.in)
	f.Fuzz(func(t *testing.T, in []byte) {
		var results [2]string
		for i, size := range []int{len(in) + 1, 7} {
			a := newAsker(t, size).greet()
			results[i] = serveFuzzed(a, in)
		}
		if results[0] != results[1] {
			t.Errorf("%q in one piece, %q in several", results[0], results[1])
		}
	})
}

// serveFuzzed delivers bytes, and returns what they come to.
func serveFuzzed(a *asker, in []byte) string {
	const body = 100_000
	replies := []*rung{a.prepare(), a.prepare()}
	for _, r := range replies {
		r.begin("")
		r.bytes(body)
		r.finish("1")
	}
	a.in = in
	err := a.deliver(a.size)
	out := a.serving.take(nil, writeBytes)
	sent, other := 0, 0
	for len(out) > 0 {
		f, n, err := nextFrame(out)
		if err != nil || n == 0 {
			a.t.Fatalf("a frame that is none: %x, %v", out, err)
		}
		if out = out[n:]; f.kind == frameData {
			sent += len(f.payload)
		} else {
			other += n
		}
	}
	if sent > allowed(in) || other > maxControl+200 {
		a.t.Errorf("%d bytes of bodies, the connection's window is %d; %d others", sent, allowed(in), other)
	}
	a.serving.fail(errGone)
	for i, r := range replies {
		if r.serving != nil && (r.Behind() || r.bells != 1) {
			a.t.Errorf("reply %d is kept", i)
		}
	}
	return fmt.Sprint(sent, err)
}

// allowed is how many bytes of bodies a peer takes on a connection on which it sends in.
func allowed(in []byte) int {
	n := defaultWindow
	for {
		f, size, err := nextFrame(in)
		if err != nil || size == 0 {
			return n
		}
		if in = in[size:]; f.kind == frameWindow && f.stream == 0 && len(f.payload) == 4 {
			n += int(binary.BigEndian.Uint32(f.payload) & maxWindow)
		}
	}
}
