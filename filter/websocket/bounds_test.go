package websocket

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// What stays of an event when its response has ended is its lane's name: not the event, whose memory
// has been returned.
func TestLanesDoNotKeepEvents(t *testing.T) { //nolint:paralleltest // it measures the heap
	const size = 256 << 10
	s := start(t, func(l *Limits) { l.MessageBytes = 2 * size }, hello)
	c := s.dial(t)
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}

	before := heap()
	for i := range maxLanes {
		c.send(fmt.Sprintf(`{"type":"response.create","stream_id":"%d","input":"%s"}`, i, strings.Repeat("x", size)))
		c.until("response.completed")
	}
	if kept := heap() - before; kept > maxLanes*size/4 {
		t.Errorf("%d bytes are kept of %d events", kept, maxLanes)
	}
}

// Input that waits is joined with that of the next event at a cost of their sizes, whatever they are
// made of.
func TestJoined(t *testing.T) { //nolint:paralleltest // it counts allocations
	for want, tt := range map[string][]string{
		`[{"type":"message","role":"user","content":"a"},{"role":"user"},7,8]`: {`"a"`, `[ {"role":"user"} ]`, "[7,8]"},
		`[{"type":"message","role":"user","content":"a"}]`:                     {`"a"`, "[ ]"},
		`[{"role":"user"},{"type":"message","role":"user","content":7}]`:       {`[{"role":"user"}]`, "7"},
		`[{"role":"user","content":"b"}]`:                                      {`[{"role":"user","content":"b"}]`, ""},
	} {
		steers := make([]steer, 0, len(tt))
		for _, input := range tt[:len(tt)-1] {
			steers = append(steers, steer{input: input})
		}
		if got := joined(steers, tt[len(tt)-1]); got != want {
			t.Errorf("%q: %s, want %s", tt, got, want)
		}
	}

	many := "[" + strings.Repeat("1,", 1<<16) + "1]"
	steers := []steer{{input: `"a"`}}
	if n := testing.AllocsPerRun(3, func() { joined(steers, many) }); n > 3 {
		t.Errorf("a list of many items takes %v allocations", n)
	}
}

// The settings take what the event has beside its input, of memory that was taken before.
func TestSettingsAreNoCopyOfTheInput(t *testing.T) {
	t.Parallel()
	for _, members := range []string{``, `,"model":"m"`, `,"tools":[1, 2],"stream_id":"l"`, `,"input":"` + strings.Repeat("x", 1000) + `"`} {
		e, err := readEvent([]byte(`{"type":"response.create"` + members + `}`))
		if err != nil {
			t.Fatal(err)
		}
		settings, err := e.settings()
		if most := e.settingsBytes(); err != nil || cap(settings) != most || most > 100 {
			t.Errorf("%s: %d bytes of %d, %v", members, cap(settings), most, err)
		}
	}
}
