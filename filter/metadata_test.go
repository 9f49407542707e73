package filter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What was said is told only where that is configured.
func TestMetadataText(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]any{0: nil, 5: "Hi th"} {
		s := newScript(t, func(c *Config) { c.Routing.SelectionTextBytes = size })
		s.post()
		s.body(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi  there"}]}`, true)
		told := s.x.out[0].GetDynamicMetadata().AsMap()[MetadataNamespace]
		fields, _ := told.(map[string]any)
		if diff := cmp.Diff(want, fields["text"]); diff != "" || fields["api"] != "chat" {
			t.Errorf("of %d bytes (-want +got):\n%s\n%v", size, diff, told)
		}
	}
}
