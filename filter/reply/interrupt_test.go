package reply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

const (
	thinking  = `<|channel|>analysis<|message|>I look`
	answering = thinking + `<|end|><|start|>assistant<|channel|>final<|message|>Yes, it`
	booking   = thinking + `<|end|><|start|>assistant to=functions.book<|channel|>commentary json<|message|>{"n`
	asking    = thinking + `<|end|><|start|>assistant to=functions.forecast<|channel|>commentary json<|message|>{"n`
	booked    = thinking + `<|end|><|start|>assistant to=functions.book<|channel|>commentary json<|message|>{}<|call|>`
)

// write pushes a part of an output, after which the engine goes on.
func (e *lines) write(t *testing.T, text string) string {
	t.Helper()
	out, err := e.reply.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(text)})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// cut ends the model call as package run does after an interruption: as at a limit of tokens.
func (e *lines) cut(t *testing.T) string {
	t.Helper()
	out, err := e.reply.Push(nil, &engine.Chunk{Finish: engine.FinishLength})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// ends makes the steps that are left. No model call may be among them.
func (e *lines) ends(t *testing.T) string {
	t.Helper()
	var out []byte
	for {
		more, step := e.step(t)
		out = append(out, more...)
		if step.Call != nil {
			t.Fatal("a model call follows")
		}
		if len(step.Jobs) == 0 {
			end, err := e.reply.End(nil)
			if err != nil {
				t.Fatal(err)
			}
			return string(append(out, end...))
		}
		for i := range step.Jobs {
			out = e.reply.JobDone(out, i, tools.Result{Text: "Sunny."}, nil)
		}
	}
}

// TestInterrupt has what the client interrupts between two tokens, by where the model is: text is
// cut there, a call is not, unless the client wants nothing more.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		written        string
		steered        bool // what steers the reply interrupts it
		after, without string
	}{
		"no token yet":             {"", true, "bye after 1 model calls\n", "answer"},
		"reasoning":                {thinking, true, "bye after 1 model calls\n", "answer"},
		"an answer":                {answering, true, "bye after 1 model calls\n", "error"},
		"a call of the client's":   {booking, false, "bye after 1 model calls\n", "result"},
		"the client's whole call":  {booked, false, "bye after 1 model calls\n", "result"},
		"a call that we will make": {asking, false, "bye after 1 model calls\n", "result"},
	} {
		for _, why := range []api.Interruption{api.Steered, api.Canceled} {
			t.Run(name+", "+string(why), func(t *testing.T) {
				t.Parallel()
				e := newLines(t, nil)
				e.step(t)
				e.write(t, c.written)

				want := c.steered || why == api.Canceled
				if got := e.reply.Interrupt(why); got != want {
					t.Fatalf("interrupted %t, want %t", got, want)
				}
				if !want {
					if e.reply.Interrupted() != "" || e.reply.Stop() != 0 {
						t.Errorf("it is interrupted: %q, stop %b", e.reply.Interrupted(), e.reply.Stop())
					}
					return
				}

				out := e.cut(t)
				out += e.ends(t)
				if !strings.HasSuffix(out, c.after) || strings.Contains(out, c.without) {
					t.Errorf("it ends with %q", out)
				}
				if e.reply.Interrupted() != why || !e.reply.Stop().Has(reply.Interrupted) {
					t.Errorf("interrupted %q, stop %b", e.reply.Interrupted(), e.reply.Stop())
				}
				// What was cut is no call: neither the client nor the filter makes it.
				if made, _ := e.reply.ToolCalls(); made != 0 {
					t.Errorf("%d calls were made", made)
				}
			})
		}
	}
}

// TestInterruptInATool has an interruption while a tool of the filter's runs: its result is shown,
// and no model call follows.
func TestInterruptInATool(t *testing.T) {
	t.Parallel()
	for _, why := range []api.Interruption{api.Steered, api.Canceled} {
		e := newLines(t, nil)
		e.step(t)
		e.push(t, asks)
		_, step := e.step(t)
		if len(step.Jobs) != 2 { // the reasoning is kept, and the call is made
			t.Fatalf("%d jobs", len(step.Jobs))
		}

		if !e.reply.Interrupt(why) {
			t.Errorf("%s: it has no effect", why)
		}
		out := string(e.reply.JobDone(nil, 0, nil, nil)) + string(e.reply.JobDone(nil, 1, tools.Result{Text: "Sunny."}, nil))
		if out += e.ends(t); out != "result\n  Sunny.\nbye after 1 model calls\n" {
			t.Errorf("%s: %q", why, out)
		}
		if made, failed := e.reply.ToolCalls(); made != 1 || failed != 0 {
			t.Errorf("%s: %d calls, %d failed", why, made, failed)
		}
	}
}

// TestSteerAfterCancel has input that comes when the reply is canceled and its tool still runs: the
// two come by different goroutines.
func TestSteerAfterCancel(t *testing.T) {
	t.Parallel()
	e := newLines(t, nil)
	e.step(t)
	e.push(t, asks)
	e.step(t)

	if !e.reply.Interrupt(api.Canceled) || e.reply.Interrupt(api.Steered) || e.reply.Interrupted() != api.Canceled {
		t.Errorf("it is interrupted: %q", e.reply.Interrupted())
	}
}

// TestInterruptBeforeTheCall has interruptions while the reply is prepared, of a summary, of a
// reply that is ending, and of one that has failed.
func TestInterruptBeforeTheCall(t *testing.T) {
	t.Parallel()
	e := newLines(t, nil)
	if !e.reply.Interrupt(api.Steered) {
		t.Error("before the model call it has no effect")
	}
	if out := e.ends(t); out != "bye after 1 model calls\n" {
		t.Errorf("before the model call: %q", out)
	}

	// A summary has no calls, whatever it looks like: it is cut.
	e = newLines(t, func(_ *lines, o *reply.Options) { o.Turn = nil })
	e.reply.BeginAside(prepare(t), func(dst []byte, _ turn.Event) []byte { return dst },
		func(dst []byte) ([]byte, reply.Step, *apierror.Error) { return dst, reply.Step{}, nil })
	e.step(t)
	e.write(t, booking)
	if !e.reply.Interrupt(api.Steered) {
		t.Error("in a summary it has no effect")
	}

	for name, reach := range map[string]func(e *lines){
		"finishing": func(e *lines) { e.step(t); e.push(t, saying); e.step(t) },
		"ended":     func(e *lines) { e.step(t); e.push(t, saying); e.ends(t) },
		"failed":    func(e *lines) { e.step(t); e.reply.Fail(nil, apierror.New(504, "late", "", "Too late.")) },
	} {
		e := newLines(t, nil)
		reach(e)
		if slices.ContainsFunc([]api.Interruption{api.Steered, api.Canceled}, e.reply.Interrupt) {
			t.Errorf("%s: it is interrupted", name)
		}
	}
}
