package harmony

import (
	"math/bits"
	"unicode/utf8"
)

// Short pieces are merged as the vocabulary was made: always the two neighbours whose token has
// the lowest id. A table has the token of two others, so that no text is looked up.
//
// Characters begin as their tokens, which saves most merges of text that is not Latin. No merge can
// part one, except where a token crosses its boundary with a part of it: see [uncrossed].

// maxShortPiece is the number of bytes of the longest piece that is merged this way: its parts
// and both sides are the bits of a word.
const maxShortPiece = 62

const (
	// noMerge is larger than the id of any token.
	noMerge = 1 << idBits
	// noKey is larger than the key of any merge.
	noKey = noMerge << 6
	// pieceSide is the id of the sides of a piece: no token has it, so nothing merges with them.
	pieceSide = noMerge - 1
)

// mergeFactor is that of the shifts. internal/gen uses the same one.
const mergeFactor = 0x9E3B

// merged returns the id of the token that left and right are merged to, or noMerge.
func merged(left, right uint32) uint32 {
	hash := (uint64(left)<<idBits | uint64(right)) * hashFactor
	shift := uint64(vocabulary[shiftAt+int(hash>>(64-shiftBits))])
	slot := (hash>>24 + shift*mergeFactor) & (1<<mergeBits - 1)

	// The factor is odd, so different pairs have different low bits, which the slot contains.
	return uint32(min(le64(vocabulary, mergeAt+int(slot)<<3)^hash<<idBits, noMerge))
}

// shortMerger contains the parts of a piece, at positions from 1 on. Before and after them are
// sides, so that every part has neighbours.
type shortMerger struct {
	// ids are the tokens of the parts, by the position of their first atom.
	ids [64]uint32
	// keys are the id that the part and the next one are merged to, or noMerge, and the position. So
	// of equal ids the left one is least.
	keys [64]uint32
}

// appendTokens appends the tokens of the piece s[i:end], which has at most maxShortPiece bytes
// and is not a token.
func (m *shortMerger) appendTokens(dst []Token, s string, i, end int) []Token {
	ids, keys := &m.ids, &m.keys
	n := m.split(s, i, end)
	ids[0], ids[(n+1)&63] = pieceSide, pieceSide

	least := uint32(noKey)
	bytes := n == end-i
	for j := 1; j < n; j++ {
		var key uint32
		if bytes {
			// Letters are close to each other in this table, and so in the processor's cache.
			key = pairEntry(s[i+j-1], s[i+j]).token()
			if key == 0 {
				key = noMerge
			}
		} else {
			key = merged(ids[j&63], ids[(j+1)&63])
		}
		key = key<<6 | uint32(j)
		keys[j&63] = key
		least = min(least, key)
	}

	// The keys are read eight at a time.
	keys[0] = noKey
	for j := n; j < max(8, n|7+1); j++ {
		keys[j&63] = noKey
	}

	// alive has a bit for each part and both sides, at its position.
	alive := ^uint64(0) >> (62 - uint(n))
	for least < noKey {
		at, id := least&63, least>>6
		after := alive & (^uint64(1) << at)
		right := uint32(bits.TrailingZeros64(after)) & 63
		next := uint32(bits.TrailingZeros64(after&(after-1))) & 63
		prev := uint32(63-bits.LeadingZeros64(alive&(1<<at-1))) & 63
		alive &^= 1 << right
		ids[at] = id

		// The two new keys wait for loads. Meanwhile the least of the others is found.
		keys[prev], keys[at], keys[right] = noKey, noKey, noKey
		left, own := merged(ids[prev], id)<<6|prev, merged(id, ids[next])<<6|at
		least = min8((*[8]uint32)(keys[:8]))
		for j := 8; j <= n; j += 8 {
			least = min(least, min8((*[8]uint32)(keys[j&56:j&56+8])))
		}

		keys[prev], keys[at] = left, own
		least = min(least, min(left, own))
	}

	// The sides are not of the piece.
	alive &^= 1 | 1<<((n+1)&63)
	for ; alive != 0; alive &= alive - 1 {
		dst = append(dst, ids[bits.TrailingZeros64(alive)&63])
	}
	return dst
}

func min8(k *[8]uint32) uint32 {
	return min(min(min(k[0], k[1]), min(k[2], k[3])), min(min(k[4], k[5]), min(k[6], k[7])))
}

// split sets the parts of the piece s[i:end] before the first merge. It returns their
// number.
func (m *shortMerger) split(s string, i, end int) int {
	n := 0
	for at := i; at < end; {
		lead := s[at]
		if lead < utf8.RuneSelf {
			n++
			m.ids[n&63] = byteEntry(lead).token()
			at++
			continue
		}

		size := runeLen(lead)
		if token := characterToken(s, at, size); token != noMerge &&
			(at == i || uncrossed(s[at-1], lead, token)) &&
			(at+size == end || uncrossed(s[at+size-1], s[at+size], token)) {
			n++
			m.ids[n&63] = token
			at += size
			continue
		}
		for range size {
			n++
			m.ids[n&63] = byteEntry(s[at]).token()
			at++
		}
	}
	return n
}

// characterToken returns the token of the character of size bytes at s[i], which is not
// ASCII, or noMerge.
func characterToken(s string, i, size int) uint32 {
	var v entry
	switch size {
	case 2:
		v = pairEntry(s[i], s[i+1])
	case 3:
		v = entry(le32(vocabulary, charAt+4*(int(s[i]&15)<<12|int(s[i+1]&63)<<6|int(s[i+2]&63))))
	default:
		v = look(s, i, i+size)
	}

	if v == 0 {
		return noMerge
	}
	return v.token()
}

// uncrossed reports whether merging makes this token of a character before any that crosses
// the boundary between the bytes a and b, one of which is the character's, with a part of it.
// Of tokens that do, the table has the lowest id, and ids are the order of merges.
func uncrossed(a, b byte, token uint32) bool {
	number := int(vocabulary[brokenAt+(int(a)<<8|int(b))])
	return number == 0 || token < le32(vocabulary, brokenRanksAt+4*number)
}
