package websocket

import "bytes"

// splitter makes events of the server-sent events of a reply, which come in any pieces.
type splitter struct{ rest []byte }

// The parts of a server-sent event that are read here.
var (
	blankLine  = []byte("\n\n")
	dataPrefix = []byte("data: ")
	doneMark   = []byte("[DONE]")
)

// feed calls event with the JSON of each event that is complete now. The JSON is valid until it
// returns. Comments, which keep connections of HTTP alive, and the mark at the end are no events.
func (s *splitter) feed(p []byte, event func(json []byte) error) error {
	// Nearly always a piece has whole events, and nothing is copied.
	if len(s.rest) > 0 {
		p = append(s.rest, p...)
	}

	for {
		end := bytes.Index(p, blankLine)
		if end < 0 {
			s.rest = append(s.rest[:0], p...)
			return nil
		}
		json := dataOf(p[:end])
		p = p[end+len(blankLine):]
		if json == nil || bytes.Equal(json, doneMark) {
			continue
		}
		if err := event(json); err != nil {
			return err
		}
	}
}

// dataOf returns the data of an event; nil if it has none.
func dataOf(frame []byte) []byte {
	for line := range bytes.Lines(frame) {
		if data, ok := bytes.CutPrefix(line, dataPrefix); ok {
			return bytes.TrimSuffix(data, []byte("\n"))
		}
	}
	return nil
}

// appendLane appends how an event of a lane begins, before what follows its brace. A lane has only
// characters that need no escape.
func appendLane(dst []byte, lane string) []byte {
	return append(append(append(dst, `{"stream_id":"`...), lane...), `",`...)
}
