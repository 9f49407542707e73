package harmony

import "strings"

const (
	// windowBytes is how much of a long piece is merged at once. Merging by rank takes 20
	// bytes of memory a byte, which a processor's caches should hold.
	windowBytes = 8 << 10
	// windowRest is the end of a window that is merged again with the next one: its tokens
	// depend on what follows the window.
	windowRest = 4 * maxTokenSize
)

// appendWindows appends the tokens of the long piece s[i:end], window by window. Each window
// begins where a token of the one before ends, at least rest bytes before its end. The result
// is that of the whole piece, because any two neighbours stay apart: also the last token that
// is kept of a window and the first of the next one. If these do not, which no text is known
// for, or the bounds end the encoding, it appends nothing and returns false.
func (m *merger) appendWindows(dst []Token, s string, i, end, rest int) (tokens []Token, ok bool) {
	begin := len(dst)
	var last part
	for at := i; ; {
		from := len(dst)
		stop := min(at+windowBytes, end)
		// Of long pieces a try costs less than to merge a byte by rank: most pairs are remembered.
		dst = m.appendPiece(dst, s, at, stop, stop-at)
		m.windows++

		first := at + TokenLength(dst[from])
		if from > begin && !m.pairs.apart(s, last, at, first, find(s, at, first)) {
			return dst[:begin], false
		}
		if stop == end {
			return dst, true
		}

		// What is kept ends early enough that what follows does not matter: where the window begins
		// again, as it does in a run, or as late as possible.
		window, most := s[at:stop], stop-rest
		kept, next, repeated := from, at, false
		for !repeated {
			after := next + TokenLength(dst[kept])
			if after > most {
				break
			}
			last = part{next, find(s, next, after)}
			kept, next = kept+1, after
			repeated = next > most-maxTokenSize && strings.HasPrefix(s[next:end], window)
		}
		dst = dst[:kept]

		// The same text has the same tokens, and to compare it takes a hundredth of the time.
		head := find(s, at, first)
		for {
			size := next - at
			if !m.bounds.fits(len(dst)) || !m.bounds.spend(size, len(dst)) {
				return dst[:begin], false
			}
			if !repeated || !m.pairs.apart(s, last, next, first+size, head) {
				break
			}

			dst = append(dst, dst[from:kept]...)
			at, next, first, last.start = at+size, next+size, first+size, last.start+size
			repeated = strings.HasPrefix(s[next:end], window)
		}
		at = next
	}
}
