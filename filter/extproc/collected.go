package extproc

import "bytes"

// A body comes in pieces. They are joined once, when all have come: to append each to
// what came before would copy a large body several times.
const (
	// ownPiece is the size from which a piece is kept in the memory in which it came.
	// Smaller ones are copied together: a piece takes memory beside its bytes.
	ownPiece = 2 << 10
	// leastRoom and mostRoom bound the memory that is reserved for small pieces. In
	// between it is a quarter of what has come.
	leastRoom, mostRoom = 4 << 10, 64 << 10
)

// collectedBody is a body as far as it has come.
type collectedBody struct {
	pieces [][]byte // the last one may have room for more
	size   int      // of all pieces
}

// add adds a piece, which must not change any more.
func (b *collectedBody) add(p []byte) {
	b.size += len(p)
	if n := len(b.pieces); n > 0 && len(p) <= cap(b.pieces[n-1])-len(b.pieces[n-1]) {
		b.pieces[n-1] = append(b.pieces[n-1], p...)
		return
	}

	// Without room for more: what is appended later must not overwrite gRPC's memory.
	if len(p) >= ownPiece || len(b.pieces) == 0 {
		b.pieces = append(b.pieces, p[:len(p):len(p)])
		return
	}

	room := max(len(p), min(max(b.size/4, leastRoom), mostRoom))
	b.pieces = append(b.pieces, append(make([]byte, 0, room), p...))
}

// bytes returns the body so far in one slice.
func (b *collectedBody) bytes() []byte {
	if len(b.pieces) > 1 {
		b.pieces = [][]byte{bytes.Join(b.pieces, nil)}
	}
	if len(b.pieces) == 0 {
		return nil
	}
	return b.pieces[0]
}
