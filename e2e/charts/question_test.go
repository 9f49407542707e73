//go:build charts

package charts

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuestionOverHTTPS runs the container of helm test, with the program, the files and the environment that the chart
// gives it: a gateway with a certificate of a private CA, which demands a key, answers.
func TestQuestionOverHTTPS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"It works."}}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()

	values := engine + "test: {caConfigMap: ca, existingSecret: key, url: '" + server.URL + "/v1'}\n"
	spec := at(find(t, objects(t, render(t, values)), "Pod", "harmony-envoy-harmony-test"), "spec").(object)
	container := spec["containers"].([]any)[0].(object)

	// The ConfigMap and the Secret, as Kubernetes gives them to the container.
	folder := t.TempDir()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(folder, "ca.crt"), certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	mounted := mountPath(container, "envoy-harmony-test-ca").(string)
	if source := at(volumeAt(spec, mounted), "configMap.name"); source != "ca" {
		t.Fatalf("the files of %s are of %v", mounted, source)
	}
	variables := container["env"].([]any)
	environment := make([]string, 0, 1+len(variables))
	environment = append(environment, "SSL_CERT_DIR=/nowhere")
	for _, v := range variables {
		name := v.(object)["name"].(string)
		value, ok := v.(object)["value"].(string)
		if !ok {
			value = "secret"
		}
		environment = append(environment, name+"="+strings.Replace(value, mounted, folder, 1))
	}

	question := &pod{here: strings.NewReplacer("--wait=1m", "--wait=0s"), spec: spec}
	cmd := exec.CommandContext(t.Context(), build(t, "envoy-harmony"), question.args(t, "containers", "ask")...)
	cmd.Env = environment
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "It works.\n" {
		t.Errorf("%v: %s", err, out)
	}
}
