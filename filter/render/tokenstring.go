package render

import (
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// byteRunes are the characters that stand for bytes in the strings of tokens, as byte
// level tokenizers write them since GPT-2: printable characters of Latin-1 for
// themselves, and those from U+0100 on, in their order, for the other bytes. So a token
// that is a part of a character has a string, and no two tokens have the same.
var byteRunes = func() (runes [256]rune) {
	next := rune(0x100)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			runes[b] = rune(b)
			continue
		}
		runes[b] = next
		next++
	}
	return runes
}()

// appendTokenString appends the string of a token. Control tokens are spelled.
func appendTokenString(dst []byte, token harmony.Token) []byte {
	if name, ok := harmony.SpecialName(token); ok {
		return append(dst, name...)
	}
	text, err := harmony.AppendDecode(nil, []harmony.Token{token})
	if err != nil {
		return utf8.AppendRune(dst, utf8.RuneError)
	}
	for _, b := range text {
		dst = utf8.AppendRune(dst, byteRunes[b])
	}
	return dst
}
