package filter

// outbox is a byte buffer whose taken parts stay untouched until the next
// reuse: messages in out point into it until they are sent.
type outbox struct {
	buf  []byte // not yet taken
	base []byte // the largest buffer so far, empty
}

// take gives the bytes appended since the last take.
func (o *outbox) take() []byte {
	p := o.buf
	if cap(p) > cap(o.base) {
		o.base = p[:0]
	}
	o.buf = p[len(p):]
	return p
}

// reuse makes room anew. Parts taken before it may be overwritten.
func (o *outbox) reuse() {
	if len(o.buf) == 0 {
		o.buf = o.base
	}
}
