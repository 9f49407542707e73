package harmony

// An encoder remembers the tokens of the pieces that it has encoded, so that a
// word which occurs again costs a comparison. A piece has one entry where it can
// be. The last one that was encoded has it.

const (
	memoBits     = 13      // log2 of the entries for pieces of up to 16 bytes
	longMemoBits = 11      // log2 of the entries for longer ones
	maxMemo      = 32      // most bytes of a piece that is remembered
	maxLine      = 1 << 10 // most bytes of a line of one character that is
	pairBits     = 10      // log2 of the entries for pairs of tokens
)

// memoEntry contains the tokens of a piece of at most 16 bytes. Entries have 32
// bytes, so that none of them is in two cache lines.
type memoEntry struct {
	// a and b are the piece; both are 0 if the entry is unused.
	a uint64
	b uint64
	// tokens are packed.
	tokens [2]uint64
}

// lineMark begins the last word of the key of a line of one character: no text has this
// byte, because it is valid UTF-8.
const lineMark = 0xFF

// longMemoEntry contains the tokens of a piece of 17 to 32 bytes, or of a longer one in
// which all bytes but the first and the last eight are equal. The key of such a line is its
// first 16 bytes, its last eight, and its length.
type longMemoEntry struct {
	key [4]uint64
	// tokens are packed.
	tokens [4]uint64
}

const (
	idBits     = 18 // of a token
	idMask     = 1<<idBits - 1
	perWord    = 3          // packed tokens of a word
	countShift = 3 * idBits // of the number of tokens, in the first word
)

// pairMemo contains what [apart] has returned for pairs of tokens, which depends on
// nothing else. Long pieces have few different pairs: those of one letter, of spaces or
// of Han.
type pairMemo [1 << pairBits]uint64

// apart is the function [apart] with a memory.
func (p *pairMemo) apart(s string, left part, i, end int, right entry) bool {
	const used, isApart = 2, 1
	pair := (uint64(left.entry.token())<<idBits|uint64(right.token()))<<2 | used

	known := &p[pair*hashFactor>>(64-pairBits)]
	if *known&^isApart == pair {
		return *known&isApart != 0
	}

	yes := apart(s, left, i, end, right)
	if yes {
		pair |= isApart
	}
	*known = pair
	return yes
}

// pack writes tokens into words. It reports whether they fit. If not, it writes
// nothing.
func pack(words []uint64, tokens []Token) bool {
	if len(tokens) > perWord*len(words) {
		return false
	}

	clear(words)
	for i, t := range tokens {
		words[i/perWord] |= uint64(t) << (i % perWord * idBits)
	}
	words[0] |= uint64(len(tokens)) << countShift
	return true
}

// appendPacked appends the tokens of packed words, of which there is at least
// one.
func appendPacked(dst []Token, w uint64, rest []uint64) []Token {
	n := w >> countShift

	// Nearly all pieces have up to three tokens, which are in the first word and need no loop.
	dst = append(dst, Token(w&idMask))
	if n == 1 {
		return dst
	}
	dst = append(dst, Token(w>>idBits&idMask))
	if n == 2 {
		return dst
	}
	dst = append(dst, Token(w>>(2*idBits)&idMask))

	for j := range int(n) - perWord {
		dst = append(dst, Token(rest[j/perWord]>>(j%perWord*idBits)&idMask))
	}
	return dst
}
