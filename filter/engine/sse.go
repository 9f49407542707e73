package engine

import "bytes"

// maxLine is the longest accepted line of a reply, in bytes. The longest lines
// that engines send are below 2 MiB: they contain all ids of a full context of
// 131,072 tokens, either of the prompt or of the output with its text.
const maxLine = 8 << 20

// maxSkipped is how many bytes an engine may send without a data line: comments that
// keep the connection alive are short and rare.
const maxSkipped = 1 << 20

// keepLine is the largest buffer that is reused for the next incomplete line.
// Longer lines are rare, such as the first of a reply, which may contain a
// prompt.
const keepLine = 16 << 10

// eventLines splits a stream of server-sent events, in pieces of any size, into
// the values of its data lines. A line ends in \n or \r\n. Engines write each
// event as one data line, so the blank lines between events are not needed;
// comments and other fields are skipped.
type eventLines struct {
	pending []byte // the beginning of an incomplete line, without what was dropped
	dropped int    // bytes of it that were dropped
	within  bool   // it ends within the ids of a prompt, which are dropped
	tooLong bool   // a line was longer than maxLine
	skipped int    // bytes of other lines since the last data line
}

// idle reports whether more than maxSkipped bytes came without a data line.
func (e *eventLines) idle() bool { return e.skipped > maxSkipped }

// next returns the value of the next complete data line and the rest of p. If p
// completes no such line, ok is false and the end of p has been buffered. data
// is valid until the next call. Nothing is read once the engine is too long idle.
func (e *eventLines) next(p []byte) (data, rest []byte, ok bool) {
	for len(p) > 0 && !e.tooLong && !e.idle() {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			e.buffer(p)
			break
		}

		// A line that came in one piece is not copied.
		line := p[:end]
		p = p[end+1:]
		if len(e.pending) > 0 {
			e.buffer(line)
			line = e.pending
			e.release()
		}

		if data, ok := dataOf(line); ok && !e.tooLong {
			e.skipped = 0
			return data, p, true
		}
		e.skipped += len(line) + 1
	}
	return nil, nil, false
}

// flush returns the value of the last line, which the end of the stream ends.
func (e *eventLines) flush() (data []byte, ok bool) {
	line := e.pending
	e.pending = nil
	return dataOf(line)
}

func (e *eventLines) buffer(p []byte) {
	// What was dropped counts: an engine must not send without end.
	if len(e.pending)+e.dropped+len(p) > maxLine {
		e.tooLong, e.pending = true, nil
		return
	}

	if e.within {
		p = e.drop(p)
	}
	e.pending = append(e.pending, p...)
	if len(p) > leastDropped {
		e.cutPromptIDs(len(e.pending) - len(p))
	}
}

// promptIDs is what precedes the ids of the prompt in an event. It cannot be in a string,
// where a quote is escaped.
const promptIDs = `"prompt_token_ids":[`

// leastDropped is how long a piece of a line has to be for the ids of a prompt to be
// looked for in it.
const leastDropped = 1 << 10

// cutPromptIDs removes the ids of a prompt at the end of the incomplete line, if its
// piece from index from on contains their beginning and not their end. The same ids were
// sent to the engine, which repeats them in the first event of each choice: there can be a
// megabyte of them.
func (e *eventLines) cutPromptIDs(from int) {
	// The name may be cut between two pieces.
	from = max(0, from-len(promptIDs))
	for {
		begin := bytes.Index(e.pending[from:], []byte(promptIDs))
		if begin < 0 {
			return
		}
		from += begin + len(promptIDs)
		if flatEnd(e.pending[from:]) < 0 {
			e.dropped += len(e.pending) - from
			e.pending, e.within = e.pending[:from], true
			return
		}
	}
}

// drop returns what follows in p of the line after the prompt's ids.
func (e *eventLines) drop(p []byte) []byte {
	end := flatEnd(p)
	if end < 0 {
		end = len(p)
	} else {
		e.within = false
	}
	e.dropped += end
	return p[end:]
}

// flatEnd returns the index of the first byte of p that does not belong to the elements of
// an array of numbers, -1 if there is none.
func flatEnd(p []byte) int {
	end := -1
	for _, c := range []byte(`]"[{}`) {
		if i := bytes.IndexByte(p, c); i >= 0 {
			end, p = i, p[:i]
		}
	}
	return end
}

// release empties the buffer. Its bytes stay valid until the next call of
// buffer.
func (e *eventLines) release() {
	e.dropped, e.within = 0, false
	// The first event can have the prompt. Its buffer would stay as long as the reply.
	if cap(e.pending) > keepLine {
		e.pending = nil
		return
	}
	e.pending = e.pending[:0]
}

// dataOf returns the value of a line's data field. ok is false for other lines.
func dataOf(line []byte) (data []byte, ok bool) {
	data, ok = bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return nil, false
	}
	data = bytes.TrimSuffix(data, []byte("\r"))
	return bytes.TrimPrefix(data, []byte(" ")), true
}
