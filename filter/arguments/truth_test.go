package arguments

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// verdict is what became of damaged arguments.
type verdict uint8

const (
	// The damage does not fit these arguments.
	noDamage verdict = iota
	// The result is not the truth, and a damage made other arguments of it: JSON, or a
	// literal of Python, as it stands.
	otherValue
	// The result is the text itself.
	left
	// The result is the truth.
	restored
	// The result is neither.
	wrong
)

// isOther reports whether a text is a literal as it stands, and has another value.
func (d *damaged) isOther(text string, python bool) bool {
	v := readLiteral(text, python)
	return v != nil && canonical(v) != canonical(d.truth)
}

// suffer damages arguments in these ways. other: one of them makes JSON or a literal of Python
// of another value, which no reader can see. Damages of brackets, commas and members are
// looked at with strings that are whole.
func (d *damaged) suffer(ways []*damage) (other, ok bool) {
	for _, way := range ways {
		if len(d.tokens) < 2 || !way.apply(d) {
			return false, false
		}
		isText := way.family == "quotes" || way.family == "escapes" || way.family == "around"
		other = other || d.isOther(d.plain(), true) || d.isOther(d.text(), isText)
	}
	return other, true
}

// judge repairs damaged arguments, in two ways to cut them into pieces.
func (d *damaged) judge(t *testing.T) verdict {
	text := d.text()
	r, again := New(d.parameter), New(d.parameter)
	got := string(r.Push([]byte(text)))
	var pieces strings.Builder

	for rest := text; rest != ""; {
		n := 1 + d.IntN(min(len(rest), 12))
		pieces.Write(again.Push([]byte(rest[:n])))
		rest = rest[n:]
	}

	if d.cut {
		got += string(r.Flush())
		pieces.Write(again.Flush())
	} else {
		rest, _, _ := r.End()
		got += string(rest)
		rest, _, _ = again.End()
		pieces.Write(rest)
	}

	if got != pieces.String() {
		t.Errorf("%q becomes %q at once, and %q in pieces", text, got, pieces.String())
	}

	switch v := readLiteral(got, false); {
	case got == text && (v == nil || canonical(v) != canonical(d.truth)):
		return left
	case v != nil && canonical(v) == canonical(d.truth):
		return restored
	}
	return wrong
}

// choose returns one to three damages, of as many families, in the order of the list.
func (g *generator) choose() []*damage {
	var ways []*damage
	for range 1 + g.IntN(3) {
		way := &damages[g.IntN(len(damages))]
		if !slices.ContainsFunc(ways, func(w *damage) bool { return w.family == way.family || w.loses && way.loses }) {
			ways = append(ways, way)
		}
	}
	slices.SortFunc(ways, func(a, b *damage) int { return index(a) - index(b) })
	return ways
}

func index(way *damage) int {
	for i := range damages {
		if &damages[i] == way {
			return i
		}
	}
	return -1
}

// newGenerator returns a generator of one case.
func newGenerator(seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 56))}
	if g.chance(3) {
		g.parameter = "command"
	}
	return g
}

// readings is how many readings a careful reader has of each of the damages, alone. What has
// not the only parameter of its tool may be the text itself.
type readings uint8

const (
	several readings = iota
	// One, if the reader takes strings and names that look like JSON for what they are.
	nasties
	// One: names are of letters, and strings have neither quotes nor backslashes.
	ordinary
)

// readings returns how many there are.
func (d *damaged) readings(ways []*damage) readings {
	isOne := d.parameter == "" || slices.ContainsFunc(d.truth, func(m member) bool { return m.name == d.parameter })
	for _, w := range ways {
		isOne = isOne && w.clear
	}
	if !isOne {
		return several
	}
	for _, t := range d.original {
		if t.isName && strings.Trim(t.value, "abcdefghijklmnopqrstuvwxyz_") != "" || strings.ContainsAny(t.value, "\"'\\`{}[]:=\ufeff") {
			return nasties
		}
	}
	return ordinary
}

// one makes, damages and repairs arguments.
func one(t *testing.T, seed uint64) (ways []*damage, found verdict, sure readings) {
	g := newGenerator(seed)
	d := newDamaged(g)
	ways = g.choose()
	other, ok := d.suffer(ways)
	if !ok {
		return ways, noDamage, several
	}

	if found = d.judge(t); found == wrong && other {
		return ways, otherValue, several
	}

	if found == wrong {
		r := New(d.parameter)
		got := string(r.Push([]byte(d.text())))
		rest, _, _ := r.End()
		names := []string{}
		for _, w := range ways {
			names = append(names, w.name)
		}

		truth := damaged{generator: g}
		truth.write(d.truth)
		t.Errorf("seed %d, %q, parameter %q:\ntruth   %s\ndamaged %s\nbecame  %s", seed, names, d.parameter, truth.text(), d.text(), got+string(rest))
	}

	return ways, found, d.readings(ways)
}

// Whatever the damage, a repair is the truth, or there is none: the text comes out as it is.
func TestRepairIsTruthOrNothing(t *testing.T) {
	cases := uint64(200_000)
	if testing.Short() {
		cases = 30_000
	}

	var all, single, plain [wrong + 1]int
	alone := map[*damage]*[wrong + 1]int{}

	for seed := range cases {
		ways, found, sure := one(t, seed)
		all[found]++
		if sure >= nasties {
			single[found]++
		}

		if sure == ordinary {
			plain[found]++
		}

		if len(ways) == 1 && (sure >= nasties || !ways[0].clear) {
			if alone[ways[0]] == nil {
				alone[ways[0]] = new([wrong + 1]int)
			}
			alone[ways[0]][found]++
		}

		if all[wrong] > 20 {
			break
		}
	}

	t.Logf("%d cases: %d repaired, %d left as they were, %d wrong; %d are no damage, %d have another value as they stand",
		cases, all[restored], all[left], all[wrong], all[noDamage], all[otherValue])

	for i := range damages {
		n := alone[&damages[i]]
		if n == nil {
			t.Errorf("%s: no case", damages[i].name)
			continue
		}

		what := "two readings"
		if damages[i].clear {
			what = "one reading"
		}

		t.Logf("%-40s %-12s repaired %5d of %5d", damages[i].name, what, n[restored], n[restored]+n[left])
	}

	t.Logf("of cases with one reading %d of %d are repaired, and of those with ordinary names and texts %d of %d",
		single[restored], single[restored]+single[left], plain[restored], plain[restored]+plain[left])
	if single[left] > single[restored] || plain[left]*8 > plain[restored] {
		t.Error("too few repairs")
	}

	if all[otherValue]*100 > int(cases) {
		t.Errorf("too many cases say nothing: %d of %d", all[otherValue], cases)
	}
}

// FuzzDamage looks for a seed whose repair is wrong.
func FuzzDamage(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { one(t, seed) })
}
