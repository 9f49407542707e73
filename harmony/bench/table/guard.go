package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxLoss is the loss of a ratio above which the run fails.
const maxLoss = 0.15

// A change is the shortest CPU time of a benchmark and that of the baseline's, in
// nanoseconds, measured in turns. The shortest time is the one with the least other work
// beside it. On a busy machine it is wrong in both directions, since a process's share of
// the core is not that of each of its benchmarks.
type change struct{ now, before float64 }

// loss returns by which part the benchmark takes longer than the baseline's. A gain is
// less than 0.
func (c change) loss() float64 { return c.now/c.before - 1 }

// changes returns the change of each benchmark that both have.
func changes(now, before figures) map[string]change {
	all := map[string]change{}
	for name := range now {
		if a, b := now[name]["ns/op"], before[name]["ns/op"]; len(a) > 0 && len(b) > 0 {
			all[name] = change{slices.Min(a), slices.Min(b)}
		}
	}
	return all
}

// losing returns the benchmarks of which a result has lost more than maxLoss.
func losing(all map[string]change) (lost []suite) {
	for _, s := range suites {
		names := slices.DeleteFunc(slices.Clone(s.benchmarks), func(benchmark string) bool {
			for name, c := range all {
				// A benchmark has one result, or one for each part: pkg.Name/part.
				result, _, _ := strings.Cut(strings.TrimPrefix(name, s.pkg+"."), "/")
				if c.loss() > maxLoss && result == benchmark {
					return false
				}
			}
			return true
		})

		if len(names) > 0 {
			lost = append(lost, suite{s.pkg, names})
		}
	}
	return lost
}

var errNothing = errors.New("the baseline has none of these benchmarks: name another commit with -against")

var errLoss = errors.New("benchmarks are slower than the baseline's, measured beside them: " +
	"find out why, or accept it with -update")

// compare prints the benchmarks that have changed by more than maxLoss, and those that
// only one side has. It returns an error if one is slower.
func compare(w io.Writer, now, before figures) (err error) {
	all := changes(now, before)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := all[name]
		switch loss := c.loss(); {
		case loss > maxLoss:
			err = errLoss
			fmt.Fprintf(w, "LOSS: %s takes %.0f %% longer: %s ns, the baseline's %s ns\n",
				name, loss*100, number(c.now), number(c.before))
		case loss < -maxLoss:
			fmt.Fprintf(w, "gain: %s takes %.0f %% less: %s ns, the baseline's %s ns\n",
				name, -loss*100, number(c.now), number(c.before))
		}
	}

	// A benchmark with a new name would otherwise pass without a comparison.
	only(w, "new: %s is not in the baseline\n", now, before)
	only(w, "gone: %s is in the baseline only\n", before, now)
	return err
}

// only prints the benchmarks that a has and b has not.
func only(w io.Writer, format string, a, b figures) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if len(a[name]["ns/op"]) > 0 && len(b[name]["ns/op"]) == 0 {
			fmt.Fprintf(w, format, name)
		}
	}
}

// summary prints the number of changes and the greatest ones, so that a run without a
// loss says what it has compared.
func summary(w io.Writer, commit string, all map[string]change) {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if all[a].loss() < all[b].loss() {
			return -1
		}
		return 1
	})

	least, most := names[0], names[len(names)-1]
	fmt.Fprintf(w, "%d benchmarks beside those of commit %.12s: %+.0f %% (%s) to %+.0f %% (%s)\n",
		len(all), commit, all[least].loss()*100, least, all[most].loss()*100, most)
}
