package websocket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The frames that are counted are those that there are, in whatever pieces their bytes come.
func TestFrameCounter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 1, 125, 126, smallFrame - 1, smallFrame, 1 << 16, 1<<16 + 7}
	for range 50 {
		frames := make([][]byte, 20)
		want := 0
		for i := range frames {
			size := sizes[random.IntN(len(sizes))]
			if size < smallFrame {
				want++
			}
			frames[i] = wideFrame(byte(random.IntN(256)), size)
		}

		var counter frameCounter
		got := 0
		for rest := slices.Concat(frames...); len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(9_000))
			got += counter.feed(rest[:n])
			rest = rest[n:]
		}
		if got != want {
			t.Fatalf("%d frames were counted, of %d", got, want)
		}
	}
}

// wideFrame is a frame of a client, with the shortest form of its length.
func wideFrame(first byte, size int) []byte {
	b := []byte{first}
	switch {
	case size < 126:
		b = append(b, 0x80|byte(size))
	case size < 1<<16:
		b = append(b, 0x80|126, byte(size>>8), byte(size))
	default:
		b = append(b, 0x80|127, 0, 0, 0, 0, 0, byte(size>>16), byte(size>>8), byte(size))
	}
	return append(append(b, 0xff, 0xff, 0xff, 0xff), make([]byte, size)...)
}

// flood is a connection of a client that sends one frame, as often as nobody waits.
type flood struct {
	net.Conn
	frame []byte
	given int
}

func (f *flood) Read(p []byte) (int, error) {
	if f.given > 100*frameBurst {
		return 0, io.EOF
	}
	n := 0
	for ; n+len(f.frame) <= len(p); f.given++ {
		n += copy(p[n:], f.frame)
	}
	return n, nil
}

// A client that sends nothing but small frames is read no faster than they may come, in an event and outside of
// one.
func TestSmallFramesWait(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]byte{"continuations": 0, "pings": 0x89, "pongs": 0x8a} {
		// Time stands still: what has to wait waits until the connection ends.
		c := newConnection(New(Options{Now: func() time.Time { return time.Time{} }}), testLimits())
		client := &flood{frame: wideFrame(first, 0)}
		m := &meteredConn{Conn: client, c: c, bucket: newBucket(frameRate, frameBurst, time.Time{})}

		ended := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, m)
			ended <- err
		}()
		time.AfterFunc(10*time.Millisecond, c.cancel)
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %d were read, and the end is %v", name, client.given, err)
		}
	}
}

// The frames of every connection are counted: each ping that is answered has been compared with the time.
func TestPingsAreCounted(t *testing.T) {
	t.Parallel()
	s := start(t, nil, hello)
	var asked atomic.Int64
	s.o.Now = func() time.Time {
		asked.Add(1)
		return time.Now()
	}

	c := s.dial(t)
	// Answers are read.
	c.CloseRead(t.Context())
	const pings = frameBurst / 2
	before := asked.Load()
	for range pings {
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load() - before; n < pings {
		t.Errorf("%d of %d pings were counted", n, pings)
	}
}

// An event in many frames is taken.
func TestEventInFrames(t *testing.T) {
	t.Parallel()
	s := start(t, func(l *Limits) { l.MessageBytes = 8 << 20 }, hello)
	c := s.dial(t)
	w, err := c.Writer(t.Context(), websocket.MessageText)
	for i := 0; i < 2*frameBurst && err == nil; i++ {
		_, err = w.Write(bytes.Repeat([]byte(" "), smallFrame))
	}
	if err == nil {
		_, err = w.Write([]byte(`{"type":"response.create","input":"x"}`))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.until("response.completed")
}
