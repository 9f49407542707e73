package harmony

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// headerText collects the text of a header, or of tokens that may be a header.
type headerText struct {
	text      []byte
	sections  []headerSection
	tokens    []int // end of each token in text
	started   bool  // begins with <|start|>
	unknown   int   // number of ids outside the vocabulary
	unknownID Token
}

// headerSection is a part of a header. It begins with a marker, except the
// first one.
type headerSection struct {
	marker Token
	start  int // position in text
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

	role, author, channel, recipient, contentType []byte
	// bareRole: there is a role without <|start|>, whose value does not count.
	bareRole bool
	// unmarked: the recipient was written without to=.
	unmarked bool

	// A role behind the recipient.
	behind []byte

	// The text before all markers, behind a role and a channel that stand there.
	bare []byte

	// The part that is not a header, of one that is not complete.
	text []byte
	// textTokens is the number of tokens of text.
	textTokens int
	// unfinished: the text consists only of beginnings of header words.
	unfinished bool

	// The words of a complete header that have no place in it, joined by spaces, and
	// how many there are.
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
	*r = resolvedHeader{complete: complete, text: r.text[:0], words: r.words[:0], unfinished: true}
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
	return r.channel == nil && r.recipient == nil && !r.hasText() && (r.role != nil || r.contentType != nil || r.bareRole)
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
		return !bare || len(rest) < len(b) // in a header there is a space before to=, in an answer there is none
	case marker == TokenChannel && r.channel == nil:
		return beginsWord(rest, channelWords) || beginsChannel(rest)
	case r.recipient != nil || marker == TokenConstrain && r.contentType == nil:
		return beginsWord(rest, typeWords)
	case started && marker == 0 && r.role == nil:
		return beginsWord(rest, roleWords) || beginsWord(rest, namespaceWords)
	case marker == TokenChannel && string(r.channel) != ChannelFinal: // a recipient without to=
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
	if isOddTo(r.bare) {
		return true
	}
	if _, to := cutUnmarkedChannel(text); bytes.HasPrefix(toWord, to) || isOpenTo(to) {
		return to != nil
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

// bareSection parses the text before all markers if the role is known. All of
// it is either header or text.
func (r *resolvedHeader) bareSection(b []byte) []byte {
	rest := trimLeft(b)
	if word := wordAt(rest, roleWords, endsRole); word != nil {
		rest, r.bareRole = rest[len(word):], true
	}
	channel, to := cutUnmarkedChannel(rest)
	if r.bare = rest; len(to) > 0 {
		r.bare = to
	}
	if rest = r.fields(rest); r.recipient == nil && len(to) > 0 {
		if rest = r.fields(to); r.recipient != nil {
			r.channel = channel
		}
	}
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
	for {
		b = trimLeft(b)
		n := r.field(b)
		if n == 0 {
			return b
		}
		b = b[n:]
	}
}

// field parses one word and returns its length, or 0 if it is text.
func (r *resolvedHeader) field(b []byte) int {
	if n := r.recipientAt(b); n > 0 {
		return n
	}
	if word := wordAt(b, typeWords, endsWord); word != nil &&
		(r.recipient != nil || r.complete || r.channel != nil && len(word) == len(b)) {
		r.setType(word)
		return len(word)
	}
	if r.recipient == nil && (r.complete || r.channel != nil && string(r.channel) != ChannelFinal) && isAddress(b) {
		n := addressLength(b, r.complete)
		r.recipient = b[:n]
		return n
	}
	if !r.complete || len(b) == 0 {
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

	// A control token that is spelled as text, and what follows it, is a piece of another
	// header.
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

// toLength returns the length of to= at the start of b; 0 if it is not there. In a
// complete header, which has no text that could look like it, other spellings count too.
func toLength(b []byte, complete bool) int {
	if bytes.HasPrefix(b, toWord) {
		return len(toWord)
	}
	if !complete {
		return 0
	}
	for _, word := range addressWords {
		rest, _, ok := cutFold(b, word)
		if rest = trimLeft(rest); ok && len(rest) > 0 && (rest[0] == '=' || rest[0] == ':') {
			return len(b) - len(rest) + 1
		}
	}
	return 0
}

// addressWords are the words that announce a recipient.
var addressWords = wordList("to recipient")

// isTo reports whether a word announces a recipient, and has none.
func isTo(word []byte) bool {
	word = bytes.TrimRight(word, "=:")
	return bytes.EqualFold(word, addressWords[0]) || bytes.EqualFold(word, addressWords[1])
}

// isOpenTo reports whether b is to= without a recipient, but perhaps with what precedes
// one.
func isOpenTo(b []byte) bool {
	rest, ok := bytes.CutPrefix(b, toWord)
	return ok && len(bytes.TrimLeft(rest, " \t\r\n\f\v"+openers)) == 0
}

// isOddTo reports whether b is to= and one word, which is no name of a tool but may be a
// recipient all the same: $functions.f, functions.f(). What begins as arguments is none. A
// content type can follow, or a second word of the name.
func isOddTo(b []byte) bool {
	rest, ok := bytes.CutPrefix(b, toWord)
	if !ok {
		return false
	}
	word, behind := cutSpace(trimLeft(rest))
	arguments := word[addressWordLength(word):]
	if len(arguments) > 0 && arguments[0] != '(' {
		return false
	}
	more, _ := cutSpace(trimLeft(behind))
	return len(bytes.TrimSpace(behind)) == len(more) && !bytes.ContainsAny(more, "{[")
}

// The characters that a model writes around names, and between a namespace and a name
// in place of the dot.
const (
	quotes     = "\"'`"
	openers    = quotes + "@<[(“‘«"
	closers    = quotes + ">])”’»"
	separators = "./:@>\\"
	// enclosing are pairs of characters that hold a name together.
	enclosing = "\"\"''``[]()“”‘’«»"
)

func isSeparator(c byte) bool { return strings.IndexByte(separators, c) >= 0 }

// addressLength returns the length of the recipient at the start of b, as the model
// wrote it: a word and, with a separator or a quotation mark to tell that it goes on,
// further ones. In a header that is not complete, text may follow without a space.
func addressLength(b []byte, complete bool) int {
	if !complete {
		return gluedAddressLength(b)
	}

	n := 0
	for {
		n += addressWordLength(b[n:])
		next := trimLeft(b[n:])
		if len(next) == 0 || n == 0 {
			return n
		}
		goesOn := isSeparator(b[n-1]) || isSeparator(next[0]) ||
			isNamespaceName(bytes.TrimLeft(b[:n], openers)) && !beginsType(next)
		if !goesOn || len(next) == len(b)-n {
			return n
		}
		n = len(b) - len(next)
	}
}

// addressWordLength returns the length of the word at the start of b: all in quotation
// marks or brackets, else what is before the next space, or before arguments.
func addressWordLength(b []byte) int {
	opener, size := utf8.DecodeRune(b)
	if pair := strings.IndexRune(enclosing, opener); pair >= 0 && size > 0 {
		closer, _ := utf8.DecodeRuneInString(enclosing[pair+size:])
		if end := bytes.IndexRune(b[size:], closer); end > 0 {
			end += size + utf8.RuneLen(closer)
			if rest := b[end:]; len(rest) > 0 && strings.IndexByte(separators+quotes+"@", rest[0]) >= 0 {
				word, _ := cutSpace(rest)
				end += len(word)
			}
			return end
		}
	}

	word, _ := cutSpace(b)
	for i, c := range word {
		opens := c == '{' || c == '[' || c == '('
		if i > 0 && opens && isNameByte(word[i-1]) && word[i-1] != '.' && !isNamespaceName(word[:i]) {
			return i
		}
	}
	return len(word)
}

// gluedAddressLength returns the length of the recipient at the start of b, behind which
// text may follow without a space; 0 if it has no letter yet.
func gluedAddressLength(b []byte) int {
	begin := len(b) - len(bytes.TrimLeft(b, openers))
	n := begin + nameLength(b[begin:])
	if n == begin {
		return 0
	}

	// Behind the namespace another separator can stand, and spaces.
	quoted := begin > 0
	namespace := bytes.TrimRight(b[begin:n], ".")
	spaced := bytes.IndexByte(namespace, '.') < 0
	for goesOn := true; goesOn; {
		rest := trimLeft(bytes.TrimLeft(trimLeft(b[n:]), separators))
		between := b[n : len(b)-len(rest)]
		separated := b[n-1] == '.' || len(trimLeft(between)) > 0 ||
			len(between) > 0 && isNamespaceName(namespace) && !beginsType(rest)
		if !spaced && bytes.IndexByte(between, ' ') >= 0 {
			break
		}
		name := bytes.TrimLeft(rest, openers)
		more := nameLength(name)
		if goesOn = separated && more > 0; goesOn || separated && len(name) == 0 {
			quoted = quoted || len(name) < len(rest)
			n = len(b) - len(name) + more
		}
	}
	if quoted {
		n = len(b) - len(bytes.TrimLeft(b[n:], closers+separators))
	}
	return n
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

// isNamespaced reports whether b begins with the name of a tool.
func isNamespaced(b []byte) bool {
	return wordAt(b, namespaceWords, func([]byte) bool { return true }) != nil
}

// beginsType reports whether b begins with a content type, or with to=.
func beginsType(b []byte) bool {
	return toLength(b, true) > 0 || wordAt(b, typeWords, func(rest []byte) bool { return nameLength(rest) == 0 }) != nil
}

func isNamespaceName(b []byte) bool {
	for _, w := range namespaceNames {
		if bytes.EqualFold(b, w) {
			return true
		}
	}
	return false
}

// isAddress reports whether b begins with a namespace of tools and a separator, so that
// it is a recipient also without to=.
func isAddress(b []byte) bool {
	b = bytes.TrimLeft(b, openers)
	if isNamespaced(b) {
		return true
	}
	for _, w := range namespaceNames {
		if rest, _, ok := cutFold(b, w); ok && len(rest) > 1 && isSeparator(rest[0]) {
			return true
		}
	}
	return false
}

// namespaceNames are the namespaces that a model writes before the names of functions.
var namespaceNames = wordList("functions function tools tool")

// isNameByte reports whether c may be part of a tool's full name.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// IsNameRune reports whether a character can be part of a tool's name as the model sees
// and writes it: letters of any script and their marks, digits, _ and -. The selectors and
// frames of emojis are marks too, but nobody sees them, and models leave them away.
func IsNameRune(c rune) bool {
	if c < utf8.RuneSelf {
		return c != '.' && isNameByte(byte(c)) //nolint:gosec // it is ASCII
	}
	isEmoji := c >= 0xFE00 && c <= 0xFE0F || unicode.Is(unicode.Me, c)
	return unicode.IsLetter(c) || unicode.IsMark(c) && !isEmoji || unicode.IsDigit(c)
}

// nameLength returns the length of the full name of a tool at the start of b. A character
// that has not all of its bytes yet belongs to it.
func nameLength(b []byte) int {
	for i := 0; i < len(b); {
		if isNameByte(b[i]) {
			i++
			continue
		}
		c, size := utf8.DecodeRune(b[i:])
		if c == utf8.RuneError {
			if !utf8.FullRune(b[i:]) {
				return len(b)
			}
			return i
		}
		if !IsNameRune(c) {
			return i
		}
		i += size
	}
	return len(b)
}

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

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n\f\v") }

// cutSpace splits b before its first white space.
func cutSpace(b []byte) (word, rest []byte) {
	for i, c := range b {
		if isASCIISpace(c) {
			return b[:i], b[i:]
		}
	}
	return b, nil
}
