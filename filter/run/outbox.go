package run

// outbox is a byte buffer. Parts that were taken stay untouched until reuse:
// messages to Envoy point to them until they are sent.
type outbox struct {
	buf  []byte // not yet taken
	base []byte // the largest buffer so far, empty
}

// take returns the bytes appended since the last take.
func (o *outbox) take() []byte {
	p := o.buf
	if cap(p) > cap(o.base) {
		o.base = p[:0]
	}
	o.buf = p[len(p):]
	return p
}

// reuse makes the buffer's memory available again. Parts taken before may be
// overwritten.
func (o *outbox) reuse() {
	if len(o.buf) == 0 {
		o.buf = o.base
	}
}
