package harmony

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Recipients as models write them: behind to= or in place of it, in quotation marks, with
// other separators, cut, or glued to what follows. What is found here is the text that the
// model wrote; which tool it means is decided by who knows the tools.

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

	// Brackets in what follows begin arguments, which are text.
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

		// Models write a space between a namespace and the name: "functions search".
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

	// A bracket begins the arguments, as in functions.f{"a":1}, but after a namespace it holds the
	// name: functions[f].
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

		// After functions.f a space ends the name: what follows may be text.
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

	// A closing mark belongs to the name only if one was opened. Else it is of the text.
	if quoted {
		n = len(b) - len(bytes.TrimLeft(b[n:], closers+separators))
	}
	return n
}

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
