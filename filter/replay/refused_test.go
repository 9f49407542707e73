package replay

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// A call for which a token budget had no room is not made in a replay either: what the
// record has next says so.
func TestRefusedCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		following []string
		want      bool
	}{
		"it was made":                      {[]string{record.KindID, record.KindCall, record.KindAnswer, record.KindExhausted}, false},
		"output ended instead":             {[]string{record.KindSent, record.KindExhausted, record.KindSent}, true},
		"the reply failed instead":         {[]string{record.KindHeaders, record.KindFailed}, true},
		"the record ends before it is due": {[]string{record.KindSent}, false},
	} {
		x := &exchange{}
		for _, kind := range c.following {
			x.following = append(x.following, record.Event{Kind: kind})
		}
		if got := x.refused(); got != c.want {
			t.Errorf("%s: refused %t", name, got)
		}
	}
}
