package inspect

import (
	"bytes"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/arguments"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The kinds of repairs that package turn makes, as docs/output.md and docs/tools.md name them. Those of the parser and
// of package arguments have their names from there.
const (
	emptyArguments   = "empty_arguments"
	invalidArguments = "invalid_arguments"
)

// ofNames are the kinds that depend on the tools of the request, which the output alone does not tell.
var ofNames = []string{"recipient", "unknown_tool", "withheld_call"}

// python is the tool whose calls are code, and not JSON.
const python = "python"

// marker finds the tokens at which an output was repaired. A record counts repairs by kind and does not say where they
// were, so the output is read again, as it was for the client. What the record does not count is not marked: the
// output was passed on as it is, or belongs to a call that the client did not get.
type marker struct {
	// left is how many repairs of each kind are counted, and have no token yet.
	left map[string]int
	// live: the exchange goes on, and nothing is counted yet.
	live bool

	parser *harmony.Parser
	// known are the repairs of the tokens so far.
	known harmony.Repairs
	// call reads the arguments of the call that is open; nil: none is.
	call *arguments.Repairer
	// blank: it has no arguments so far.
	blank bool
	// headers are the tokens that end the headers of calls.
	headers []*Piece
}

func newMarker(r *record.Record) *marker {
	m := &marker{left: map[string]int{}, live: r.Result.Outcome == ""}
	for kind, n := range r.Result.Repairs {
		m.left[kind] = n
	}
	return m
}

// read marks the output of a choice. begun is the message that its prompt has begun.
func (m *marker) read(begun []harmony.Token, output []Message) {
	m.parser, m.known, m.call = harmony.NewParser(harmony.Tolerant, ""), harmony.Repairs{}, nil
	if len(begun) == 0 {
		m.parser.Reset(harmony.RoleAssistant)
	}
	for _, t := range begun {
		m.push(t, nil)
	}

	var last *Piece
	for i := range output {
		for j := range output[i].Pieces {
			last = &output[i].Pieces[j]
			m.push(last.ID, last)
		}
	}

	// Tolerant mode has no errors.
	events, _ := m.parser.Close()
	m.take(events, last)
}

func (m *marker) push(t harmony.Token, at *Piece) {
	events, _ := m.parser.Push(t)
	m.take(events, at)
}

// take takes what a token has brought about: at is the token; nil if it is not the output's.
func (m *marker) take(events []harmony.Event, at *Piece) {
	for i := range events {
		switch e := &events[i]; e.Kind {
		case harmony.MessageStart:
			m.begin(e.Header, at)
		case harmony.Delta:
			if m.call != nil {
				m.call.Push(e.Text)
				m.blank = m.blank && len(bytes.TrimSpace(e.Text)) == 0
			}
		case harmony.MessageEnd:
			m.end(at)
		}
	}

	now := m.parser.Repairs()
	for kind, n := range now.All() {
		for range n - m.known[kind] {
			m.mark(at, kind.String())
		}
	}
	m.known = now
}

func (m *marker) begin(header *harmony.Header, at *Piece) {
	m.call = nil
	if header.Recipient == "" {
		return
	}
	if at != nil {
		m.headers = append(m.headers, at)
	}
	if header.Recipient != python {
		m.call, m.blank = arguments.New(""), true
	}
}

// end ends a message.
func (m *marker) end(at *Piece) {
	if m.call == nil {
		return
	}
	_, made, valid := m.call.End()
	m.call = nil
	for kind, found := range made {
		if found {
			m.mark(at, arguments.Kind(kind).String()) //nolint:gosec // a few kinds
		}
	}

	// Whether a bare text is an argument tells the schema, which is not here: the count does.
	switch {
	case valid || m.live:
	case m.blank:
		m.mark(at, emptyArguments)
	case m.left[arguments.RawText.String()] > 0:
		m.mark(at, arguments.RawText.String())
	default:
		m.mark(at, invalidArguments)
	}
}

// finish marks, after all outputs, what depends on the request's tools: only where all calls had such a repair is it
// certain which ones had.
func (m *marker) finish() {
	for _, kind := range ofNames {
		if m.left[kind] != len(m.headers) {
			continue
		}
		for _, at := range m.headers {
			m.mark(at, kind)
		}
	}
}

func (m *marker) mark(at *Piece, kind string) {
	if at == nil || !m.live && m.left[kind] == 0 {
		return
	}
	m.left[kind]--
	if !slices.Contains(at.Repairs, kind) {
		at.Repairs = append(at.Repairs, kind)
	}
}
