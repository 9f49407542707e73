package harmony

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// AppendEncode appends the tokens of text to dst. All of text is ordinary text:
// the spelling of a special token is not encoded as that token.
//
// The tokens are those of tiktoken and of the reference, which accept only
// valid UTF-8. In other text, every invalid byte is encoded as U+FFFD, as JSON
// decoders replace it.
//
// It is safe for concurrent use. Once its buffers have grown, it allocates only
// to grow dst.
func AppendEncode(dst []Token, text string) []Token {
	dst, _ = appendBounded(dst, text, nil)
	return dst
}

// appendBounded is AppendEncode with bounds. If they end the encoding, it
// returns dst and the reason.
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

// AppendEncodeSpecial appends the tokens of text to dst. The spelling of a
// special token, such as "<|start|>" or "<|reserved_200000|>", is encoded as
// that token. Do not use it for text of users, who must not be able to write
// control tokens.
//
// "<|reserved_201088|>", which only the reference has, and special tokens of
// other encodings, such as "<|endofprompt|>", are ordinary text.
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

// CountTokens returns the number of tokens that AppendEncode appends for text.
func CountTokens(text string) int {
	e := encoders.Get().(*encoder)
	e.tokens = e.appendText(e.tokens[:0], validUTF8(text))
	n := len(e.tokens)
	encoders.Put(e)
	return n
}

// validUTF8 returns text with each invalid byte replaced by U+FFFD.
func validUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + len(text)/8)
	for _, r := range text { // range yields U+FFFD for an invalid byte
		b.WriteRune(r)
	}
	return b.String()
}

// encoder contains the buffers of one encoding.
type encoder struct {
	merger
	memo   [memoSize]memoEntry
	tokens []Token // used by CountTokens
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

const memoBits, memoSize = 12, 1 << memoBits

// memoEntry contains the tokens of a piece of at most 16 bytes.
type memoEntry struct {
	a, b   uint64 // the piece; 0 means that the entry is unused
	size   uint32
	tokens [5]Token
}

// appendText appends the tokens of s, which is valid UTF-8, unless the bounds
// end it early.
func (e *encoder) appendText(dst []Token, s string) []Token {
	for i, from := 0, 0; i < len(s) && e.bounds.spend(i-from, len(dst)); {
		from = i
		dst, i = e.appendPieces(dst, s, i, min(len(s), i+checkBytes))
	}
	return dst
}

// appendPieces appends the tokens of the pieces of s that start from s[i] to
// s[stop], exclusive. It returns the end of the last one.
func (e *encoder) appendPieces(dst []Token, s string, i, stop int) (tokens []Token, next int) {
	for i < stop {
		end := 0
		if i+maxMedium <= len(s) {
			end = asciiEnd(s, i)
			if n := end - i; uint(n-1) < maxShort {
				// Most pieces end here: they are the first slot.
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

// appendPiece appends the tokens of the piece s[i:end], which is not a token.
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
