package harmony

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// replacement is written for invalid UTF-8 and for unknown ids.
const replacement = "\uFFFD"

// AppendDecode appends the bytes of tokens to dst. A token may contain a part
// of a character, so the result is valid UTF-8 only if the tokens form valid
// UTF-8; use [Decoder] to get valid text for any tokens. At an id outside the
// vocabulary, it returns the bytes before it and an error.
func AppendDecode(dst []byte, tokens []Token) ([]byte, error) {
	for i, t := range tokens {
		text, ok := tokenText(t)
		if !ok {
			return dst, fmt.Errorf("decoding tokens: the id at index %d is not in the vocabulary", i)
		}
		dst = append(dst, text...)
	}
	return dst, nil
}

// Decoder decodes tokens to valid UTF-8 as they arrive. It buffers a character
// that is not complete yet. It writes one U+FFFD for each maximal invalid
// sequence, as the Unicode Standard recommends, and one for each id outside the
// vocabulary. It changes and drops no other text.
//
// The zero value is ready for use.
type Decoder struct {
	// pending is the beginning of a character, of which size bytes are here.
	pending [utf8.UTFMax - 1]byte
	size    int
	// replaced is the number of U+FFFD written.
	replaced int
}

// Append appends the text that t completes to dst. It returns false if t is
// outside the vocabulary.
func (d *Decoder) Append(dst []byte, t Token) (text []byte, ok bool) {
	s, ok := tokenText(t)
	if !ok {
		d.replaced++
		return append(d.Flush(dst), replacement...), false
	}

	if d.size == 0 && (isASCII(s) || utf8.ValidString(s)) {
		return append(dst, s...), true
	}
	return d.join(dst, s), true
}

// join appends the complete characters of the pending bytes and s.
func (d *Decoder) join(dst []byte, s string) []byte {
	// A token and what waits for it fit into the buffer. Only the text of a rejected probe can be longer.
	var buf [utf8.UTFMax - 1 + maxTokenSize]byte
	b := append(buf[:copy(buf[:], d.pending[:d.size])], s...)
	d.size = 0

	for len(b) > 0 {
		valid, invalid, complete := validPrefix(b)
		dst = append(dst, b[:valid]...)
		b = b[valid:]

		// More tokens can complete this character, so no U+FFFD yet.
		if !complete {
			d.size = copy(d.pending[:], b)
			break
		}
		if invalid > 0 {
			dst = append(dst, replacement...)
			d.replaced++
			b = b[invalid:]
		}
	}
	return dst
}

// isASCII reports whether s, the text of a token, is ASCII. For such short
// texts it is faster than [utf8.ValidString].
func isASCII(s string) bool {
	const high = 0x8080808080808080
	n := len(s)
	switch {
	case n > 8:
		return le64(s, 0)&high == 0 && isASCII(s[8:])
	case n == 8:
		return le64(s, 0)&high == 0
	case n >= 4:
		return (le32(s, 0)|le32(s, n-4))&(high>>32) == 0
	case n > 0:
		return (s[0]|s[n/2]|s[n-1])&0x80 == 0
	}
	return true
}

// Flush ends the text: an incomplete character becomes U+FFFD. The Decoder can
// then be used for another text.
func (d *Decoder) Flush(dst []byte) []byte {
	if d.size == 0 {
		return dst
	}
	d.size = 0
	d.replaced++
	return append(dst, replacement...)
}

// Replaced returns the number of U+FFFD that the Decoder has written.
func (d *Decoder) Replaced() int { return d.replaced }

// strictDecoder decodes the contents of messages exactly as the
// StreamableParser of openai-harmony 0.0.8. It differs from [Decoder] for
// invalid UTF-8: the reference replaces at most one invalid sequence per token
// and keeps the bytes after it for later tokens, so that its deltas lag behind
// and are incomplete at the end of the message. From an id outside the
// vocabulary on, the reference has no deltas, and the text ends with one
// U+FFFD.
type strictDecoder struct {
	// kept has the bytes that have not been decoded, from start on.
	kept  []byte
	start int
	// unknown: there was an id outside the vocabulary.
	unknown bool
}

// append appends the delta of t to dst. It returns false if the reference has
// no delta.
func (d *strictDecoder) append(dst []byte, t Token) (delta []byte, ok bool) {
	s, known := tokenText(t)
	if !known || d.unknown {
		d.unknown = true
		return dst, false
	}

	if len(d.kept) == 0 && (isASCII(s) || utf8.ValidString(s)) {
		return append(dst, s...), true
	}

	// One invalid sequence a token at most, as the reference takes them: its deltas lag behind from here on.
	d.kept = append(d.kept, s...)
	valid, invalid, complete := validPrefix(d.kept[d.start:])
	dst = append(dst, d.kept[d.start:d.start+valid]...)
	if complete && invalid > 0 {
		dst = append(dst, replacement...)
	}

	d.drop(valid + invalid)
	return dst, valid+invalid > 0
}

// drop removes the first n kept bytes. It moves the others only if they are
// fewer than those removed, so that the total cost is linear.
func (d *strictDecoder) drop(n int) {
	d.start += n
	if d.start > len(d.kept)/2 {
		d.kept = slices.Delete(d.kept, 0, d.start)
		d.start = 0
	}
}

// finish appends the part of the message's text that is missing in its deltas,
// and resets d for the next message.
func (d *strictDecoder) finish(dst []byte) []byte {
	if d.unknown {
		dst = append(dst, replacement...)
	}

	for b := d.kept[d.start:]; len(b) > 0; {
		valid, invalid, complete := validPrefix(b)
		dst = append(dst, b[:valid]...)
		b = b[valid+invalid:]
		if !complete {
			b = nil
		}
		if !complete || invalid > 0 {
			dst = append(dst, replacement...)
		}
	}

	*d = strictDecoder{kept: d.kept[:0]}
	return dst
}

// validPrefix returns the length of the valid UTF-8 at the start of b and of
// the maximal invalid sequence after it. If b ends with the beginning of a
// character there, complete is false and invalid is 0.
func validPrefix(b []byte) (valid, invalid int, complete bool) {
	for valid < len(b) {
		r, size := utf8.DecodeRune(b[valid:])
		if r == utf8.RuneError && size == 1 {
			invalid, complete = invalidSequence(b[valid:])
			return valid, invalid, complete
		}
		valid += size
	}
	return valid, 0, true
}

// invalidSequence returns the length of the maximal invalid sequence at the
// start of b. If more bytes could complete a character, complete is false and
// size is 0.
func invalidSequence(b []byte) (size int, complete bool) {
	low, high, want := byte(0x80), byte(0xBF), 0
	switch lead := b[0]; {
	case lead < 0xC2 || lead > 0xF4:
		return 1, true
	case lead < 0xE0:
		want = 2
	case lead < 0xF0:
		want = 3
	default:
		want = 4
	}

	// The second byte of these leads has a smaller range: table 3-7 of the Unicode Standard.
	switch b[0] {
	case 0xE0:
		low = 0xA0 // below: overlong
	case 0xED:
		high = 0x9F // above: surrogates
	case 0xF0:
		low = 0x90 // below: overlong
	case 0xF4:
		high = 0x8F // above: past U+10FFFF
	}

	for size = 1; size < want; size++ {
		if size == len(b) {
			return 0, false
		}
		if b[size] < low || b[size] > high {
			break
		}
		low, high = 0x80, 0xBF
	}
	return size, true
}

// TokenLength returns the number of bytes that a token stands for; 0 for an id outside the
// vocabulary.
func TokenLength(t Token) int {
	text, _ := tokenText(t)
	return len(text)
}
