package turn

import (
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Billing begins a line that a client, Claude Code, puts before its system prompt, and
// that changes with every request. Shown to the model, it would end the prefix that the
// engine has cached before all that follows.
const Billing = "x-anthropic-billing-header:"

// WithoutBilling returns the first instructions of a conversation without such lines before them.
func WithoutBilling(instructions string) string {
	for {
		line, rest, _ := strings.Cut(strings.TrimLeft(instructions, " \t\r\n"), "\n")
		if !strings.HasPrefix(line, Billing) {
			return instructions
		}
		instructions = rest
	}
}

// canonical returns an input with the members of its tools' schemas sorted. Schemas that
// are refused later stay as they are.
func (l *Limits) canonical(in *Input) *Input {
	sorted := *in
	sorted.Tools = slices.Clone(in.Tools)

	for i := range sorted.Tools {
		ns := &sorted.Tools[i]
		ns.Tools = slices.Clone(ns.Tools)
		for k := range ns.Tools {
			// Sorting recurses, so that a schema is looked at before: one that is too deep is
			// refused later, in the client's own words. Any name does here.
			t := &ns.Tools[k]
			fits := l.CheckTool(harmony.Tool{Name: "t", Parameters: t.Parameters}) == nil
			if len(t.Parameters) > 0 && fits {
				t.Parameters = jsontext.AppendSorted(make([]byte, 0, len(t.Parameters)), string(t.Parameters))
			}
		}
	}
	return &sorted
}
