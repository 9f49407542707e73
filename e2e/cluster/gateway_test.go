//go:build cluster

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
)

const gatewayValues = image + `
gateway: {provider: envoyGateway, name: public, create: true, serviceType: ClusterIP}
`

// gatewayURL is the API behind the Gateway that the chart makes.
const gatewayURL = "http://default-public.envoy-gateway-system.svc.cluster.local/v1"

// From helm install to an answer behind Envoy Gateway, and what an operator does then:
// the objects are accepted, the commands of the notes work, a changed configuration
// comes into effect without a restart, a bad one does not, a rolling restart of the
// filter breaks no stream, and nothing is left.
func TestEnvoyGateway(t *testing.T) {
	installGateway(t)
	helm(t, "harmony", gatewayValues)
	wantAccepted(t, 8)
	awaitAnswer(t, gatewayURL)
	wantAnswer(t, gatewayURL, "Hello from the cluster.")
	wantNotes(t, "harmony")
	t.Run("background response", testBackground)
	t.Run("changed configuration", testReload)
	t.Run("rolling restart", testRestart)
	wantGone(t, "harmony")
}

// wantAccepted checks the status of the objects that the gateway's controller reads.
func wantAccepted(t *testing.T, want int) {
	t.Helper()
	run(t, "kubectl", "wait", "gateway", "--all", "--for", "condition=Programmed", "--timeout", "2m")
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
			Status   struct {
				Parents, Ancestors []struct {
					Conditions []struct{ Type, Status, Message string }
				}
			}
		}
	}

	out := run(t, "kubectl", "get", "httproute,envoyextensionpolicy,clienttrafficpolicy,backendtrafficpolicy,backendtlspolicy", "--output", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}

	if len(list.Items) != want {
		t.Errorf("%d objects, want %d", len(list.Items), want)
	}

	for _, o := range list.Items {
		owners := append(o.Status.Parents, o.Status.Ancestors...)
		if len(owners) == 0 {
			t.Errorf("%s %s: nobody has read it", o.Kind, o.Metadata.Name)
		}
		for _, owner := range owners {
			for _, c := range owner.Conditions {
				if c.Status != "True" {
					t.Errorf("%s %s: %s is %s: %s", o.Kind, o.Metadata.Name, c.Type, c.Status, c.Message)
				}
			}
		}
	}
}

// A background response needs the loopback Gateway, and the store.
func testBackground(t *testing.T) {
	post := func() string {
		return run(t, "curl", "-sS", "--fail-with-body", gatewayURL+"/responses", "--json", `{"model": "gpt-oss-120b", "background": true, "input": "SAY Later."}`)
	}
	var response struct{ ID, Status string }
	if err := json.Unmarshal([]byte(post()), &response); err != nil || response.ID == "" {
		t.Fatalf("%+v, %v", response, err)
	}
	await(t, "the response is complete", func() error {
		out := run(t, "curl", "-sS", "--fail-with-body", gatewayURL+"/responses/"+response.ID)
		if err := json.Unmarshal([]byte(out), &response); err != nil || response.Status != "completed" || !strings.Contains(out, "Later.") {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})
}

const (
	reloadsOK      = `harmony_config_reloads_total{outcome="ok"}`
	reloadsRefused = `harmony_config_reloads_total{outcome="refused"}`
)

// The same process takes over the next configuration, and refuses a bad one.
func testReload(t *testing.T) {
	pods := func() string {
		return run(t, "kubectl", "get", "pods", "--selector", "app.kubernetes.io/instance=harmony,app.kubernetes.io/name=envoy-harmony", "--output", "jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount}")
	}

	before := pods()
	helm(t, "harmony", strings.Replace(gatewayValues, "config: {", "config: {model_defaults: {effort: low}, ", 1))
	await(t, "the filter has the new configuration", func() error {
		if n := metric(t, "harmony", reloadsOK); n != "1" {
			return fmt.Errorf("%s reloads", n)
		}
		return nil
	})

	run(t, "kubectl", "patch", "configmap", "harmony-envoy-harmony", "--patch", `{"data": {"config.yaml": "engines: []\nno_such_key: 1\n"}}`)
	await(t, "the filter refuses the bad configuration", func() error {
		if n := metric(t, "harmony", reloadsRefused); n != "1" {
			return fmt.Errorf("%s refused", n)
		}
		return nil
	})

	wantAnswer(t, gatewayURL, "Still here.")
	if after := pods(); after != before {
		t.Errorf("pods %s, before %s", after, before)
	}
	run(t, "kubectl", "delete", "configmap", "harmony-envoy-harmony") // the next upgrade makes it anew
}

// Clients notice nothing of a rolling restart: their streams end at the old pod, and
// new requests reach the new one.
func testRestart(t *testing.T) {
	helm(t, "harmony", gatewayValues)

	var stop, whole atomic.Int64
	var clients sync.WaitGroup
	text := strings.TrimSpace(strings.Repeat("word ", 60))
	for range 8 {
		clients.Go(func() {
			for stop.Load() == 0 {
				if got, err := ask(gatewayURL, "SAY "+text); err != nil || got != text {
					t.Errorf("answer %q, %v", got, err)
					return
				}
				whole.Add(1)
			}
		})
	}

	for range 2 {
		run(t, "kubectl", "rollout", "restart", "deployment/harmony-envoy-harmony")
		run(t, "kubectl", "rollout", "status", "deployment/harmony-envoy-harmony", "--timeout", "2m")
		run(t, "kubectl", "wait", "pods", "--selector", "app.kubernetes.io/name=envoy-harmony", "--for", "condition=Ready", "--timeout", "2m")
	}

	stop.Store(1)
	clients.Wait()
	t.Logf("%d streams", whole.Load())
}

// TLS both ways: Envoy checks the filter's certificate, and the filter that of the
// loopback Gateway. A renewed certificate comes into use without a restart.
func TestTLS(t *testing.T) {
	installGateway(t)
	ca := pki.NewCA(t, "filter")
	bundle, _ := json.Marshal(string(ca.PEM))
	apply(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "filter-ca"}, "data": {"ca.crt": `+string(bundle)+`}}`)

	renew := func() {
		apply(t, tlsSecret("filter-tls", ca.Leaf(t, "secure-envoy-harmony-headless.default.svc.cluster.local")))
	}

	renew()
	apply(t, tlsSecret("loopback-tls", ca.Leaf(t, "default-secure-envoy-harmony-loopback.envoy-gateway-system.svc.cluster.local")))
	helm(t, "secure", strings.Replace(gatewayValues, "name: public,", "name: public, filterCA: filter-ca, loopback: {tls: {enabled: true, existingSecret: loopback-tls, caConfigMap: filter-ca}},", 1)+"tls: {enabled: true, existingSecret: filter-tls}\n")
	wantAccepted(t, 9)
	awaitAnswer(t, gatewayURL)
	wantNotes(t, "secure")

	renew()
	await(t, "the filter has the new certificate", func() error {
		if n := metric(t, "secure", `harmony_tls_reloads_total{outcome="ok"}`); n != "1" {
			return fmt.Errorf("%s reloads", n)
		}
		return nil
	})

	wantAnswer(t, gatewayURL, "Renewed.")
	wantGone(t, "secure")
}

// tlsSecret is a Secret with a certificate.
func tlsSecret(name string, pair pki.Pair) string {
	o, _ := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]string{"name": name},
		"stringData": map[string]string{"tls.crt": string(pair.Cert), "tls.key": string(pair.Key)},
	})
	return string(o)
}
