package charts

import (
	"os"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// Gateways remove every header that only the filter may set.
func TestInternalHeaders(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../charts/envoy-harmony/templates/gateway/_gateway.tpl")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(text), `define "envoy-harmony.gateway.internalHeaders"`)
	list, _, _ = strings.Cut(list, "{{- end -}}\n\n")
	for _, name := range header.Internal() {
		if !ok || !strings.Contains(list, `"`+name+`"`) {
			t.Errorf("the chart's internalHeaders lack %s", name)
		}
	}
}
