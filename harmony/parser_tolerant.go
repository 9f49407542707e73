package harmony

import "bytes"

// maxHeaderTokens is the most tokens of a header. Longer ones are treated as
// text.
const maxHeaderTokens = 256

const (
	// maxProbeTokens is the most tokens within content that are buffered because they may be a header.
	maxProbeTokens = 64
	// maxUnsureBytes is the most text that is buffered because it may be a header or
	// text: it is read again with each token, and a token can have 128 bytes.
	maxUnsureBytes = 2 << 10
)

// pushTolerant parses a token in tolerant mode, except plain content.
func (p *Parser) pushTolerant(t Token) {
	switch {
	case isStop(t) || t == TokenEndOfText:
		p.stop(t)
	case t == TokenStart:
		p.startMarker()
	case t == TokenChannel || t == TokenConstrain:
		p.sectionMarker(t)
	case t == TokenMessage:
		p.messageMarker()
	case t >= TokenStartOfText && t <= lastSpecial:
		p.repairs[RepairStrayMarker]++
	default:
		p.textToken(t)
	}
}

// textToken parses a text token outside of plain content.
func (p *Parser) textToken(t Token) {
	// Push parses the tokens of content, so this is an id outside the vocabulary.
	if p.state == StateContent {
		p.tokens++
		p.unknown++
		p.repairs[RepairUnknownID]++
		p.text, _ = p.decoder.Append(p.text, t)
		p.delta(0)
		return
	}

	p.expectHeader()
	p.head.append(t)

	// A marker has shown that this is a header, so its words can wait for the end. Without a marker
	// every token decides again: deltas must not lag.
	if p.state != stateProbe && (p.head.started || len(p.head.sections) > 1) {
		p.limitHeader()
		return
	}

	// The collected tokens may also be text, of the open message or of one without a header.
	p.head.resolve(&p.resolved, false)

	// After a message, the words of a header alone (assistantfinal) are what is left of a broken one.
	between := p.state != stateProbe && p.ended && isRemnant(p.head.text, true)
	text := !between && !p.resolved.mayBecomeHeader() || len(p.head.text) > maxUnsureBytes

	switch {
	case p.state == stateProbe && text:
		p.rejectProbe()
	case p.state == stateProbe:
		p.limitProbe()
	case text || p.head.size() > maxHeaderTokens:
		p.startWithText()
	}
}

// limitProbe treats tokens within content as text once they are too many for a header.
func (p *Parser) limitProbe() {
	if p.head.size() > maxProbeTokens {
		p.rejectProbe()
	}
}

// limitHeader treats a header that is too long as text.
func (p *Parser) limitHeader() {
	if p.head.size() > maxHeaderTokens {
		p.repairs[RepairLongHeader]++
		p.startWithText()
	}
}

// expectHeader starts a header without <|start|> between messages.
func (p *Parser) expectHeader() {
	if p.state == StateExpectStart {
		p.state = StateHeader
		p.head.reset(false)
	}
}

// stop parses a token that ends a message.
func (p *Parser) stop(t Token) {
	if t == TokenEndOfText {
		p.repairs[RepairEndOfText]++
	}

	if p.state == stateProbe {
		p.endProbe()
	}

	// No probe is left here: it has become a header, or text of the open message.
	switch p.state {
	case StateContent:
		p.finishMessage(t)
	case StateHeader:
		p.stopHeader(t)
	case StateExpectStart:
		// Engines use it as the end of the sequence, so it may follow any stop token.
		if t != TokenEndOfText {
			p.repairs[RepairStrayStop]++
		}
	}
}

// closeTolerant handles the end of the tokens.
func (p *Parser) closeTolerant() {
	if p.state == stateProbe {
		// The end of the tokens can cut a header, so its beginnings are no text here.
		p.finishProbe(p.probeIsHeader() || p.resolved.unfinished)
	}

	switch p.state {
	case StateContent:
		p.finishMessage(0)
	case StateHeader:
		p.stopHeader(0)
	case StateExpectStart:
	}
}

// stopHeader ends a header without <|message|>. It becomes a message if it has
// text or if the stop token t makes it one. Words of headers that <|return|> ends are
// the answer if there is no other.
func (p *Parser) stopHeader(t Token) {
	p.head.resolve(&p.resolved, false)

	// The order matters: remnants of a header are dropped unless they are the only answer there is,
	// then comes what has text. What remains says nothing.
	switch only := t == TokenReturn && !p.said && !p.head.started; {
	case !only && p.isRemnant():
		p.repairs[RepairCutHeader]++
	case only && p.resolved.isWords():
		p.startWithAll()
		p.finishMessage(t)
		return
	case p.resolved.hasText() || p.resolved.isMessage(t):
		p.startWithText()
		p.finishMessage(t)
		return
	case !p.head.empty() || p.head.started:
		p.repairs[RepairCutHeader]++
	case t != 0 && t != TokenEndOfText:
		p.repairs[RepairStrayStop]++
	}

	p.state, p.role = StateExpectStart, ""
}

// finishMessage ends the open message.
func (p *Parser) finishMessage(t Token) {
	start := len(p.text)
	p.text = p.decoder.Flush(p.text)

	// In <|channel|>Paris<|message|><|return|> the word in the channel's place is the only answer there is.
	if p.tokens == 0 && t == TokenReturn && !p.said {
		p.text = append(p.text, p.header.oddWord()...)
	}

	p.delta(start)
	p.endMessage(t, nil)
}

// startMarker parses <|start|>.
func (p *Parser) startMarker() {
	if p.state == stateProbe {
		// A model that repeats <|start|> begins one header, and not a second message.
		if p.head.started && p.head.empty() {
			p.repairs[RepairDoubleStart]++
			return
		}
		p.endProbe()
	}

	switch p.state {
	case StateContent:
		p.state = stateProbe
	case StateHeader:
		// The header that <|start|> breaks off can hold text, which must not be lost.
		p.head.resolve(&p.resolved, false)
		switch remnant := p.isRemnant(); {
		case remnant && !p.head.started:
			p.repairs[RepairCutHeader]++
		case p.resolved.hasText() && !remnant:
			p.startWithText()
			p.finishMessage(0)
		case p.head.started || !p.head.empty():
			p.repairs[RepairDoubleStart]++
		}
		p.state, p.role = StateHeader, ""
	case StateExpectStart:
		p.state = StateHeader
	}

	p.head.reset(true)
}

// sectionMarker parses <|channel|> or <|constrain|>.
func (p *Parser) sectionMarker(t Token) {
	// Between two markers of a header there are only words of headers: other words show that the
	// first marker stood in text.
	if p.state == stateProbe && !p.probeIsHeader() {
		p.rejectProbe()
	}

	if p.state == StateContent {
		// No header begins with it: a role or a channel comes first.
		if t == TokenConstrain {
			p.repairs[RepairStrayMarker]++
			return
		}
		p.state = stateProbe
		p.head.reset(false)
	}

	p.expectHeader()
	p.head.mark(t)

	// Each marker has all tokens before it read again, so markers count for the limit too.
	if p.state == stateProbe {
		p.limitProbe()
	} else {
		p.limitHeader()
	}
}

// messageMarker parses <|message|>.
func (p *Parser) messageMarker() {
	if p.state == stateProbe && !p.endProbe() {
		p.repairs[RepairStrayMarker]++ // the tokens were no header
		return
	}

	if p.state == StateContent {
		p.repairs[RepairStrayMarker]++
		return
	}

	p.expectHeader()
	if !p.head.started && p.role == "" {
		p.repairs[RepairMissingStart]++
	}

	p.head.resolve(&p.resolved, true)
	h := p.repairedHeader()

	words := p.resolved.words

	// Arguments and JSON must keep their form, so words in their header go into a message before
	// them. They may belong to the tool's name as well, which only the caller knows.
	if len(words) > 0 && (h.Recipient != "" || h.ContentType != "") {
		p.startWithWords(words)
		if h.Recipient != "" {
			h.Behind = p.name(words)
		}
		words = nil
	}

	// Any other text begins with the words.
	p.startMessage(h)
	if len(words) > 0 {
		start := len(p.text)
		p.text = append(append(p.text, bytes.ToValidUTF8(words, []byte(replacement))...), ' ')
		p.delta(start)
	}
}

// startWithWords makes a message of reasoning of words that stand in the header of a
// message whose text must keep its form: arguments or JSON.
func (p *Parser) startWithWords(words []byte) {
	p.startMessage(Header{Role: RoleAssistant, Channel: ChannelAnalysis})
	start := len(p.text)
	p.text = append(p.text, bytes.ToValidUTF8(words, []byte(replacement))...)
	p.delta(start)
	p.endMessage(0, nil)
}

// probeIsHeader reports whether the tokens collected within content are the
// header of another message.
func (p *Parser) probeIsHeader() bool {
	p.head.resolve(&p.resolved, false)
	return !p.resolved.hasText() && (p.head.empty() || p.resolved.role != nil || p.resolved.channel != nil)
}

// endProbe decides whether the tokens collected within content are a header,
// which ends the open message, or text of that message. It reports whether they
// are a header.
func (p *Parser) endProbe() bool { return p.finishProbe(p.probeIsHeader()) }

// finishProbe applies the decision of endProbe.
func (p *Parser) finishProbe(isHeader bool) bool {
	if !isHeader {
		p.rejectProbe()
		return false
	}

	p.repairs[RepairMissingEnd]++
	p.finishMessage(0)

	// The collected tokens stay: they are the beginning of the next message's header.
	p.state = StateHeader
	return true
}

// rejectProbe adds the text tokens collected within content to the open
// message. It drops the markers.
func (p *Parser) rejectProbe() {
	p.state = StateContent
	p.repairs[RepairStrayMarker] += len(p.head.sections) - 1
	if p.head.started {
		p.repairs[RepairStrayMarker]++
	}

	p.repairs[RepairUnknownID] += p.head.unknown
	p.tokens += len(p.head.tokens)

	// The text before the marker can have ended within a character, which these bytes may complete.
	start := len(p.text)
	p.text = p.decoder.join(p.text, string(p.head.text))
	p.delta(start)
}

// startWithText starts a message whose header has no <|message|>, with the text
// in the header.
func (p *Parser) startWithText() {
	p.head.resolve(&p.resolved, false)
	r := &p.resolved

	// Before repairedHeader, which adds these repairs to those of the parser and reads which there are.
	if r.role == nil && r.channel == nil && r.recipient == nil {
		r.repairs[RepairMissingHeader]++
	} else {
		r.repairs[RepairMissingMessage]++
		if !p.head.started && p.role == "" {
			r.repairs[RepairMissingStart]++
		}
	}

	p.startMessage(p.repairedHeader())
	p.tokens = r.textTokens

	start := len(p.text)
	p.text = p.decoder.join(p.text, string(r.text))
	p.delta(start)
}

// startWithAll starts a message with all that was collected as its text.
func (p *Parser) startWithAll() {
	p.repairs[RepairMissingHeader]++
	p.startMessage(Header{Role: RoleAssistant, Channel: ChannelFinal})

	p.tokens = len(p.head.tokens)
	start := len(p.text)
	p.text = p.decoder.join(p.text, string(p.head.text))
	p.delta(start)
}

// repairedHeader returns the resolved header with missing fields added. It
// counts the repairs.
func (p *Parser) repairedHeader() Header {
	r := &p.resolved
	for kind, n := range r.repairs {
		p.repairs[kind] += n
	}

	p.repairs[RepairUnknownID] += p.head.unknown

	h := Header{
		Role: p.resolvedRole(r), Name: p.name(r.author[:nameLength(r.author)]),
		Channel: p.name(r.channel), Recipient: p.name(r.recipient), ContentType: p.name(r.contentType),
		Unmarked: r.unmarked,
	}

	// A role, or a content type that is none, may be the second word of a tool's name.
	switch {
	case !r.complete || r.recipient == nil:
	case r.behind != nil:
		h.Behind = p.name(r.behind)
	case wordAt(r.contentType, typeWords, endsWord) == nil:
		h.Behind = h.ContentType
	}

	// A tool writes its name in the place of a role.
	if h.Role == RoleTool && h.Name == "" {
		h.Name = p.name(r.role[:nameLength(r.role)])
	}

	if h.Role == RoleAssistant && h.Channel == "" {
		// One mistake is counted once: both other kinds say that the channel is missing.
		if r.repairs[RepairMissingHeader] == 0 && r.repairs[RepairEmptyChannel] == 0 {
			p.repairs[RepairMissingChannel]++
		}

		// Final, because an answer that is taken for reasoning is lost to the user. Calls are made on commentary.
		h.Channel = ChannelFinal
		if h.Recipient != "" {
			h.Channel = ChannelCommentary
		}
	}

	return h
}

// resolvedRole returns the role in a header or, if it has none, the role given
// by the prompt or assistant.
func (p *Parser) resolvedRole(r *resolvedHeader) Role {
	switch {
	case r.role == nil && p.role != "":
		return p.role
	case r.role == nil:
		return RoleAssistant
	}

	role := Role(p.name(r.role))
	switch {
	case role.known():
		return role
	case isNamespaced(r.role) || string(r.recipient) == string(RoleAssistant):
		// Only a tool has the name of one, and only a tool writes to the assistant.
		return RoleTool
	}

	p.repairs[RepairUnknownRole]++
	return RoleAssistant
}
