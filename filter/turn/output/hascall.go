package output

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// HasCall reports whether a choice's output so far has a complete tool call, which a
// client may have begun to execute.
func (p *Plan) HasCall(output []harmony.Token) bool {
	// Output that continues a message of the client begins within it, and not with a header.
	role := harmony.RoleAssistant
	if len(p.Header) > 0 {
		role = ""
	}
	parser := harmony.NewParser(harmony.Tolerant, role)
	calling := false

	for _, token := range slices.Concat(p.Header, output) {
		events, err := parser.Push(token)
		// The tolerant parser accepts everything.
		if err != nil {
			return true
		}

		// A message without a recipient is a call too if it ends as one.
		for i := range events {
			switch e := &events[i]; e.Kind {
			case harmony.MessageStart:
				calling = e.Header.Recipient != ""
			case harmony.MessageEnd:
				if calling || e.End == harmony.TokenCall {
					return true
				}
			}
		}
	}
	return false
}
