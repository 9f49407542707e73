package turn

import (
	"context"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// A turn is prepared in a job too, when the context has ended in which the request was
// decoded.
func TestPrepareInAJob(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	decoding, end := context.WithCancel(t.Context())
	rc.Work = work.New(decoding, work.PerRequest)
	end()
	in := &Input{Items: []Item{{Kind: User, Text: "hi"}}}
	if _, err := rc.Prepare(t.Context(), in); err != nil {
		t.Error(err)
	}

	job, end := context.WithCancel(t.Context())
	end()
	if _, err := rc.Prepare(job, in); err == nil {
		t.Error("prepared in a job that has ended")
	}
}
