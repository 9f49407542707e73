package extproc

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// A collected body is the same in pieces of any size, and takes little memory beside
// its bytes.
func TestCollectedBody(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, most := range []int{1, 2, 100, ownPiece, 16 << 10, 100 << 10} {
		var b collectedBody
		var want []byte
		for range 300 {
			p := make([]byte, random.IntN(most+1))
			for i := range p {
				p[i] = byte(random.Uint32())
			}
			want = append(want, p...)
			b.add(p)
			if random.IntN(100) == 0 && !bytes.Equal(b.bytes(), want) {
				t.Fatalf("pieces of up to %d: other bytes", most)
			}
		}
		if !bytes.Equal(b.bytes(), want) || b.size != len(want) {
			t.Fatalf("pieces of up to %d: other bytes", most)
		}
		if got := b.bytes(); len(got) > 0 && &got[0] != &b.bytes()[0] {
			t.Error("the joined body is joined again")
		}
	}
}

// Many small pieces take little memory beside their bytes.
func TestCollectedBodyOfSmallPieces(t *testing.T) {
	const size = 1 << 20
	var b collectedBody
	for range size {
		b.add([]byte{'x'})
	}
	held := 24 * cap(b.pieces)
	for _, p := range b.pieces {
		held += cap(p)
	}
	if b.size != size || held > size+size/2 {
		t.Errorf("%d bytes are held for %d", held, size)
	}
}
