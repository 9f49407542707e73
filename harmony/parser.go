package harmony

import "iter"

// Mode says how a [Parser] takes what openai-harmony refuses.
type Mode uint8

const (
	// Tolerant never errs and loses no text: whatever a model writes becomes
	// messages. What had to be mended is counted by [Parser.Repairs].
	Tolerant Mode = iota
	// Strict accepts, refuses and yields what the StreamableParser of
	// openai-harmony 0.0.8 does, error texts and deltas included.
	Strict
	// Permissive is Strict with the reference's strict=False: a stop token
	// in a header ends the message, and what the header holds beyond its
	// channel is the text.
	Permissive
)

// State is where in a message a [Parser] stands.
type State uint8

// The states, named as in the reference.
const (
	StateExpectStart State = iota // between messages
	StateHeader                   // before <|message|>
	StateContent                  // after it
)

// Header is what precedes the content of a message. Empty strings are absent.
type Header struct {
	Role        Role
	Name        string // of the author; of tools only
	Channel     string
	Recipient   string
	ContentType string
}

// EventKind is what an [Event] tells.
type EventKind uint8

// The kinds. Messages do not nest: each is a MessageStart, any number of
// Deltas and a MessageEnd.
const (
	MessageStart EventKind = iota + 1
	Delta
	MessageEnd
)

// Event is a step in the reading of a message.
type Event struct {
	Kind EventKind
	// Header is that of the message concerned. It is reused: it stays as it
	// is until the second MessageStart from here.
	Header *Header
	// Text is the text of a Delta, valid UTF-8 and never empty. Of a
	// MessageEnd it is what the message has after its deltas: nothing in
	// tolerant mode, in the other modes what the reference's deltas lack. It
	// is valid until the next call.
	Text []byte
	// End is the token that ended the message, 0 if there was none: the
	// tokens ended, or the next header began.
	End Token
}

// Parser reads the tokens of a completion, one at a time, and tells the
// messages in it. It allocates nothing once its buffers have grown and keeps
// no content. It is not safe for concurrent use.
type Parser struct {
	mode    Mode
	first   Role // that NewParser was given
	role    Role // of the next message, if known before its header
	state   State
	headers [2]Header // of the current message and of the one before
	slot    int       // of the current one
	tokens  int       // of content in the current message
	events  []Event
	single  [1]Event // the Delta of plain content
	text    []byte   // of the events
	last    []byte   // delta
	words   [][]byte
	scratch []byte
	names   map[string]string

	head     headerText
	probing  bool // a header that may be text of the open message
	decoder  Decoder
	strict   strictDecoder
	unknown  int // ids outside the vocabulary that decoder has met
	repairs  Repairs
	resolved resolvedHeader
}

// NewParser returns a Parser for a completion. role is that of the message the
// prompt began ([Renderer.AppendCompletion]), or "" if the tokens begin with
// <|start|>.
func NewParser(mode Mode, role Role) *Parser {
	p := &Parser{mode: mode, names: make(map[string]string)}
	p.Reset(role)
	return p
}

// Reset readies the parser for another completion, keeping its buffers.
func (p *Parser) Reset(role Role) {
	p.first, p.role, p.state = role, role, StateExpectStart
	if role != "" {
		p.state = StateHeader
	}
	p.headers, p.slot, p.tokens = [2]Header{}, 0, 0
	p.events, p.text, p.last = p.events[:0], p.text[:0], nil
	p.head.reset(false)
	p.probing, p.unknown = false, 0
	p.decoder, p.repairs = Decoder{}, Repairs{}
	p.strict.finish(nil)
}

// Push reads a token. The events are valid until the next call. Only the
// strict modes return errors; after one the parser expects <|start|>, as the
// reference does. An error's text quotes the model's output.
func (p *Parser) Push(t Token) ([]Event, error) {
	if p.state == StateContent && t < ordinaryTokens && p.mode == Tolerant && !p.probing {
		return p.pushContent(t), nil
	}
	p.events, p.text, p.last = p.events[:0], p.text[:0], nil
	if p.mode != Tolerant {
		err := p.pushReference(t)
		return p.events, err
	}
	p.pushTolerant(t)
	return p.events, nil
}

// pushContent reads a token of plain content in tolerant mode: nearly every
// token there is.
func (p *Parser) pushContent(t Token) []Event {
	p.tokens++
	p.text, _ = p.decoder.Append(p.text[:0], t)
	if len(p.text) == 0 {
		p.last = nil
		return nil
	}
	p.last = p.text
	p.single[0].Text = p.text
	return p.single[:]
}

// Close reads the end of the tokens, which ends an open message.
func (p *Parser) Close() ([]Event, error) {
	p.events, p.text, p.last = p.events[:0], p.text[:0], nil
	if p.mode != Tolerant {
		err := p.closeReference()
		return p.events, err
	}
	p.closeTolerant()
	return p.events, nil
}

// State returns where the parser stands.
func (p *Parser) State() State { return p.state }

// Role returns the role of the current message, or, outside of content, that
// of the next message if it is known.
func (p *Parser) Role() Role {
	if p.state == StateContent {
		return p.headers[p.slot].Role
	}
	return p.role
}

// Channel returns the channel of the message whose content is being read.
func (p *Parser) Channel() string { return p.current().Channel }

// Recipient returns the recipient of the message whose content is being read.
func (p *Parser) Recipient() string { return p.current().Recipient }

// ContentType returns the content type of the message whose content is being
// read.
func (p *Parser) ContentType() string { return p.current().ContentType }

var noHeader Header

func (p *Parser) current() *Header {
	if p.state == StateContent {
		return &p.headers[p.slot]
	}
	return &noHeader
}

// LastDelta returns the text of the last call's last delta, nil if it had
// none. It is valid until the next call.
func (p *Parser) LastDelta() []byte { return p.last }

// ContentTokens returns how many tokens of content the current message has so
// far; after its end, until the next one starts, how many it had. Headers and
// special tokens do not count.
func (p *Parser) ContentTokens() int { return p.tokens }

// Repairs returns what tolerant mode has mended since the parser was made or
// reset.
func (p *Parser) Repairs() Repairs {
	r := p.repairs
	r[RepairInvalidUTF8] += p.decoder.Replaced() - p.unknown
	return r
}

// startMessage begins the content of a message.
func (p *Parser) startMessage(h Header) {
	p.slot = 1 - p.slot
	p.headers[p.slot] = h
	p.state, p.role, p.tokens = StateContent, "", 0
	p.single[0] = Event{Kind: Delta, Header: &p.headers[p.slot]}
	p.events = append(p.events, Event{Kind: MessageStart, Header: &p.headers[p.slot]})
}

// delta tells the text from start on, if there is any.
func (p *Parser) delta(start int) {
	if len(p.text) > start {
		p.last = p.text[start:]
		p.events = append(p.events, Event{Kind: Delta, Header: &p.headers[p.slot], Text: p.last})
	}
}

// endMessage ends the content of a message.
func (p *Parser) endMessage(end Token, rest []byte) {
	p.state = StateExpectStart
	p.events = append(p.events, Event{Kind: MessageEnd, Header: &p.headers[p.slot], Text: rest, End: end})
}

// maxNames and maxNameSize bound the names a parser keeps to be able to return
// strings without allocating.
const (
	maxNames    = 64
	maxNameSize = 256
)

// name returns b as a string, the same one for the same bytes.
func (p *Parser) name(b []byte) string {
	if s, ok := p.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) > maxNameSize {
		return s
	}
	if len(p.names) == maxNames {
		clear(p.names)
	}
	p.names[s] = s
	return s
}

// RepairKind names what tolerant parsing mended.
type RepairKind uint8

// The kinds of repair. Their String is fit for a metric's label.
const (
	RepairMissingStart       RepairKind = iota // a header without <|start|>
	RepairDoubleStart                          // <|start|> in a header
	RepairStrayStop                            // a stop token between messages
	RepairStrayMarker                          // a marker that begins no header; it is dropped
	RepairMissingHeader                        // text where a header should be
	RepairMissingMessage                       // a header without <|message|>
	RepairMissingEnd                           // a header inside of content
	RepairCutHeader                            // a header that was cut off, dropped
	RepairLongHeader                           // more header than is plausible; it is text
	RepairHeaderText                           // words in a header that mean nothing, dropped
	RepairUnknownRole                          // an unknown role; assistant is assumed
	RepairMissingChannel                       // an assistant's message without channel
	RepairEmptyChannel                         // <|channel|> without a name
	RepairGluedChannel                         // a channel with something glued to it
	RepairUnknownChannel                       // a channel other than the three
	RepairDuplicateChannel                     // a second channel; the last one counts
	RepairBadRecipient                         // a recipient with characters no name has
	RepairDuplicateRecipient                   // a second recipient; the last one counts
	RepairEndOfText                            // <|endoftext|> as the end of a message
	RepairUnknownID                            // an id outside the vocabulary
	RepairInvalidUTF8                          // bytes that are not UTF-8
	repairKinds
)

var repairNames = [repairKinds]string{
	"missing_start", "double_start", "stray_stop", "stray_marker", "missing_header", "missing_message",
	"missing_end", "cut_header", "long_header", "header_text", "unknown_role", "missing_channel",
	"empty_channel", "glued_channel", "unknown_channel", "duplicate_channel", "bad_recipient",
	"duplicate_recipient", "end_of_text", "unknown_id", "invalid_utf8",
}

// String returns the name of the kind, such as missing_start.
func (k RepairKind) String() string {
	if k < repairKinds {
		return repairNames[k]
	}
	return "unknown"
}

// Repairs counts repairs by kind.
type Repairs [repairKinds]int

// All yields the kinds that occurred, with their number.
func (r *Repairs) All() iter.Seq2[RepairKind, int] {
	return func(yield func(RepairKind, int) bool) {
		for k, n := range r {
			if n > 0 && !yield(RepairKind(k), n) {
				return
			}
		}
	}
}

// Total returns the number of all repairs.
func (r *Repairs) Total() int {
	total := 0
	for _, n := range r {
		total += n
	}
	return total
}

// Parse reads all tokens of a completion and returns its messages, each with
// one [Text]. On an error of a strict mode it returns those that were complete
// before it.
func Parse(mode Mode, role Role, tokens []Token) ([]Message, error) {
	p := NewParser(mode, role)
	var c collector
	for _, t := range tokens {
		events, err := p.Push(t)
		c.add(events)
		if err != nil {
			return c.msgs, err
		}
	}
	events, err := p.Close()
	c.add(events)
	return c.msgs, err
}

// collector makes messages of events.
type collector struct {
	msgs []Message
	text []byte
}

func (c *collector) add(events []Event) {
	for _, e := range events {
		if e.Kind == MessageStart {
			c.text = c.text[:0]
		}
		c.text = append(c.text, e.Text...)
		if e.Kind == MessageEnd {
			c.msgs = append(c.msgs, Message{
				Role: e.Header.Role, Name: e.Header.Name, Recipient: e.Header.Recipient,
				Channel: e.Header.Channel, ContentType: e.Header.ContentType,
				Content: []Content{Text(c.text)},
			})
		}
	}
}
