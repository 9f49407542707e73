package harmony

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// Mode says how a [Parser] handles output that openai-harmony does not accept.
type Mode uint8

const (
	// Tolerant accepts any tokens, returns no errors and loses no text. The
	// repairs it had to make are counted by [Parser.Repairs].
	Tolerant Mode = iota
	// Strict behaves like the StreamableParser of openai-harmony 0.0.8,
	// including error texts and deltas.
	Strict
	// Permissive is Strict with the reference's option strict=False: a stop token in a header ends the message,
	// and the header's words other than the channel are the text.
	Permissive
)

// State is the position of a [Parser] in a message.
type State uint8

// The states, named as in the reference. Who leaves them is in the map above [Parser].
const (
	// StateExpectStart is between messages.
	StateExpectStart State = iota
	// StateHeader is in a header: before <|message|>.
	StateHeader
	// StateContent is after it.
	StateContent

	// stateProbe is within content too, in tolerant mode: the tokens collected since a marker
	// are the header of another message, or text of the open one. [Parser.State] calls it
	// StateContent.
	stateProbe
)

// Header contains the fields of a message header. An empty string means that a
// field is absent.
type Header struct {
	Role Role
	// Name is the author's, if it has one.
	Name    string
	Channel string
	// Recipient is in tolerant mode as the model wrote it, with quotation marks and the like.
	Recipient   string
	ContentType string

	// Unmarked: the recipient was written without to=, so that it may be another word.
	// Only tolerant mode sets it.
	Unmarked bool
	// Behind is the word behind the recipient that has no place in a header. It may belong to
	// a name with a space; if it does not, nothing is lost, because it is the content type or
	// reasoning before the message too. Only tolerant mode sets it.
	Behind string
}

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events. A message consists of a MessageStart, any number of
// Deltas and a MessageEnd. Messages do not nest.
const (
	MessageStart EventKind = iota + 1
	Delta
	MessageEnd
)

// Event is a step in parsing a message.
type Event struct {
	Kind EventKind
	// Header is the header of the message. It is reused: it stays unchanged
	// until the second MessageStart after this event.
	Header *Header
	// Text is the text of a Delta: valid UTF-8, never empty. In a MessageEnd it
	// is the text of the message that is missing in its deltas, which is always
	// empty in tolerant mode. It is valid until the next call.
	Text []byte
	// End is the token that ended the message. It is 0 if the message ended
	// without a token: at the end of the input or at the next header.
	End Token
}

// Parser parses the tokens of a completion, one at a time, and returns events.
// It allocates nothing once its buffers have grown, and keeps no content. It is
// not safe for concurrent use.
//
// The map of tolerant mode:
//
//	state        left for     by
//	ExpectStart  Header       <|start|>, another marker, text (reference: <|start|> only)
//	Header       Content      <|message|>; text that can be no header; too many tokens
//	Header       ExpectStart  a stop token, the end: a message if there is text, else dropped
//	Content      ExpectStart  a stop token, <|endoftext|>, the end
//	Content      probe        <|start|>, <|channel|>
//	probe        Content      text that can be no header; more than maxProbeTokens
//	probe        Header       what ends a header, if all before reads as one: the open
//	                          message ends, and the token counts in the new header
//
// The strict modes collect a header's tokens in the same way, but decide only at its end,
// have no probe, and go from an error to ExpectStart.
type Parser struct {
	mode Mode

	// Where the parser is.

	state State
	// role is that of the next message, if it is known before its header.
	role Role
	// ended: a message has ended.
	ended bool
	// said: a message that is no reasoning has ended.
	said bool

	// The current message.

	// headers are of the current message and those before it, to which events refer.
	headers [3]Header
	// header is the current one, headers[slot].
	header *Header
	slot   int
	// tokens counts the tokens of the content.
	tokens int

	// What the last call returned.

	events []Event
	// single is the Delta that is returned for plain content.
	single [1]Event
	// text is that of the events.
	text []byte
	// last is where the last delta starts in text.
	last int

	// The header that is collected, and what it means.

	head     headerText
	resolved resolvedHeader
	words    [][]byte
	scratch  []byte
	names    map[string]string

	// The bytes of content: tolerant mode has decoder, the others have strict.

	decoder Decoder
	strict  strictDecoder
	// unknown counts the ids outside the vocabulary for which decoder wrote U+FFFD.
	unknown int

	repairs Repairs
}

// NewParser returns a Parser for a completion. role is the role of the message
// that the prompt started ([Renderer.AppendCompletion]), or "" if the
// completion begins with <|start|>.
func NewParser(mode Mode, role Role) *Parser {
	p := &Parser{mode: mode, names: make(map[string]string), text: make([]byte, 0, maxTokenSize)}
	p.Reset(role)
	return p
}

// Reset prepares the parser for another completion. It keeps the buffers.
func (p *Parser) Reset(role Role) {
	p.role, p.state = role, StateExpectStart
	if role != "" {
		p.state = StateHeader
	}

	p.headers, p.header, p.slot, p.tokens = [3]Header{}, &p.headers[0], 0, 0
	p.clearEvents()
	p.head.reset(false)

	p.ended, p.said, p.unknown = false, false, 0
	p.decoder, p.repairs = Decoder{}, Repairs{}

	// finish keeps the memory of its buffer, which an assignment would drop.
	p.strict.finish(nil)
}

// Push parses a token. The events are valid until the next call. Only the
// strict modes return errors. After an error the parser expects <|start|>, like
// the reference. The text of an error quotes the model's output.
func (p *Parser) Push(t Token) ([]Event, error) {
	if p.state != StateContent || t >= ordinaryTokens {
		return p.pushOther(t)
	}

	// A token of content is the most frequent case. Most are short and consist of complete characters.
	p.tokens++
	offsets := le64(vocabulary, offsetsAt+4*int(t)) // of this token and of the next one
	at, n := textAt+int(uint32(offsets)), int(offsets>>32)-int(uint32(offsets))

	// Sixteen bytes are copied whatever the token's length, so they must lie within the vocabulary.
	// A character that waits for its other bytes must come first.
	if n > wholeCopy || at > len(vocabulary)-wholeCopy || !p.atBoundary() {
		return p.joinContent(t), nil
	}

	// One test of the high bits of all bytes tells ASCII text. Only other tokens are looked at byte by byte.
	a, b := le64(vocabulary, at), le64(vocabulary, at+8)
	all := a << ((64 - 8*uint(n)) & 63)
	if n > 8 {
		all = a | b<<((128-8*uint(n))&63)
	}
	if all&highBits != 0 && !utf8.ValidString(vocabulary[at:at+n]) {
		return p.joinContent(t), nil
	}

	// NewParser has given p.text room for the longest token: two stores of a fixed size need no growth.
	text := p.text[:wholeCopy]
	binary.LittleEndian.PutUint64(text, a)
	binary.LittleEndian.PutUint64(text[8:], b)

	// The kind and the header of this event are set once a message, by startMessage.
	p.text, p.last = p.text[:n], 0
	p.single[0].Text = p.text
	return p.single[:], nil
}

// pushOther parses a token that is not plain content.
func (p *Parser) pushOther(t Token) ([]Event, error) {
	p.clearEvents()
	if p.mode != Tolerant {
		err := p.pushReference(t)
		return p.events, err
	}

	p.pushTolerant(t)
	return p.events, nil
}

func (p *Parser) clearEvents() {
	p.events, p.text, p.last = p.events[:0], p.text[:0], 0
}

// wholeCopy is the number of bytes that Push copies for a token of content that
// has at most as many. A copy of exactly the token's bytes takes longer.
const wholeCopy = 16

// atBoundary reports whether no byte of the message's tokens so far waits for
// the next one, so that a token with complete characters is its own delta.
func (p *Parser) atBoundary() bool {
	return p.decoder.size == 0 && len(p.strict.kept) == 0 && !p.strict.unknown
}

// joinContent parses a token of content that Push does not parse by itself: long
// ones, parts of characters, and those that follow a part of a character.
func (p *Parser) joinContent(t Token) []Event {
	if p.mode == Tolerant {
		p.text, _ = p.decoder.Append(p.text[:0], t)
	} else {
		p.text, _ = p.strict.append(p.text[:0], t)
	}

	// A token that is a part of a character completes nothing, and no delta is empty.
	if p.last = 0; len(p.text) == 0 {
		return nil
	}
	p.single[0].Text = p.text
	return p.single[:]
}

// Close must be called at the end of the tokens. It ends an open message.
func (p *Parser) Close() ([]Event, error) {
	p.clearEvents()
	if p.mode != Tolerant {
		err := p.closeReference()
		return p.events, err
	}

	p.closeTolerant()
	return p.events, nil
}

// State returns the position of the parser.
func (p *Parser) State() State { return min(p.state, StateContent) }

// Role returns the role of the current message. Between messages it returns the
// role of the next message if that is known.
func (p *Parser) Role() Role {
	if p.state >= StateContent {
		return p.header.Role
	}
	return p.role
}

// Channel returns the channel of the current message while its content is
// parsed.
func (p *Parser) Channel() string { return p.current().Channel }

// Recipient returns the recipient of the current message while its content is
// parsed.
func (p *Parser) Recipient() string { return p.current().Recipient }

// ContentType returns the content type of the current message while its content
// is parsed.
func (p *Parser) ContentType() string { return p.current().ContentType }

var noHeader Header

func (p *Parser) current() *Header {
	if p.state >= StateContent {
		return p.header
	}
	return &noHeader
}

// LastDelta returns the text of the last delta of the last call, or nil. It is
// valid until the next call.
func (p *Parser) LastDelta() []byte {
	if len(p.text) == p.last {
		return nil
	}
	return p.text[p.last:]
}

// ContentTokens returns the number of content tokens of the current message so
// far, or between messages those of the previous one. Headers and special
// tokens are not counted.
func (p *Parser) ContentTokens() int { return p.tokens }

// Repairs returns the repairs of tolerant mode since the last Reset.
func (p *Parser) Repairs() Repairs {
	r := p.repairs

	// The decoder counts every U+FFFD that it writes. Those of unknown ids have a kind of their own.
	r[RepairInvalidUTF8] += p.decoder.Replaced() - p.unknown
	return r
}

// startMessage starts the content of a message.
func (p *Parser) startMessage(h Header) {
	// Three headers take turns: one call can start two messages, and the events of both name theirs.
	p.slot = (p.slot + 1) % len(p.headers)
	p.header = &p.headers[p.slot]
	*p.header = h
	p.state, p.role, p.tokens = StateContent, "", 0

	p.single[0] = Event{Kind: Delta, Header: p.header}
	p.events = append(p.events, Event{Kind: MessageStart, Header: p.header})
}

// delta adds an event for the text from start on, unless it is empty.
func (p *Parser) delta(start int) {
	if len(p.text) > start {
		p.last = start
		p.events = append(p.events, Event{Kind: Delta, Header: p.header, Text: p.text[start:]})
	}
}

// endMessage ends the content of a message.
func (p *Parser) endMessage(end Token, rest []byte) {
	p.state, p.ended = StateExpectStart, true

	// After anything but reasoning, the words of a header before <|return|> are no answer: see stopHeader.
	p.said = p.said || p.header.Channel != ChannelAnalysis
	p.events = append(p.events, Event{Kind: MessageEnd, Header: p.header, Text: rest, End: end})
}

// maxNames and maxNameSize limit the strings that a parser keeps in order not
// to allocate them again.
const (
	maxNames    = 64
	maxNameSize = 256
)

// name returns b as a string. It reuses earlier strings.
func (p *Parser) name(b []byte) string {
	// Most headers lack most fields.
	if len(b) == 0 {
		return ""
	}

	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, nil)
	}

	// A lookup with string(b) copies nothing, so names that were seen before allocate nothing.
	if s, ok := p.names[string(b)]; ok {
		return s
	}

	// The model chooses these strings. Only short ones are kept, and few, whatever it writes.
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

// Parse parses all tokens of a completion and returns the messages, each with
// one [Text]. On an error of a strict mode it also returns the messages before
// the error.
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

// collector converts events to messages.
type collector struct {
	msgs []Message
	text []byte
}

func (c *collector) add(events []Event) {
	for _, e := range events {
		if e.Kind == MessageStart {
			c.text = c.text[:0]
		}

		// In the strict modes the end of a message has the text that its deltas lack.
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
