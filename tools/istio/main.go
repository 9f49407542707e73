// Command istiod-config prints what istiod makes of the objects on standard input for
// the Envoy of one Gateway: listeners, routes, clusters and endpoints, as one JSON
// object.
//
//	istiod-config --gateway envoy-harmony --namespace envoy-harmony < objects.yaml
//
// The objects must contain the Services that routes and filters refer to, with their
// EndpointSlices, and the Gateway's own Service, whose endpoint is --address.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"istio.io/istio/pilot/pkg/features"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/test"
)

func main() {
	gateway := flag.String("gateway", "", "`name` of the Gateway")
	namespace := flag.String("namespace", "default", "its `namespace`")
	address := flag.String("address", "10.0.0.1", "the address of its pod")
	flag.Parse()
	objects, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = run(string(objects), *gateway, *namespace, *address)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "istiod-config:", err)
		os.Exit(1)
	}
}

// istioObject matches an object of Istio itself: the fake API server takes all
// others.
var istioObject = regexp.MustCompile(`(?m)^apiVersion: (networking|security|telemetry|extensions)\.istio\.io/`)

// run prints the configuration of a Gateway's Envoy.
func run(objects, gateway, namespace, address string) error {
	// istiod would add GatewayClasses of its own: only the objects of standard input count.
	features.EnableGatewayAPIGatewayClassController = false
	logs := log.DefaultOptions()
	logs.OutputPaths = []string{"stderr"} // standard output has the result
	if err := log.Configure(logs); err != nil {
		return err
	}

	var kubernetes, istio []string
	for _, document := range strings.Split(objects, "\n---\n") {
		if istioObject.MatchString(document) {
			istio = append(istio, document)
		} else {
			kubernetes = append(kubernetes, document)
		}
	}

	var result map[string]any
	// The fake istiod is made for tests: it ends them where this program returns an error.
	err := test.Wrap(func(t test.Failer) {
		server := xds.NewFakeDiscoveryServer(t, xds.FakeOptions{
			KubernetesObjectString: strings.Join(kubernetes, "\n---\n"),
			ConfigString:           strings.Join(istio, "\n---\n"),
		})
		proxy := server.SetupProxy(&model.Proxy{
			Type: model.Router, ConfigNamespace: namespace, IPAddresses: []string{address},
			Labels: map[string]string{"gateway.networking.k8s.io/gateway-name": gateway},
			Metadata: &model.NodeMetadata{
				Namespace: namespace,
				Labels:    map[string]string{"gateway.networking.k8s.io/gateway-name": gateway},
			},
		})
		result = map[string]any{
			"listeners": messages(t, server.Listeners(proxy)),
			"routes":    messages(t, server.Routes(proxy)),
			"clusters":  messages(t, server.Clusters(proxy)),
			"endpoints": messages(t, server.Endpoints(proxy)),
		}
	})
	if err != nil {
		return err
	}

	// istiod answers such a Gateway with an empty configuration and no error.
	if len(result["listeners"].([]any)) == 0 {
		return errors.New("no listener: the Gateway, its Service or the endpoint is missing")
	}

	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	return out.Encode(result)
}

// messages are the JSON objects of messages.
func messages[M proto.Message](t test.Failer, list []M) (objects []any) {
	for _, m := range list {
		text, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var o any
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}
