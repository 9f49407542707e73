package diagnosis

import (
	"encoding/binary"
	"math/bits"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Sum is a hash of a text; 0 for none. Sums of one version of the program can be
// compared. They are not cryptographic: a client that makes two texts with one sum
// misleads nobody but itself, because prompts of tenants are never compared.
type Sum uint64

// Constants of the multiplications, with about as many bits set as not.
const (
	k0 = 0xa0761d6478bd642f
	k1 = 0xe7037ed1a0b428db
	k2 = 0x8ebc6af09c88c6e3
	k3 = 0x589965cc75374cc3
)

func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// Text returns the sum of a text.
func Text[T ~string | ~[]byte](s T) Sum {
	if len(s) == 0 {
		return 0
	}
	return Sum(textSum(k0, s))
}

// With returns the sum of a text after what s is the sum of.
func (s Sum) With(text string) Sum { return Sum(textSum(mix(uint64(s)^k1, k2), text)) }

func textSum[T ~string | ~[]byte](h uint64, s T) uint64 {
	h ^= mix(uint64(len(s))^k3, k0)
	for len(s) >= 16 {
		h = mix(word(s[:8])^k1, word(s[8:16])^h)
		s = s[16:]
	}
	var rest [16]byte
	copy(rest[:], s)
	return mix(binary.LittleEndian.Uint64(rest[:8])^k2, binary.LittleEndian.Uint64(rest[8:])^h)
}

func word[T ~string | ~[]byte](s T) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Pieces returns the sum of the names, texts and numbers of a JSON text, and of their
// multiplicity, whatever their order. Two JSON texts with the members of their objects
// in another order have the same.
func Pieces(json []byte) Sum {
	var sum uint64
	begin := 0
	for i, c := range json {
		switch c {
		case '{', '}', '[', ']', ',', ':', '"', ' ', '\n', '\r', '\t':
			if begin < i {
				sum += textSum(k3, json[begin:i])
			}
			begin = i + 1
		}
	}

	if begin < len(json) {
		sum += textSum(k3, json[begin:])
	}
	return Sum(sum)
}

// tokenPair is two tokens as one word.
func tokenPair(t []harmony.Token) uint64 { return uint64(t[0]) | uint64(t[1])<<32 }

// blockSum returns the sum of a block and all blocks before it, whose sum is before.
func blockSum(before uint64, t *[BlockTokens]harmony.Token) uint64 {
	a := mix(tokenPair(t[0:])^k0, tokenPair(t[2:])^k1)
	b := mix(tokenPair(t[4:])^k1, tokenPair(t[6:])^k2)
	c := mix(tokenPair(t[8:])^k2, tokenPair(t[10:])^k3)
	d := mix(tokenPair(t[12:])^k3, tokenPair(t[14:])^k0)
	return mix(before^a^bits.RotateLeft64(c, 17), k2^b^bits.RotateLeft64(d, 31))
}

// restSum returns the sum of less than a block after blocks with a sum.
func restSum(before uint64, rest []harmony.Token) uint64 {
	var t [BlockTokens]harmony.Token
	n := copy(t[:], rest)
	return blockSum(before^uint64(n+1), &t)
}
