package replay

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// Token quotas are not replayed. What they left to a call that names no limit is in the record.
func TestLimitOfQuotaIsReplayed(t *testing.T) {
	t.Parallel()
	asked := engine.Request{N: 2, MaxTokens: 100}
	s := newScript(&record.Record{Events: []record.Event{
		{Kind: record.KindCall, Call: &record.Call{Options: asked.AppendSampling(nil)}},
	}}, nil)

	for name, c := range map[string]struct {
		request engine.Request
		want    int
	}{
		"no limit":   {engine.Request{N: 2, MaxTokens: 9000, Unlimited: true}, 100},
		"a limit":    {engine.Request{N: 2, MaxTokens: 9000}, 9000},
		"less space": {engine.Request{N: 2, MaxTokens: 90, Unlimited: true}, 90},
	} {
		if s.limit(&c.request); c.request.MaxTokens != c.want {
			t.Errorf("%s: %d tokens, want %d", name, c.request.MaxTokens, c.want)
		}
	}

	s.called(&asked, 0)
	another := engine.Request{N: 1, MaxTokens: 9000, Unlimited: true}
	if s.limit(&another); another.MaxTokens != 9000 {
		t.Errorf("a call that was not recorded has %d tokens", another.MaxTokens)
	}
}
