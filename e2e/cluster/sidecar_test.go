//go:build cluster

package cluster

import (
	"os"
	"testing"
)

// Envoy and filter in one pod: no gateway is needed.
func TestSidecar(t *testing.T) {
	apply(t, engines)
	helm(t, "side", image+"mode: sidecar\n")
	const url = "http://side-envoy-harmony.default.svc.cluster.local/v1"
	awaitAnswer(t, url)
	wantAnswer(t, url, "Hello from the pod.")
	wantNotes(t, "side")
	wantGone(t, "side")
}

// myEnvoy is an Envoy of somebody else, whose user is not the filter's.
const myEnvoy = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: my-envoy}
spec:
  selector: {matchLabels: {app: my-envoy}}
  template:
    metadata: {labels: {app: my-envoy}}
    spec:
      terminationGracePeriodSeconds: 1
      initContainers:
      - name: bootstrap
        image: localhost/envoy-harmony:test
        args: [envoy-config, --config=/etc/harmony/config.yaml, "--listen=0.0.0.0:10000", --output=/config/envoy.yaml]
        volumeMounts: [{name: harmony, mountPath: /etc/harmony}, {name: config, mountPath: /config}]
      containers:
      - name: envoy
        image: localhost/envoy:test
        args: [--config-path, /config/envoy.yaml]
        securityContext: {runAsUser: 101, runAsGroup: 101}
        readinessProbe: {tcpSocket: {port: 10000}}
        volumeMounts: [{name: config, mountPath: /config}]
      volumes:
      - {name: config, emptyDir: {}}
      - {name: harmony, configMap: {name: mine-envoy-harmony}}
---
apiVersion: v1
kind: Service
metadata: {name: my-envoy}
spec:
  selector: {app: my-envoy}
  ports: [{port: 10000}]
`

// The patch adds the filter to the pods of another Envoy. Both reach the other's socket
// by the group of the pod, and the Deployment takes the patch again after an upgrade.
func TestPatchedEnvoy(t *testing.T) {
	apply(t, engines)
	const values = `
image: {repository: localhost/envoy-harmony, tag: test}
mode: sidecar
sidecar: {envoy: {enabled: false}}
engines: [{kind: vllm, service: {name: vllm, port: 8000}}]
sealKeys: {keys: [MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=]}
config: {responses: {store_bytes: 0}, limits: {kept_reasoning_bytes: 0}}
`

	patch := func() {
		t.Helper()
		file := t.TempDir() + "/patch.yaml"
		text := run(t, "kubectl", "get", "configmap", "mine-envoy-harmony-patch", "--output", `jsonpath={.data.patch\.yaml}`)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, "kubectl", "patch", "deployment", "my-envoy", "--patch-file", file)
		run(t, "kubectl", "rollout", "status", "deployment/my-envoy", "--timeout", "2m")
	}

	helm(t, "mine", values)
	apply(t, myEnvoy)
	t.Cleanup(func() { run(t, "kubectl", "delete", "deployment,service", "my-envoy", "--wait") })
	patch()

	const url = "http://my-envoy.default.svc.cluster.local:10000/v1"
	awaitAnswer(t, url)
	wantAnswer(t, url, "Hello from the patched pod.")

	helm(t, "mine", values+"extraEnv: [{name: EXTRA, value: a}]\n")
	patch()
	awaitAnswer(t, url)
	wantGone(t, "mine")
}
