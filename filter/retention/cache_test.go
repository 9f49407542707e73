package retention

import (
	"cmp"
	"container/heap"
	"time"
)

// blockTokens is a few times what engines have, so that a simulation takes seconds.
const blockTokens = 64

// cache simulates an engine's prefix cache: blocks of tokens, each known by all tokens up to its
// end. If there is no room, the block goes that nobody has used for longest; with hints that with
// the lowest priority first, as far as one holds. Blocks of running calls stay.
type cache struct {
	room   int // blocks
	hints  bool
	blocks map[uint64]*block
	free   freeBlocks
	// Those whose priority ends, in the order in which it does.
	ending endingBlocks
	clock  int
}

type block struct {
	key      uint64
	priority int
	until    time.Duration
	scope    string
	used     int // the later, the greater
	at       int // index in the prompt
	calls    int // that run with it
	place    int // in free; -1: it is in use
}

func newCache(tokens int, hints bool) *cache {
	return &cache{room: tokens / blockTokens, hints: hints, blocks: map[uint64]*block{}}
}

// running is a call with the blocks that it uses.
type running struct {
	prompt []*block
	tokens int
	last   uint64 // the key of the last block of the prompt
	rest   []uint32
	hints  Hints
}

// begin returns a call with its prompt in the cache, and how many tokens were not there.
func (c *cache) begin(prompt []uint32, hints Hints, now time.Duration) (r *running, computed int) {
	c.expire(now)
	r = &running{tokens: len(prompt), hints: hints}
	computed = len(prompt)
	found := true
	for ; len(prompt) >= blockTokens; prompt = prompt[blockTokens:] {
		r.last = blockKey(r.last, prompt[:blockTokens])
		found = found && c.blocks[r.last] != nil
		if found {
			computed -= blockTokens
		}
		if b := c.take(r.last, len(r.prompt)); b != nil {
			r.prompt = append(r.prompt, b)
		}
	}
	r.rest = prompt
	return r, computed
}

// end puts the output into the cache, and does what the hints say.
func (c *cache) end(r *running, output []uint32, now time.Duration) {
	c.expire(now)
	from := len(r.prompt)
	for all := append(append([]uint32{}, r.rest...), output...); len(all) >= blockTokens; all = all[blockTokens:] {
		r.last = blockKey(r.last, all[:blockTokens])
		if b := c.take(r.last, len(r.prompt)); b != nil {
			r.prompt = append(r.prompt, b)
		}
	}

	if c.hints {
		for _, d := range r.hints.Directives {
			covered := r.prompt[min(from, len(r.prompt)):]
			if !d.Output {
				covered = r.prompt[min(d.Start/blockTokens, from):min(d.End/blockTokens, from)]
			}
			for _, b := range covered {
				c.apply(b, d, r.hints.Scope, now)
			}
		}
	}

	c.clock++
	for _, b := range r.prompt {
		b.used = c.clock
		if b.calls--; b.calls == 0 {
			heap.Push(&c.free, b)
		}
	}
}

// apply gives a block a priority. Another session than its own can only raise it.
func (c *cache) apply(b *block, d Directive, scope string, now time.Duration) {
	if b.scope != scope && d.Priority < b.priority {
		return
	}
	b.priority, b.scope, b.until = d.Priority, scope, now+d.Keep
	if d.Priority > Released {
		heap.Push(&c.ending, ending{b, b.until})
	}
}

// take returns the block of a key as one that a call uses; nil if there is no room for it.
func (c *cache) take(key uint64, at int) *block {
	b := c.blocks[key]
	switch {
	case b == nil:
		if len(c.blocks) >= c.room {
			if len(c.free) == 0 {
				return nil
			}
			delete(c.blocks, heap.Pop(&c.free).(*block).key)
		}
		b = &block{key: key, at: at, place: -1}
		c.blocks[key] = b
	case b.calls == 0:
		heap.Remove(&c.free, b.place)
	}
	b.calls++
	return b
}

// expire ends the priorities whose time is over.
func (c *cache) expire(now time.Duration) {
	for len(c.ending) > 0 && c.ending[0].until <= now {
		e := heap.Pop(&c.ending).(ending)
		if e.block.until > now || e.block.priority == Released {
			continue
		}
		e.block.priority = Released
		if e.block.place >= 0 {
			heap.Fix(&c.free, e.block.place)
		}
	}
}

func blockKey(before uint64, tokens []uint32) uint64 {
	for _, t := range tokens {
		before = (before ^ uint64(t)) * 0x9e3779b97f4a7c15
		before ^= before >> 29
	}
	return before
}

// freeBlocks is a heap of the blocks that no call uses; the first is the next to go.
type freeBlocks []*block

func (f freeBlocks) Len() int { return len(f) }

func (f freeBlocks) Less(i, j int) bool {
	a, b := f[i], f[j]
	// Of one call the last block goes first: without those before it is of no use.
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.used, b.used), cmp.Compare(b.at, a.at)) < 0
}

func (f freeBlocks) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].place, f[j].place = i, j
}

func (f *freeBlocks) Push(x any) {
	b := x.(*block)
	b.place = len(*f)
	*f = append(*f, b)
}

func (f *freeBlocks) Pop() any {
	last := len(*f) - 1
	b := (*f)[last]
	*f, b.place = (*f)[:last], -1
	return b
}

// ending is when the priority of a block ends, unless it is renewed.
type ending struct {
	block *block
	until time.Duration
}

type endingBlocks []ending

func (e endingBlocks) Len() int           { return len(e) }
func (e endingBlocks) Less(i, j int) bool { return e[i].until < e[j].until }
func (e endingBlocks) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endingBlocks) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endingBlocks) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}
