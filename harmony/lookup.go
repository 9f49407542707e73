package harmony

import "math/bits"

// entry is the vocabulary's data for a token: its id, and the length of the
// left one of the two tokens whose merge creates it. 0 means that there is no
// token.
type entry uint32

func (v entry) token() Token { return Token(v) & (1<<18 - 1) }

// size returns the length of the token in bytes.
func (v entry) size() int {
	text, _ := tokenText(v.token())
	return len(text)
}

// left returns the length of the left part, or 0 for a single byte.
func (v entry) left() int { return int(v>>18) & 127 }

// present distinguishes the entry of token 0 from none.
const present entry = 1 << 31

const (
	maxShort  = 8  // most bytes of a token in the slots at shortAt
	maxMedium = 16 // most bytes of a token in the slots at mediumAt

	// Sizes of the slots in bytes.
	shortSize  = 12
	mediumSize = 20
	longSize   = 24

	hashFactor = 0x9E3779B97F4A7C15
)

// home returns the position in the vocabulary of the first slot for a hash.
func home(hash uint64, slots, at, size int) int {
	// The high half of the product scales the hash to the slots without a division.
	i, _ := bits.Mul64(hash, uint64(slots))
	return at + int(i)*size
}

// load returns the 8 bytes at s[i], the first one in the low bits. Bytes after
// the end of s are 0.
func load(s string, i int) uint64 {
	if i+8 <= len(s) {
		return le64(s, i)
	}

	// Only within the last bytes of a text, so it may be slow.
	var w uint64
	for j := len(s) - 1; j >= i; j-- {
		w = w<<8 | uint64(s[j])
	}
	return w
}

// first returns the first n bytes of w; n is 1 to 8.
func first(w uint64, n int) uint64 { return w & (^uint64(0) >> ((64 - 8*uint(n)) & 63)) }

// find returns the entry of the token s[i:end], or 0 if there is none; i < end.
func find(s string, i, end int) entry {
	switch n := end - i; {
	case n == 1:
		return byteEntry(s[i])
	case n == 2:
		return pairEntry(s[i], s[i+1])
	case s[end-1] == 0:
		return 0 // packed, it would equal a shorter token
	case n <= maxShort:
		return findShort(first(load(s, i), n))
	case n <= maxMedium:
		return findMedium(load(s, i), first(load(s, i+8), n-8))
	case n <= maxTokenSize:
		return findLong(s, i, n, n)
	}
	return 0
}

// quick returns the token of at most 8 bytes with this hash of its key, or a
// number that is no id. The first and the last byte must not be NUL. It does not
// find a token whose slot has a more frequent one.
func quick(hash uint64) uint64 {
	return le64(vocabulary, quickAt+int(hash>>(64-quickBits))<<3) ^ hash<<quickBits
}

// look is find for texts that are mostly not tokens. It first checks a filter
// that fits into the processor's cache.
func look(s string, i, end int) entry {
	switch n := end - i; {
	case n == 1:
		return byteEntry(s[i])
	case n == 2:
		return pairEntry(s[i], s[i+1])
	case s[end-1] == 0:
		return 0
	case n <= maxShort:
		return lookShort(first(load(s, i), n))
	case n <= maxMedium:
		return lookMedium(load(s, i), first(load(s, i+8), n-8))
	case n <= maxTokenSize:
		return findLong(s, i, n, n)
	}
	return 0
}

func lookShort(key uint64) entry {
	if !maybe(key * hashFactor) {
		return 0
	}
	return findShort(key)
}

func lookMedium(a, b uint64) entry {
	if !maybe(hash16(a, b)) {
		return 0
	}
	return findMedium(a, b)
}

// maybe reports whether a token with this hash can exist.
func maybe(hash uint64) bool {
	// Both bits of a token are in one word, so the answer takes one load.
	w := le64(vocabulary, filterAt+8*int(hash>>(64-filterBits)))
	return w>>(hash>>40&63)&(w>>(hash>>34&63))&1 != 0
}

// findShort returns the entry of a token of 3 to 8 bytes that does not end in
// NUL.
func findShort(key uint64) entry {
	// Three quarters of these tokens are in the table of whole pieces, which has none that begins with NUL.
	if byte(key) != 0 {
		if v := quick(key * hashFactor); v < 1<<quickBits {
			return present | entry(vocabulary[leftAt+int(v)])<<idBits | entry(v)
		}
	}

	for at := home(key*hashFactor, shortSlots, shortAt, shortSize); ; at += shortSize {
		k := le64(vocabulary, at)

		// An empty slot has the value 0, which means no token.
		if k == key || k == 0 {
			return entry(le32(vocabulary, at+8))
		}
	}
}

// findMedium returns the entry of a token of 9 to 16 bytes.
func findMedium(a, b uint64) entry {
	for at := home(hash16(a, b), mediumSlots, mediumAt, mediumSize); ; at += mediumSize {
		k, l := le64(vocabulary, at), le64(vocabulary, at+8)

		// No token of this size ends in NUL, so only an empty slot has 0 here.
		if k == a && l == b || l == 0 {
			return entry(le32(vocabulary, at+16))
		}
	}
}

// findLong returns the entry of the longest token of more than 16 bytes at the
// start of s[i:] whose length is from low to high.
func findLong(s string, i, low, high int) entry {
	a, b := load(s, i), load(s, i+8)
	for at := home(hash16(a, b), longSlots, longAt, longSize); ; at += longSize {
		k, l := le64(vocabulary, at), le64(vocabulary, at+8)
		if k|l == 0 {
			return 0
		}

		if k != a || l != b {
			continue
		}

		// The tokens with these 16 bytes are in a list, the longest first.
		for j, end := le32(vocabulary, at+16), le32(vocabulary, at+20); j < end; j++ {
			v := entry(le32(vocabulary, longListAt+8*int(j)))
			n := int(le32(vocabulary, longListAt+8*int(j)+4))
			if n < low {
				return 0
			}
			if n > high {
				continue
			}

			if text, _ := tokenText(v.token()); text[16:] == s[i+16:i+n] {
				return v
			}
		}
		return 0
	}
}

func byteEntry(b byte) entry { return entry(le32(vocabulary, bytesAt+4*int(b))) }

func pairEntry(a, b byte) entry {
	return entry(le32(vocabulary, pairsAt+4*(int(a)<<8|int(b))))
}

func hash16(a, b uint64) uint64 {
	return (a*hashFactor ^ bits.RotateLeft64(b, 29)) * hashFactor
}
