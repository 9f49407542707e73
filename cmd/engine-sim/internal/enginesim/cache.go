package enginesim

import (
	"encoding/binary"
	"hash/maphash"
	"sync"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// maxBlocks bounds the prefix cache. A full cache is cleared.
const maxBlocks = 1 << 18

// prefixCache counts the cached part of a prompt in blocks, like engines do. The
// key of a block is the hash of the cache salt and of all ids up to the end of the
// block.
type prefixCache struct {
	block int
	seed  maphash.Seed

	mu   sync.Mutex
	seen map[uint64]struct{}
}

func newPrefixCache(block int) *prefixCache {
	return &prefixCache{block: block, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

// add stores the prompt and returns how many of its ids were cached. The last id is
// never cached, because an engine has to compute something.
func (c *prefixCache) add(ids []harmony.Token, salt string) (cached int) {
	// Engines that are given a salt share no block between salts, so it goes into every key.
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(salt) // never fails

	c.mu.Lock()
	defer c.mu.Unlock()
	// Tests and load runs never fill it. Clearing costs one cold prompt each, and needs no list of ages.
	if len(c.seen) > maxBlocks {
		clear(c.seen)
	}

	hit := true
	var id [4]byte
	for i, t := range ids {
		binary.LittleEndian.PutUint32(id[:], t)
		_, _ = h.Write(id[:])
		if (i+1)%c.block != 0 {
			continue
		}
		key := h.Sum64()
		_, known := c.seen[key]
		// A known block after an unknown one is no hit, because an engine can use only an unbroken prefix.
		if hit = hit && known; hit && i+1 < len(ids) {
			cached = i + 1
		}
		c.seen[key] = struct{}{}
	}

	return cached
}
