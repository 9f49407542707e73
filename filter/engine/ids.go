package engine

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const (
	// idBytes is the most bytes of an id of at most six digits with its comma. Harmony's
	// tokens have no longer ids.
	idBytes = 7
	longID  = 1_000_000
	idWord  = 8
)

// digits has the three digits of the numbers below a thousand, the first one in the
// lowest byte.
var digits = func() (t [1000]uint32) {
	for n := range uint32(len(t)) {
		t[n] = '0' + n/100 | ('0'+n/10%10)<<8 | ('0'+n%10)<<16
	}
	return t
}()

// appendIDList appends ids as JSON numbers with commas between them. A prompt can have as
// many as a model's context. So an id is written as one word, without a loop over its
// digits; the next id overwrites what is too much of it.
func appendIDList(dst []byte, ids []harmony.Token) []byte {
	dst = slices.Grow(dst, idBytes*len(ids)+idWord)
	room, at := dst[len(dst):cap(dst)], 0
	for i, id := range ids {
		if id >= longID {
			return appendLongIDs(dst[:len(dst)+at], ids[i:])
		}

		// Six digits and a comma in one word. Leading zeros are shifted out.
		w := uint64(digits[id/1000]) | uint64(digits[id%1000])<<24 | ','<<48
		const zeros, last = '0' * 0x010101010101, 1 << 40 // the last digit stays if it is zero
		skip := bits.TrailingZeros64(w^zeros|last) / 8
		binary.LittleEndian.PutUint64(room[at:], w>>(8*skip))
		at += idBytes - skip
	}
	return dst[:len(dst)+max(at-1, 0)]
}

// appendLongIDs is appendIDList for ids of any number of digits.
func appendLongIDs(dst []byte, ids []harmony.Token) []byte {
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return dst
}
