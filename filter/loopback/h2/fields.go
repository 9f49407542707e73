package h2

import (
	"net/http"
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// fields are those of one block.
type fields struct {
	status int
	header http.Header
	size   int
	bad    string // why the answer cannot be used
}

func (f *fields) add(h hpack.HeaderField) {
	if f.size += len(h.Name) + len(h.Value) + 32; f.size > headerLimit {
		f.bad = "the answer's header is too large"
		return
	}
	if h.Name == ":status" {
		n, err := strconv.Atoi(h.Value)
		if f.status = n; err != nil || len(h.Value) != 3 {
			f.bad = "the answer has no valid status"
		}
		return
	}
	if h.Name == "" || h.Name[0] == ':' {
		f.bad = "a field that an answer does not have"
		return
	}
	name := http.CanonicalHeaderKey(h.Name)
	f.header[name] = append(f.header[name], h.Value)
}

// headers takes a part of a block of fields.
func (s *session) headers(f *frame) error {
	if f.kind == frameHeaders {
		if err := f.unpad(); err != nil {
			return err
		}
		if f.flags&flagPriority != 0 {
			if len(f.payload) < 5 {
				return &ConnectionError{CodeFrameSize, "HEADERS"}
			}
			f.payload = f.payload[5:]
		}
		s.inBlock = frame{stream: f.stream, flags: f.flags}
		s.block = s.block[:0]
	} else if !s.opened || f.stream != s.inBlock.stream || len(f.payload) == 0 {
		return &ConnectionError{CodeProtocol, "CONTINUATION"}
	}

	// The block is bounded before it is decoded, and so is what it decodes to.
	s.opened = true
	if len(s.block)+len(f.payload) > headerLimit {
		return &ConnectionError{CodeCalm, "a block of fields is too large"}
	}
	s.block = append(s.block, f.payload...)
	if f.flags&flagEndHeaders == 0 {
		return nil
	}

	// Also the fields of a request that has ended are decoded: they change the table.
	s.opened = false
	s.fields = fields{header: http.Header{}}
	_, err := s.decoder.Write(s.block)
	if err == nil {
		err = s.decoder.Close()
	}
	if cap(s.block) > maxFrame {
		s.block = nil
	}

	if err != nil {
		return &ConnectionError{CodeCompression, "fields that cannot be decoded"}
	}
	return s.complete()
}

// complete takes a complete block of fields.
func (s *session) complete() error {
	st, err := s.find(s.inBlock.stream)
	if st == nil || err != nil {
		return err
	}

	end := s.inBlock.flags&flagEnd != 0
	f := s.fields
	s.fields = fields{}

	switch {
	case f.bad != "":
		s.abort(st, CodeProtocol, f.bad)
	case st.begun && !end:
		s.abort(st, CodeProtocol, "trailers that do not end the answer")
	case st.begun:
		s.finish(st, f.header)
	case f.status < 100:
		s.abort(st, CodeProtocol, "the answer has no status")
	// Informational, such as 103 before the answer itself.
	case f.status < 200:
		if end {
			s.abort(st, CodeProtocol, "an informational answer is the last")
		}
	default:
		s.mu.Lock()
		s.answered(st)
		s.mu.Unlock()
		st.begin(f.status, f.header)
		if end {
			s.finish(st, nil)
		}
	}
	return nil
}
