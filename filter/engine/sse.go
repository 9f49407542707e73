package engine

import "bytes"

// maxLine is the longest line of a reply that is taken, in bytes. The longest
// an engine sends holds every id of a full context of 131,072 tokens (the
// prompt's, or the whole output's with its text), below 2 MiB.
const maxLine = 8 << 20

// keepLine is the size up to which the buffer of a cut line is kept for the
// next one. Longer lines are rare: the first of a reply may hold a prompt.
const keepLine = 16 << 10

// eventLines takes a stream of server-sent events, cut anywhere, apart into
// what its data lines say. A line ends in \n or \r\n. The engines write each
// event on one data line, so that the blank line between events needs no
// waiting for; comments and other fields are skipped.
type eventLines struct {
	held    []byte // the beginning of a line that has not ended yet
	tooLong bool   // a line was longer than maxLine
}

// next returns what the next complete data line says and the part of p after
// it; ok is false when p holds no further one, and p's end has been kept. data
// is valid until the following call.
func (e *eventLines) next(p []byte) (data, rest []byte, ok bool) {
	for len(p) > 0 && !e.tooLong {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			e.hold(p)
			break
		}
		line := p[:end]
		p = p[end+1:]
		if len(e.held) > 0 {
			e.hold(line)
			line = e.held
			e.release()
		}
		if data, ok := dataOf(line); ok && !e.tooLong {
			return data, p, true
		}
	}
	return nil, nil, false
}

// flush is next for the line that the end of the stream ends.
func (e *eventLines) flush() (data []byte, ok bool) {
	line := e.held
	e.held = nil
	return dataOf(line)
}

func (e *eventLines) hold(p []byte) {
	if len(e.held)+len(p) > maxLine {
		e.tooLong, e.held = true, nil
		return
	}
	e.held = append(e.held, p...)
}

// release empties the buffer; its bytes stay valid until the next hold.
func (e *eventLines) release() {
	if cap(e.held) > keepLine {
		e.held = nil
		return
	}
	e.held = e.held[:0]
}

// dataOf returns the value of a line's data field; ok is false if the line is
// something else.
func dataOf(line []byte) (data []byte, ok bool) {
	data, ok = bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return nil, false
	}
	data = bytes.TrimSuffix(data, []byte("\r"))
	return bytes.TrimPrefix(data, []byte(" ")), true
}
