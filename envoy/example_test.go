package envoy_test

import (
	"fmt"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// The lines of a bootstrap that name an engine and its two replicas.
func Example() {
	bootstrap, err := envoy.Bootstrap(envoy.Options{
		Listen:       "0.0.0.0:10000",
		ExtProc:      "unix:///run/envoy-harmony/filter.sock",
		PrefixHeader: "x-harmony-prefix",
		Engines:      []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm-0:8000", "http://vllm-1:8000"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(bootstrap)) {
		if strings.Contains(line, "vllm") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	// Output:
	// - name: "engine vllm"
	// headers: [{name: x-harmony-engine, string_match: {exact: "vllm"}}]
	// cluster: "engine_vllm"
	// cluster: "engine_vllm"
	// - name: "engine_vllm"
	// cluster_name: "engine_vllm"
	// hostname: "vllm-0"
	// address: {socket_address: {address: "vllm-0", port_value: 8000}}
	// hostname: "vllm-1"
	// address: {socket_address: {address: "vllm-1", port_value: 8000}}
}
