package harmony

import (
	"math"
	"math/bits"
	"unicode/utf8"
)

// Long pieces that are not a token are not merged byte by byte. The result of
// merging is the only sequence of tokens for the piece in which merging the
// bytes of any two neighbours yields the same two tokens. So the merger goes
// from left to right, takes the longest token that is compatible with the one
// before it in this sense, and steps back if there is none. It tries each
// position without success at most once, so the time is linear. The method is
// that of github.com/github/rust-gems (crate bpe); the tables are not.
//
// A position can have as many tries as there are tokens that begin there: 84 of
// spaces. A piece with too many of them is merged by rank instead. Long pieces are
// merged window by window, so that each part of them is merged as fast as it can be.

// part is a token of the piece that is being encoded.
type part struct {
	start int
	entry entry
}

// merger contains the buffers for encoding pieces.
type merger struct {
	bounds *bounds
	// failed is the bit set of positions from which the rest of the piece cannot be encoded.
	failed []uint64
	pairs  pairMemo
	ranked rankMerger
	short  shortMerger
	// windows is how many windows of long pieces were merged, for tests.
	windows int
}

// appendMerged appends the tokens of the piece s[i:end], which is not a token.
// It appends nothing if the piece exceeds the bounds.
func (m *merger) appendMerged(dst []Token, s string, i, end int) []Token {
	n := end - i
	if n <= maxShortPiece {
		return m.short.appendTokens(dst, s, i, end)
	}

	// A piece with too many tries is merged by rank: runs of spaces would try most pairs of 84 tokens.
	if n <= windowBytes {
		return m.appendPiece(dst, s, i, end, 16+n/8)
	}

	begin := len(dst)
	dst, ok := m.appendWindows(dst, s, i, end, windowRest)
	if !ok && (m.bounds == nil || m.bounds.err == nil) {
		return m.appendPiece(dst[:begin], s, i, end, math.MaxInt)
	}
	return dst
}

// appendPiece appends the tokens of the piece s[i:end], which is not a token, or is the part of
// one that a window holds. After so many tries without success it is merged by rank.
func (m *merger) appendPiece(dst []Token, s string, i, end, tries int) []Token {
	words := (end-i)/64 + 1
	if words > cap(m.failed) {
		m.failed = make([]uint64, words)
	}
	failed := m.failed[:words]
	clear(failed)

	begin := len(dst)
	var last, prior part // the last two tokens after begin; prior.entry is 0 if it is not known
	for at, limit, check := i, end-i-1, i+checkBytes; at < end; {
		if at >= check {
			if !m.bounds.spend(checkBytes, begin) {
				return dst[:begin]
			}
			check = at + checkBytes
		}

		v, n := longest(s, at, limit)
		next := at + n
		switch {
		case n == 0: // step back

			// No token that fits begins here, so nothing may end here. The token before is tried shorter.
			failed[(at-i)/64] |= 1 << ((at - i) % 64)
			dst = dst[:len(dst)-1]

			limit = at - last.start - 1
			at = last.start

			// Only two tokens back are kept. Beyond those the ids in dst tell which they were.
			if last = prior; last.entry == 0 && len(dst) > begin {
				last = partBefore(s, at, dst[len(dst)-1])
			}
			prior = part{}
		case failed[(next-i)/64]>>((next-i)%64)&1 == 0 &&
			(len(dst) == begin || m.pairs.apart(s, last, at, next, v)):
			dst = append(dst, v.token())
			prior, last = last, part{at, v}
			at, limit = next, end-next
		default:
			// This token does not stay apart from the one before it, or ends where nothing can follow.
			limit = n - 1
			tries--
			if tries < 0 {
				return m.ranked.appendTokens(dst[:begin], s[i:end])
			}
		}
	}
	return dst
}

// partBefore returns the part of token t, which ends at s[end].
func partBefore(s string, end int, t Token) part {
	text, _ := tokenText(t)
	start := end - len(text)
	return part{start, find(s, start, end)}
}

// longest returns the longest token of at most limit bytes at s[i] and its
// length, or 0 if limit is 0.
func longest(s string, i, limit int) (v entry, n int) {
	if limit >= 4 {
		// The mask of lengths for these four bytes saves a probe for each length that no token has.
		w, w2 := load(s, i), load(s, i+8)
		h := uint32(w) * (hashFactor >> 32) >> (32 - prefixBits)
		lengths := le16(vocabulary, prefixAt+2*int(h))

		if limit > maxMedium {
			if lengths>>(maxMedium+1-4) != 0 {
				if v := findLong(s, i, maxMedium+1, min(limit, maxTokenSize)); v != 0 {
					return v, v.size()
				}
			}
			limit = maxMedium
		}

		for lengths &= 1<<(limit-3) - 1; lengths != 0; {
			n := bits.Len16(lengths) + 3
			lengths &^= 1 << (n - 4)
			if s[i+n-1] == 0 {
				continue // no token of 4 or more bytes ends in NUL
			}

			if n <= maxShort {
				v = lookShort(first(w, n))
			} else {
				v = lookMedium(w, first(w2, n-8))
			}
			if v != 0 {
				return v, n
			}
		}
		limit = 3
	}

	// Shorter tokens have no mask: bytes and pairs are looked up by their value.
	for n := limit; n > 0; n-- {
		if v := look(s, i, i+n); v != 0 {
			return v, n
		}
	}
	return 0, 0
}

// apart reports whether merging the bytes of two neighbours yields the same two
// tokens: left, which ends at s[i], and right, s[i:end]. It undoes the merges
// of both, the last one first, and looks for a merge across the boundary that
// would have been done earlier.
func apart(s string, left part, i, end int, right entry) bool {
	whole := s[i-1] < utf8.RuneSelf && s[i] < utf8.RuneSelf || !broken(s[i-1], s[i])

	// limit is the rank of the merge that was undone last. A merge across the boundary counts only
	// if it would have come before it.
	start, l, r := left.start, left.entry, right
	limit := ^Token(0)
	for {
		if end-start <= maxTokenSize {
			if v := look(s, start, end); v != 0 && v.token() < limit && v.left() == i-start {
				return false
			}
		}

		// The higher rank was merged last and is undone first. A side that is single leaves only the other one.
		undoLeft := l.token() > r.token()
		if undoLeft && single(s, start, i, l, whole) {
			undoLeft = false
			if single(s, i, end, r, whole) {
				return true
			}
		} else if !undoLeft && single(s, i, end, r, whole) {
			undoLeft = true
			if single(s, start, i, l, whole) {
				return true
			}
		}

		if undoLeft {
			limit = l.token()
			start += l.left()
			l = find(s, start, i)
		} else {
			// Of equal ranks the left one is merged first, so across the boundary an equal rank
			// comes before this one.
			limit = r.token() + 1
			end = i + r.left()
			r = find(s, i, end)
		}
	}
}

// single reports whether the token s[i:end] need not be undone further: it is
// one byte or, if whole is set (no token crosses the boundary with a part of a
// character), one character.
func single(s string, i, end int, v entry, whole bool) bool {
	if v.left() == 0 {
		return true
	}

	if !whole || end-i > utf8.UTFMax || s[i] < 0xC0 {
		return false
	}
	return end-i == runeLen(s[i])
}

func runeLen(lead byte) int {
	switch {
	case lead < 0x80:
		return 1
	case lead < 0xE0:
		return 2
	case lead < 0xF0:
		return 3
	}
	return 4
}

// broken reports whether a token that contains a part of a character crosses
// the boundary of two characters between bytes a and b. It also returns true if
// there is no such boundary.
func broken(a, b byte) bool {
	if !utf8.RuneStart(b) {
		return true
	}

	pair := int(a)<<8 | int(b)
	return vocabulary[brokenAt+pair] != 0
}
