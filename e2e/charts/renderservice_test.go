//go:build charts

package charts

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// TestRenderService runs the container of the render service as a process, with the
// arguments and the configuration of a release with tools. Its pod has no secret but the
// seal keys.
func TestRenderService(t *testing.T) {
	all := objects(t, readFile(t, "testdata/full/rendered.yaml"))
	const name = "harmony-envoy-harmony-render"
	pod := at(find(t, all, "Deployment", name), "spec.template.spec").(object)
	container := pod["containers"].([]any)[0].(object)
	if got := variables(container); !slices.Equal(got, []string{"ENVOY_HARMONY_RESPONSES_SEAL_KEYS", "GOMEMLIMIT"}) {
		t.Errorf("the pod has the variables %v", got)
	}

	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config := write(t, find(t, all, "ConfigMap", name)["data"].(object)["config.yaml"].(string))
	ours := strings.NewReplacer("--listen=:8001", "--listen="+address, "/etc/envoy-harmony/config.yaml", config)

	given := container["args"].([]any)
	args := make([]string, 0, len(given))
	for _, arg := range given {
		args = append(args, ours.Replace(arg.(string)))
	}

	p := launch(t, program(t), args...)
	p.await(t, func(line string) string {
		if strings.Contains(line, `"rendering"`) {
			return line
		}
		return ""
	})

	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if status, _ := ask(t, http.MethodGet, "http://"+address+at(container, probe+".httpGet.path").(string), ""); status != http.StatusOK {
			t.Errorf("%s: %d", probe, status)
		}
	}

	if status, text := ask(t, http.MethodPost, "http://"+address+"/tokenize", `{"model":"gpt-oss-20b","prompt":"Hello"}`); status != http.StatusOK || !strings.Contains(text, "13225") {
		t.Errorf("tokenize: %d %s", status, text)
	}
}

// ask sends a request, and returns the status and the body of the reply.
func ask(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// The pods of the filter and those of the render service are not each other's, and a
// changed configuration restarts those of the render service, which reads it once.
func TestRenderServiceApart(t *testing.T) {
	deployment := func(values, name string) object {
		return find(t, objects(t, render(t, engine+"render: {enabled: true}\n"+values)), "Deployment", name)
	}
	labels := func(name string) string {
		text, err := yaml.Marshal(at(deployment("", name), "spec.selector.matchLabels"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	const filter, service = "harmony-envoy-harmony", "harmony-envoy-harmony-render"
	if labels(filter) == labels(service) {
		t.Errorf("both have the labels %s", labels(filter))
	}

	checksum := func(values string) any {
		return at(deployment(values, service), "spec.template.metadata.annotations").(object)["envoy-harmony/restart-checksum"]
	}
	before := checksum("")

	for values, restart := range map[string]bool{
		"config: {model_defaults: {effort: low}}":                          true,
		"inspector: {enabled: true, existingSecret: s}":                    false,
		"config: {record: {percent: 1}}":                                   false,
		"config: {tools: {max_turns: 3}}":                                  false,
		"sealKeys: {keys: [AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]}": true,
	} {
		if got := checksum(values) != before; got != restart {
			t.Errorf("%s: restart %v, want %v", values, got, restart)
		}
	}
}
