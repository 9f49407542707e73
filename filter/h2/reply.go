package h2

import "sync"

// Field is a header field or a trailer. Names are in lower case.
type Field struct{ Name, Value string }

// replyAhead is how many bytes of a reply may wait for the peer.
const replyAhead = 16 << 10

// Reply is the answer to a request that the peer sends to a [Server]. It may be written
// before the request has come. Its methods are safe for concurrent use.
type Reply struct {
	server *Server
	key    string
	bell   func() // called when a reply is no longer behind

	mu      sync.Mutex // taken before the lock of a serving
	serving *serving   // nil: the request has not come
	id      uint32
	window  int    // bytes that the peer takes
	head    []byte // encoded fields that wait
	rest    []byte // of the body
	trailer []byte // encoded; the end of the reply
	over    bool   // all is sent, or nobody takes it
	queued  bool   // waits for the connection's window; guarded by the serving's lock
}

// Key is what the request for the reply has in the header of the server.
func (r *Reply) Key() string { return r.key }

// Begin sends the status 200 and the fields.
func (r *Reply) Begin(fields []Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head = append(r.head, statusOK)
	for _, f := range fields {
		r.head = appendField(r.head, f)
	}
	r.send(nil)
}

// Write sends bytes of the body. It does not keep p.
func (r *Reply) Write(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send(p)
}

// End ends the reply with a trailer.
func (r *Reply) End(trailer Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trailer = appendField(nil, trailer)
	r.send(nil)
}

// Behind reports whether the peer has not taken enough for more to be sent. The bell
// rings when it has.
func (r *Reply) Behind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind()
}

func (r *Reply) behind() bool { return len(r.rest) >= replyAhead }

// Close ends a reply. The peer sees that it is broken off if it has no end yet.
func (r *Reply) Close() {
	r.server.forget(r.key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && r.serving != nil {
		r.serving.reset(r.id, CodeInternal)
	}
	r.drop()
}

// drop gives up what waits, with the lock held.
func (r *Reply) drop() { r.over, r.head, r.rest, r.trailer = true, nil, nil, nil }

// send sends what waits and then p, as far as the windows allow, with the lock held.
func (r *Reply) send(p []byte) {
	switch {
	case r.over:
	case r.serving == nil:
		r.rest = append(r.rest, p...)
	default:
		r.serving.write(r, p)
	}
}

// update changes the window and sends what waits.
func (r *Reply) update(n int) error {
	r.mu.Lock()
	behind := r.behind()
	r.window += n
	if r.window > maxWindow {
		r.mu.Unlock()
		return &ConnectionError{CodeFlowControl, "a window update"}
	}
	r.send(nil)
	caughtUp := behind && !r.behind()
	r.mu.Unlock()
	if caughtUp {
		r.bell()
	}
	return nil
}

// attach joins the reply to its request.
func (r *Reply) attach(s *serving, id uint32, window int) {
	r.mu.Lock()
	r.serving, r.id, r.window = s, id, window
	added := s.add(r)
	r.mu.Unlock()
	if !added {
		r.lost()
		return
	}
	_ = r.update(0) // the window does not change
}

// lost takes the end of the request: nobody takes the reply.
func (r *Reply) lost() {
	r.mu.Lock()
	behind := r.behind()
	r.drop()
	r.mu.Unlock()
	if behind {
		r.bell()
	}
}

// HPACK (RFC 7541): what a reply needs of it, without a table.
const (
	statusOK    = 0x80 | 8 // an indexed field: :status 200
	statusName  = 8        // a literal field with an indexed name: :status
	newName     = 0x00     // a literal field with its name
	lengthLimit = 0x7f     // of a length in one byte
)

func appendField(dst []byte, f Field) []byte {
	return appendText(appendText(append(dst, newName), f.Name), f.Value)
}

// appendText appends a string literal without Huffman coding.
func appendText(dst []byte, s string) []byte {
	if n := len(s); n < lengthLimit {
		dst = append(dst, byte(n))
	} else {
		dst = append(dst, lengthLimit)
		for n -= lengthLimit; n >= 0x80; n >>= 7 {
			dst = append(dst, byte(n)|0x80) //nolint:gosec // the low bits
		}
		dst = append(dst, byte(n)) //nolint:gosec // below 0x80
	}
	return append(dst, s...)
}
