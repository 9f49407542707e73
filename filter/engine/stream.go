package engine

import (
	"encoding/json"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// doneMark is the data of a stream's last event.
const doneMark = "[DONE]"

// stream is the common part of the decoders of server-sent events. A dialect
// embeds it and sets read.
type stream struct {
	progress
	// read decodes one event and appends its chunks.
	read  func(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error)
	lines eventLines
}

func newStream(r *Request) stream { return stream{progress: newProgress(r)} }

func (s *stream) Feed(p []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	s.reset()
	for !s.done {
		data, rest, ok := s.lines.next(p)

		// An engine that sends no event, or no end of one, takes no memory without bound.
		if !ok {
			if s.lines.tooLong {
				return chunks, s.fail(unreadable("a line is too long"))
			}
			if s.lines.idle() {
				return chunks, s.fail(unreadable("more than 1 MiB came without an event"))
			}
			break
		}

		p = rest
		var err *apierror.Error
		if chunks, err = s.event(data, chunks); err != nil {
			return chunks, s.fail(err)
		}
	}
	return chunks, nil
}

func (s *stream) End(chunks []Chunk) ([]Chunk, *apierror.Error) {
	if s.done {
		return chunks, nil
	}

	// The last event may lack its empty line. One that is cut off is none.
	s.reset()
	if data, ok := s.lines.flush(); ok && (json.Valid(data) || string(data) == doneMark) {
		var err *apierror.Error
		if chunks, err = s.event(data, chunks); err != nil {
			return chunks, s.fail(err)
		}
	}
	if s.done {
		return chunks, nil
	}
	return chunks, s.end()
}

// event decodes one event. Errors after the last choice has finished are
// ignored.
func (s *stream) event(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	if string(data) == doneMark {
		return chunks, s.end()
	}

	// Counts follow the last choice. What cannot be read there is not missed.
	finished := s.open == 0
	more, err := s.read(data, chunks)
	if err != nil && finished {
		return chunks, s.end()
	}
	return more, err
}
