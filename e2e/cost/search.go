package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Target is a decoder of what clients, or the servers of tools, send.
type Target struct {
	Name  string
	Seeds []string // JSON
	// Begin makes a decoder with a state of its own. What Begin costs is not counted.
	Begin func() decoding
}

// Options bound a search.
type Options struct {
	Seed     uint64
	Rounds   int           // decoded bodies; 0: no bound
	Time     time.Duration // 0: no bound
	MaxBytes int           // of a body
	Hang     time.Duration // a body that takes longer ends the program; 0: none does
	Goals    []Goal
}

// Found is the request that costs most of a goal's allowance.
type Found struct {
	Goal   *Goal
	Share  float64
	Cost   Cost
	Body   []byte
	Rounds int // rounds of the search
}

// candidate is a body that has been measured.
type candidate struct {
	tree *node
	body []byte
	cost Cost
}

// population is how many candidates of a goal are kept.
const population = 24

// Search mutates the seeds of a target and keeps what costs most for each goal. It ends
// at its bounds, or with the first request beyond an allowance. The result has one
// element for each goal. With the same options but Time, it is the same each time.
func Search(t *Target, o *Options) ([]Found, error) {
	s := &search{target: t, o: o, m: mutator{r: rand.New(rand.NewPCG(o.Seed, 1))}, best: make([][]candidate, len(o.Goals)), top: make([]candidate, len(o.Goals))}
	for _, text := range t.Seeds {
		tree, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("seed of %s: %w", t.Name, err)
		}
		s.m.seeds = append(s.m.seeds, tree)
	}
	for _, tree := range s.m.seeds {
		for goal := range o.Goals { // the first one fills caches
			s.take(&node{kind: '[', list: []*node{tree.clone()}}, goal)
		}
	}
	start := time.Now()
	for round := 0; (o.Rounds == 0 || round < o.Rounds) && (o.Time == 0 || time.Since(start) < o.Time) && !s.beyond(); round++ {
		s.round(round % len(o.Goals))
		s.rounds++
	}
	return s.found(), nil
}

// search is the state of a Search. Trees have a root of their own around the value, so
// that the value can be replaced.
type search struct {
	target *Target
	o      *Options
	m      mutator
	best   [][]candidate // of each goal, those with the most cost a byte, the dearest first
	top    []candidate   // of each goal, the one with the greatest share; its body is nil if there is none
	rounds int
}

// round mutates one of the best of a goal; better ones are chosen more often.
func (s *search) round(goal int) {
	all := s.best[goal]
	if len(all) == 0 {
		return
	}
	i := min(s.m.r.IntN(len(all)), s.m.r.IntN(len(all)))
	root := all[i].tree.clone()
	s.m.mutate(root)
	if len(root.list) == 1 {
		s.take(root, goal)
	}
}

// take measures a tree that was made for a goal, and keeps it for the goals for which
// it is among the best. What an outcome holds is weighed for that goal alone, because
// it takes long.
func (s *search) take(root *node, goal int) {
	body := root.list[0].append(nil, s.o.MaxBytes)
	if len(body) > s.o.MaxBytes {
		return
	}
	c := candidate{root, body, s.measure(body, false)}
	// More than it has allocated it cannot hold.
	if g := &s.o.Goals[goal]; g.Name == GoalKept && perByte(c.cost.Allocated, &c.cost) > s.least(goal) {
		c.cost = s.measure(body, true)
	}
	for i := range s.o.Goals {
		g := &s.o.Goals[i]
		if g.Figure(&c.cost) <= 0 {
			continue
		}
		s.keep(i, c)
		if s.top[i].body == nil || g.Share(&c.cost) > g.Share(&s.top[i].cost) {
			s.top[i] = c
		}
	}
}

func (s *search) measure(body []byte, kept bool) Cost {
	decode := s.target.Begin()
	if s.o.Hang > 0 {
		defer time.AfterFunc(s.o.Hang, func() { hang(s.target.Name, body, s.o.Hang) }).Stop()
	}
	return measure(decode, body, kept)
}

// perByte is a figure for each byte, by which candidates are chosen. Bodies below 2 KiB
// count as if they had more, because each request has a cost of its own.
func perByte(figure int64, c *Cost) float64 { return float64(figure) / float64(2<<10+c.Counted) }

// least is what the worst candidate that a goal keeps costs a byte.
func (s *search) least(goal int) float64 {
	all := s.best[goal]
	if len(all) < population {
		return 0
	}
	c := &all[len(all)-1].cost
	return perByte(s.o.Goals[goal].Figure(c), c)
}

func (s *search) keep(goal int, c candidate) {
	g := &s.o.Goals[goal]
	dear := perByte(g.Figure(&c.cost), &c.cost)
	all := s.best[goal]
	at, same := slices.BinarySearchFunc(all, dear, func(c candidate, dear float64) int {
		switch other := perByte(g.Figure(&c.cost), &c.cost); {
		case other > dear:
			return -1
		case other < dear:
			return 1
		}
		return 0
	})
	if same || at == population {
		return
	}
	s.best[goal] = slices.Insert(all, at, c)[:min(len(all)+1, population)]
}

// beyond reports whether a request costs more than is allowed, also when it is measured
// again: other goroutines may have allocated meanwhile, or a cache was filled.
func (s *search) beyond() bool {
	for i := range s.top {
		g := &s.o.Goals[i]
		if s.top[i].body == nil || g.Share(&s.top[i].cost) <= 1 {
			continue
		}
		s.top[i].cost = s.measure(s.top[i].body, g.Name == GoalKept)
		if g.Share(&s.top[i].cost) > 1 {
			return true
		}
	}
	return false
}

func (s *search) found() []Found {
	all := make([]Found, 0, len(s.top))
	for i := range s.top {
		if c := &s.top[i]; c.body != nil {
			all = append(all, Found{&s.o.Goals[i], s.o.Goals[i].Share(&c.cost), c.cost, c.body, s.rounds})
		}
	}
	return all
}

// maxShown bounds what report writes of a body.
const maxShown = 1 << 10

// report writes what a search has found, and returns whether a request costs too much.
func report(w io.Writer, t *Target, all []Found) (tooMuch bool) {
	for _, f := range all {
		_, _ = fmt.Fprintf(w, "%-14s %-9s %5.1f %% of the allowance: %d bytes (%d counted), %d allocated, %d kept, %d steps (%d rounds)\n",
			t.Name, f.Goal.Name, 100*f.Share, f.Cost.Body, f.Cost.Counted, f.Cost.Allocated, f.Cost.Kept, f.Cost.Steps, f.Rounds)
		if f.Share > 1 {
			tooMuch = true
			_, _ = fmt.Fprintf(w, "%s costs too much: %.*s\n", t.Name, maxShown, f.Body)
		}
	}
	return tooMuch
}
