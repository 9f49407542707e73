package filter

import (
	"slices"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A path of the tokenizer that is open passes through also where a gateway sends it to
// the filter.
func TestOpenTokenizer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		open      []string
		endpoints []string
	}{
		{nil, []string{"/detokenize", "/tokenize"}},
		{[]string{"/v1/batches"}, []string{"/detokenize", "/tokenize"}},
		{[]string{"/tokenize"}, []string{"/detokenize"}},
		{[]string{"/*"}, nil},
	} {
		cfg := config.Defaults()
		cfg.Routing.OpenPaths = c.open
		var got []string
		derenders := 0
		for _, e := range newRender(cfg, nil) {
			switch e.API {
			case "tokenize":
				got = append(got, e.Pattern)
			default:
				derenders++
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.endpoints) || derenders != 3 {
			t.Errorf("with %q open: %q and %d others", c.open, got, derenders)
		}
	}
	if e, _ := api.Match(newRender(config.Defaults(), nil), "POST", "/v1/messages/derender"); e == nil {
		t.Error("messages are not derendered")
	}
}
