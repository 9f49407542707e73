package apitest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// Play makes the reply to a request from the chunks of its one model call, and returns
// all its bytes. If the request asks for log probabilities, the chunks get those of
// [Logprobs]. An error fails the test.
func Play(t testing.TB, request api.Request, mode api.Mode, chunks []engine.Chunk) string {
	t.Helper()
	reply, err := play(t, request, mode, chunks)
	if err != nil {
		t.Fatalf("Push: %v", err)
	}
	return reply
}

// play is Play that returns the error of a chunk.
func play(t testing.TB, request api.Request, mode api.Mode, chunks []engine.Chunk) (string, *apierror.Error) {
	t.Helper()
	r := request.NewReply(mode)

	var out []byte
	// In the mode of a single call Envoy has sent the request on already.
	if mode == api.Loop {
		next, step, err := r.Step(nil)
		if err != nil || step.Call == nil || step.Call != request.Engine() {
			t.Fatalf("the first step calls %v, error %v", step.Call, err)
		}
		out = next
	}

	likely := request.Engine() != nil && request.Engine().Logprobs
	taken := map[int]int{} // tokens of a choice
	for _, c := range chunks {
		// The filter would have dropped the model call here.
		if r.Done() {
			break
		}
		if likely {
			c.Logprobs = logprobs(c.Tokens, taken[c.Index])
			taken[c.Index] += len(c.Tokens)
		}
		next, err := r.Push(out, &c)
		if err != nil {
			return "", err
		}
		out = next
	}

	// A reply stores what later requests need before its end.
	out, err := lastSteps(t, r, out)
	if err != nil {
		t.Fatalf("the step after the answer: %v", err)
	}
	if out, err = r.End(out); err != nil {
		t.Fatalf("End: %v", err)
	}
	return string(out), nil
}

// compareStream compares what a client has of a whole reply with what it has of the
// stream of the same output.
func (a *API) compareStream(t testing.TB, request api.Request, whole string, streamed api.Request, stream string) {
	t.Helper()
	if diff := cmp.Diff(a.Read(t, request, whole), a.Read(t, streamed, stream), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the stream is not the whole reply (-whole +stream):\n%s\n%s", diff, stream)
	}
}

// End does the steps of a reply that follow its model call, and ends it. An error of a
// step fails the reply.
func End(t testing.TB, r api.Reply, out []byte) ([]byte, *apierror.Error) {
	t.Helper()
	for {
		next, err := lastSteps(t, r, out)
		if out = next; err == nil {
			return r.End(out)
		}
		out = r.Fail(out, err)
	}
}

// lastSteps does the steps of a reply that follow its last model call.
func lastSteps(t testing.TB, r api.Reply, out []byte) ([]byte, *apierror.Error) {
	t.Helper()
	for {
		next, step, err := r.Step(out)
		out = next
		switch {
		case err != nil:
			return out, err
		// No output of the test is left for another call.
		case step.Call != nil:
			t.Fatalf("the step after the answer calls %v", step.Call)
		case len(step.Jobs) == 0:
			return out, nil
		}
		out = do(r, out, step.Jobs)
	}
}

func do(r api.Reply, out []byte, jobs []api.Job) []byte {
	for i, job := range jobs {
		result, err := job.Do(context.Background())
		out = r.JobDone(out, i, result, err)
	}
	return out
}

// loopChunks cuts an output into chunks of one to three tokens. The finish reason comes
// alone, or with the last tokens.
func (o Output) loopChunks(alone bool) []engine.Chunk {
	n := 0
	chunks := o.Chunks(func() int { n++; return 1 + n%3 })
	if last := &chunks[len(chunks)-1]; alone {
		last.Finish = engine.FinishNone
		chunks = append(chunks, engine.Chunk{Finish: o.Finish})
	}
	return chunks
}

// PlayLoop makes a reply, in [api.Loop] mode, from the outputs of its model calls, and
// returns its bytes and the calls' prompts. Log probabilities are those of [Play]. doJobs
// does the jobs of a step; nil: in their order. It fails the test if there are more or
// fewer calls than outputs.
func PlayLoop(
	t testing.TB, r api.Reply, outputs []Output, doJobs func(out []byte, jobs []api.Job) []byte,
) (out []byte, prompts []string, err *apierror.Error) {
	t.Helper()
	if doJobs == nil {
		doJobs = func(out []byte, jobs []api.Job) []byte { return do(r, out, jobs) }
	}

	for {
		var step api.Step
		if out, step, err = r.Step(out); err != nil {
			return nil, prompts, err
		}

		switch {
		case step.Call != nil:
			prompts = append(prompts, Spell(t, step.Call.Prompt))
			// A model call that no test expects shows its prompt, which says why it was made.
			if len(outputs) == 0 {
				t.Fatalf("there is no output for the prompt:\n%s", prompts[len(prompts)-1])
			}

			taken := 0
			// The finish reason comes alone in every second call.
			for _, c := range outputs[0].loopChunks(len(prompts)%2 == 1) {
				if step.Call.Logprobs {
					c.Logprobs = logprobs(c.Tokens, taken)
					taken += len(c.Tokens)
				}
				if out, err = r.Push(out, &c); err != nil {
					return nil, prompts, err
				}
			}
			outputs = outputs[1:]
		case len(step.Jobs) > 0:
			out = doJobs(out, step.Jobs)
		default:
			if len(outputs) > 0 {
				t.Fatalf("the reply is complete, but %d outputs are left", len(outputs))
			}
			out, err = r.End(out)
			return out, prompts, err
		}
	}
}

// JobFunc is an [api.Job] that is a function.
type JobFunc func(ctx context.Context) (any, error)

// Do calls the function.
func (f JobFunc) Do(ctx context.Context) (any, error) { return f(ctx) }
