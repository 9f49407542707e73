package harmony

// rankMerger merges the bytes of a piece as the vocabulary was made: always the two
// neighbours whose token has the lowest id. It takes a time of n log n for every piece,
// where [merger.appendMerged] is much faster for most, and much slower for some: of a run
// of 127 spaces it tries most pairs of the 84 tokens of spaces.
type rankMerger struct {
	// The parts, by the position at which each begins.

	// next is where the next part begins; dead: no part begins here.
	next []int32
	// prev is where the part before begins.
	prev []int32
	// pair is the token of the part and the next one, or noPair.
	pair []Token

	// heap has the pairs of parts that are a token: its id, and where the left part begins.
	heap []uint64
}

// dead marks the positions at which no part begins any more.
const dead = -1

// appendTokens appends the tokens of the piece s, which has at most windowBytes: its memory
// is kept.
func (m *rankMerger) appendTokens(dst []Token, s string) []Token {
	m.begin(s)

	for len(m.heap) > 0 {
		left, id := m.pop()

		if m.next[left] == dead || m.pair[left] != id {
			continue // merges have made other pairs of these parts
		}

		right := m.next[left]
		m.next[left] = m.next[right]
		m.next[right] = dead
		if after := m.next[left]; int(after) < len(s) {
			m.prev[after] = left
		}

		// The part has grown, so both of its pairs are new. The old ones in the heap are skipped above.
		m.push(s, left)
		if left > 0 {
			m.push(s, m.prev[left])
		}
	}

	for at := int32(0); int(at) < len(s); at = m.next[at] {
		dst = append(dst, look(s, int(at), int(m.next[at])).token())
	}
	return dst
}

// begin makes each byte of a piece a part.
func (m *rankMerger) begin(s string) {
	m.next, m.prev, m.pair, m.heap = m.next[:0], m.prev[:0], m.pair[:0], m.heap[:0]

	for i := range int32(len(s)) { //nolint:gosec // at most windowBytes
		m.next, m.prev, m.pair = append(m.next, i+1), append(m.prev, i-1), append(m.pair, noPair)
	}
	for i := range int32(len(s)) { //nolint:gosec // at most windowBytes

		// Only now, because a pair needs the end of its right part.
		m.push(s, i)
	}
}

// noPair is the id of parts that are no token together.
const noPair = ^Token(0)

// push adds the pair of a part and the next one to the heap, if they are a token.
func (m *rankMerger) push(s string, left int32) {
	m.pair[left] = noPair

	right := m.next[left]
	if int(right) >= len(s) || m.next[right]-left > maxTokenSize {
		return
	}
	v := look(s, int(left), int(m.next[right]))
	if v == 0 {
		return
	}
	m.pair[left] = v.token()

	// In one number, one comparison orders by rank, and equal ranks from left to right.
	m.heap = append(m.heap, uint64(v.token())<<32|uint64(left)) //nolint:gosec // not negative
	for i := len(m.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if m.heap[up] <= m.heap[i] {
			break
		}
		m.heap[up], m.heap[i] = m.heap[i], m.heap[up]
		i = up
	}
}

// pop takes the pair with the lowest id, and of several the first in the piece.
func (m *rankMerger) pop() (left int32, id Token) {
	top := m.heap[0]
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]

	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if m.heap[child] < m.heap[least] {
				least = child
			}
		}
		if least == i {
			break
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}

	return int32(top & 0xFFFFFFFF), Token(top >> 32) //nolint:gosec // as they were put together
}
