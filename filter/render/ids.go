package render

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// idSource makes the ids of one reply. They depend on the seed, the id of the engine's
// request, and on how many have been made: each chunk of a stream is derendered by a
// new source, and an item has the same id in all of them.
type idSource struct {
	seed string
	n    uint64
}

// next returns the prefix and 128 bits in hex.
func (s *idSource) next(prefix string) string {
	s.n++
	sum := sha256.Sum256(append(strconv.AppendUint([]byte("derender\x00"), s.n, 10), s.seed...))
	return prefix + hex.EncodeToString(sum[:16])
}
