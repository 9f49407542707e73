package gateways

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

func TestWebSockets(t *testing.T) {
	for name, o := range map[string]stack.Options{"loopback": {}, "direct": {Direct: true}, "bodies on demand": {ModeOverride: true}} {
		t.Run(name, func(t *testing.T) { stack.Start(t, o).CheckWebSockets(t) })
	}
}
