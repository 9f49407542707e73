//go:build charts

package charts

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// everyProvider is a text of values for each provider: the clients' Gateway and the
// engine are in namespaces that releases share.
func everyProvider() map[string]string {
	all := map[string]string{}
	for _, f := range gatewayFiles {
		all[f.name] = fmt.Sprintf("engines: [{kind: vllm, service: {name: vllm, namespace: gpus, port: 8000}}]\n"+
			"gateway: {%s, name: public, namespace: infra}\nnetworkPolicy: {enabled: true}\n", f.gateway)
	}
	return all
}

// Releases of the same name in two namespaces have no object in common, also in the
// namespaces of the gateway and of the engines, and no Service of Envoy Gateway, which
// makes them all in one namespace.
func TestReleasesOfTwoNamespaces(t *testing.T) {
	for provider, values := range everyProvider() {
		seen := map[string]string{}
		for _, namespace := range []string{"one", "two"} {
			text, stderr, err := helm(t, write(t, values), "template", release, chart, "--namespace", namespace)
			if err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}

			for _, o := range objects(t, text) {
				names := []string{fmt.Sprintf("%v %v/%v", o["kind"], at(o, "metadata.namespace"), at(o, "metadata.name"))}
				if o["kind"] == "EnvoyProxy" {
					names = append(names, fmt.Sprintf("Service envoy-gateway-system/%v", at(o, "spec.provider.kubernetes.envoyService.name")))
				}

				for _, name := range names {
					if other, ok := seen[name]; ok {
						t.Errorf("%s: %s and %s both have %s", provider, other, namespace, name)
					}
					seen[name] = namespace
				}
			}
		}
	}
}

// Istio copies the labels of a Gateway to its pods. No selector for the filter's pods
// may select those.
func TestSelectorsOnlyOfFilter(t *testing.T) {
	values := "engines: [{kind: vllm, service: {name: vllm, port: 8000}}]\n" +
		"gateway: {provider: istio, name: public, create: true}\nnetworkPolicy: {enabled: true}\nmonitoring: {podMonitor: {enabled: true}}\n"
	all := objects(t, render(t, values))
	pod, _ := at(find(t, all, "Deployment", "harmony-envoy-harmony"), "spec.template.metadata.labels").(object)

	selectors := 0
	for _, o := range all {
		for _, path := range []string{"spec.selector.matchLabels", "spec.podSelector.matchLabels", "spec.selector"} {
			selector, ok := at(o, path).(object)
			if _, expression := selector["matchLabels"]; !ok || expression || selector["gateway.networking.k8s.io/gateway-name"] != nil {
				continue
			}

			selectors++
			if !selects(selector, pod) {
				t.Errorf("%s %s does not select the filter: %v", o["kind"], at(o, "metadata.name"), selector)
			}

			for _, gateway := range []string{"public", "harmony-envoy-harmony-loopback"} {
				if labels, _ := at(find(t, all, "Gateway", gateway), "metadata.labels").(object); selects(selector, labels) {
					t.Errorf("%s %s selects the pods of the Gateway %s: %v", o["kind"], at(o, "metadata.name"), gateway, selector)
				}
			}
		}
	}

	if selectors != 6 { // Deployment, two Services, PodDisruptionBudget, NetworkPolicy, PodMonitor
		t.Errorf("%d selectors", selectors)
	}
}

func selects(selector, labels object) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// Names that Kubernetes limits to 63 characters are not longer, with the longest name
// of a release and of a namespace.
func TestLongNames(t *testing.T) {
	const long53 = "harmony-aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeee"
	const long63 = "models-aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffff"

	for provider, values := range everyProvider() {
		if provider == "istio" { // refused: TestRefused
			values += "fullnameOverride: harmony\n"
		}

		text, stderr, err := helm(t, write(t, values), "template", long53, chart, "--namespace", long63)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}

		for _, o := range objects(t, text) {
			names := []any{}
			if slices.Contains([]any{"Service", "Gateway", "Pod", "Deployment"}, o["kind"]) {
				names = append(names, at(o, "metadata.name"))
			}
			if o["kind"] == "EnvoyProxy" {
				names = append(names, at(o, "spec.provider.kubernetes.envoyService.name"))
			}

			labels, _ := at(o, "metadata.labels").(object)
			names = slices.AppendSeq(names, maps.Values(labels))
			for _, name := range names {
				if len(name.(string)) > 63 {
					t.Errorf("%s: %s: %s has %d characters", provider, o["kind"], name, len(name.(string)))
				}
			}
		}
	}
}
