package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Target is a part of the handling of requests.
type Target struct {
	Name  string
	Seeds []string // scenarios
	// Begin makes a service of its own for a scenario, and returns what is measured. What
	// Begin costs is not counted.
	Begin func(s *scenario) work
}

// Options bound a search.
type Options struct {
	Seed     uint64
	Rounds   int           // measured scenarios; 0: no bound
	Time     time.Duration // 0: no bound
	MaxBytes int           // of a scenario
	Hang     time.Duration // a scenario that takes longer ends the program; 0: none does
	Goals    []Goal
}

// Found is the scenario that costs most of a goal's allowance.
type Found struct {
	Goal   *Goal
	Share  float64
	Cost   Cost
	Text   []byte
	Rounds int // rounds of the search
	Took   time.Duration
}

// candidate is a scenario that has been measured.
type candidate struct {
	tree *node
	text []byte
	cost Cost
}

// population is how many candidates of a goal are kept.
const population = 24

// Search mutates the seeds of a target and keeps what costs most for each goal. It ends
// at its bounds, or with the first scenario beyond an allowance. The result has one
// element for each goal. With the same options but Time, it is the same each time.
func Search(t *Target, o *Options) ([]Found, error) {
	s := &search{target: t, o: o, start: time.Now(), m: mutator{r: rand.New(rand.NewPCG(o.Seed, 1))}, best: make([][]candidate, len(o.Goals)), top: make([]candidate, len(o.Goals))}
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
	for round := 0; (o.Rounds == 0 || round < o.Rounds) && (o.Time == 0 || time.Since(s.start) < o.Time) && !s.beyond(); round++ {
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
	start  time.Time
	m      mutator
	best   [][]candidate // of each goal, those with the most cost a byte, the dearest first
	top    []candidate   // of each goal, the one with the greatest share; its text is nil if there is none
	rounds int
}

// round mutates one of the best of a goal. Better ones are chosen more often, and now and
// then the one with the greatest share: what costs most a byte can have to grow still.
func (s *search) round(goal int) {
	all := s.best[goal]
	if len(all) == 0 {
		return
	}
	chosen := all[min(s.m.r.IntN(len(all)), s.m.r.IntN(len(all)))]
	if top := &s.top[goal]; s.m.r.IntN(4) == 0 && top.text != nil && perByte(s.o.Goals[goal].Figure(&top.cost), &top.cost) > s.least(goal) {
		chosen = *top
	}

	root := chosen.tree.clone()
	s.m.mutate(root)
	if len(root.list) == 1 {
		s.take(root, goal)
	}
}

// take measures a tree that was made for a goal, and keeps it for the goals for which
// it is among the best. What an outcome holds is weighed for that goal alone, because
// it takes long.
func (s *search) take(root *node, goal int) {
	text := root.list[0].append(nil, s.o.MaxBytes)
	if len(text) > s.o.MaxBytes {
		return
	}
	cost, ok := s.measure(text, false)
	if !ok {
		return
	}
	c := candidate{root, text, cost}
	// More than it has allocated it cannot hold.
	if g := &s.o.Goals[goal]; g.Name == GoalKept && perByte(c.cost.Allocated, &c.cost) > s.least(goal) {
		c.cost, _ = s.measure(text, true)
	}
	for i := range s.o.Goals {
		g := &s.o.Goals[i]
		if g.Figure(&c.cost) <= 0 {
			continue
		}
		s.keep(i, c)
		if s.top[i].text == nil || g.Share(&c.cost) > g.Share(&s.top[i].cost) {
			s.top[i] = c
		}
	}
}

// measure measures a scenario; ok is false if the text is none.
func (s *search) measure(text []byte, kept bool) (c Cost, ok bool) {
	scenario, err := parseScenario(text)
	if err != nil {
		return Cost{}, false
	}
	if s.o.Hang > 0 {
		defer time.AfterFunc(s.o.Hang, func() { hang(s.target.Name, text, s.o.Hang) }).Stop()
	}
	do := s.target.Begin(scenario)
	return measure(do, scenario.bytes(), kept), true
}

// perByte is what candidates are chosen by: a figure for each byte. Scenarios below 2 KiB
// count as if they had more, because each request has a cost of its own. The exponent lets
// what is in proportion to the bytes lose by growing, so that the search keeps such scenarios
// small and fast, and grows those that cost more than in proportion.
func perByte(figure int64, c *Cost) float64 {
	return float64(figure) / math.Pow(float64(2<<10+c.Counted), 1.2)
}

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
		if s.top[i].text == nil || g.Share(&s.top[i].cost) <= 1 {
			continue
		}
		s.top[i].cost, _ = s.measure(s.top[i].text, g.Name == GoalKept)
		if g.Share(&s.top[i].cost) > 1 {
			return true
		}
	}
	return false
}

func (s *search) found() []Found {
	all := make([]Found, 0, len(s.top))
	for i := range s.top {
		if c := &s.top[i]; c.text != nil {
			all = append(all, Found{&s.o.Goals[i], s.o.Goals[i].Share(&c.cost), c.cost, c.text, s.rounds, time.Since(s.start)})
		}
	}
	return all
}

// maxShown bounds what report writes of a scenario.
const maxShown = 1 << 10

// report writes what a search has found, and returns whether a request costs too much.
func report(w io.Writer, t *Target, all []Found) (tooMuch bool) {
	for _, f := range all {
		_, _ = fmt.Fprintf(w, "%-14s %-9s %5.1f %% of the allowance: %d bytes (%d counted), %d allocated, %d kept, %d steps (%d rounds, %s)\n",
			t.Name, f.Goal.Name, 100*f.Share, f.Cost.Body, f.Cost.Counted, f.Cost.Allocated, f.Cost.Kept, f.Cost.Steps, f.Rounds, f.Took.Round(time.Second))
		if f.Share > 1 {
			tooMuch = true
			_, _ = fmt.Fprintf(w, "%s costs too much: %.*s\n", t.Name, maxShown, f.Text)
		}
	}
	return tooMuch
}
