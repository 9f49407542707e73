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
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
)

const reasonedCall = "<|channel|>analysis<|message|>why<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>1<|call|>"

// toolTurn returns a conversation with one call.
func toolTurn(id string) []Item {
	return []Item{userHi, {Kind: Call, CallID: id, Name: "f", Text: "1"}, {Kind: Result, CallID: id, Text: "2"}}
}

// TestMemoryFails shows that a turn goes on if its memory fails, and reports the
// faults.
func TestMemoryFails(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	m := newMemory()
	m.fault = errors.New("broken")
	rc.Memory = m
	turn := prepare(t, rc, &Input{Items: toolTurn("x"), Tools: functions("f")})
	_, r := readOutput(t, turn, reasonedCall, engine.FinishStop)
	if r.Finish() != FinishCalls {
		t.Errorf("finish %q", r.Finish())
	}
	_, fault := r.Kept().Do(context.Background())
	for part, err := range map[string]error{"date": turn.Fault(), "read the reasoning": turn.Fault(), "keep the reasoning": fault} {
		if !errors.Is(err, m.fault) || !strings.Contains(err.Error(), part) {
			t.Errorf("the fault %v does not contain %q", err, part)
		}
	}
	if p, err := Extend(context.Background(), rc, nil, toolTurn("x")); err == nil {
		t.Errorf("a prefix of %d items without their reasoning", p.Len())
	}
}

// TestMemoryHangs shows how long a turn and its Keep wait for the memory.
func TestMemoryHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rc, _ := newContext()
		m := newMemory()
		m.hangs = true
		rc.Memory = m
		begin := time.Now()
		_, r := readOutput(t, prepare(t, rc, &Input{Items: toolTurn("x"), Tools: functions("f")}), reasonedCall, engine.FinishStop)
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := r.Kept().Do(canceled)
		if waited := time.Since(begin); waited != kept.ReadTimeout+2*time.Second { // by the bubble's clock
			t.Errorf("waited %v", waited)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// TestMemoryReads counts the reads and writes of a conversation with many tool
// calls.
func TestMemoryReads(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	m := newMemory()
	rc.Memory = m
	const calls = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>1<|end|>"
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Tools: functions("f")})
	m.writes = 0
	play(t, turn, "<|channel|>analysis<|message|>why<|end|>"+strings.Repeat(calls, 5), engine.FinishStop)
	if m.writes != 1 {
		t.Errorf("%d writes for a turn", m.writes)
	}

	var items []Item
	for i := range 50 { // steps of others, and two of one choice, whose reasoning stands before the first
		items = append(items, toolTurn("other_"+strconv.Itoa(i))...)
	}

	items = append(append(items, toolTurn("call_2")...), toolTurn("call_1")...)
	m.reads = 0
	if got := strings.Count(promptText(t, rc, &Input{Items: items}), "why"); got != 1 || m.reads != 2 {
		t.Errorf("%d reasonings in %d reads", got, m.reads)
	}

	m.reads = 0
	if got := strings.Count(promptText(t, rc, &Input{Items: toolTurn("call_1")}), "why"); got != 1 || m.reads != 1 {
		t.Errorf("%d reasonings in %d reads", got, m.reads)
	}
}

// TestReasoningWithinAReply shows that the next turn of a reply has the reasoning of
// the calls of this one before it is written to the store.
func TestReasoningWithinAReply(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	m := newMemory()
	rc.Memory = m
	in := Input{Items: []Item{userHi}, Tools: functions("f")}
	first := prepare(t, rc, &in)
	_, r := readOutput(t, first, reasonedCall, engine.FinishStop)
	m.reads, m.writes, m.fault = 0, 0, errors.New("broken")
	next, err := first.Continue(t.Context(), toolTurn("call_1")[1:], 0)
	if err != nil || m.reads+m.writes > 0 {
		t.Fatalf("error %v, %d reads, %d writes", err, m.reads, m.writes)
	}

	m.fault = nil
	if _, err := r.Kept().Do(context.Background()); err != nil {
		t.Fatal(err)
	}

	want := prepare(t, rc, &Input{Items: toolTurn("call_1"), Tools: functions("f")})
	if got, want := spell(t, next.Engine.Prompt), spell(t, want.Engine.Prompt); got != want || !strings.Contains(got, "why") {
		t.Errorf("the prompt is\n%s, want\n%s", got, want)
	}
}
