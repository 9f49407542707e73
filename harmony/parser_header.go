package harmony

import "bytes"

// headerText collects what is, or may be, a header.
type headerText struct {
	text      []byte
	sections  []headerSection
	tokens    []int // where in text each token ends
	started   bool  // begins with <|start|>
	unknown   int   // ids outside the vocabulary
	unknownID Token
}

// headerSection is the part of a header that a marker begins; the first one
// has no marker.
type headerSection struct {
	marker Token
	start  int // in text
}

func (h *headerText) reset(started bool) {
	h.text, h.tokens, h.sections = h.text[:0], h.tokens[:0], append(h.sections[:0], headerSection{})
	h.started, h.unknown = started, 0
}

// empty tells whether nothing was collected, <|start|> aside.
func (h *headerText) empty() bool { return len(h.tokens) == 0 && len(h.sections) == 1 }

// append adds the text of a token.
func (h *headerText) append(t Token) {
	text, ok := tokenText(t)
	if !ok {
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

// size is the number of tokens collected.
func (h *headerText) size() int { return len(h.tokens) + len(h.sections) - 1 }

// resolvedHeader is what tolerant mode makes of a header. Its slices refer to
// the header's text.
type resolvedHeader struct {
	complete                                      bool // <|message|> ended the header
	role, author, channel, recipient, contentType []byte
	text                                          []byte // what is not header
	textTokens                                    int    // that text comes from
	unfinished                                    bool   // the text is but beginnings of header words
	repairs                                       Repairs
}

// The words that headers are made of.
var (
	roleWords      = wordList("assistant user system developer tool")
	channelWords   = wordList("analysis commentary final")
	typeWords      = wordList("json code text markdown xml yaml")
	namespaceWords = wordList("functions. browser. container. python")
	toWord         = []byte("to=")
)

func wordList(s string) [][]byte { return bytes.Fields([]byte(s)) }

// resolve reads the collected header. If <|message|> ended it, complete is
// true and all of it is header: what means nothing is dropped. Otherwise what
// follows the header's words in a section is text.
func (h *headerText) resolve(r *resolvedHeader, complete bool) {
	*r = resolvedHeader{complete: complete, text: r.text[:0], unfinished: true}
	for i, s := range h.sections {
		end := len(h.text)
		if i+1 < len(h.sections) {
			end = h.sections[i+1].start
		}
		b := h.text[s.start:end]
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
		if len(b) > 0 {
			r.unfinished = r.unfinished && r.begins(b, s.marker, h.started)
			r.text = append(r.text, b...)
			for _, at := range h.tokens {
				if end-len(b) < at && at <= end {
					r.textTokens++
				}
			}
		}
	}
}

// blank tells whether there is no text but white space.
func (r *resolvedHeader) blank() bool { return len(bytes.TrimSpace(r.text)) == 0 }

// hasText tells whether there is text for certain: more than white space and
// header words that the end has cut off.
func (r *resolvedHeader) hasText() bool { return !r.blank() && !r.unfinished }

// named tells whether a header without text is a message if t ends it. A
// recipient needs <|call|> and the full name of a tool: any other end may have
// cut it off.
func (r *resolvedHeader) named(t Token) bool {
	switch {
	case !r.blank():
		return false
	case r.recipient != nil:
		return t == TokenCall && isNamespaced(r.recipient) && r.recipient[len(r.recipient)-1] != '.'
	}
	return r.channel != nil && t != 0
}

// begins tells whether b, the rest of the section that marker begins, is the
// beginning of a header word that may stand there.
func (r *resolvedHeader) begins(b []byte, marker Token, started bool) bool {
	rest := trimLeft(b)
	switch bare := marker == 0 && !started; {
	case len(rest) == 0 || bytes.HasPrefix(rest, toWord) && len(trimLeft(rest[len(toWord):])) == 0:
		return true
	case bytes.HasPrefix(toWord, rest):
		return !bare || len(rest) < len(b) // headers have a space there, an answer has none
	case marker == TokenChannel && r.channel == nil:
		return beginsWord(rest, channelWords)
	case r.recipient != nil:
		return beginsWord(rest, typeWords)
	case started && marker == 0 && r.role == nil:
		return beginsWord(rest, roleWords) || beginsWord(rest, namespaceWords)
	case marker == TokenChannel && string(r.channel) != ChannelFinal: // a recipient without to=
		return beginsWord(rest, namespaceWords) || isNamespaced(rest) && nameLength(rest) == len(rest)
	}
	return false
}

// beginsWord tells whether b is the beginning of one of words, or one with the
// beginning of to= glued to it.
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

// mayGrow tells whether the text may yet become a word of a header.
func (r *resolvedHeader) mayGrow() bool {
	text := bytes.TrimLeft(r.text, " ")
	if len(text) == 0 || bytes.HasPrefix(toWord, text) {
		return true
	}
	for _, words := range [...][][]byte{roleWords, channelWords, typeWords, namespaceWords} {
		for _, w := range words {
			if bytes.HasPrefix(w, text) {
				return true
			}
		}
	}
	return false
}

// bareSection reads what precedes all markers where the role is known. It is
// header or text as a whole.
func (r *resolvedHeader) bareSection(b []byte) []byte {
	rest := trimLeft(b)
	if word := wordAt(rest, roleWords, endsRole); word != nil {
		rest = rest[len(word):]
	}
	rest = r.fields(rest)
	if len(rest) > 0 && r.recipient == nil {
		return b
	}
	return rest
}

// roleSection reads what follows <|start|>.
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
	word, rest := cutSpace(b)
	if r.complete || isNamespaced(word) || bytes.HasPrefix(trimLeft(rest), toWord) {
		r.role = word
		return r.fields(rest)
	}
	return b
}

// channelSection reads what follows <|channel|>.
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

// channelAt cuts a channel off b.
func (r *resolvedHeader) channelAt(b []byte) (channel, rest []byte) {
	for _, w := range channelWords {
		rest, ok := bytes.CutPrefix(b, w)
		if !ok {
			continue
		}
		glued := len(rest) > 0 && !isASCIISpace(rest[0])
		if !r.complete && glued && 'a' <= rest[0] && rest[0] <= 'z' && !beginsField(rest) {
			continue // a longer word
		}
		if glued {
			r.repairs[RepairGluedChannel]++
		}
		return w, rest
	}
	if n := nameLength(b); r.complete && n > 0 && !bytes.HasPrefix(b, toWord) {
		r.repairs[RepairUnknownChannel]++
		return b[:n], b[n:]
	}
	return nil, b
}

// beginsField tells whether b begins with a word that may be glued to a
// channel.
func beginsField(b []byte) bool {
	return bytes.HasPrefix(b, toWord) || isNamespaced(b) || wordAt(b, typeWords, endsWord) != nil
}

// typeWord cuts a content type off b: of what is no complete header, a known
// one or all of b.
func (r *resolvedHeader) typeWord(b []byte) []byte {
	b = trimLeft(b)
	word := wordAt(b, typeWords, endsWord)
	if n := nameLength(b); word == nil && (r.complete || n == len(b)) && n > 0 && !bytes.HasPrefix(b, toWord) {
		word = b[:n]
	}
	if word != nil {
		r.contentType = word
	}
	return b[len(word):]
}

// fields reads words in any order: recipient, content type and, in a complete
// header, whatever else makes sense. It returns what follows them.
func (r *resolvedHeader) fields(b []byte) []byte {
	for {
		b = trimLeft(b)
		n := r.field(b)
		if n == 0 {
			return b
		}
		b = b[n:]
	}
}

// field reads one word and returns its length, 0 for text.
func (r *resolvedHeader) field(b []byte) int {
	if bytes.HasPrefix(b, toWord) {
		return r.recipientAt(b)
	}
	if word := wordAt(b, typeWords, endsWord); word != nil &&
		(r.recipient != nil || r.complete || r.channel != nil && len(word) == len(b)) {
		r.contentType = word
		return len(word)
	}
	if !r.complete || len(b) == 0 {
		return 0
	}
	word, _ := cutSpace(b)
	name := word[:nameLength(word)]
	switch {
	case wordAt(word, channelWords, endsWord) != nil && r.channel == nil:
		r.channel = name
	case wordAt(word, roleWords, endsWord) != nil: // repeated
	case r.recipient == nil && isNamespaced(name):
		r.recipient = name
	case r.recipient != nil && r.contentType == nil && len(name) == len(word):
		r.contentType = name
	default:
		r.repairs[RepairHeaderText]++
	}
	return len(word)
}

// recipientAt reads to= and a recipient, which may be spaced apart. In a
// complete header what is glued to the recipient is dropped.
func (r *resolvedHeader) recipientAt(b []byte) int {
	rest := trimLeft(b[len(toWord):])
	n := nameLength(rest)
	end := len(b) - len(rest) + n
	if r.complete {
		junk, _ := cutSpace(rest[n:])
		end += len(junk)
		if len(junk) > 0 || n == 0 {
			r.repairs[RepairBadRecipient]++
		}
	} else if n == 0 {
		return 0
	}
	if n > 0 {
		if r.recipient != nil {
			r.repairs[RepairDuplicateRecipient]++
		}
		r.recipient = rest[:n]
	}
	return end
}

// wordAt returns the word that b begins with, nil if it is none of words or
// does not end there.
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

// isNamespaced tells whether b begins with the name of a tool.
func isNamespaced(b []byte) bool {
	return wordAt(b, namespaceWords, func([]byte) bool { return true }) != nil
}

// isNameByte tells whether c may be part of a tool's full name.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// nameLength returns how many bytes of a name b begins with.
func nameLength(b []byte) int {
	for i, c := range b {
		if !isNameByte(c) {
			return i
		}
	}
	return len(b)
}

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n\f\v") }

// cutSpace cuts b before its first white space.
func cutSpace(b []byte) (word, rest []byte) {
	for i, c := range b {
		if isASCIISpace(c) {
			return b[:i], b[i:]
		}
	}
	return b, nil
}
