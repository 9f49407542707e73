package harmony

import (
	"math/bits"
	"unicode/utf8"
)

// The pre-tokenizer splits text into the pieces that the pattern of o200k_base
// matches. A token never crosses the boundary of a piece. The alternatives of
// the pattern, in order (U: Lu Lt Lm Lo M, L: Ll Lm Lo M, c: 's 't 're 've 'm
// 'll 'd in any case):
//
//	[^\r\n\p{L}\p{N}]? U* L+ c?
//	[^\r\n\p{L}\p{N}]? U+ L* c?
//	\p{N}{1,3}
//	\x20? [^\s\p{L}\p{N}]+ [\r\n/]*
//	\s* [\r\n]+
//	\s+ (?!\S)
//	\s+

// classAt returns the class of the code point at s[i] and its length in bytes.
// s is valid UTF-8.
func classAt(s string, i int) (class uint8, size int) {
	if b := s[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}

	r, size := utf8.DecodeRuneInString(s[i:])
	return runeClass(r), size
}

func runeClass(r rune) uint8 {
	block := int(classIndex[min(int(r)>>7, len(classIndex)-1)])
	return classBlocks[block<<6|int(r)>>1&63] >> (r & 1 << 2) & 15
}

// asciiClass contains the classes of ASCII bytes; all others are notASCII.
var asciiClass = func() (t [256]uint8) {
	for r := range rune(len(t)) {
		t[r] = notASCII
		if r < utf8.RuneSelf {
			t[r] = runeClass(r)
		}
	}
	return t
}()

const notASCII = classNewline + 1

// pieceEnd returns the end of the piece that starts at s[i]; i < len(s).
func pieceEnd(s string, i int) int {
	class, size := classAt(s, i)
	next := i + size
	switch class {
	case classUpper, classLower, classLetter:
		return wordEnd(s, i)
	case classNumber:
		return numberEnd(s, next)
	case classNewline:
		return spaceEnd(s, i)
	}

	// Any other character can be the prefix of a word.
	if next < len(s) {
		if c, _ := classAt(s, next); c == classUpper || c == classLower || c == classLetter || c == classMark {
			if end := prefixedWordEnd(s, next, class); end > 0 {
				return end
			}
		}
	}

	switch {
	case class == classMark:
		return wordEnd(s, i)
	case class == classOther:
		return punctuationEnd(s, i)
	case s[i] == ' ' && next < len(s):
		if c, _ := classAt(s, next); c == classOther || c == classMark {
			return punctuationEnd(s, next)
		}
	}
	return spaceEnd(s, i)
}

// prefixedWordEnd matches the word alternatives, with the code point of the
// given class before s[word] as optional prefix. It returns 0 if the pattern
// matches the piece differently.
func prefixedWordEnd(s string, word int, class uint8) int {
	end, lower := wordBody(s, word)
	if lower || class != classMark {
		return contractionEnd(s, end)
	}
	// The first alternative fails with the mark as prefix. Then it matches with the mark as the start of the word,
	// before the second alternative is tried.
	return 0
}

// wordEnd matches the word alternatives without a prefix.
func wordEnd(s string, i int) int {
	end, _ := wordBody(s, i)
	return contractionEnd(s, end)
}

// The classes that U* and L+ of the pattern match, as sets of bits.
const (
	inUpper = 1<<classUpper | 1<<classLetter | 1<<classMark
	inLower = 1<<classLower | 1<<classLetter | 1<<classMark
)

// wordBody matches U* L+, else U+, at s[i], which is a letter or mark. lower
// reports whether the first one matched.
func wordBody(s string, i int) (end int, lower bool) {
	// Match U*, and keep the last position where L+ could start. From the first lower-case letter on
	// match L*.
	lastBoth, matches := 0, inUpper|inLower
	for i = skipEqual(s, i); i < len(s); {
		var class uint8
		var size int

		// Words are mostly of characters of two and three bytes, and [classAt] is a call for each.
		switch b := s[i]; {
		case b < utf8.RuneSelf:
			class, size = asciiClass[b], 1
		case b < 0xE0 && i+1 < len(s):
			class, size = pairClass[int(b&0x1F)<<6|int(s[i+1]&0x3F)], 2
		case b < 0xF0 && i+2 < len(s):
			r := int(b&0x0F)<<12 | int(s[i+1]&0x3F)<<6 | int(s[i+2]&0x3F)
			class, size = classBlocks[int(classIndex[r>>7])<<6|r>>1&63]>>(r&1<<2)&15, 3
		default:
			class, size = classAt(s, i)
		}

		if matches>>class&1 == 0 {
			break
		}
		i += size
		if class == classLower {
			matches, lower = inLower, true
		} else if class != classUpper {
			lastBoth = i
		}
	}

	// U* took all, so it returns what follows the last character that L+ can match.
	if !lower && lastBoth > 0 {
		return lastBoth, true
	}
	return i, lower
}

// pairClass contains the classes of the code points of two bytes.
var pairClass = func() (t [0x800]uint8) {
	for r := range t {
		t[r] = runeClass(rune(r))
	}
	return t
}()

// contractionEnd matches an optional contraction at s[i].
func contractionEnd(s string, i int) int {
	if i >= len(s)-1 || s[i] != '\'' {
		return i
	}

	switch s[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if i+2 < len(s) && s[i+2]|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if i+2 < len(s) && s[i+2]|0x20 == 'l' {
			return i + 3
		}
	}

	// U+017F, the long s, is an s where case does not count.
	if i+2 < len(s) && s[i+1:i+3] == "\u017f" {
		return i + 3
	}
	return i
}

// numberEnd matches the rest of \p{N}{1,3} after its first code point.
func numberEnd(s string, i int) int {
	for range 2 {
		if i >= len(s) {
			break
		}
		class, size := classAt(s, i)
		if class != classNumber {
			break
		}
		i += size
	}
	return i
}

// punctuationEnd matches [^\s\p{L}\p{N}]+ [\r\n/]* at s[i], which is the first of these.
func punctuationEnd(s string, i int) int {
	for i = skipEqual(s, i); i < len(s); {
		// ASCII takes no call.
		class, size := asciiClass[s[i]], 1
		if class == notASCII {
			class, size = classAt(s, i)
		}

		if class != classOther && class != classMark {
			break
		}
		i += size
	}

	for i < len(s) && (s[i] == '\n' || s[i] == '\r' || s[i] == '/') {
		i++
	}
	return i
}

// skipEqual returns a place in the run of one byte that begins at s[i], near its end. Indentation
// and lines of one character are long, so eight bytes are compared at once.
func skipEqual(s string, i int) int {
	for i+8 <= len(s) {
		// Turned by a byte, eight equal ones are the same.
		if w := le64(s, i); bits.RotateLeft64(w, 8) != w {
			break
		}
		i += 7
	}
	return i
}

// spaceEnd matches the whitespace alternatives at s[i], which is white space.
func spaceEnd(s string, i int) int {
	lineEnd, last := 0, i
	end := skipEqual(s, i)
	for end < len(s) {
		class, size := asciiClass[s[end]], 1
		if class == notASCII {
			class, size = classAt(s, end)
		}

		if class != classSpace && class != classNewline {
			break
		}
		last = end
		end += size
		if class == classNewline {
			lineEnd = end
		}
	}

	switch {
	case lineEnd > 0:
		// Indentation after the last line break is a piece of its own, or the prefix of a word.
		return lineEnd
	case end < len(s) && last > i:
		return last // the last one belongs to the next piece
	}
	return end
}

const highBits = 0x8080808080808080

// lowerBytes sets the high bit of each byte of w that is from a to z, and
// clears all other bits.
func lowerBytes(w uint64) uint64 {
	low := w &^ highBits

	// Without the high bits, a sum cannot carry into the next byte.
	fromA := low + 0x1F1F1F1F1F1F1F1F  // 0x80 - 'a'
	afterZ := low + 0x0505050505050505 // 0x80 - 'z' - 1
	return fromA &^ afterZ &^ w & highBits
}

// asciiPrefix is 1 for the ASCII characters that can be the prefix of a word.
var asciiPrefix = func() (t [256]uint8) {
	for c := range utf8.RuneSelf {
		if asciiClass[c] == classOther || asciiClass[c] == classSpace {
			t[c] = 1
		}
	}
	return t
}()

// What a byte after an ASCII word means for the end of the piece.
const (
	stopHere  = iota // the word ends
	stopUpper        // the word ends if it contains a lower-case letter
	stopNever        // the word may continue: a contraction, or not ASCII
)

var asciiStop = func() (t [256]uint8) {
	for c := range t {
		switch {
		case c >= utf8.RuneSelf || c == '\'':
			t[c] = stopNever
		case asciiClass[c] == classUpper:
			t[c] = stopUpper
		}
	}
	return t
}()

// asciiOtherEnd is pieceEnd for pieces that are no words and begin with two bytes of ASCII. It
// returns 0 for other pieces.
func asciiOtherEnd(s string, i int) int {
	class, next := asciiClass[s[i]], asciiClass[s[i+1]]
	switch {
	case class == classNumber:
		i++
		for range 2 {
			if next != classNumber {
				break
			}
			i++
			next = asciiClass[s[i]]
		}

		// It may be a digit of another script.
		if next == notASCII {
			return 0
		}
		return i
	case next == notASCII:
		// It may be a letter, of which this is the prefix.
		return 0
	case class == classOther:
		return punctuationEnd(s, i)
	case s[i] == ' ' && next == classOther:
		return punctuationEnd(s, i+1)
	case class == classSpace || class == classNewline:
		return spaceEnd(s, i)
	}
	return 0
}
