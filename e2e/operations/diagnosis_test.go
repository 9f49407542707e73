package operations

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
)

// TestDiagnosisIsExact compares what the filter says that the prompts of an agent share
// with what an engine has of them in its prefix cache.
func TestDiagnosisIsExact(t *testing.T) {
	stack.Start(t, stack.Options{}).DiagnosisIsExact(t, stack.VLLMModel, diagnosis.BlockTokens)
}
