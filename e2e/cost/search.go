package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Target is a part of the handling of requests.
type Target struct {
	Name string
	// Seeds are scenarios.
	Seeds []string
	// Begin makes a service of its own for a scenario, and returns what is measured. What
	// Begin costs is not counted.
	Begin func(s *scenario) task
}

// Options bound a search.
type Options struct {
	Seed  uint64
	Goals []Goal

	// Where the search ends. Rounds are measured scenarios; 0: no bound.
	Rounds int
	Time   time.Duration

	// MaxBytes bounds a scenario.
	MaxBytes int
	// Hang is how long a scenario may take before it ends the program; 0: any time.
	Hang time.Duration
}

// Found is the scenario that costs most of a goal's allowance.
type Found struct {
	Goal  *Goal
	Share float64
	Cost  Cost
	Text  []byte

	// What the search has done: the rounds, and the time.
	Rounds int
	Took   time.Duration
}

// candidate is a scenario that has been measured.
type candidate struct {
	tree *node
	text []byte
	cost Cost
}

// niche is the candidates of a goal that cost most in the same function. Without niches, the
// search would stay with the first kind of work that it finds to be dear, also if that kind is
// bounded: all that it keeps would be of that kind, and a beginning of another one is cheaper.
type niche struct {
	hottest function
	// all are the candidates, those with the most cost a byte first; there is at least one.
	all []candidate
	// climbed is what the one costs a byte from which the search climbed last.
	climbed float64
}

// population is how many candidates of a niche are kept.
const population = 24

// Search mutates the seeds of a target and keeps what costs most for each goal. It ends
// at its bounds, or with the first scenario beyond an allowance. The result has one
// element for each goal. With the same options but Time, it is the same each time.
func Search(t *Target, o *Options) ([]Found, error) {
	s := &search{
		target: t, o: o, start: time.Now(), m: mutator{r: rand.New(rand.NewPCG(o.Seed, 1))},
		best: make([][]*niche, len(o.Goals)), top: make([]candidate, len(o.Goals)),
	}

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

	// The goals take turns: one that is easy to drive up would use the whole time.
	for round := 0; (o.Rounds == 0 || round < o.Rounds) && !s.over() && !s.beyond(); round++ {
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

	// best has the niches of each goal, in the order in which they were found.
	best [][]*niche
	// top has for each goal the one with the greatest share; its text is nil if there is none.
	top    []candidate
	rounds int
}

// round mutates a candidate of a goal.
func (s *search) round(goal int) {
	if len(s.best[goal]) == 0 {
		return
	}

	s.m.lend = func() *node { return s.dearest(goal).tree }
	root := s.draw(goal).tree.clone()
	s.m.mutate(root)
	// The mutation has removed the scenario itself, or made it two.
	if len(root.list) != 1 {
		return
	}
	if c, rises := s.take(root, goal); rises {
		s.climb(c, goal)
	}
}

// draw draws one of the best of a niche; better ones are drawn more often.
func (s *search) draw(goal int) *candidate {
	// Each niche as often as another: a dear one takes most of the time all the same.
	all := s.best[goal][s.m.r.IntN(len(s.best[goal]))].all
	// The list is sorted: of two draws the lower index is the dearer candidate.
	return &all[min(s.m.r.IntN(len(all)), s.m.r.IntN(len(all)))]
}

// dearest draws from some niches, and returns the dearest for its bytes.
func (s *search) dearest(goal int) *candidate {
	const draws = 4
	g := &s.o.Goals[goal]
	best := s.draw(goal)
	for range draws - 1 {
		if c := s.draw(goal); g.perByte(&c.cost) > g.perByte(&best.cost) {
			best = c
		}
	}
	return best
}

const (
	// climbFrom is the share of an allowance from which on the search climbs.
	climbFrom = 0.002
	// climbBy is what a step has to multiply the share by. What has this share already is
	// out of the ordinary, and may grow in proportion to its bytes. Below, each byte has to
	// cost more with each step.
	climbBy, climbAnyFrom = 1.4, 0.1
	// climbAgain is by what a candidate has to cost more a byte than the one from which the
	// search climbed last. Most of those that are better are the same ones with less beside them.
	climbAgain = 1.1
)

// climb makes a scenario larger, step by step, as long as that makes it much dearer: what is
// largest in it is doubled, or what that is in is repeated. Chance does the same in the end,
// but each try at a dear scenario takes long.
func (s *search) climb(c candidate, goal int) {
	g := &s.o.Goals[goal]
	for higher := true; higher && !s.over() && g.Share(&c.cost) > climbFrom && g.Share(&c.cost) <= 1; {
		higher = false
		s.niche(goal, c.cost.Hottest).climbed = g.perByte(&c.cost)
		// From the inside out: the innermost repetition has the fewest bytes.
		for up := range pathTo(c.tree, largest(places(c.tree))) {
			root := c.tree.clone()
			path := pathTo(root, largest(places(root)))
			if at := path[len(path)-1-up]; up == 0 {
				s.m.double(at, nil)
			} else {
				s.m.again(at, 1)
			}

			// A step of the climb is a measured scenario as well, which the report counts.
			s.rounds++
			next, _ := s.take(root, goal)
			grows := g.Share(&c.cost) > climbAnyFrom || g.perByte(&next.cost) > g.perByte(&c.cost)
			if higher = grows && g.Share(&next.cost) > climbBy*g.Share(&c.cost); higher {
				c = next
				break
			}
		}
	}
}

// over reports whether the time is up.
func (s *search) over() bool { return s.o.Time > 0 && time.Since(s.start) > s.o.Time }

// take measures a tree that was made for a goal, and keeps it for the goals for which
// it is among the best. What an outcome holds is weighed for that goal alone, because
// it takes long. rises reports whether the search should climb from it for its own goal.
func (s *search) take(root *node, goal int) (c candidate, rises bool) {
	prune(root.list[0])
	text := root.list[0].append(nil, s.o.MaxBytes)
	if len(text) > s.o.MaxBytes {
		return c, false
	}
	cost, ok := s.measure(text, false)
	if !ok {
		return c, false
	}

	// Only what would be kept is worth a second measurement.
	if s.promising(&cost) && cost.Allocated < dearToRepeat && cost.Steps < dearToRepeat {
		again, _ := s.measure(text, false)
		cost = cost.lower(&again)
	}
	c = candidate{root, text, cost}

	// More than it has allocated it cannot hold.
	if g := &s.o.Goals[goal]; g.Name == GoalKept && perByte(c.cost.Allocated, &c.cost) > s.least(goal, c.cost.Hottest) {
		c.cost, _ = s.measure(text, true)
	}
	for i := range s.o.Goals {
		g := &s.o.Goals[i]
		// Steps are 0 in a program without counters: there is nothing to keep.
		if g.Figure(&c.cost) <= 0 {
			continue
		}
		up := s.keep(i, c)
		rises = rises || up && i == goal
		if s.top[i].text == nil || g.Share(&c.cost) > g.Share(&s.top[i].cost) {
			s.top[i] = c
		}
	}
	return c, rises
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

	// What Begin stores is another request's cost, so it is not measured.
	do := s.target.Begin(scenario)
	return measure(do, scenario.bytes(), kept), true
}

// dearToRepeat is the figure from which on a scenario is measured once only. What it costs
// below may be a pool's or a cache's, which another scenario would have filled as well: it
// hides what begins to grow.
const dearToRepeat = 8 << 20

// promising reports whether a cost is among the best of its niche for a goal.
func (s *search) promising(c *Cost) bool {
	for i := range s.o.Goals {
		if s.o.Goals[i].perByte(c) > s.least(i, c.Hottest) {
			return true
		}
	}
	return false
}

// least is what the worst candidate that a niche keeps costs a byte.
func (s *search) least(goal int, hottest function) float64 {
	all := s.niche(goal, hottest).all
	if len(all) < population {
		return 0
	}
	return s.o.Goals[goal].perByte(&all[len(all)-1].cost)
}

// niche returns the niche of a goal for candidates that cost most in a function.
func (s *search) niche(goal int, hottest function) *niche {
	for _, n := range s.best[goal] {
		if n.hottest == hottest {
			return n
		}
	}
	return &niche{hottest: hottest}
}

// keep keeps a candidate if it is among the best of its niche. It reports whether the search
// should climb from it.
func (s *search) keep(goal int, c candidate) (rises bool) {
	g := &s.o.Goals[goal]
	n := s.niche(goal, c.cost.Hottest)
	dear := g.perByte(&c.cost)
	at, same := slices.BinarySearchFunc(n.all, dear, func(c candidate, dear float64) int {
		switch other := g.perByte(&c.cost); {
		case other > dear:
			return -1
		case other < dear:
			return 1
		}
		return 0
	})

	// The same cost is nearly always the same scenario with another text: the list would fill with it.
	if same || at == population {
		return false
	}
	if len(n.all) == 0 {
		s.best[goal] = append(s.best[goal], n)
	}
	n.all = slices.Insert(n.all, at, c)[:min(len(n.all)+1, population)]
	return at == 0 && dear > climbAgain*n.climbed
}

// beyond reports whether a request costs more than is allowed, also when it is measured
// again: other goroutines may have allocated meanwhile, or a cache was filled.
func (s *search) beyond() bool {
	for i := range s.top {
		g := &s.o.Goals[i]
		if s.top[i].text == nil || g.Share(&s.top[i].cost) <= 1 {
			continue
		}

		// The lower figure replaces the first one, so that chance is not looked at again each round.
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
		// Without counters nothing was found for the steps.
		if c := &s.top[i]; c.text != nil {
			g := &s.o.Goals[i]
			all = append(all, Found{g, g.Share(&c.cost), c.cost, c.text, s.rounds, time.Since(s.start)})
		}
	}
	return all
}

// maxShown bounds what report writes of a scenario.
const maxShown = 1 << 10

// report writes what a search has found, and returns whether a request costs too much.
func report(w io.Writer, t *Target, all []Found) (tooMuch bool) {
	for _, f := range all {
		c := &f.Cost
		_, _ = fmt.Fprintf(w,
			"%-18s %-9s %5.1f %% of the allowance: %d bytes (%d counted), %d allocated, %d kept, %d steps",
			t.Name, f.Goal.Name, 100*f.Share, c.Body, c.Counted, c.Allocated, c.Kept, c.Steps)
		_, _ = fmt.Fprintf(w, " (%d rounds, %s)\n", f.Rounds, f.Took.Round(time.Second))
		if f.Share > 1 {
			tooMuch = true
			_, _ = fmt.Fprintf(w, "%s costs too much: %.*s\n", t.Name, maxShown, f.Text)
		}
	}
	return tooMuch
}
