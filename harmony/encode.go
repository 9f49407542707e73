package harmony

import (
	"context"
	"math/bits"
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
// to grow dst, for most texts once.
func AppendEncode(dst []Token, text string) []Token {
	dst, _ = appendBounded(dst, text, nil)
	return dst
}

// AppendEncodeLimited is [AppendEncode] with a limit. It returns dst unchanged and a
// [*LimitError] if there would be more than limit tokens, including those of dst, or
// the context's error if ctx ends first. It checks both every few tens of kilobytes of
// text, or more often.
func AppendEncodeLimited(ctx context.Context, dst []Token, text string, limit int) ([]Token, error) {
	out, err := appendBounded(dst, text, &bounds{ctx: ctx, limit: limit})

	// Text that ends before the next check of the bounds was not checked.
	if err == nil && len(out) > limit {
		return dst, &LimitError{len(out)}
	}

	return out, err
}

// appendBounded is AppendEncode with bounds. If they end the encoding, it
// returns dst and the reason.
func appendBounded(dst []Token, text string, b *bounds) ([]Token, error) {
	if !b.admits(len(text), len(dst)) {
		return dst, b.err
	}

	// An encoder has 392 KB of memory of earlier pieces. The pool has as many as encodings run at one time.
	e := encoders.Get().(*encoder)
	e.bounds = b
	out := e.appendText(b.grow(dst, len(text)), validUTF8(text))

	// The pool must not keep the caller's context.
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
	// The tokens of earlier pieces, of up to 16 bytes and of up to 32.
	memo     [1 << memoBits]memoEntry
	longMemo [1 << longMemoBits]longMemoEntry
	merger

	// tokens is used by CountTokens only.
	tokens []Token
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// appendText appends the tokens of s, which is valid UTF-8, unless the bounds
// end it early.
func (e *encoder) appendText(dst []Token, s string) []Token {
	for i, from := 0, 0; i < len(s) && e.bounds.spend(i-from, len(dst)); {
		from = i
		dst, i = e.appendPieces(dst, s, i, min(len(s), i+e.bounds.stretch(len(dst))))
	}
	return dst
}

// appendPieces appends the tokens of the pieces of s that start from s[i] to
// s[stop], exclusive. It returns the end of the last one.
//
// Most pieces are ASCII words of at most 7 bytes that are tokens. The loop finds
// their end and their token with operations on one load of the text and one load
// of the vocabulary.
func (e *encoder) appendPieces(dst []Token, s string, i, stop int) (tokens []Token, next int) {
	for i < stop {
		if i+blockBytes+maxShort <= len(s) && (le64(s, i)|le64(s, i+8)|le64(s, i+16)|le64(s, i+24))&highBits == 0 {
			dst, i = e.appendBlock(dst, s, i)
			continue
		}

		// The loads below read up to 16 bytes, and must not pass the end.
		if i+maxMedium > len(s) {
			dst, i = e.appendNext(dst, s, i, pieceEnd(s, i))
			continue
		}

		// k is 8 bits if the piece begins with a space or another prefix, else 0. A class of 0 is no ASCII letter.
		w := le64(s, i)
		k := asciiPrefix[byte(w)] & 1 * 8
		class := asciiLetter[byte(w>>k)]

		end := 0
		if class != 0 {
			// rest has a bit for each byte after the first letter that is no lower-case letter.
			rest := (^lowerBytes(w) & highBits) >> k >> 8
			if rest == 0 {
				dst, i = e.appendNext(dst, s, i, longWordEnd(s, i))
				continue
			}

			n := uint(bits.TrailingZeros64(rest))&^7 + uint(k) + 8 // in bits
			at := asciiStop[byte(w>>(n&63))]

			// An upper-case letter ends a word such as aB. Of AB, whose first letter is upper-case, it is a part.
			if at == stopHere || at == stopUpper && (class != classUpper || n != uint(k)+8) {
				end = i + int(n/8)

				// The factor is odd, so different texts have different products, and the slot need
				// not hold the text.
				if v := quick(w & (1<<(n&63) - 1) * hashFactor); v < 1<<quickBits {
					dst = append(dst, Token(v))
					i = end
					continue
				}
			}
		} else if end = asciiOtherEnd(s, i); uint(end-i-1) < 8 && s[i] != 0 && s[end-1] != 0 {
			// NUL at an end is left out, because it could not be told from the padding of a shorter text.
			n := uint(end-i) * 8
			if v := quick(w & (^uint64(0) >> ((64 - n) & 63)) * hashFactor); v < 1<<quickBits {
				dst = append(dst, Token(v))
				i = end
				continue
			}
		}

		// A contraction or a character beyond ASCII can follow, so the whole pattern must be tried.
		if end == 0 {
			end = pieceEnd(s, i)
		}
		dst, i = e.appendNext(dst, s, i, end)
	}
	return dst, i
}

// appendBlock appends the tokens of the pieces that end in the block at s[i:], and of one more
// if there are none. It returns the end of the last one.
func (e *encoder) appendBlock(dst []Token, s string, i int) (tokens []Token, next int) {
	starts := blockStarts(s, i)
	starts &= starts - 1
	if starts == 0 {
		return e.appendNext(dst, s, i, pieceEnd(s, i))
	}

	at := i
	for ; starts != 0; starts &= starts - 1 {
		end := i + bits.TrailingZeros64(starts)

		// The length is known before the load of the table ends, so it is asked first.
		if end-at <= maxShort {
			if v := quick(first(le64(s, at), end-at) * hashFactor); v < 1<<quickBits {
				dst = append(dst, Token(v))
				at = end
				continue
			}
		}

		dst, _ = e.appendNext(dst, s, at, end)
		at = end
	}
	return dst, at
}

// appendNext appends the tokens of the piece s[i:end]. It returns end.
func (e *encoder) appendNext(dst []Token, s string, i, end int) (tokens []Token, next int) {
	n := end - i
	if s[end-1] == 0 {
		return e.appendUnseen(dst, s, i, end), end // packed, it would equal a shorter piece
	}

	if n > maxMedium {
		return e.appendLong(dst, s, i, end), end
	}

	var a, b uint64
	if i+maxMedium <= len(s) {
		a, b = le64(s, i), le64(s, i+8)
	} else {
		a, b = load(s, i), load(s, i+8)
	}

	// Without the bytes after the piece, its two numbers are its key, and need no hash to compare.
	if n > maxShort {
		b = first(b, n-8)
	} else {
		a, b = first(a, n), 0
	}

	m := &e.memo[hash16(a, b)>>(64-memoBits)]
	if m.a == a && m.b == b {
		return appendPacked(dst, m.tokens[0], m.tokens[1:]), end
	}

	size := len(dst)
	dst = e.appendUnseen(dst, s, i, end)

	// Tokens that do not fit leave the entry as it was, so its key stays too.
	if pack(m.tokens[:], dst[size:]) {
		m.a, m.b = a, b
	}
	return dst, end
}

// appendLong appends the tokens of the piece s[i:end], which has more than 16
// bytes and does not end in NUL.
func (e *encoder) appendLong(dst []Token, s string, i, end int) []Token {
	if i+maxMemo > len(s) {
		return e.appendUnseen(dst, s, i, end)
	}

	key := [4]uint64{le64(s, i), le64(s, i+8), le64(s, i+16), 0}
	switch n := end - i; {
	case n > maxLine:
		return e.appendUnseen(dst, s, i, end)
	case n > maxMemo:
		// Of longer pieces only lines of one character are remembered, such as those below a title.
		if inner := s[i+8 : end-8]; inner[1:] != inner[:len(inner)-1] {
			return e.appendUnseen(dst, s, i, end)
		}
		key = [4]uint64{key[0], key[1], le64(s, end-8), uint64(n)<<8 | lineMark}
	case n > 24:
		key[3] = first(le64(s, i+24), n-24)
	default:
		key[2] = first(key[2], n-16)
	}

	m := &e.longMemo[hash16(hash16(key[0], key[1])^key[2], key[3])>>(64-longMemoBits)]
	if m.key == key {
		return appendPacked(dst, m.tokens[0], m.tokens[1:])
	}

	size := len(dst)
	dst = e.appendUnseen(dst, s, i, end)
	if pack(m.tokens[:], dst[size:]) {
		m.key = key
	}
	return dst
}

// appendUnseen appends the tokens of the piece s[i:end].
func (e *encoder) appendUnseen(dst []Token, s string, i, end int) []Token {
	if v := look(s, i, end); v != 0 {
		return append(dst, v.token())
	}
	return e.appendMerged(dst, s, i, end)
}
