package harmony

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// AppendEncode appends the tokens of text to dst. All of text is ordinary
// text: what spells a special token does not become one.
//
// The tokens are those of tiktoken and of the reference. Text that is not
// valid UTF-8, which neither can be given, is encoded as if every invalid
// byte were U+FFFD, the way JSON decoders replace them.
//
// It is safe for concurrent use and, once warm, allocates only to grow dst.
func AppendEncode(dst []Token, text string) []Token {
	dst, _ = appendBounded(dst, text, nil)
	return dst
}

// appendBounded is AppendEncode that ends early, with an error, where a bound
// asks for it.
func appendBounded(dst []Token, text string, b *bounds) ([]Token, error) {
	if !b.admits(len(text), len(dst)) {
		return dst, b.err
	}
	e := encoders.Get().(*encoder)
	e.bounds = b
	out := e.appendText(dst, validUTF8(text))
	e.bounds = nil
	encoders.Put(e)
	if b != nil && b.err != nil {
		return dst, b.err
	}
	return out, nil
}

// AppendEncodeSpecial appends the tokens of text to dst. Spellings of special
// tokens, such as "<|start|>" or "<|reserved_200000|>", become those tokens:
// it is for text whose author may write control tokens, never for text of a
// user.
//
// "<|reserved_201088|>", which only the reference knows, and names of other
// encodings, such as "<|endofprompt|>", are ordinary text.
func AppendEncodeSpecial(dst []Token, text string) []Token {
	for {
		before, token, after, found := cutSpecial(text)
		dst = AppendEncode(dst, before)
		if !found {
			return dst
		}
		dst = append(dst, token)
		text = after
	}
}

// CountTokens returns the number of tokens of text as AppendEncode makes them.
func CountTokens(text string) int {
	e := encoders.Get().(*encoder)
	e.tokens = e.appendText(e.tokens[:0], validUTF8(text))
	n := len(e.tokens)
	encoders.Put(e)
	return n
}

// validUTF8 returns text with each invalid byte replaced.
func validUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + len(text)/8)
	for _, r := range text { // an invalid byte ranges as U+FFFD
		b.WriteRune(r)
	}
	return b.String()
}

// encoder holds the memory of one encoding at a time.
type encoder struct {
	merger
	memo   [memoSize]memoEntry
	tokens []Token // of CountTokens
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

const memoBits, memoSize = 12, 1 << memoBits

// memoEntry remembers the tokens of a piece of at most 16 bytes.
type memoEntry struct {
	a, b   uint64 // the piece; 0 is none
	size   uint32
	tokens [5]Token
}

// appendText appends the tokens of s, which is valid UTF-8, as far as the
// bounds allow.
func (e *encoder) appendText(dst []Token, s string) []Token {
	for i, from := 0, 0; i < len(s) && e.bounds.spend(i-from, len(dst)); {
		from = i
		dst, i = e.appendPieces(dst, s, i, min(len(s), i+checkBytes))
	}
	return dst
}

// appendPieces appends the tokens of the pieces of s that begin at s[i] and
// behind it, before s[stop], and returns where the last one ends.
func (e *encoder) appendPieces(dst []Token, s string, i, stop int) (tokens []Token, next int) {
	for i < stop {
		end := 0
		if i+maxMedium <= len(s) {
			end = asciiEnd(s, i)
			if n := end - i; uint(n-1) < maxShort {
				// Most pieces end here: the first slot looked at is theirs.
				key := first(le64(s, i), n)
				at := home(key*hashFactor, shortSlots, shortAt, shortSize)
				if le64(vocabulary, at) == key && s[end-1] != 0 {
					dst = append(dst, entry(le32(vocabulary, at+8)).token())
					i = end
					continue
				}
			}
		}
		if end == 0 {
			end = pieceEnd(s, i)
		}
		if v := find(s, i, end); v != 0 {
			dst = append(dst, v.token())
		} else {
			dst = e.appendPiece(dst, s, i, end)
		}
		i = end
	}
	return dst, i
}

// appendPiece appends the tokens of the piece s[i:end], which is no token.
func (e *encoder) appendPiece(dst []Token, s string, i, end int) []Token {
	if end-i > maxMedium {
		return e.appendMerged(dst, s, i, end)
	}
	n := end - i
	a, b := load(s, i), uint64(0)
	if n > maxShort {
		b = first(load(s, i+8), n-8)
	} else {
		a = first(a, n)
	}
	m := &e.memo[hash16(a, b)>>(64-memoBits)]
	if m.a == a && m.b == b && m.size > 0 && s[end-1] != 0 {
		return append(dst, m.tokens[:m.size]...)
	}
	size := len(dst)
	dst = e.appendMerged(dst, s, i, end)
	if tokens := dst[size:]; len(tokens) <= len(m.tokens) && s[end-1] != 0 {
		m.a, m.b, m.size = a, b, uint32(len(tokens))
		copy(m.tokens[:], tokens)
	}
	return dst
}
