package harmony

import "bytes"

// The names of channels that the model makes up are read by what is in them, and all
// names without case.

// madeUp are parts of made-up names of channels, with the channels that they mean.
var madeUp = [...]struct {
	part    []byte
	channel int // index in channelWords
}{{[]byte("analysis"), 0}, {[]byte("think"), 0}, {[]byte("reason"), 0}, {[]byte("comment"), 1}}

// madeUpChannel returns the channel that a name means; nil: none.
func madeUpChannel(name []byte) []byte {
	for _, m := range &madeUp {
		for i := 0; i+len(m.part) <= len(name); i++ {
			if bytes.EqualFold(name[i:i+len(m.part)], m.part) {
				return channelWords[m.channel]
			}
		}
	}
	return nil
}

// cutFold removes a word of ASCII letters at the start of b, whatever its case. exact
// reports that it has the word's case.
func cutFold(b, word []byte) (rest []byte, exact, ok bool) {
	if len(b) < len(word) || !bytes.EqualFold(b[:len(word)], word) {
		return b, false, false
	}
	return b[len(word):], bytes.Equal(b[:len(word)], word), true
}

// remnantWords are the words of headers that can be left between messages.
var remnantWords = [...][][]byte{roleWords, channelWords, typeWords}

// isRemnant reports whether a text consists of words of headers only; or, if open is
// set, may become such a text with more tokens.
func isRemnant(b []byte, open bool) bool {
	b = trimLeft(b)

	if len(b) == 0 {
		return false
	}

	for len(b) > 0 {
		rest, ok := cutRemnant(b)
		if !ok {
			return open && beginsRemnant(b)
		}
		b = trimLeft(rest)
	}

	return true
}

func cutRemnant(b []byte) (rest []byte, ok bool) {
	for _, words := range &remnantWords {
		for _, w := range words {
			if rest, _, ok := cutFold(b, w); ok {
				return rest, true
			}
		}
	}
	return b, false
}

func beginsRemnant(b []byte) bool {
	for _, words := range &remnantWords {
		for _, w := range words {
			if len(b) < len(w) && bytes.EqualFold(w[:len(b)], b) {
				return true
			}
		}
	}
	return false
}

// isRemnant reports whether the collected header is nothing but words of headers
// between messages: what is left of a header that the model broke off. At the start
// of a completion such words may be the answer.
func (p *Parser) isRemnant() bool {
	possible := (p.ended || p.head.started) && len(p.head.sections) == 1 && p.head.unknown == 0
	return possible && isRemnant(p.head.text, false)
}
