package turn

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

const reasonedCall = "<|channel|>analysis<|message|>why<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>1<|call|>"

// toolTurn is a conversation of one call of the model's.
func toolTurn(id string) []Item {
	return []Item{userHi, {Kind: Call, CallID: id, Name: "f", Text: "1"}, {Kind: Result, CallID: id, Text: "2"}}
}

// TestMemoryFails shows that a turn whose memory fails goes on without it, and
// tells.
func TestMemoryFails(t *testing.T) {
	t.Parallel()
	s, _ := newScope()
	m := newMemory()
	m.fault = errors.New("broken")
	s.Memory = m
	turn := prepare(t, s, &Input{Items: toolTurn("x"), Tools: functions("f")})
	_, r := play(t, turn, reasonedCall, engine.FinishStop)
	if r.Finish() != FinishCalls {
		t.Errorf("finish %q", r.Finish())
	}
	for part, err := range map[string]error{"date": turn.Fault(), "read the reasoning": turn.Fault(), "keep the reasoning": r.Fault()} {
		if !errors.Is(err, m.fault) || !strings.Contains(err.Error(), part) {
			t.Errorf("the fault %v does not tell of %q", err, part)
		}
	}
	if p, err := s.Extend(context.Background(), nil, toolTurn("x")); err == nil {
		t.Errorf("a prefix of %d items without their reasoning", p.Len())
	}
}

// TestMemoryHangs shows how long a turn waits for its memory.
func TestMemoryHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newScope()
		m := newMemory()
		m.hangs = true
		s.Memory = m
		begin := time.Now()
		_, r := play(t, prepare(t, s, &Input{Items: toolTurn("x"), Tools: functions("f")}), reasonedCall, engine.FinishStop)
		if waited := time.Since(begin); waited != readTimeout+writeTimeout { // by the bubble's clock
			t.Errorf("waited %v", waited)
		}
		if !errors.Is(r.Fault(), context.DeadlineExceeded) {
			t.Errorf("fault %v", r.Fault())
		}
	})
}

// TestMemoryReads counts what a conversation of many tool calls asks of the
// memory.
func TestMemoryReads(t *testing.T) {
	t.Parallel()
	s, _ := newScope()
	m := newMemory()
	s.Memory = m
	const calls = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>1<|end|>"
	turn := prepare(t, s, &Input{Items: []Item{userHi}, Tools: functions("f")})
	m.writes = 0
	play(t, turn, "<|channel|>analysis<|message|>why<|end|>"+strings.Repeat(calls, 5), engine.FinishStop)
	if m.writes != 1 {
		t.Errorf("%d writes for a turn", m.writes)
	}
	var items []Item
	for i := range 50 { // steps of others, and two of which only a later call is known
		items = append(items, toolTurn("other_"+strconv.Itoa(i))...)
	}
	items = append(append(items, toolTurn("call_2")...), toolTurn("call_1")...)
	m.reads = 0
	if got := strings.Count(prompt(t, s, &Input{Items: items}), "why"); got != 2 || m.reads != 2 {
		t.Errorf("%d reasonings in %d reads", got, m.reads)
	}
	m.reads = 0
	if got := strings.Count(prompt(t, s, &Input{Items: toolTurn("call_1")}), "why"); got != 1 || m.reads != 1 {
		t.Errorf("%d reasonings in %d reads", got, m.reads)
	}
}
