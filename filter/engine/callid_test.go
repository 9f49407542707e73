package engine_test

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// TestCallIDs shows that no id begins with that of another call, whatever ids clients choose.
func TestCallIDs(t *testing.T) {
	t.Parallel()
	ids := make([]string, 0, 1440)
	for _, unique := range []string{"00000000", "00000001"} {
		for number := range 120 {
			for _, request := range []string{"", "1", "-1", "0-chatcmpl-1", "chatcmpl-1", "00000001-1-chatcmpl-1"} {
				id := engine.CallID{Unique: unique, Number: number + 1, Request: request}
				ids = append(ids, id.String())
			}
		}
	}

	// Of one call there is one id: calls that differ in what the client has chosen alone are none.
	const requests = 6
	for i := range ids {
		for j := range ids {
			if i/requests != j/requests && strings.HasPrefix(ids[j], ids[i]) {
				t.Fatalf("%q begins with %q", ids[j], ids[i])
			}
		}
	}
}
