//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// patience bounds waiting for what must happen. No test measures time, so it is long.
const patience = 3 * time.Minute

// run runs a command and returns what it prints. A failure of the command fails the
// test.
func run(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := try(command, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return out
}

func try(command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, command, args...).CombinedOutput()
	return string(out), err
}

// await waits until check succeeds.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("timeout while waiting for: %s: %v", what, err)
}

// apply makes objects.
func apply(t *testing.T, objects string) {
	t.Helper()
	applyIn(t, "default", objects)
}

// applyIn makes objects in a namespace.
func applyIn(t *testing.T, namespace, objects string) {
	t.Helper()
	cmd := exec.Command("kubectl", "apply", "--namespace", namespace, "-f", "-")
	cmd.Stdin = strings.NewReader(objects)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// helm installs or upgrades the release of the chart, with more arguments.
func helm(t *testing.T, release, values string, more ...string) {
	t.Helper()
	file := t.TempDir() + "/values.yaml"
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "helm", append([]string{"upgrade", "--install", release, os.Getenv("CLUSTER_CHART"), "--values", file, "--wait", "--timeout", "2m"}, more...)...)
}

// image are the values that every release of the test has.
const image = `
image: {repository: localhost/envoy-harmony, tag: test}
sidecar: {envoy: {image: {repository: localhost/envoy, tag: test}}}
config: {drain_delay: 2s, drain_timeout: 60s}
engines: [{kind: vllm, service: {name: vllm, port: 8000}}]
`

// engines are two simulated replicas that take 20 ms for a token.
const engines = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm}
spec:
  replicas: 2
  selector: {matchLabels: {app: vllm}}
  template:
    metadata: {labels: {app: vllm}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: engine-sim
        image: localhost/engine-sim:test
        args: [--listen, "0.0.0.0:8000", --delay, 20ms]
        ports: [{containerPort: 8000}]
---
apiVersion: v1
kind: Service
metadata: {name: vllm}
spec:
  selector: {app: vllm}
  ports: [{port: 8000}]
`

var gatewayInstalled bool

// installGateway installs Envoy Gateway with its own chart, and the engines. Tests run
// one after the other.
func installGateway(t *testing.T) {
	t.Helper()
	apply(t, engines)
	if gatewayInstalled {
		return
	}
	gatewayInstalled = true
	run(t, "helm", "install", "eg", os.Getenv("CLUSTER_GATEWAY_CHART"), "--namespace", "envoy-gateway-system", "--create-namespace",
		"--set", "global.images.envoyProxy.image=localhost/envoy:test",
		"--set", "config.envoyGateway.provider.kubernetes.shutdownManager.image=localhost/envoy-gateway:test",
		"--set", "topologyInjector.enabled=false", "--wait", "--timeout", "2m")
	apply(t, "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: eg}, spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}}")
}

// ask sends a chat and returns the text of the answer.
func ask(url, text string) (string, error) {
	body, _ := json.Marshal(map[string]any{"model": "gpt-oss-120b", "stream": true, "messages": []map[string]string{{"role": "user", "content": text}}})

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()

	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK || !bytes.HasSuffix(all, []byte("data: [DONE]\n\n")) {
		return "", fmt.Errorf("%s: %s", resp.Status, all)
	}

	var answer strings.Builder
	for line := range strings.Lines(string(all)) {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if data, ok := strings.CutPrefix(line, "data: {"); ok && json.Unmarshal([]byte("{"+data), &chunk) == nil && len(chunk.Choices) == 1 {
			answer.WriteString(chunk.Choices[0].Delta.Content)
		}
	}
	return answer.String(), nil
}

// awaitAnswer waits until the API answers.
func awaitAnswer(t *testing.T, url string) {
	t.Helper()
	await(t, "an answer", func() error {
		_, err := ask(url, "SAY Hello.")
		return err
	})
}

// wantAnswer checks that a question is answered.
func wantAnswer(t *testing.T, url, text string) {
	t.Helper()
	if got, err := ask(url, "THINK Hm.\nSAY "+text); err != nil || got != text {
		t.Errorf("answer %q, %v", got, err)
	}
}

// wantNotes runs the commands that the release's notes print, as they are printed.
func wantNotes(t *testing.T, release string) {
	t.Helper()
	commands := regexp.MustCompile(`(?m)^   ((?:kubectl|helm) .*)$`).FindAllStringSubmatch(run(t, "helm", "get", "notes", release), -1)
	if len(commands) != 3 {
		t.Fatalf("%d commands in the notes", len(commands))
	}
	for _, c := range commands {
		if out := run(t, "bash", "-o", "pipefail", "-c", c[1]); strings.TrimSpace(out) == "" {
			t.Errorf("%s prints nothing", c[1])
		}
	}
}

// metric returns the value of a metric of the release's only pod, "" if it has none.
func metric(t *testing.T, release, name string) string {
	t.Helper()
	text, err := try("kubectl", "get", "--raw", "/api/v1/namespaces/default/services/"+release+"-envoy-harmony:admin/proxy/metrics")
	if err != nil {
		return ""
	}
	if m := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(name) + " (.*)$").FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// wantGone checks that nothing of a release is left.
func wantGone(t *testing.T, release string) {
	t.Helper()
	run(t, "helm", "uninstall", release, "--wait")
	const kinds = "deployment,service,configmap,secret,serviceaccount,poddisruptionbudget,networkpolicy,gateway,httproute,envoyextensionpolicy,clienttrafficpolicy,backendtrafficpolicy,envoyproxy"
	await(t, release+" is gone", func() error {
		if out, err := try("kubectl", "get", kinds, "--selector", "app.kubernetes.io/instance="+release, "--output", "name"); err != nil || strings.TrimSpace(out) != "" {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})
}
