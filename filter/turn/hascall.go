package turn

import "github.com/envoy-harmony/envoy-harmony/harmony"

// HasCall reports whether a choice's output so far has a complete tool call, which a
// client may have begun to execute.
func HasCall(output []harmony.Token) bool {
	parser := harmony.NewParser(harmony.Tolerant, harmony.RoleAssistant)
	calling := false

	for _, token := range output {
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
