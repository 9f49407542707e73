package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"go/format"
	"log"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// The layout of a token's value: its id, and the length of the left one of the
// two tokens whose merge creates it (0 for a single byte).
const (
	leftShift = 18
	present   = 1 << 31 // distinguishes a value from an empty slot
)

// hashFactor is the factor of the hash. Package harmony uses the same one.
const hashFactor = 0x9E3779B97F4A7C15

const (
	shortSlots  = 50_000 // for the 34,000 tokens of 3 to 8 bytes that are not in the quick table
	mediumSlots = 68_000 // for the 47,701 tokens of 9 to 16 bytes
	longSlots   = 4_500  // for the 2,965 prefixes of longer tokens
	prefixBits  = 16     // log2 of the number of length masks
	filterBits  = 15     // log2 of the number of words of the filter
	quickBits   = 18     // log2 of the number of slots of the quick table; also the bits of an id
	mergeBits   = 18     // log2 of the number of slots of the merges, of which there are 199,742
	shiftBits   = 16     // log2 of the number of shifts of the merges
)

// build returns the table. text contains the bytes of each token, indexed by
// id.
func build(text []string) *table {
	values := tokenValues(text)
	t := &table{}

	t.constant("shortSlots", shortSlots, "the number of slots at shortAt")
	t.constant("mediumSlots", mediumSlots, "the number of slots at mediumAt")
	t.constant("longSlots", longSlots, "the number of slots at longAt")
	t.constant("prefixBits", prefixBits, "log2 of the masks at prefixAt")
	t.constant("filterBits", filterBits, "log2 of the words at filterAt")
	t.constant("quickBits", quickBits, "log2 of the number of slots at quickAt")
	t.constant("mergeBits", mergeBits, "log2 of the number of slots at mergeAt")
	t.constant("shiftBits", shiftBits, "log2 of the number of bytes at shiftAt")

	quick := quickTable(text)
	t.section("quickAt",
		"uint64 slots {low bits of the hash, 18 bits of id} of tokens of up to 8 bytes, one per home slot",
		quick)
	t.section("leftAt", "bytes per token: the length of its left part", leftTable(values))
	t.section("shortAt",
		"slots {8 bytes of text, uint32 value} of the tokens of 3 to 8 bytes that are not at quickAt",
		shortTable(text, values, quick))
	t.section("mediumAt",
		"slots {16 bytes of text, uint32 value} of tokens of 9 to 16 bytes",
		mediumTable(text, values))

	slots, list := longTable(text, values)
	t.section("longAt", "slots {16 bytes of text, uint32 first, uint32 end} of the prefixes of longer tokens", slots)
	t.section("longListAt", "{uint32 value, uint32 length} of the tokens with a prefix, longest first", list)
	t.section("bytesAt", "uint32 values of the 256 single bytes", byteTable(text, values))
	t.section("pairsAt",
		"uint32 values of the tokens of two bytes, indexed by 256 times the first byte plus the second",
		pairTable(text, values))
	t.section("prefixAt",
		"uint16 masks of token lengths (bit n: 4 + n, bit 13: over 16), indexed by a hash of the first 4 bytes",
		prefixTable(text))
	t.section("filterAt",
		"uint64 words of a Bloom filter of the tokens of 2 to 16 bytes, two bits per token",
		filterTable(text))
	pairs, ranks := brokenTable(text)
	t.section("brokenAt",
		"1 and more, by the byte pairs at character boundaries inside tokens that begin or end within a character",
		pairs)
	t.section("brokenRanksAt", "uint32 lowest ids of these tokens, by the number of their pair", ranks)

	merges, shifts := mergeTable(text, values)
	t.section("mergeAt", "uint64 slots {low bits of the hash of a left and a right token, 18 bits of id}", merges)
	t.section("shiftAt", "bytes that move the slots of merges apart, by their hash", shifts)
	t.section("charAt",
		"uint32 values of the tokens of one character of three bytes, by code point",
		charTable(text, values))

	offsets, all := decodeTable(text)
	t.section("offsetsAt", "uint32 per token: offset of its bytes in the text", offsets)
	t.section("textAt", "the bytes of all tokens in the order of their ids", all)
	return t
}

// tokenValues returns the value of each token. It fails if merging the bytes of
// a token by rank does not yield the token, which the encoder relies on.
func tokenValues(text []string) []uint32 {
	ids := make(map[string]int, len(text))
	for id, s := range text {
		ids[s] = id
	}

	values := make([]uint32, len(text))
	for id, s := range text {
		left, ok := lastMerge(ids, s)
		if !ok {
			log.Fatalf("token %d is not what its bytes merge to", id)
		}
		values[id] = present | uint32(left)<<leftShift | uint32(id)
	}
	return values
}

// lastMerge merges the bytes of s by rank. It returns the length of the left
// part of the last merge, or 0 for a single byte.
func lastMerge(ids map[string]int, s string) (left int, ok bool) {
	var parts []string
	for i := range len(s) {
		parts = append(parts, s[i:i+1])
	}

	// Two parts are left, so that the length of the left one can be read.
	for len(parts) > 2 {
		best, at := -1, 0
		for i := range len(parts) - 1 {
			if id, ok := ids[parts[i]+parts[i+1]]; ok && (best < 0 || id < best) {
				best, at = id, i
			}
		}

		if best < 0 {
			return 0, false
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}

	if len(parts) == 1 {
		return 0, true
	}
	return len(parts[0]), true
}

func shortTable(text []string, values []uint32, quick []byte) []byte {
	t := newSlots(shortSlots, 12)
	for id, s := range text {
		// A text that ends in NUL would equal the padding of a shorter one. The encoder finds
		// those of one and two bytes in tables of their own; there are no longer ones.
		if len(s) <= 2 || len(s) > 8 || s[len(s)-1] == 0 {
			continue
		}

		h := pack(s) * hashFactor
		if s[0] != 0 && binary.LittleEndian.Uint64(quick[8*(h>>(64-quickBits)):]) == h<<quickBits|uint64(id) {
			continue
		}
		slot := t.take(h)
		binary.LittleEndian.PutUint64(slot, pack(s))
		binary.LittleEndian.PutUint32(slot[8:], values[id])
	}
	return t.data
}

func leftTable(values []uint32) []byte {
	t := make([]byte, len(values))
	for id, v := range values {
		t[id] = byte(v>>leftShift) & 127
	}
	return t
}

// quickTable returns a table in which each slot contains the most frequent token
// whose home it is. The hash is a bijection of the 8 bytes. Its high bits are the
// position of the slot and the others are in the slot, so equal bits mean equal
// bytes.
func quickTable(text []string) []byte {
	t := make([]byte, 8<<quickBits)
	for id, s := range text {
		if len(s) > 8 || s[0] == 0 || s[len(s)-1] == 0 {
			continue
		}

		h := pack(s) * hashFactor

		// Ids are ranks, so the first token that takes a slot is the most frequent one.
		if slot := t[8*(h>>(64-quickBits)):][:8]; binary.LittleEndian.Uint64(slot) == 0 {
			binary.LittleEndian.PutUint64(slot, h<<quickBits|uint64(id))
		}
	}
	return t
}

func mediumTable(text []string, values []uint32) []byte {
	t := newSlots(mediumSlots, 20)
	for id, s := range text {
		if len(s) <= 8 || len(s) > 16 {
			continue
		}

		a, b := pack(s[:8]), pack(s[8:])
		slot := t.take(hash16(a, b))
		binary.LittleEndian.PutUint64(slot, a)
		binary.LittleEndian.PutUint64(slot[8:], b)
		binary.LittleEndian.PutUint32(slot[16:], values[id])
	}
	return t.data
}

func longTable(text []string, values []uint32) (slotData, list []byte) {
	byPrefix := map[string][]int{}
	var prefixes []string // in the order of ids
	for id, s := range text {
		if len(s) > 16 {
			if byPrefix[s[:16]] == nil {
				prefixes = append(prefixes, s[:16])
			}
			byPrefix[s[:16]] = append(byPrefix[s[:16]], id)
		}
	}

	t := newSlots(longSlots, 24)
	for _, prefix := range prefixes {
		a, b := pack(prefix[:8]), pack(prefix[8:])
		slot := t.take(hash16(a, b))
		binary.LittleEndian.PutUint64(slot, a)
		binary.LittleEndian.PutUint64(slot[8:], b)
		binary.LittleEndian.PutUint32(slot[16:], uint32(len(list)/8))

		// The encoder looks for the longest token, and stops at the first that fits.
		group := byPrefix[prefix]
		slices.SortStableFunc(group, func(a, b int) int { return len(text[b]) - len(text[a]) })
		for _, id := range group {
			list = binary.LittleEndian.AppendUint32(list, values[id])
			list = binary.LittleEndian.AppendUint32(list, uint32(len(text[id])))
		}

		binary.LittleEndian.PutUint32(slot[20:], uint32(len(list)/8))
	}

	return t.data, list
}

func byteTable(text []string, values []uint32) []byte {
	t := make([]byte, 4*256)
	for id, s := range text {
		if len(s) == 1 {
			binary.LittleEndian.PutUint32(t[4*int(s[0]):], values[id])
		}
	}
	return t
}

func pairTable(text []string, values []uint32) []byte {
	t := make([]byte, 4<<16)
	for id, s := range text {
		if len(s) == 2 {
			binary.LittleEndian.PutUint32(t[4*(int(s[0])<<8|int(s[1])):], values[id])
		}
	}
	return t
}

func prefixTable(text []string) []byte {
	masks := make([]uint16, 1<<prefixBits)
	for _, s := range text {
		if len(s) >= 4 {
			// All lengths above 16 share a bit, because such tokens are found by their prefix.
			h := binary.LittleEndian.Uint32([]byte(s)) * (hashFactor >> 32)
			masks[h>>(32-prefixBits)] |= 1 << (min(len(s), 17) - 4)
		}
	}

	var t []byte
	for _, m := range masks {
		t = binary.LittleEndian.AppendUint16(t, m)
	}
	return t
}

// filterTable returns a Bloom filter in which the bits of a token are in one
// word.
func filterTable(text []string) []byte {
	t := make([]byte, 8<<filterBits)
	for _, s := range text {
		if len(s) > 16 {
			continue
		}

		h := pack(s) * hashFactor
		if len(s) > 8 {
			h = hash16(pack(s[:8]), pack(s[8:]))
		}

		word := t[8*(h>>(64-filterBits)):]
		mask := uint64(1)<<(h>>40&63) | 1<<(h>>34&63)
		binary.LittleEndian.PutUint64(word, binary.LittleEndian.Uint64(word)|mask)
	}
	return t
}

// brokenTable returns the number of each byte pair at boundaries of characters
// inside tokens that begin or end within a character, and the lowest id of those
// tokens by the number. Pairs without such tokens have the number 0.
func brokenTable(text []string) (pairs, ranks []byte) {
	pairs = make([]byte, 1<<16)
	ranks = make([]byte, 4)
	for id, s := range text {
		// A token of valid UTF-8 crosses boundaries with whole characters only.
		if utf8.ValidString(s) {
			continue
		}

		for i := 1; i < len(s); i++ {
			// The first token of a pair has the lowest id.
			if number := &pairs[int(s[i-1])<<8|int(s[i])]; utf8.RuneStart(s[i]) && *number == 0 {
				if len(ranks)/4 > 255 {
					log.Fatal("the numbers of broken pairs need more than a byte")
				}
				*number = byte(len(ranks) / 4)
				ranks = binary.LittleEndian.AppendUint32(ranks, uint32(id))
			}
		}
	}
	return pairs, ranks
}

// mergeTable returns a perfect hash table of the last merge of each token: the two
// tokens that it merges, and its id. The high bits of the hash of a merge choose a
// byte of shifts, which moves its slot so that no two merges have the same.
func mergeTable(text []string, values []uint32) (slots, shifts []byte) {
	ids := make(map[string]int, len(text))
	for id, s := range text {
		ids[s] = id
	}

	type merge struct {
		hash uint64
		id   int
	}
	groups := make([][]merge, 1<<shiftBits)
	for id, s := range text {
		if left := int(values[id]>>leftShift) & 127; left > 0 {
			h := (uint64(ids[s[:left]])<<leftShift | uint64(ids[s[left:]])) * hashFactor
			group := &groups[h>>(64-shiftBits)]
			*group = append(*group, merge{h, id})
		}
	}

	// The largest groups are the hardest to place.
	order := make([]int, len(groups))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(groups[b]) - len(groups[a]) })

	slots, shifts = make([]byte, 8<<mergeBits), make([]byte, 1<<shiftBits)
	used := make([]bool, 1<<mergeBits)
	for _, number := range order {
		group := groups[number]
		placed := false
		for shift := 0; shift < 256 && !placed; shift++ {
			placed = true
			taken := map[uint64]bool{}
			for _, m := range group {
				at := mergeSlot(m.hash, uint64(shift))
				placed = placed && !used[at] && !taken[at]
				taken[at] = true
			}
			if !placed {
				continue
			}

			shifts[number] = byte(shift)
			for _, m := range group {
				at := mergeSlot(m.hash, uint64(shift))
				used[at] = true
				binary.LittleEndian.PutUint64(slots[8*at:], m.hash<<leftShift|uint64(m.id))
			}
		}
		if !placed {
			log.Fatal("no byte moves the merges of a group to free slots")
		}
	}
	return slots, shifts
}

// mergeSlot returns the slot of a merge. Package harmony uses the same function.
func mergeSlot(hash, shift uint64) uint64 {
	return (hash>>24 + shift*mergeFactor) & (1<<mergeBits - 1)
}

const mergeFactor = 0x9E3B

// charTable returns the values of the tokens that are one character of three bytes.
func charTable(text []string, values []uint32) []byte {
	t := make([]byte, 4<<16)
	for id, s := range text {
		if r, size := utf8.DecodeRuneInString(s); size == 3 && size == len(s) {
			binary.LittleEndian.PutUint32(t[4*int(r):], values[id])
		}
	}
	return t
}

func decodeTable(text []string) (offsets, all []byte) {
	for _, s := range text {
		offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(all)))
		all = append(all, s...)
	}

	// One offset more than there are tokens: a token ends where the next one begins.
	return binary.LittleEndian.AppendUint32(offsets, uint32(len(all))), all
}

func pack(s string) uint64 {
	var b [8]byte
	copy(b[:], s)
	return binary.LittleEndian.Uint64(b[:])
}

func hash16(a, b uint64) uint64 {
	return (a*hashFactor ^ bits.RotateLeft64(b, 29)) * hashFactor
}

// slots is an open-addressing hash table of slots of fixed size with linear
// probing. An all-zero slot is empty. Additional slots after the last home slot
// avoid wrapping around.
type slots struct {
	data  []byte
	homes int
	size  int
}

const spareSlots = 100

func newSlots(homes, size int) *slots {
	return &slots{make([]byte, size*(homes+spareSlots)), homes, size}
}

// take returns the first free slot for a hash. Tokens taken first, which are
// the frequent ones, are mostly in their home slot.
func (s *slots) take(hash uint64) []byte {
	home, _ := bits.Mul64(hash, uint64(s.homes))
	for i := int(home); ; i++ {
		slot := s.data[i*s.size:][:s.size]

		// The encoder probes until it finds an empty slot and has no bound of its own, so one must
		// follow.
		if i+1 == s.homes+spareSlots {
			log.Fatal("no empty slot is left after the last")
		}

		if bytes.Count(slot, []byte{0}) == s.size {
			return slot
		}
	}
}

// table is the embedded file and the constants of its layout.
type table struct {
	data      []byte
	constants []string
}

func (t *table) constant(name string, value int, doc string) {
	t.constants = append(t.constants, fmt.Sprintf("%s = %d // %s\n", name, value, doc))
}

// section appends b, aligned to 32 bytes, and adds a constant for its position.
func (t *table) section(name, doc string, b []byte) {
	// Slots of a power of two then lie within one cache line.
	for len(t.data)%32 != 0 {
		t.data = append(t.data, 0)
	}

	t.constant(name, len(t.data), doc)
	t.data = append(t.data, b...)
}

// layout returns the Go file with the constants.
func (t *table) layout() []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated by internal/gen; DO NOT EDIT.\n\npackage harmony\n\n" +
		"// The layout of vocabulary.bin. All its numbers are little-endian. A token's\n" +
		"// value is its id and, from bit 18 on, the length of the left one of the two\n" +
		"// tokens whose merge creates it.\nconst (\n")
	for _, c := range t.constants {
		b.WriteString(c)
	}
	b.WriteString(")\n")

	src, err := format.Source(b.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	return src
}
