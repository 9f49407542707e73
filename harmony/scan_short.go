package harmony

import "math/bits"

// asciiLetter contains the classes of ASCII letters, and 0 for other bytes.
var asciiLetter = func() (t [256]uint8) {
	for c, class := range asciiClass {
		if class == classUpper || class == classLower {
			t[c] = class
		}
	}
	return t
}()

// longWordEnd is pieceEnd for a piece that starts with a possible prefix or a
// letter and continues with seven lower-case letters. It reads 16 bytes.
func longWordEnd(s string, i int) int {
	rest := ^lowerBytes(le64(s, i+8)) & highBits
	if rest != 0 {
		n := 8 + bits.TrailingZeros64(rest)/8
		if asciiStop[s[i+n]] != stopNever {
			return i + n
		}
	}
	return pieceEnd(s, i)
}
