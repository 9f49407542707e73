package envoy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Every configuration that brings the filter into an Envoy, or a gateway, asks for the
// addresses of clients: without them clients without tenants share nothing fairly.
func TestAddressesAreAskedFor(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	gateways, err := filepath.Glob("gateways/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range slices.Concat(files, gateways, []string{"examples/tls/envoy.yaml"}) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var value any
			if err := yaml.Unmarshal([]byte(document), &value); err != nil {
				t.Fatal(err)
			}
			eachCaller(value, func(caller map[string]any) {
				found++
				if !asksForAddresses(caller) {
					t.Errorf("%s: the filter does not get source.address: %v", file, caller)
				}
			})
		}
	}
	if found < 16 {
		t.Errorf("only %d configurations of the filter were found", found)
	}
}

// eachCaller calls do for all objects that say how the filter is called. Endpoint pickers are
// called in the same way, but report nothing under the filter's name.
func eachCaller(value any, do func(map[string]any)) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			eachCaller(element, do)
		}
	case map[string]any:
		_, isPicker := at(v, "metadata_options", "forwarding_namespaces").(map[string]any)
		kind, _ := v["@type"].(string)
		switch {
		case strings.HasSuffix(kind, ".ext_proc.v3.ExternalProcessor") && !isPicker, // Envoy, Istio
			v["processingMode"] != nil,    // Envoy Gateway, kgateway
			v["processingOptions"] != nil: // agentgateway
			do(v)
		}
		for _, member := range v {
			eachCaller(member, do)
		}
	}
}

func asksForAddresses(caller map[string]any) bool {
	for _, list := range []any{caller["request_attributes"], caller["requestAttributes"], at(caller, "processingMode", "request", "attributes")} {
		switch list := list.(type) {
		case []any:
			return slices.Contains(list, any("source.address"))
		case map[string]any: // agentgateway names an expression for each
			return list["source.address"] == "source.address"
		}
	}
	return false
}

// at is the value at a path; nil if there is none.
func at(value any, path ...string) any {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}
