package run

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

func newTestWorkers() (*Workers, *test.Hook) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return &Workers{Log: log}, test.NewLocal(log)
}

// A job that is started is done though the run ends before it has begun, or before it
// is started: it may be one that must be completed. Of more jobs than run at a time,
// the others are not.
func TestStoppedJobs(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var done atomic.Int32
			workers, _ := newTestWorkers()
			j := newJobs(t.Context(), workers)
			list := make([]api.Job, 4*maxParallelJobs)
			for i := range list {
				list[i] = jobFunc(func(context.Context) (any, error) { done.Add(1); time.Sleep(time.Second); return nil, nil })
			}
			if first {
				j.stop()
			}
			j.start(&telemetry.Record{}, list)
			j.stop()
			workers.Wait(t.Context())
			if n := done.Load(); n != maxParallelJobs {
				t.Errorf("stopped first %t: %d jobs are done, want %d", first, n, maxParallelJobs)
			}
		})
	}
}

// The jobs of a step end when those of the next step are started, and their results
// are dropped.
func TestJobsOfAnEarlierStepEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		workers, _ := newTestWorkers()
		j := newJobs(t.Context(), workers)
		defer j.stop()
		var ended atomic.Bool
		j.start(&telemetry.Record{}, []api.Job{jobFunc(func(ctx context.Context) (any, error) {
			<-ctx.Done()
			ended.Store(true)
			return "earlier", nil
		})})
		j.start(&telemetry.Record{}, []api.Job{jobFunc(func(context.Context) (any, error) { return "later", nil })})
		if d := <-j.done; d.Result != "later" {
			t.Errorf("the result is %v", d.Result)
		}
		synctest.Wait()
		if !ended.Load() {
			t.Error("the earlier job goes on")
		}
	})
}

// A job that is begun beside another one does not end it: both have their results.
func TestJobsBeside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		workers, _ := newTestWorkers()
		j := newJobs(t.Context(), workers)
		defer j.stop()
		for _, result := range []string{"first", "second"} {
			j.beside(&telemetry.Record{}, jobFunc(func(ctx context.Context) (any, error) {
				time.Sleep(time.Second)
				return result, ctx.Err()
			}))
		}
		got := map[any]bool{}
		for range 2 {
			d := <-j.done
			if got[d.Result] = true; d.Err != nil {
				t.Errorf("%v: %v", d.Result, d.Err)
			}
		}
		if !got["first"] || !got["second"] {
			t.Errorf("the results are %v", got)
		}
	})
}

// Every job has its result, and no more run at a time than may.
func TestJobsSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		workers, _ := newTestWorkers()
		j := newJobs(t.Context(), workers)
		defer j.stop()
		list := make([]api.Job, 2*maxParallelJobs+1)
		for i := range list {
			list[i] = jobFunc(func(context.Context) (any, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				return i, nil
			})
		}
		j.start(&telemetry.Record{}, list)
		seen := map[int]bool{}
		for range list {
			d := <-j.done
			if d.Err != nil || d.Result != d.Index {
				t.Errorf("job %d: %v, %v", d.Index, d.Result, d.Err)
			}
			seen[d.Index] = true
		}
		if len(seen) != len(list) || most.Load() != maxParallelJobs {
			t.Errorf("%d results, %d jobs at a time", len(seen), most.Load())
		}
	})
}

// A panic in a job is its error.
func TestJobPanics(t *testing.T) {
	t.Parallel()
	workers, logged := newTestWorkers()
	j := newJobs(t.Context(), workers)
	defer j.stop()
	j.start(&telemetry.Record{}, []api.Job{jobFunc(func(context.Context) (any, error) { panic("bug") })})
	if d := <-j.done; !errors.Is(d.Err, errPanic) {
		t.Errorf("%v, %v", d.Result, d.Err)
	}
	if e := logged.LastEntry(); e == nil || !strings.HasPrefix(e.Message, "panic: bug") {
		t.Errorf("logged %v", e)
	}
}

// The jobs that remain of a canceled reply outlive it: their context does not end
// with it, and Workers.Wait waits for them.
func TestDetachedJobsOutliveTheirRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		workers, logged := newTestWorkers()
		j := newJobs(t.Context(), workers)
		stored := false
		j.detach(&telemetry.Record{}, []api.Job{
			jobFunc(func(ctx context.Context) (any, error) {
				time.Sleep(time.Minute)
				stored = ctx.Err() == nil
				return nil, nil
			}),
			jobFunc(func(context.Context) (any, error) { return nil, errBroken }),
		})
		j.stop()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		workers.Wait(soon)
		if soon.Err() == nil {
			t.Error("Wait has returned before the job was done")
		}
		workers.Wait(t.Context())
		if !stored {
			t.Error("the job's context has ended with its run")
		}
		if n := len(logged.AllEntries()); n != 1 {
			t.Errorf("%d lines in the log, want that of the job that failed", n)
		}
	})
}
