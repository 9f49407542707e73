package write

import (
	"context"
	"errors"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// leaving is a tool server whose clients leave while it is called.
type leaving struct {
	leave  func()
	result tools.Result
}

func (s leaving) Do(context.Context, tools.Job) tools.Result {
	s.leave()
	return s.result
}

// completions counts the approvals that are completed.
type completions struct {
	store.Approvals
	n int
}

func (c *completions) CompleteApproval(context.Context, string, string, string) error {
	c.n++
	return nil
}

// TestToolJobIsCancelled shows that the approval of a call that was cancelled is
// completed only if the tool has answered: else its outcome is not known.
func TestToolJobIsCancelled(t *testing.T) {
	t.Parallel()
	for answered, want := range map[bool]int{true: 1, false: 0} {
		ctx, leave := context.WithCancel(context.Background())
		records := &completions{}
		job := toolJob{
			servers:    leaving{leave, tools.Result{Error: "It was cancelled.", Answered: answered}},
			completion: &completion{approvals: approvals{store: records}},
		}
		if result, err := job.Do(ctx); err != nil || result.(tools.Result).Answered != answered || records.n != want {
			t.Errorf("answered %t: %+v, %v, %d records completed", answered, result, err, records.n)
		}
	}
}

// TestJobsOfARunThatHasEnded shows that no call is made, and no approval begun,
// for a run that has ended before its jobs have begun.
func TestJobsOfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(context.Background())
	leave()
	called := false
	begun := &begins{}
	for _, job := range []api.Job{
		toolJob{servers: leaving{func() { called = true }, tools.Result{Answered: true}}},
		beginApprovals{approvals: approvals{store: begun}, calls: make([]request.ApprovedCall, 1), own: []*approval{{}}},
	} {
		if _, err := job.Do(ctx); !errors.Is(err, context.Canceled) || called || begun.n > 0 {
			t.Errorf("%T: %v, called %t, %d records begun", job, err, called, begun.n)
		}
	}
}

// begins counts the approvals that are begun.
type begins struct {
	store.Approvals
	n int
}

func (b *begins) BeginApproval(_ context.Context, _, _, text string) (string, error) {
	b.n++
	return text, nil
}
