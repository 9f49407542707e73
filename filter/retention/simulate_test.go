package retention

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// load is what a simulated cache gets to do.
type load struct {
	// Agents work side by side. Each has sessions, one after the other.
	agents int
	// Of requests without tools and without a later turn, one every so often; 0: there are none.
	single time.Duration
}

// simulated is how long the agents work.
const simulated = 10 * time.Minute

// world is a simulation. What happens, and when, does not depend on the cache.
type world struct {
	load   load
	cache  *cache
	memory *Memory
	events events
	now    time.Duration
	ids    int
	// Of all calls.
	prompts, computed int
}

func simulate(l load, tokens int, hints bool) *world {
	w := &world{load: l, cache: newCache(tokens, hints), memory: NewMemory()}
	r := rand.New(rand.NewPCG(1, 2))
	// A few programs are used by all, each with its instructions and tools.
	var heads [4][]uint32
	for i := range heads {
		heads[i] = text(r, 3000+3000*i)
	}
	for i := range l.agents {
		a := &agent{w: w, r: rand.New(rand.NewPCG(3, uint64(i))), head: heads[i%len(heads)]}
		// The tools of one agent are alike.
		a.pace = doubled(a.r, 1000, 5)
		w.after(time.Duration(a.r.IntN(60))*time.Second, a.session)
	}
	if l.single > 0 {
		w.after(0, func() { w.singles(r, text(r, 400)) })
	}

	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		if w.now = e.at; w.now > simulated {
			break
		}
		e.do()
	}
	return w
}

// after has something happen.
func (w *world) after(pause time.Duration, do func()) {
	w.ids++
	heap.Push(&w.events, event{w.now + pause, w.ids, do})
}

// call makes a model call. A second and a token every 15 ms later then has the output.
func (w *world) call(c Call, session string, prompt, output []uint32, then func()) {
	c.Prompt, c.Pause = len(prompt), w.memory.Pause(session)
	head := uint64(prompt[0])<<32 | uint64(c.Head)
	c.Shared = w.memory.Shared(head)
	w.memory.Began(head)
	running, computed := w.cache.begin(prompt, Hints{session, c.Directives()}, w.now)
	w.prompts += len(prompt)
	w.computed += computed
	w.after(time.Second+time.Duration(len(output))*15*time.Millisecond, func() {
		w.cache.end(running, output, w.now)
		then()
	})
}

// singles makes requests that nobody comes back to: questions about a document.
func (w *world) singles(r *rand.Rand, head []uint32) {
	w.ids++
	prompt := append(append([]uint32{}, head...), text(r, 2000+r.IntN(10_000))...)
	w.call(Call{Head: len(head), Turn: len(prompt)}, strconv.Itoa(w.ids), prompt, text(r, 300), func() {})
	w.after(time.Duration(r.Int64N(2*int64(w.load.single))), func() { w.singles(r, head) })
}

// agent is a program that works with tools.
type agent struct {
	w    *world
	r    *rand.Rand
	head []uint32
	pace int // ms

	name   string // of the session
	turns  int    // that are left
	before []uint32
	// Of the turn: the prompt, what remains of it after the answer, and the calls that are left.
	prompt, kept []uint32
	calls        int
}

// longest is how long a conversation gets before it is compacted.
const longest = 60_000

func (a *agent) session() {
	a.w.ids++
	a.name, a.turns = "session "+strconv.Itoa(a.w.ids), 1+a.r.IntN(4)
	a.before = append([]uint32{}, a.head...)
	a.turn()
}

// turn is a message of the user, and the calls up to the answer.
func (a *agent) turn() {
	a.turns--
	a.before = append(a.before, text(a.r, 100+a.r.IntN(400))...)
	a.prompt, a.kept = append([]uint32{}, a.before...), append([]uint32{}, a.before...)
	a.calls = doubled(a.r, 1, 5)
	a.step()
}

func (a *agent) step() {
	thought := text(a.r, doubled(a.r, 20, 5))
	c := Call{Head: len(a.head), Turn: len(a.before), Tools: true, Choices: 1}
	if a.calls == 0 {
		answer := text(a.r, 300)
		a.w.call(c, a.name, a.prompt, append(thought, answer...), func() {
			a.before = append(a.kept, answer...)
			a.rest()
		})
		return
	}

	a.calls--
	call := text(a.r, doubled(a.r, 30, 3))
	written := append(thought, call...)
	a.w.call(c, a.name, a.prompt, written, func() {
		a.w.ids++
		id := strconv.Itoa(a.w.ids)
		a.w.memory.Called(a.name, id, start.Add(a.w.now))
		a.w.after(time.Duration(min(60_000, max(1000, a.pace*doubled(a.r, 35, 3)/100)))*time.Millisecond, func() {
			a.w.memory.Resumed(a.name, id, start.Add(a.w.now))
			result := text(a.r, doubled(a.r, 50, 7))
			a.prompt = append(append(a.prompt, written...), result...)
			a.kept = append(append(a.kept, call...), result...)
			a.step()
		})
	})
}

// rest is after an answer: the user reads, and goes on, or begins another session.
func (a *agent) rest() {
	pause := time.Duration(doubled(a.r, 10, 5)) * time.Second
	switch {
	case a.turns == 0:
		a.w.after(pause, a.session)
	case len(a.before) > longest:
		asking := append(a.before, text(a.r, 200)...)
		summary := text(a.r, 1500)
		a.w.call(Call{Head: len(a.head), Turn: len(asking), Tools: true, Choices: 1, Ends: true}, a.name, asking, summary, func() {
			a.before = append(append([]uint32{}, a.head...), summary...)
			a.w.after(pause, a.turn)
		})
	default:
		a.w.after(pause, a.turn)
	}
}

// text returns tokens that occur nowhere else.
func text(r *rand.Rand, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = r.Uint32()
	}
	return tokens
}

// doubled returns at least a number, and less than that so often doubled. Each doubling is as likely.
func doubled(r *rand.Rand, least, times int) int {
	least <<= r.IntN(times)
	return least + r.IntN(least)
}

type event struct {
	at time.Duration
	id int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].id < e[j].id
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// loads are the columns of the table, and sizes its rows: what the cache has room for, in tokens.
var (
	loads = []load{{24, 0}, {24, 4 * time.Second}}
	sizes = []int{100_000, 200_000, 300_000, 400_000, 600_000}
)

// TestSimulatedCache compares the table of docs/prefix-cache.md with what a simulated engine computes of
// prompts, without hints and with them, and requires that they do no harm in any of these.
func TestSimulatedCache(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	docs, err := os.ReadFile("../../docs/prefix-cache.md")
	if err != nil {
		t.Fatal(err)
	}

	rows := make([]string, len(sizes)+1)
	for i, size := range sizes {
		rows[i] = fmt.Sprintf("| %d,000 |", size/1000)
	}
	rows[len(sizes)] = "| without limit |"
	for _, l := range loads {
		for i := range rows {
			size := math.MaxInt
			if i < len(sizes) {
				size = sizes[i]
			}
			without, with := simulate(l, size, false), simulate(l, size, true)
			rows[i] += fmt.Sprintf(" %.2f | %.2f |", million(without.computed), million(with.computed))
			if with.prompts != without.prompts {
				t.Errorf("%+v: the hints have changed the prompts", l)
			}
			// The heads that are kept may be of programs that have no calls for a while.
			if with.computed > without.computed+without.computed/100 {
				t.Errorf("%+v, %d tokens: computes %d with hints, %d without", l, size, with.computed, without.computed)
			}
			t.Logf("%+v, %d tokens: of %.1f million %.2f, with hints %.2f, %+.0f %%", l, size, million(with.prompts),
				million(without.computed), million(with.computed), 100*(float64(with.computed)/float64(without.computed)-1))
		}
	}
	for _, row := range rows {
		if !strings.Contains(string(docs), "\n"+row+"\n") {
			t.Errorf("docs/prefix-cache.md lacks the row\n%s", row)
		}
	}
}

func million(tokens int) float64 { return float64(tokens) / 1e6 }
