package retention

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

var start = time.Unix(0, 0)

// TestDirectives requires of any call, also of one whose numbers contradict one another: ranges that
// are of the prompt and do not overlap, priorities that fall along them, and a bounded number.
func TestDirectives(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	lengths := []int{-1, 0, 1, 15, 511, 512, 1023, 1024, 5000, 131_072, 1 << 20}
	length := func() int { return lengths[r.IntN(len(lengths))] + r.IntN(3) - 1 }
	yes := func() bool { return r.IntN(2) == 0 }

	seen := map[string]int{}
	for range 200_000 {
		c := Call{
			Prompt: length(), Head: length(), Turn: length(),
			Shared: yes(), Tools: yes(), Ends: yes(), Choices: r.IntN(4),
			Pause: time.Duration(r.Int64N(int64(2 * MaxPause))),
		}
		all := c.Directives()
		if len(all) > MaxDirectives {
			t.Fatalf("%+v has %d directives", c, len(all))
		}

		end, last := 0, MaxPriority
		for i, d := range all {
			switch {
			case d.Priority < Released || d.Priority > last:
				t.Fatalf("%+v: the priority %d follows %d", c, d.Priority, last)
			case (d.Keep > 0) != (d.Priority > Released) && c.Pause > 0:
				t.Fatalf("%+v: %+v", c, d)
			case d.Output && (i < len(all)-1 || d.Start != 0 || d.End != 0):
				t.Fatalf("%+v: the output is in the midst of %+v", c, all)
			case !d.Output && (d.Start < end || d.End <= d.Start || d.End > c.Prompt):
				t.Fatalf("%+v: %+v follows %d", c, d, end)
			}
			end, last = d.End, d.Priority
			kind := "kept"
			if d.Priority == Released {
				kind = "released"
			}
			if d.Output {
				kind += " output"
			}
			seen[kind]++
		}

		// What is kept without a reason takes the place of what is needed.
		if !c.Ends && !c.Tools && (len(all) > 1 || len(all) == 1 && all[0].Priority != headPriority) {
			t.Fatalf("%+v keeps %+v", c, all)
		}
		if c.Ends && c.Prompt > 0 && all[len(all)-1].Priority != Released {
			t.Fatalf("%+v keeps %+v", c, all)
		}
		if c.Choices > 1 && !c.Ends && len(all) > 0 && all[len(all)-1].Output {
			t.Fatalf("%+v keeps all its outputs", c)
		}
	}
	if len(seen) != 4 {
		t.Errorf("the calls had only %v", seen)
	}
}

// TestLevels requires that a conversation whose tools take longer never precedes one that is sooner back,
// down to its output, nor a head that all have.
func TestLevels(t *testing.T) {
	t.Parallel()
	directives := func(pause time.Duration) []Directive {
		return Call{Prompt: 9000, Head: 100, Turn: 6000, Shared: true, Tools: true, Pause: pause}.Directives()
	}
	for pause := MinPause; pause <= MaxPause; pause += time.Second {
		now, later := directives(pause), directives(2*pause)
		switch lowest := now[len(now)-1].Priority; {
		case lowest <= Released, now[0].Priority <= now[1].Priority:
			t.Fatalf("%s: %+v", pause, now)
		case 2*pause <= MaxPause && lowest <= later[1].Priority:
			t.Fatalf("%s: %+v, and twice as long %+v", pause, now, later)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		pauses []time.Duration
		want   time.Duration
	}{
		{"nothing is known", nil, DefaultPause},
		{"one", []time.Duration{20 * time.Second}, 30 * time.Second},
		{"short ones", []time.Duration{time.Millisecond, 0}, MinPause},
		{"long ones", []time.Duration{9 * time.Minute, 9 * time.Minute}, MaxPause},
		{"a person", []time.Duration{20 * time.Second, 11 * time.Minute}, 30 * time.Second},
		{"a clock that is set back", []time.Duration{-time.Second}, DefaultPause},
		{"one of eight is longer", append(times(7, 10*time.Second), time.Minute), 15 * time.Second},
		{"two of eight are longer", append(times(6, 10*time.Second), time.Minute, time.Minute), 90 * time.Second},
		{"what was long ago", append(times(20, time.Minute), times(maxPauses, 10*time.Second)...), 15 * time.Second},
	} {
		m := NewMemory()
		for i, pause := range c.pauses {
			m.Called("s", strconv.Itoa(i), start)
			m.Resumed("s", strconv.Itoa(i), start.Add(pause))
		}
		if got := m.Pause("s"); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestResults requires that a result is of the call that it names: an agent and its sub-agents have one
// session, and clients send the results of earlier calls again and again.
func TestResults(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	m.Called("s", "slow", start)
	m.Called("s", "fast", start.Add(50*time.Second))
	m.Resumed("s", "fast", start.Add(58*time.Second))
	m.Resumed("s", "fast", start.Add(5*time.Minute))
	m.Resumed("s", "unknown", start.Add(5*time.Minute))
	m.Resumed("other", "slow", start.Add(5*time.Minute))
	if got := m.Pause("s"); got != 12*time.Second {
		t.Errorf("the pause is %s", got)
	}
	if got := m.Pause("other"); got != DefaultPause {
		t.Errorf("another session's pause is %s", got)
	}
}

// TestMemoryIsBounded has any sequence of calls leave no more than the limits, and what was used last.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	m.sessions.limit, m.heads.limit = 50, 30
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 20_000 {
		name, call := strconv.Itoa(r.IntN(200)), strconv.Itoa(r.IntN(1000))
		now := start.Add(time.Duration(i) * time.Second)
		switch r.IntN(4) {
		case 0:
			m.Called(name, call, now)
			if m.sessions.find(name) == nil {
				t.Fatal("the session that was used last is forgotten")
			}
		case 1:
			m.Resumed(name, call, now)
		case 2:
			if pause := m.Pause(name); pause < MinPause || pause > MaxPause {
				t.Fatalf("a pause of %s", pause)
			}
		case 3:
			head := r.Uint64N(100)
			m.Began(head)
			if !m.Shared(head) {
				t.Fatal("the head that came last is forgotten")
			}
		}
		for _, n := range []struct{ have, listed, limit int }{
			{len(m.sessions.byKey), m.sessions.order.Len(), m.sessions.limit},
			{len(m.heads.byKey), m.heads.order.Len(), m.heads.limit},
		} {
			if n.have > n.limit || n.have != n.listed {
				t.Fatalf("%+v", n)
			}
		}
	}
}

// TestShared: the first program with a head has it to itself.
func TestShared(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	asked := m.Shared(1)
	again := m.Shared(1) // asking alone makes no head known
	m.Began(1)
	if asked || again || !m.Shared(1) || m.Shared(2) {
		t.Error("a head is known before it has come, or not after")
	}
}

func times(n int, pause time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = pause
	}
	return all
}
