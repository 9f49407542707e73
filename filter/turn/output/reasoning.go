package output

import (
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
)

// reasoningText is the reasoning of a choice, up to [kept.MaxBytes].
type reasoningText struct {
	text []byte
	// There is more.
	full bool
}

// add adds a piece of a reasoning part; begins reports that it is the part's
// first.
func (t *reasoningText) add(p []byte, begins bool) {
	between := ""
	if begins && len(t.text) > 0 {
		between = "\n\n"
	}

	if t.full = t.full || len(t.text)+len(between)+len(p) > kept.MaxBytes; !t.full {
		t.text = append(append(t.text, between...), p...)
	}
}
