package reply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// prepare prepares the turn of a question, with the tools forecast and book.
func prepare(t *testing.T) *turn.Turn {
	t.Helper()
	rc := apitest.NewContext()
	rc.Memory = store.NewMemory(store.Options{TextBytes: 1 << 20, TextTTL: time.Hour, ResponseBytes: 1 << 20, ResponseTTL: time.Hour, Now: rc.Now})
	prepared, err := turn.Prepare(context.Background(), rc, &turn.Input{
		Items: []turn.Item{{Kind: turn.User, Text: "Is it sunny in Oslo?"}},
		Tools: []harmony.Namespace{{Name: turn.FunctionsNamespace, Tools: []harmony.Tool{{Name: "forecast"}, {Name: "book"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return prepared
}

// newLines begins a stream, whose options change sets.
func newLines(t *testing.T, change func(e *lines, o *reply.Options)) *lines {
	t.Helper()
	e := &lines{stream: true}
	o := reply.Options{Encoder: e, Tools: e, Run: e.run, Stream: true, Mode: api.Loop, Turn: prepare(t), Turns: 4}
	if change != nil {
		change(e, &o)
	}
	e.reply = reply.New(o)
	return e
}

const (
	asks   = `<|channel|>analysis<|message|>I look.<|end|><|start|>assistant to=functions.forecast<|channel|>commentary json<|message|>{}<|call|>`
	mixed  = asks + `<|start|>assistant to=functions.book<|channel|>commentary json<|message|>{}<|call|>`
	twice  = asks + `<|start|>assistant to=functions.forecast<|channel|>commentary json<|message|>{}<|call|>`
	saying = `<|channel|>final<|message|>Yes.<|return|>`
)

// play makes a reply from outputs, and returns what the client gets.
func play(t *testing.T, e *lines, outputs ...string) (string, *apierror.Error) {
	t.Helper()
	said := make([]apitest.Output, len(outputs))
	for i, text := range outputs {
		said[i] = apitest.Said(text)
	}
	out, _, err := apitest.PlayLoop(t, e.reply, said, nil)
	return string(out), err
}

// noRoom is a reply whose context has no room for a second turn.
func noRoom(_ *lines, o *reply.Options) {
	o.NextTurn = func() (reply.NextTurn, *apierror.Error) {
		return reply.NextTurn{Take: func(*turn.Turn, *apierror.Error) (*turn.Turn, *apierror.Error) { return nil, nil }}, nil
	}
}

// TestStop has the reasons for which no model call follows.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(e *lines, o *reply.Options)
		outputs []string
		stop    reply.Stop
	}{
		"an answer":                {nil, []string{asks, saying}, 0},
		"the client acts":          {nil, []string{mixed}, reply.ClientActs},
		"turns":                    {func(_ *lines, o *reply.Options) { o.Turns = 1 }, []string{asks}, reply.OutOfTurns},
		"room":                     {func(_ *lines, o *reply.Options) { o.MaxTokens = 3 }, []string{asks}, reply.OutOfRoom},
		"the client acts, no room": {func(_ *lines, o *reply.Options) { o.MaxTokens = 3 }, []string{mixed}, reply.ClientActs | reply.OutOfRoom},
		"the context":              {noRoom, []string{asks}, reply.ContextFull},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newLines(t, c.change)
			if _, err := play(t, e, c.outputs...); err != nil {
				t.Fatal(err)
			}
			if got := e.reply.Stop(); got != c.stop {
				t.Errorf("stop %b, want %b", got, c.stop)
			}
		})
	}
}

// step begins a step, which must not fail.
func (e *lines) step(t *testing.T) (string, api.Step) {
	t.Helper()
	out, step, err := e.reply.Step(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), step
}

// push pushes a whole output.
func (e *lines) push(t *testing.T, text string) string {
	t.Helper()
	out, err := e.reply.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(text), Finish: engine.FinishStop})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestResultsInOrder shows that results are shown in the order of the calls, and that
// reasoning is kept once, by the first job.
func TestResultsInOrder(t *testing.T) {
	t.Parallel()
	e := newLines(t, nil)
	e.step(t)
	e.push(t, twice)
	_, step := e.step(t)
	if len(step.Jobs) != 3 {
		t.Fatalf("jobs: %v", step.Jobs)
	}
	if _, ok := step.Jobs[0].(*turn.Keep); !ok {
		t.Errorf("the first job is %T", step.Jobs[0])
	}

	second := e.reply.JobDone(nil, 2, tools.Result{Text: "second"}, nil)
	first := e.reply.JobDone(nil, 1, nil, errors.New("gone"))
	if len(second) > 0 || !strings.Contains(string(first), "second") {
		t.Errorf("%q, then %q", second, first)
	}
	if err := e.reply.Fault(); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("fault %v", err)
	}
	if calls, failed := e.reply.ToolCalls(); calls != 2 || failed != 1 {
		t.Errorf("%d calls, %d failed", calls, failed)
	}

	// The client leaves: what was kept is not kept again.
	if jobs := e.reply.Cancel(); len(jobs) != 0 {
		t.Errorf("left to do: %v", jobs)
	}
	if _, err := e.reply.End(nil); err != nil {
		t.Error(err)
	}
}

// TestRunJoins shows that the tools that a run brings join after its result.
func TestRunJoins(t *testing.T) {
	t.Parallel()
	e := newLines(t, func(_ *lines, o *reply.Options) {
		run := o.Run
		o.Run = func(p *reply.Part, refused *tools.Result) *reply.Run {
			r := run(p, refused)
			r.Joins = &turn.JoinedTools{Namespaces: []harmony.Namespace{
				{Name: turn.FunctionsNamespace, Tools: []harmony.Tool{{Name: "umbrella"}}},
			}}
			return r
		}
	})
	_, prompts, err := apitest.PlayLoop(t, e.reply, []apitest.Output{apitest.Said(asks), apitest.Said(saying)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "Sunny, 12 degrees.<|end|><|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\ntype umbrella ="
	if !strings.Contains(prompts[1], want) {
		t.Errorf("the prompt has no %q:\n%s", want, prompts[1])
	}
}

// TestFails has replies that fail in each phase: further results are not taken, and the
// stream ends with the error.
func TestFails(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]func(t *testing.T, e *lines){
		"preparing": func(*testing.T, *lines) {},
		"calling":   func(t *testing.T, e *lines) { t.Helper(); e.step(t) },
		"running":   func(t *testing.T, e *lines) { t.Helper(); e.step(t); e.push(t, asks); e.step(t) },
		"finishing": func(t *testing.T, e *lines) { t.Helper(); e.step(t); e.push(t, mixed); e.step(t); e.step(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newLines(t, nil)
			reach(t, e)
			e.reply.Fail(nil, apierror.New(504, "late", "", "Too late."))
			e.reply.Fail(nil, apierror.New(500, "later", "", "Later."))
			if out := e.reply.JobDone(nil, 1, tools.Result{Text: "x"}, nil); len(out) > 0 {
				t.Errorf("a result was taken: %q", out)
			}
			if out := e.push(t, saying); out != "" || !e.reply.Done() {
				t.Errorf("output was taken: %q", out)
			}

			for _, step := e.step(t); len(step.Jobs) > 0; _, step = e.step(t) {
				if step.Call != nil {
					t.Fatal("a model call is made")
				}
			}
			out, err := e.reply.End(nil)
			if string(out) != "error: Too late.\n" || err != nil {
				t.Errorf("%q, %v", out, err)
			}
			if out, _ := e.reply.End(nil); len(out) > 0 {
				t.Errorf("a second end: %q", out)
			}
		})
	}
}

// stages are two stages before the first model call; the job of the second one begins
// the turn.
func stages(t *testing.T, failed error) func(e *lines, o *reply.Options) {
	t.Helper()
	return func(e *lines, o *reply.Options) {
		first := o.Turn
		o.Turn = nil
		begin := reply.Job{
			Do: apitest.JobFunc(func(context.Context) (any, error) { return first, failed }),
			Done: func(dst []byte, _ any, err error) ([]byte, *apierror.Error) {
				if err != nil {
					return dst, reply.Failure(err)
				}
				e.reply.Begin(first)
				return append(dst, "prepared\n"...), nil
			},
		}
		o.First = func(dst []byte) ([]byte, reply.Step, *apierror.Error) {
			return append(dst, "first\n"...), reply.Step{Then: func(dst []byte) ([]byte, reply.Step, *apierror.Error) {
				return append(dst, "second\n"...), reply.Step{Jobs: []reply.Job{begin}}, nil
			}}, nil
		}
	}
}

// TestStages has stages before the model call, one of which needs no job.
func TestStages(t *testing.T) {
	t.Parallel()
	out, err := play(t, newLines(t, stages(t, nil)), saying)
	if want := "first\nsecond\nprepared\nhello\n"; !strings.HasPrefix(out, want) || err != nil {
		t.Errorf("%q, %v", out, err)
	}

	_, err = play(t, newLines(t, stages(t, apierror.New(400, "no", "", "No."))))
	if err == nil || err.Code != "no" {
		t.Errorf("the job's own error is %v", err)
	}
	_, err = play(t, newLines(t, stages(t, errors.New("broken"))))
	if err == nil || err.Status != 500 {
		t.Errorf("another error is %v", err)
	}
}

// TestAside has a model call whose output is not the reply's, before the reply's own one
// and as the whole reply.
func TestAside(t *testing.T) {
	t.Parallel()
	for _, follows := range []bool{true, false} {
		var own *turn.Turn
		e := newLines(t, func(_ *lines, o *reply.Options) { own, o.Turn = o.Turn, nil })
		summary := func(dst []byte, event turn.Event) []byte { return append(dst, event.Text...) }
		e.reply.BeginAside(prepare(t), summary, func(dst []byte) ([]byte, reply.Step, *apierror.Error) {
			if follows {
				e.reply.Begin(own)
			}
			return append(dst, "\n"...), reply.Step{}, nil
		})

		outputs, want := []string{saying, saying}, "hello\nYes.\nanswer\n  Yes.\nbye after 2 model calls\n"
		if !follows {
			outputs, want = outputs[:1], "hello\nYes.\nbye after 1 model calls\n"
		}
		out, err := play(t, e, outputs...)
		if out != want || err != nil {
			t.Errorf("%q, %v, want %q", out, err, want)
		}
		if !e.reply.Calls()[0].Aside {
			t.Error("the call aside is not said to be one")
		}
	}
}

// storing is an ending that has something to store.
type storing struct {
	e       *lines
	refuses bool // the output, once
	failure *apierror.Error
}

func (s *storing) Finish(dst []byte) ([]byte, []reply.Job, *apierror.Error) {
	if s.refuses {
		s.refuses = false
		return dst, nil, apierror.New(502, "bad", "", "Bad.")
	}
	return fmt.Appendf(dst, "stored, failed: %t\n", s.failure != nil), []reply.Job{{Do: forecast{}}}, nil
}

func (s *storing) Fail(dst []byte, err *apierror.Error) ([]byte, bool) {
	if s.failure != nil {
		return dst, false
	}
	s.failure = err
	return append(dst, "failing\n"...), true
}

func (*storing) Cancel() []api.Job { return []api.Job{forecast{}} }

// TestEnding has an ending, which refuses the output in one case: the reply that has
// failed is stored all the same.
func TestEnding(t *testing.T) {
	t.Parallel()
	for _, refuses := range []bool{false, true} {
		s := &storing{refuses: refuses}
		e := newLines(t, func(e *lines, o *reply.Options) { s.e, o.Ending, o.Early = e, s, true })
		if out, _ := e.step(t); out != "hello\n" {
			t.Errorf("the first step of a stream that begins early is %q", out)
		}
		e.push(t, saying)

		out, step, err := e.reply.Step(nil)
		if refuses {
			if err == nil {
				t.Fatal("no error")
			}
			out = e.reply.Fail(out, err)
			out, step, _ = e.reply.Step(out)
		}
		for i, job := range step.Jobs {
			result, err := job.Do(context.Background())
			out = e.reply.JobDone(out, i, result, err)
		}
		out, _ = e.reply.End(out)
		want := "stored, failed: false\nbye after 1 model calls\n"
		if refuses {
			want = "failing\nstored, failed: true\nerror: Bad.\n"
		}
		if string(out) != want {
			t.Errorf("%q, want %q", out, want)
		}
	}

	e := newLines(t, func(e *lines, o *reply.Options) { o.Ending = &storing{e: e} })
	e.step(t)
	if jobs := e.reply.Cancel(); len(jobs) != 1 || e.reply.Cancel() != nil {
		t.Errorf("left to do: %v", jobs)
	}
}

// settling is a Settler that gathers the tokens of each push.
type settling struct {
	*lines
	tokens []harmony.Token
}

func (s *settling) Settle(
	dst []byte, _ *reply.Choice, tokens []harmony.Token,
) ([]byte, *apierror.Error) {
	s.tokens = append(s.tokens, tokens...)
	return dst, nil
}

func (*settling) Finish(dst []byte, _ *reply.Choice) []byte { return dst }

// The text before a fault of the model reaches the client, and so do its tokens.
func TestTokensBeforeAFault(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Checked = true
	must, prepareErr := turn.Prepare(context.Background(), rc, &turn.Input{
		Items:  []turn.Item{{Kind: turn.User, Text: "Call."}},
		Tools:  []harmony.Namespace{{Name: turn.FunctionsNamespace, Tools: []harmony.Tool{{Name: "book"}}}},
		Choice: turn.Choice{Required: true},
	})
	if prepareErr != nil {
		t.Fatal(prepareErr)
	}
	s := &settling{}
	e := newLines(t, func(e *lines, o *reply.Options) { s.lines, o.Settler, o.Turn = e, s, must })
	e.step(t)

	said := harmony.AppendEncodeSpecial(nil, saying)
	_, err := e.reply.Push(nil, &engine.Chunk{Tokens: said, Finish: engine.FinishStop})
	if err == nil || !slices.Equal(s.tokens, said) {
		t.Errorf("error %v, tokens %d, want %d", err, s.tokens, said)
	}
}

// TestLongResults shows that the turn after long results is made by a job, and is the same as
// one that is made at once. The job can end with its context, or after the reply.
func TestLongResults(t *testing.T) {
	t.Parallel()
	// asked is a reply whose calls have been answered, and the step that follows.
	asked := func(result string) (*lines, api.Step) {
		e := newLines(t, nil)
		e.step(t)
		e.push(t, asks)
		_, step := e.step(t)
		for i := range step.Jobs {
			e.reply.JobDone(nil, i, tools.Result{Text: result}, nil)
		}
		_, step = e.step(t)
		return e, step
	}
	long := strings.Repeat("sunny ", 20_000)

	_, step := asked("sunny")
	if step.Call == nil {
		t.Fatalf("after a short result there are jobs: %v", step.Jobs)
	}
	e, step := asked(long)
	if len(step.Jobs) != 1 || step.Call != nil {
		t.Fatalf("after a long result there are %d jobs", len(step.Jobs))
	}
	result, err := step.Jobs[0].Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.reply.JobDone(nil, 0, result, nil)
	if _, step = e.step(t); step.Call == nil || !strings.Contains(apitest.Spell(t, step.Call.Prompt), long+"<|end|>") {
		t.Fatalf("there is no call with the result: %v", step)
	}

	// The client leaves meanwhile.
	e, step = asked(long)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if result, err := step.Jobs[0].Do(ctx); err == nil || result != nil {
		t.Errorf("a job whose context has ended returns %v, %v", result, err)
	}
	e.reply.Cancel()
	if out := e.reply.JobDone(nil, 0, nil, context.Canceled); len(out) > 0 {
		t.Errorf("%q after the end", out)
	}

	// What does not fit ends the reply with what there is.
	e, step = asked(strings.Repeat(long, 8))
	result, err = step.Jobs[0].Do(t.Context())
	e.reply.JobDone(nil, 0, result, err)
	if _, step = e.step(t); step.Call != nil || e.reply.Stop() != reply.ContextFull {
		t.Errorf("%v, stop %b", step, e.reply.Stop())
	}
}
