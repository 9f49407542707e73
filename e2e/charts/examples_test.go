//go:build charts

package charts

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exampleValues are the lines of an example's first comment with values of the chart.
var exampleValues = regexp.MustCompile(`(?m)^# ((?:engines|config|test): .*)$`)

// The examples of engines are valid objects, and the chart's values that they name lead
// to them.
func TestEngineExamples(t *testing.T) {
	files, err := filepath.Glob(chart + "examples/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	args := append([]string{"--version", "1.30"}, files...)
	if out, stderr, err := run(t, tool(t, "kubectl-validate"), args...); err != nil {
		t.Errorf("%v\n%s%s", err, out, stderr)
	}

	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { checkEngineExample(t, string(readFile(t, file))) })
	}
}

// checkEngineExample checks the example of an engine.
func checkEngineExample(t *testing.T, text string) {
	t.Helper()
	var values strings.Builder
	for _, line := range exampleValues.FindAllStringSubmatch(text, -1) {
		values.WriteString(line[1] + "\n")
	}

	rendered := objects(t, render(t, "mode: sidecar\n"+values.String()))
	engine := settingsOf(t, rendered)["engines"].([]any)[0].(object)
	name := engine["kind"].(string)
	all := objects(t, []byte(text))
	service, deployment := find(t, all, "Service", name), find(t, all, "Deployment", name)

	port := at(service, "spec.ports").([]any)[0].(object)["port"]
	if want := fmt.Sprintf("http://%s.models.svc.cluster.local:%v", name, port); engine["urls"].([]any)[0] != want {
		t.Errorf("the values lead to %v, the Service is %s", engine["urls"], want)
	}
	if at(service, "spec.clusterIP") != "None" {
		t.Error("the Service has one address for all replicas")
	}

	labels := at(deployment, "spec.template.metadata.labels")
	if diff := cmp.Diff([]any{labels, labels}, []any{at(service, "spec.selector"), at(deployment, "spec.selector.matchLabels")}); diff != "" {
		t.Errorf("selectors:\n%s", diff)
	}

	container := at(deployment, "spec.template.spec.containers").([]any)[0].(object)
	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if at(container, probe+".httpGet.path") != "/health" {
			t.Errorf("there is no %s", probe)
		}
	}

	args := fmt.Sprint(container["args"])
	if !regexp.MustCompile(fmt.Sprintf(`--port[= ]%v\b`, port)).MatchString(args) {
		t.Errorf("the engine does not listen at %v: %s", port, args)
	}

	// helm test asks for the model that the engine serves: others are a 404.
	question := at(find(t, rendered, "Pod", release+"-envoy-harmony-test"), "spec.containers").([]any)[0].(object)
	asked := ""
	for _, arg := range question["args"].([]any) {
		if model, ok := strings.CutPrefix(arg.(string), "--model="); ok {
			asked = model
		}
	}
	if !slices.ContainsFunc(container["args"].([]any), func(arg any) bool {
		_, value, _ := strings.Cut(arg.(string), "=")
		return asked != "" && (arg == asked || value == asked)
	}) {
		t.Errorf("helm test asks for %q, the engine has %s", asked, args)
	}

	checkConfig(t, rendered) // last: it sets the variables of the container
}
