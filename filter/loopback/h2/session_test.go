package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/http2/hpack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer scripts the other side of a session.
type peer struct {
	t       *testing.T
	session *session
	fields  bytes.Buffer
	encoder *hpack.Encoder
	in      []byte
}

func newPeer(t *testing.T) *peer {
	p := &peer{t: t, session: newSession(func() {}, func() {})}
	p.encoder = hpack.NewEncoder(&p.fields)
	p.frames()
	return p
}

func word(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

func (p *peer) open(body string) *Stream {
	st := &Stream{notify: func() {}}
	if !p.session.send(st, &Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Body: []byte(body)}) {
		p.t.Fatal("the request is not taken")
	}
	return st
}

func (p *peer) frame(kind, flags byte, stream uint32, payload string) *peer {
	p.in = append(appendHead(p.in, len(payload), kind, flags, stream), payload...)
	return p
}

func (p *peer) head(stream uint32, flags byte, fields ...string) *peer {
	p.fields.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return p.frame(frameHeaders, flags|flagEndHeaders, stream, p.fields.String())
}

// deliver hands the frames to the session in pieces of size bytes.
func (p *peer) deliver(size int) error {
	var have []byte
	for len(p.in) > 0 {
		n := min(size, len(p.in))
		have = append(have, p.in[:n]...)
		p.in = p.in[n:]
		used, _, err := p.session.receive(have)
		if err != nil {
			return err
		}
		have = have[used:]
	}
	return nil
}

// frames are what the session has sent, as text.
func (p *peer) frames() string {
	out := p.session.take(nil, 1<<20)
	out = bytes.TrimPrefix(out, []byte(preface))
	var b strings.Builder
	for len(out) > 0 {
		f, n, err := nextFrame(out)
		if err != nil || n == 0 {
			p.t.Fatalf("a frame that is none: %x, %v", out, err)
		}
		out = out[n:]
		switch f.kind {
		case frameData:
			fmt.Fprintf(&b, "data %d %d bytes end=%d; ", f.stream, len(f.payload), f.flags&flagEnd)
		case frameReset, frameWindow:
			fmt.Fprintf(&b, "%d %d %d; ", f.kind, f.stream, binary.BigEndian.Uint32(f.payload))
		case frameHeaders:
			fmt.Fprintf(&b, "headers %d end=%d; ", f.stream, f.flags&flagEnd)
		default:
			fmt.Fprintf(&b, "%d flags=%d %q; ", f.kind, f.flags, f.payload)
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// answer is what a receiver gets.
func answer(st *Stream) string {
	var b strings.Builder
	for p, ok := st.Next(); ok; p, ok = st.Next() {
		switch {
		case p.Header != nil:
			fmt.Fprintf(&b, "%d ", p.Status)
		case p.End:
			fmt.Fprintf(&b, " end %s", p.Trailer.Get("grpc-status"))
		case p.Err != nil:
			fmt.Fprintf(&b, " error %v", p.Err)
		default:
			b.Write(p.Body)
		}
	}
	return b.String()
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		script func(p *peer)
		want   string // of the answer
		frames string // that answer it
		err    Code   // of the connection
	}{
		{"body", func(p *peer) {
			p.head(1, 0, ":status", "200").frame(frameData, 0, 1, "a").frame(frameData, flagEnd, 1, "b")
		}, "200 ab end ", "", 0},
		{"no body", func(p *peer) { p.head(1, flagEnd, ":status", "503") }, "503  end ", "", 0},
		{"trailers", func(p *peer) {
			p.head(1, 0, ":status", "200").frame(frameData, 0, 1, "a").head(1, flagEnd, "grpc-status", "5")
		}, "200 a end 5", "", 0},
		{"informational", func(p *peer) { p.head(1, 0, ":status", "103").head(1, flagEnd, ":status", "200") }, "200  end ", "", 0},
		{"padding", func(p *peer) {
			p.head(1, 0, ":status", "200").frame(frameData, flagPadded|flagEnd, 1, "\x02abc\x00\x00")
		}, "200 abc end ", "", 0},
		{"priority", func(p *peer) {
			p.frame(frameHeaders, flagPriority|flagEndHeaders|flagEnd, 1, "\x00\x00\x00\x00\x00\x88")
		}, "200  end ", "", 0},
		{"continuation", func(p *peer) {
			p.frame(frameHeaders, flagEnd, 1, "").frame(frameContinuation, flagEndHeaders, 1, "\x88")
		}, "200  end ", "", 0},
		{"reset", func(p *peer) { p.head(1, 0, ":status", "200").frame(frameReset, 0, 1, word(2)) }, "200  error HTTP/2 stream error 2: the peer has ended the request", "", 0},
		{"unknown frame", func(p *peer) { p.frame(0x77, 0, 1, "x").head(1, flagEnd, ":status", "200") }, "200  end ", "", 0},
		{"ping", func(p *peer) { p.frame(framePing, 0, 0, "12345678") }, "", `6 flags=1 "12345678"`, 0},
		{"settings", func(p *peer) { p.frame(frameSettings, 0, 0, "\x00\x03"+word(7)) }, "", `4 flags=1 ""`, 0},
		{"data first", func(p *peer) { p.frame(frameData, 0, 1, "a") }, " error HTTP/2 stream error 1: data before the answer's header", "3 1 1", 0},
		{"no status", func(p *peer) { p.head(1, 0, "x", "y") }, " error HTTP/2 stream error 1: the answer has no status", "3 1 1", 0},
		{"second header", func(p *peer) { p.head(1, 0, ":status", "200").head(1, 0, ":status", "200") }, "200  error HTTP/2 stream error 1: trailers that do not end the answer", "3 1 1", 0},
		{"header above the limit", func(p *peer) {
			p.head(1, 0, ":status", "200")
			p.in = nil
			p.fields.Reset()
			for range 300 { // a long field of the table, repeated
				_ = p.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("v", 3900)})
			}
			p.frame(frameHeaders, flagEndHeaders, 1, p.fields.String())
		}, " error HTTP/2 stream error 1: the answer's header is too large", "3 1 1", 0},
		{"goaway refuses", func(p *peer) { p.frame(frameGoAway, 0, 0, word(0)+word(0)) }, " error HTTP/2 stream error 7: the peer has closed the connection with code 0", "", 0},
		{"goaway lets it end", func(p *peer) {
			p.frame(frameGoAway, 0, 0, word(1)+word(0)).head(1, flagEnd, ":status", "200")
		}, "200  end ", "", 0},

		{"request of nobody", func(p *peer) { p.head(3, 0, ":status", "200") }, "", "", CodeProtocol},
		{"even request", func(p *peer) { p.frame(frameData, 0, 2, "") }, "", "", CodeProtocol},
		{"push", func(p *peer) { p.frame(framePush, 0, 1, "") }, "", "", CodeProtocol},
		{"frame within a block", func(p *peer) { p.frame(frameHeaders, 0, 1, "\x88").frame(framePing, 0, 0, "12345678") }, "", "", CodeProtocol},
		{"empty continuation", func(p *peer) { p.frame(frameHeaders, 0, 1, "\x88").frame(frameContinuation, 0, 1, "") }, "", "", CodeProtocol},
		{"continuation of nothing", func(p *peer) { p.frame(frameContinuation, 0, 1, "\x88") }, "", "", CodeProtocol},
		{"broken fields", func(p *peer) { p.frame(frameHeaders, flagEndHeaders, 1, "\xff") }, "", "", CodeCompression},
		{"long frame", func(p *peer) { p.frame(frameData, 0, 1, strings.Repeat("x", maxFrame+1)) }, "", "", CodeFrameSize},
		{"long padding", func(p *peer) { p.frame(frameData, flagPadded, 1, "\x05ab") }, "", "", CodeProtocol},
		{"window of 0", func(p *peer) { p.frame(frameWindow, 0, 0, word(0)) }, "", "", CodeFlowControl},
		{"window overflow", func(p *peer) { p.frame(frameWindow, 0, 0, word(maxWindow)) }, "", "", CodeFlowControl},
		{"flood of pings", func(p *peer) {
			for range 2 * maxControl / 17 {
				p.frame(framePing, 0, 0, "12345678")
			}
		}, "", "", CodeCalm},
		{"more data than the window", func(p *peer) {
			p.head(1, 0, ":status", "200")
			for range streamWindow/maxFrame + 1 {
				p.frame(frameData, 0, 1, strings.Repeat("x", maxFrame))
			}
		}, "200 " + strings.Repeat("x", streamWindow+maxFrame) + " error HTTP/2 stream error 3: more data than the window allows", "3 1 3", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1 << 20, 1000} {
				p := newPeer(t)
				st := p.open("")
				p.frames()
				tt.script(p)
				err := p.deliver(size)
				var bad *ConnectionError
				switch {
				case errors.As(err, &bad) != (tt.err != 0) || tt.err != 0 && bad.Code != tt.err:
					t.Fatalf("error %v", err)
				case err != nil:
					continue
				}
				if got := answer(st); got != tt.want {
					t.Errorf("answer %.200q", got)
				}
				if got := p.frames(); got != tt.frames {
					t.Errorf("frames %q", got)
				}
			}
		})
	}
}

// A body is sent as the windows allow, and its memory is released.
func TestUpload(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	st := p.open(strings.Repeat("b", defaultWindow+10))
	if got := p.frames(); got != "headers 1 end=0; data 1 16384 bytes end=0; data 1 16384 bytes end=0; data 1 16384 bytes end=0; data 1 16383 bytes end=0" {
		t.Errorf("frames %q", got)
	}
	if err := p.frame(frameWindow, 0, 1, word(5)).frame(frameWindow, 0, 0, word(100)).deliver(1 << 20); err != nil {
		t.Fatal(err)
	}
	if got := p.frames(); got != "data 1 5 bytes end=0" {
		t.Errorf("the stream's window: %q", got)
	}
	if err := p.frame(frameSettings, 0, 0, "\x00\x04"+word(defaultWindow+100)).deliver(1 << 20); err != nil {
		t.Fatal(err)
	}
	if got := p.frames(); got != `4 flags=1 ""; data 1 5 bytes end=1` || st.rest != nil {
		t.Errorf("the initial window: %q, %d bytes are kept", got, len(st.rest))
	}
}

// What a receiver does not take stops only its own stream; what it takes is returned
// to the window.
func TestReceiveWindow(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	slow, fast := p.open(""), p.open("")
	p.frames()
	p.head(1, 0, ":status", "200").head(3, 0, ":status", "200")
	piece := strings.Repeat("x", maxFrame)
	for range streamWindow / maxFrame {
		p.frame(frameData, 0, 1, piece)
	}
	total := 0
	for range 2 * connectionWindow / maxFrame {
		p.frame(frameData, 0, 3, piece)
		if err := p.deliver(1 << 20); err != nil {
			t.Fatal(err)
		}
		for q, ok := fast.Next(); ok; q, ok = fast.Next() {
			total += len(q.Body)
		}
	}
	if total != 2*connectionWindow {
		t.Errorf("%d bytes", total)
	}
	if got := p.frames(); strings.Contains(got, "8 1 ") || !strings.Contains(got, "8 0 ") || !strings.Contains(got, "8 3 ") {
		t.Errorf("windows %q", got)
	}
	if answer(slow); p.frames() != fmt.Sprintf("8 1 %d", streamWindow) {
		t.Error("the bytes that were taken are not returned")
	}
}

// A canceled request is reset, and a connection with many of them gets no more.
func TestRetire(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	last := p.open("")
	for range maxCanceled {
		st := p.open(strings.Repeat("b", 1<<20))
		st.Close()
		st.Close()
	}
	if got := p.frames(); strings.Count(got, "3 ") < maxCanceled || strings.Contains(got, "data") {
		t.Errorf("frames %.100q", got)
	}
	if p.session.send(&Stream{}, &Request{}) || p.session.idle() {
		t.Error("the connection goes on, or has ended with a request on it")
	}
	if err := p.head(3, 0, ":status", "200").head(1, flagEnd, ":status", "200").deliver(1 << 20); err != nil || answer(last) != "200  end " || !p.session.idle() {
		t.Errorf("the last request: %v", err)
	}
}

// A peer that is silent is asked for a sign of life, once.
func TestCheck(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	st := p.open("")
	p.frames()
	if err := p.session.check(); err != nil || !strings.HasPrefix(p.frames(), "6 ") {
		t.Fatal("it is not asked")
	}
	if err := p.frame(framePing, flagEnd, 0, "12345678").deliver(100); err != nil || p.session.check() != nil || p.session.check() != nil {
		t.Fatal("it has answered")
	}
	err := p.session.check()
	if err == nil {
		t.Fatal("it has not answered")
	}
	p.session.fail(err)
	if got := answer(st); got != " error "+errDead.Error() {
		t.Errorf("%q", got)
	}
}

// A connection has a bounded number of requests that wait for an answer or were
// canceled: all of them may be canceled.
func TestWaiting(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	if err := p.frame(frameSettings, 0, 0, "\x00\x03"+word(1000)).deliver(100); err != nil {
		t.Fatal(err)
	}
	p.open("").Close()
	for range maxWaiting - 1 {
		p.open("")
	}
	if p.session.send(&Stream{}, &Request{}) {
		t.Fatal("it takes one more")
	}
	if err := p.head(3, 0, ":status", "200").deliver(100); err != nil {
		t.Fatal(err)
	}
	if !p.session.send(&Stream{}, &Request{}) || p.session.send(&Stream{}, &Request{}) {
		t.Error("it takes none or two for the one that was answered")
	}
}

// A connection gets no more requests after some time, and ends with its last one.
func TestAge(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	st := p.open("")
	for i := range maxChecks {
		if n, ok := p.session.load(); n != 1 || !ok {
			t.Fatalf("check %d: %d requests, takes more: %t", i, n, ok)
		}
		if err := p.frame(framePing, flagEnd, 0, "12345678").deliver(100); err != nil || p.session.check() != nil {
			t.Fatalf("check %d: %v", i, err)
		}
	}
	if _, ok := p.session.load(); ok || p.session.idle() {
		t.Error("the connection goes on, or has ended with a request on it")
	}
	if err := p.head(1, flagEnd, ":status", "200").deliver(100); err != nil || answer(st) != "200  end " || !p.session.idle() {
		t.Errorf("the last request: %v", err)
	}
}

// What a peer may send never fails the process, and comes to the same in any pieces.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n"))
	f.Add(append(appendHead(nil, 1, frameHeaders, flagEndHeaders, 1), 0x88))
	f.Add(append(appendHead(append(appendHead(nil, 1, frameHeaders, flagEndHeaders, 1), 0x88), 1, frameData, flagEnd, 1), 'x'))
	f.Fuzz(func(t *testing.T, in []byte) {
		var results [2]string
		for i, size := range []int{len(in) + 1, 7} {
			p := newPeer(t)
			st := p.open("body")
			p.in = in
			if err := p.deliver(size); err != nil {
				p.session.fail(err)
				results[i] = err.Error()
			}
			results[i] += answer(st)
		}
		if results[0] != results[1] && len(in) > 5 {
			t.Errorf("%q in one piece, %q in several", results[0], results[1])
		}
	})
}
