package extproc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// The user's text is in the metadata only where that is configured.
func TestMetadataText(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]any{0: nil, 5: "Hi th"} {
		script(t, func(w *wiring) { w.cfg.Routing.SelectionTextBytes = size }, func(s *scripted) {
			s.post()
			s.body(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi  there"}]}`, true)
			fields, _ := s.metadata[header.MetadataNamespace].(map[string]any)
			if diff := cmp.Diff(want, fields["text"]); diff != "" || fields["api"] != "chat" {
				t.Errorf("of %d bytes (-want +got):\n%s\n%v", size, diff, fields)
			}
		})
	}
}
