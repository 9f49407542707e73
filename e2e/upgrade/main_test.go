package upgrade

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }
