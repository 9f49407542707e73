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
