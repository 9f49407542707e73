package harmony

import "bytes"

// headerText collects the text of a header, or of tokens that may be a header.
type headerText struct {
	// started: it begins with <|start|>.
	started  bool
	text     []byte
	sections []headerSection
	// tokens has the end of each token in text.
	tokens []int

	// unknown counts the ids outside the vocabulary; unknownID is the first one.
	unknown   int
	unknownID Token
}

// headerSection is a part of a header. It begins with a marker, except the
// first one.
type headerSection struct {
	// marker is 0 in the first section.
	marker Token
	// start is a position in the header's text.
	start int
}

func (h *headerText) reset(started bool) {
	h.text, h.tokens, h.sections = h.text[:0], h.tokens[:0], append(h.sections[:0], headerSection{})
	h.started, h.unknown = started, 0
}

// empty reports whether nothing but <|start|> was collected.
func (h *headerText) empty() bool { return len(h.tokens) == 0 && len(h.sections) == 1 }

// append adds the text of a token.
func (h *headerText) append(t Token) {
	text, ok := tokenText(t)
	if !ok {
		// The strict modes name the first unknown id in their error.
		if h.unknown == 0 {
			h.unknownID = t
		}
		h.unknown++
		text = replacement
	}

	h.text = append(h.text, text...)
	h.tokens = append(h.tokens, len(h.text))
}

// mark begins a section.
func (h *headerText) mark(marker Token) {
	h.sections = append(h.sections, headerSection{marker, len(h.text)})
}

// size returns the number of collected tokens.
func (h *headerText) size() int { return len(h.tokens) + len(h.sections) - 1 }

// resolvedHeader is the result of resolving a header in tolerant mode. Its
// slices refer to the header's text.
type resolvedHeader struct {
	// complete: <|message|> ended the header.
	complete bool

	// The fields; nil: absent.

	role        []byte
	author      []byte
	channel     []byte
	recipient   []byte
	contentType []byte

	// What else was found beside the fields.

	// bareRole: there is a role without <|start|>, whose value does not count.
	bareRole bool
	// unmarked: the recipient was written without to=.
	unmarked bool
	// behind is a role behind the recipient.
	behind []byte
	// bare is the text before all markers, behind a role and a channel that stand there.
	bare []byte

	// What is not a header, of one that is not complete.

	text []byte
	// textTokens is the number of tokens of text.
	textTokens int
	// unfinished: the text consists only of beginnings of header words.
	unfinished bool

	// The words of a complete header that have no place in it, joined by spaces, and how many there are.

	words     []byte
	wordCount int

	repairs Repairs
}

// The words of headers.
var (
	roleWords      = wordList("assistant user system developer tool")
	channelWords   = wordList("analysis commentary final")
	typeWords      = wordList("json code text markdown xml yaml")
	namespaceWords = wordList("functions. browser. container. python")
	toWord         = []byte("to=")
)

func wordList(s string) [][]byte { return bytes.Fields([]byte(s)) }

// resolve parses the collected header. If <|message|> ended it, complete is
// true and everything is header; words without meaning are dropped. Otherwise,
// the rest of a section after its header words is text.
func (h *headerText) resolve(r *resolvedHeader, complete bool) {
	// No text is unfinished too. Each section that has text can only take that away.
	*r = resolvedHeader{complete: complete, text: r.text[:0], words: r.words[:0], unfinished: true}

	for i, s := range h.sections {
		end := len(h.text)
		if i+1 < len(h.sections) {
			end = h.sections[i+1].start
		}
		b := h.text[s.start:end]

		// Markers decide first: only the section before all of them can hold a role.
		switch {
		case s.marker == TokenChannel:
			b = r.channelSection(b)
		case s.marker == TokenConstrain:
			b = r.fields(r.typeWord(b))
		case h.started:
			b = r.roleSection(b)
		default:
			b = r.bareSection(b)
		}

		// The rest of the section is text. A token of which only some bytes belong to a field
		// counts as one of text, because its end does.
		if len(b) > 0 {
			r.unfinished = r.unfinished && r.isWordPrefix(b, s.marker, h.started)
			r.text = append(r.text, b...)
			for _, at := range h.tokens {
				if end-len(b) < at && at <= end {
					r.textTokens++
				}
			}
		}
	}

	r.settleWords()
}

// settleWords decides what the words without a place are. The reference reads the only
// one as a recipient. So do we on commentary, and on analysis with a content type, where a
// call is more likely than a word of a text, and the recipient is marked as unsure.
func (r *resolvedHeader) settleWords() {
	assistant := r.role == nil || string(r.role) == string(RoleAssistant)
	calls := string(r.channel) == ChannelCommentary || string(r.channel) == ChannelAnalysis && r.contentType != nil

	if assistant && calls && r.recipient == nil && r.wordCount == 1 {
		if n := addressLength(r.words, true); n == len(r.words) {
			r.recipient, r.unmarked = r.words, true
			r.repairs[RepairBadRecipient]++
			r.words, r.wordCount = nil, 0
			return
		}
	}

	r.repairs[RepairHeaderText] += r.wordCount
}

// keepWord keeps a word of a complete header that has no place in it. Punctuation is
// dropped.
func (r *resolvedHeader) keepWord(word []byte) {
	if !bytes.ContainsFunc(word, IsNameRune) || isTo(word) {
		r.repairs[RepairHeaderText]++
		return
	}

	r.wordCount++
	if r.wordCount > 1 {
		r.words = append(r.words, ' ')
	}
	r.words = append(r.words, word...)
}

// blank reports whether the text is only white space.
func (r *resolvedHeader) blank() bool { return len(bytes.TrimSpace(r.text)) == 0 }

// hasText reports whether there is text without doubt: more than white space
// and beginnings of header words.
func (r *resolvedHeader) hasText() bool { return !r.blank() && !r.unfinished }

// isMessage reports whether a header without text is a message if the token t
// ends it. With a recipient it is one only if t is <|call|>, because any other end
// may have truncated the header.
func (r *resolvedHeader) isMessage(t Token) bool {
	switch {
	case !r.blank():
		return false
	case r.recipient != nil:
		return t == TokenCall
	}
	return r.channel != nil && t != 0
}

// isWords reports whether the header is nothing but a role or a content type: words that
// can be an answer too.
func (r *resolvedHeader) isWords() bool {
	hasWord := r.role != nil || r.contentType != nil || r.bareRole
	return hasWord && r.channel == nil && r.recipient == nil && !r.hasText()
}

// oddWord returns the word of a header that is no channel or content type which anybody
// knows, and may be the answer if the message has no other text. "" if there is none.
func (h *Header) oddWord() string {
	switch {
	case h.Recipient != "":
	case h.ContentType != "" && wordAt([]byte(h.ContentType), typeWords, endsWord) == nil:
		return h.ContentType
	case channelNamed([]byte(h.Channel)) == nil:
		return h.Channel
	}
	return ""
}

// isWordPrefix reports whether b, the rest of the section that begins with
// marker, is the beginning of a header word that is possible there.
func (r *resolvedHeader) isWordPrefix(b []byte, marker Token, started bool) bool {
	rest := trimLeft(b)

	switch bare := marker == 0 && !started; {
	case len(rest) == 0 || isOpenTo(rest):
		return true
	case bytes.HasPrefix(toWord, rest):
		// In a header there is a space before to=, in an answer there is none.
		return !bare || len(rest) < len(b)
	case marker == TokenChannel && r.channel == nil:
		return beginsWord(rest, channelWords) || beginsChannel(rest)
	case r.recipient != nil || marker == TokenConstrain && r.contentType == nil:
		return beginsWord(rest, typeWords)
	case started && marker == 0 && r.role == nil:
		return beginsWord(rest, roleWords) || beginsWord(rest, namespaceWords)
	case marker == TokenChannel && string(r.channel) != ChannelFinal: // a recipient without to=

		// On these channels models write functions.f without to=, and a name may go on with the next token.
		return beginsWord(rest, namespaceWords) || isNamespaced(rest) && nameLength(rest) == len(rest)
	}
	return false
}

// beginsChannel reports whether b is the beginning of a channel's name, whatever its
// case.
func beginsChannel(b []byte) bool {
	for _, w := range channelWords {
		if len(b) <= len(w) && bytes.EqualFold(w[:len(b)], b) {
			return true
		}
	}
	return false
}

// beginsWord reports whether b is the beginning of one of words, or one of
// words followed by the beginning of to= without a space.
func beginsWord(b []byte, words [][]byte) bool {
	for _, w := range words {
		if bytes.HasPrefix(w, b) {
			return true
		}
		if glued, ok := bytes.CutPrefix(b, w); ok && bytes.HasPrefix(toWord, glued) {
			return true
		}
	}
	return false
}

// mayBecomeHeader reports whether more tokens can turn the text into a word of
// a header.
func (r *resolvedHeader) mayBecomeHeader() bool {
	text := bytes.TrimLeft(r.text, " ")
	if len(text) == 0 || bytes.HasPrefix(toWord, text) || isOpenTo(text) || beginsChannel(text) {
		return true
	}

	// An odd recipient, such as functions.f(), is one only if a marker follows: wait for it.
	if isOddTo(r.bare) {
		return true
	}

	// After a channel without its marker only a recipient makes a header. The beginnings of
	// other words of headers begin answers too, and those must not wait.
	_, to := cutUnmarkedChannel(text)
	return to != nil && (bytes.HasPrefix(toWord, to) || isOpenTo(to))
}

// bareSection parses the text before all markers if the role is known. All of
// it is either header or text.
func (r *resolvedHeader) bareSection(b []byte) []byte {
	rest := trimLeft(b)
	if word := wordAt(rest, roleWords, endsRole); word != nil {
		rest, r.bareRole = rest[len(word):], true
	}

	// Without <|channel|>, a channel counts only before a recipient: an answer can begin with "commentary".
	channel, to := cutUnmarkedChannel(rest)
	if r.bare = rest; len(to) > 0 {
		r.bare = to
	}

	if rest = r.fields(rest); r.recipient == nil && len(to) > 0 {
		if rest = r.fields(to); r.recipient != nil {
			r.channel = channel
		}
	}

	// Without a recipient all is the answer, a role at its start included.
	if len(rest) > 0 && r.recipient == nil {
		return b
	}

	return rest
}

// cutUnmarkedChannel removes a channel on which calls are made, and the space behind
// it, from the start of b, where it may stand without <|channel|>. rest is nil if there
// is none.
func cutUnmarkedChannel(b []byte) (channel, rest []byte) {
	for _, w := range channelWords[:2] {
		if rest, _, ok := cutFold(b, w); ok && len(rest) > 0 && isASCIISpace(rest[0]) {
			return w, trimLeft(rest)
		}
	}
	return nil, nil
}

// roleSection parses the text after <|start|>.
func (r *resolvedHeader) roleSection(b []byte) []byte {
	b = trimLeft(b)
	if r.role = wordAt(b, roleWords, endsRole); r.role != nil {
		b = b[len(r.role):]
		if len(b) > 0 && b[0] == ':' {
			r.author, b = cutSpace(b[1:])
		}
		return r.fields(b)
	}

	if len(b) == 0 || bytes.HasPrefix(b, toWord) {
		return r.fields(b)
	}

	// A word that is no role counts as one only if something else shows a header. Else it is text
	// after a lone <|start|>, and text must not be lost.
	word, rest := cutSpace(b)
	if r.complete || isNamespaced(word) || bytes.HasPrefix(trimLeft(rest), toWord) {
		// Text can be glued to a role, as it can to a channel.
		if glued := wordAt(word, roleWords, beginsText); glued != nil {
			r.role = glued
			return r.fields(b[len(glued):])
		}
		r.role = word
		return r.fields(rest)
	}

	return b
}

// channelSection parses the text after <|channel|>.
func (r *resolvedHeader) channelSection(b []byte) []byte {
	b = trimLeft(b)

	channel, rest := r.channelAt(b)
	if channel == nil {
		if r.complete {
			r.repairs[RepairEmptyChannel]++
		}
		return r.fields(b)
	}

	if r.channel != nil {
		r.repairs[RepairDuplicateChannel]++
	}
	r.channel = channel
	return r.fields(rest)
}

// channelAt splits b after the channel at its start.
func (r *resolvedHeader) channelAt(b []byte) (channel, rest []byte) {
	n := wordLength(b)
	for _, w := range channelWords {
		rest, exact, ok := cutFold(b, w)
		if !ok {
			continue
		}

		glued := len(rest) > 0 && !isASCIISpace(rest[0])
		if !r.complete && glued && ('a' <= rest[0] && rest[0] <= 'z' || !exact) && !beginsField(rest) {
			continue // part of a longer word
		}

		// The model made up a name of two words, such as analysis_thinking. It is read as a whole below.
		if glued && len(w) < n && !beginsField(rest) && madeUpChannel(b[len(w):n]) != nil {
			break
		}

		if glued {
			r.repairs[RepairGluedChannel]++
		} else if !exact {
			r.repairs[RepairUnknownChannel]++
		}
		return w, rest
	}

	// <|message|> proves that this is no text, so any word here is the name of a channel.
	if r.complete && n > 0 && !bytes.HasPrefix(b, toWord) {
		r.repairs[RepairUnknownChannel]++
		if channel := madeUpChannel(b[:n]); channel != nil {
			return channel, b[n:]
		}
		return b[:n], b[n:]
	}

	return nil, b
}

// beginsField reports whether b begins with a word that may follow a channel
// without a space.
func beginsField(b []byte) bool {
	return bytes.HasPrefix(b, toWord) || isNamespaced(b) || wordAt(b, typeWords, endsWord) != nil
}

// typeWord parses the content type at the start of b and returns the rest. In
// an incomplete header it accepts only a known type or, of a call, all of b: without a
// recipient, another word is more likely an answer.
func (r *resolvedHeader) typeWord(b []byte) []byte {
	b = trimLeft(b)
	word := wordAt(b, typeWords, endsWord)
	n := wordLength(b)

	if word == nil && (r.complete || r.recipient != nil && n == len(b)) && n > 0 && !bytes.HasPrefix(b, toWord) {
		word = b[:n]
	}

	if word != nil {
		r.setType(word)
	}
	return b[len(word):]
}

// setType takes a content type. One that is none may have stood in its place before.
func (r *resolvedHeader) setType(word []byte) {
	if before := r.contentType; r.complete && before != nil && wordAt(before, typeWords, endsWord) == nil {
		r.keepWord(before)
	}

	r.contentType = word
}

// fields parses words in any order: recipient, content type and, in a complete
// header, everything else that has a meaning. It returns the rest.
func (r *resolvedHeader) fields(b []byte) []byte {
	for b = trimLeft(b); len(b) > 0; b = trimLeft(b) {
		n := r.field(b)
		if n == 0 {
			break
		}
		b = b[n:]
	}
	return b
}

// field parses the word at the start of b and returns its length, or 0 if it is text.
func (r *resolvedHeader) field(b []byte) int {
	if n := r.recipientAt(b); n > 0 {
		return n
	}

	// Without a recipient or <|message|>, "json" counts only as the last word after a channel: an
	// answer can begin with it.
	if word := wordAt(b, typeWords, endsWord); word != nil &&
		(r.recipient != nil || r.complete || r.channel != nil && len(word) == len(b)) {
		r.setType(word)
		return len(word)
	}

	// Calls are never made on final: until <|message|> proves a header, functions.f is text there.
	if r.recipient == nil && (r.complete || r.channel != nil && string(r.channel) != ChannelFinal) && isAddress(b) {
		n := addressLength(b, r.complete)
		r.recipient = b[:n]
		return n
	}

	if !r.complete {
		return 0
	}

	word, _ := cutSpace(b)
	name := word[:wordLength(word)]
	switch role := wordAt(word, roleWords, endsWord); {
	case r.channel == nil && channelNamed(name) != nil:
		r.channel = channelNamed(name)
		return len(name)
	case role != nil: // a repeated role, or a word of a name
		if r.recipient != nil {
			r.behind = role
		}
		return len(role)
	case r.recipient != nil && r.contentType == nil && len(name) == len(word):
		// The reference takes the word after a recipient as the content type, whatever it is.
		r.contentType = name
	default:
		r.keepWord(word)
	}
	return len(word)
}

// channelNamed returns the channel with a name, whatever its case; nil: there is
// none.
func channelNamed(name []byte) []byte {
	for _, w := range channelWords {
		if bytes.EqualFold(name, w) {
			return w
		}
	}
	return nil
}

// recipientAt parses to= and a recipient, with or without space between them, and
// returns their length; 0 if there is none.
func (r *resolvedHeader) recipientAt(b []byte) int {
	to := toLength(b, r.complete)
	if to == 0 {
		return 0
	}

	rest := trimLeft(b[to:])
	n := addressLength(rest, r.complete)
	end := len(b) - len(rest) + n
	if n == 0 && !r.complete {
		return 0
	}

	// A control token that is spelled as text, and what follows it, is a piece of another header.
	address, spelled, _ := bytes.Cut(rest[:n], []byte("<|"))
	if len(spelled) > 0 || nameLength(address) != len(address) || n == 0 {
		r.repairs[RepairBadRecipient]++
	}

	if len(address) > 0 {
		if r.recipient != nil {
			r.repairs[RepairDuplicateRecipient]++
		}
		r.recipient = address
	}
	return end
}

// wordAt returns the word of words that b begins with, or nil if there is none
// that ends there.
func wordAt(b []byte, words [][]byte, ends func(rest []byte) bool) []byte {
	for _, w := range words {
		if bytes.HasPrefix(b, w) && ends(b[len(w):]) {
			return b[:len(w)]
		}
	}
	return nil
}

func endsWord(rest []byte) bool { return len(rest) == 0 || !isNameByte(rest[0]) }

func endsRole(rest []byte) bool { return endsWord(rest) || bytes.HasPrefix(rest, toWord) }

// beginsText reports whether what follows a word of a header is no part of that word.
func beginsText(rest []byte) bool { return len(rest) > 0 && (rest[0] < 'a' || rest[0] > 'z') }

// wordLength returns the length of the word of ASCII letters at the start of b, such as
// channels and content types are.
func wordLength(b []byte) int {
	for i, c := range b {
		if !isNameByte(c) {
			return i
		}
	}
	return len(b)
}

// trimLeft removes the white space at the start of b. A header is trimmed at each word, mostly
// of nothing: [bytes.TrimLeft] would make its set of characters each time.
func trimLeft(b []byte) []byte {
	for len(b) > 0 && (isASCIISpace(b[0]) || b[0] == '\v') {
		b = b[1:]
	}
	return b
}

// cutSpace splits b before its first white space.
func cutSpace(b []byte) (word, rest []byte) {
	for i, c := range b {
		if isASCIISpace(c) {
			return b[:i], b[i:]
		}
	}
	return b, nil
}
