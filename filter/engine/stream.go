package engine

import (
	"encoding/json"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// doneMark is the data of a stream's last event.
const doneMark = "[DONE]"

// stream is what the decoders of server-sent events share: the lines, the
// memory of the chunks, and which choices have finished. A dialect embeds it
// and gives it read.
type stream struct {
	// read takes one event and appends what it tells.
	read func(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error)

	lines    eventLines
	ids      []harmony.Token // the chunks' tokens, of one Feed
	finished []bool          // by choice
	open     int             // choices that have not finished
	done     bool            // after [DONE] or an error
}

func newStream(r *Request) stream {
	n := max(r.N, 1)
	return stream{finished: make([]bool, n), open: n}
}

func (s *stream) Feed(p []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	s.ids = s.ids[:0]
	for !s.done {
		data, rest, ok := s.lines.next(p)
		if !ok {
			if s.lines.tooLong {
				return chunks, s.fail(unreadable("a line is too long"))
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
	s.ids = s.ids[:0]
	if data, ok := s.lines.flush(); ok && (json.Valid(data) || string(data) == doneMark) {
		var err *apierror.Error
		if chunks, err = s.event(data, chunks); err != nil {
			return chunks, s.fail(err)
		}
	}
	s.done = true
	if s.open > 0 {
		return chunks, unfinished()
	}
	return chunks, nil
}

func (s *stream) event(data []byte, chunks []Chunk) ([]Chunk, *apierror.Error) {
	if string(data) == doneMark {
		s.done = true
		if s.open > 0 {
			return chunks, unfinished()
		}
		return chunks, nil
	}
	return s.read(data, chunks)
}

func (s *stream) fail(err *apierror.Error) *apierror.Error {
	s.done = true
	return err
}

// expects says whether the choice exists and goes on; news of one that has
// finished is dropped.
func (s *stream) expects(index int) (bool, *apierror.Error) {
	if index < 0 || index >= len(s.finished) {
		return false, unreadable("a choice that was not asked for")
	}
	return !s.finished[index], nil
}

// take copies the ids that raw writes into the memory of this Feed.
func (s *stream) take(raw []byte) ([]harmony.Token, *apierror.Error) {
	from := len(s.ids)
	ids, ok := appendIDs(s.ids, raw)
	if !ok {
		return nil, unreadable("token ids that are no ids")
	}
	s.ids = ids
	return ids[from:len(ids):len(ids)], nil
}

func (s *stream) finish(index int) {
	s.finished[index] = true
	s.open--
}

// unfinished is the error of a reply that ends before its choices do.
func unfinished() *apierror.Error {
	return apierror.New(http.StatusBadGateway, "", "", "The engine ended its reply before the answer was complete. Send the request again.")
}

// unreadable is the error of a reply that is none of the dialect.
func unreadable(what string) *apierror.Error {
	return apierror.New(http.StatusBadGateway, "", "", "The engine sent a reply that cannot be read: %s.", what)
}
