//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

// otherValues are those of a release in the namespace other: two replicas that store
// nothing, an engine of another namespace, a host name.
const otherValues = `
image: {repository: localhost/envoy-harmony, tag: test}
engines: [{kind: vllm, service: {name: vllm, namespace: default, port: 8000}}]
replicaCount: 2
resources: {requests: {cpu: 10m}}
sealKeys: {keys: [MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=]}
config: {drain_delay: 2s, drain_timeout: 60s, responses: {store_bytes: 0}, limits: {kept_reasoning_bytes: 0}}
gateway: {provider: envoyGateway, name: public, create: true, serviceType: ClusterIP, hostnames: [api.example.com]}
networkPolicy: {enabled: true}
`

// Releases of the same name, with Gateways of the same name, in two namespaces: both
// answer. Then an upgrade of one, and its rollback.
func TestTwoNamespaces(t *testing.T) {
	installGateway(t)
	helm(t, "harmony", gatewayValues+"networkPolicy: {enabled: true}\n")
	helm(t, "harmony", otherValues+"toolSecrets: [{env: TOKEN, value: secret}]\n", "--namespace", "other", "--create-namespace")
	t.Cleanup(func() { run(t, "helm", "uninstall", "harmony", "--namespace", "other", "--wait") })
	awaitAnswer(t, gatewayURL)
	testBackground(t)

	question := func() {
		t.Helper()
		run(t, "helm", "test", "harmony", "--namespace", "other")
	}

	question()
	secret := func() string {
		return run(t, "kubectl", "--namespace", "other", "get", "secret", "harmony-envoy-harmony", "--output", "jsonpath={.data}")
	}

	helm(t, "harmony", otherValues, "--namespace", "other")
	if text := secret(); strings.Contains(text, "TOKEN") || !strings.Contains(text, "seal-keys") {
		t.Errorf("the Secret after the upgrade: %s", text)
	}

	run(t, "helm", "rollback", "harmony", "1", "--namespace", "other", "--wait", "--timeout", "2m")
	if text := secret(); !strings.Contains(text, "TOKEN") {
		t.Errorf("the Secret after the rollback: %s", text)
	}

	question()
	wantGone(t, "harmony")
	question()
}

// An upgrade to another store changes how pods are replaced, and a rollback changes it
// back.
func TestStoreUpgrade(t *testing.T) {
	helm(t, "plain", image)
	helm(t, "plain", image+`
store: {url: "sqlite:/data/store.db"}
extraVolumes: [{name: data, emptyDir: {}}]
extraVolumeMounts: [{name: data, mountPath: /data}]
`)
	run(t, "helm", "rollback", "plain", "1", "--wait", "--timeout", "2m")
	wantGone(t, "plain")
}
