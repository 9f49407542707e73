package run

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// keyedRequest is a request with keys.
type keyedRequest struct {
	api.Request
	affinity turn.Affinity
}

func (r *keyedRequest) Affinity() turn.Affinity { return r.affinity }
func (r *keyedRequest) RoutingInfo() turn.RoutingInfo {
	return turn.RoutingInfo{LastUserText: "Hi there?"}
}

// The keys have the names that are configured, and no header without a name.
func TestKeys(t *testing.T) {
	t.Parallel()
	request := &keyedRequest{affinity: turn.Affinity{Prefix: "p", Session: "s"}}
	for name, c := range map[string]struct {
		keys Keys
		want []engine.Header
	}{
		"all":       {Keys{"x-p", "x-s", "x-t"}, []engine.Header{{Name: "x-p", Value: "p"}, {Name: "x-s", Value: "s"}, {Name: "x-t", Value: "Hi%20there%3F"}}},
		"prefix":    {Keys{Prefix: "x-p"}, []engine.Header{{Name: "x-p", Value: "p"}}},
		"session":   {Keys{Session: "x-s"}, []engine.Header{{Name: "x-s", Value: "s"}}},
		"selection": {Keys{Selection: "x-t"}, []engine.Header{{Name: "x-t", Value: "Hi%20there%3F"}}},
		"none":      {Keys{}, nil},
	} {
		if diff := cmp.Diff(c.want, c.keys.Headers(request)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A client's own values of the headers do not stay, even where there is no key.
func TestKeysReplaceTheClients(t *testing.T) {
	t.Parallel()
	h := http.Header{"X-P": {"forged"}, "X-S": {"forged"}, "X-Own": {"1"}}
	setHeaders(h, Keys{Prefix: "x-p", Session: "x-s"}.Headers(&keyedRequest{affinity: turn.Affinity{Prefix: "p"}}))
	if diff := cmp.Diff(http.Header{"X-P": {"p"}, "X-Own": {"1"}}, h); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
