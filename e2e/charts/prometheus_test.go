//go:build charts

package charts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestAlerts runs the unit tests of the alerts, in testdata/alerts.yaml, with sample
// series. Helm renders the same alerts as the tests of the texts read.
func TestAlerts(t *testing.T) {
	all := objects(t, render(t, engine+"monitoring: {prometheusRule: {enabled: true}}"))
	spec := find(t, all, "PrometheusRule", "harmony-envoy-harmony")["spec"]
	text, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var rendered struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For string
				Labels           struct{ Severity string }
				Annotations      map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &rendered); err != nil {
		t.Fatal(err)
	}
	rules := make([]rule, 0, len(rendered.Groups[0].Rules))
	for _, r := range rendered.Groups[0].Rules {
		rules = append(rules, rule{r.Alert, r.Expr, r.For, r.Labels.Severity, r.Annotations["summary"], r.Annotations["description"]})
		url, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(url, "/docs/alerts.md") || anchor != strings.ToLower(r.Alert) {
			t.Errorf("%s has the runbook %s", r.Alert, r.Annotations["runbook_url"])
		}
	}
	if diff := cmp.Diff(alerts(t), rules); diff != "" {
		t.Errorf("Helm renders other alerts (-text +Helm):\n%s", diff)
	}

	if testing.Short() {
		t.Skip("the rest needs Prometheus")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool := tool(t, "promtool")
	if out, stderr, err := run(t, promtool, "check", "rules", file); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}

	path := filepath.Join(filepath.Dir(file), "tests.yaml")
	if err := os.WriteFile(path, readFile(t, alertTests), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, err := run(t, promtool, "test", "rules", path); err != nil {
		t.Errorf("%v: %s%s", err, out, stderr)
	}
}

// The dashboard is what the ConfigMap has.
func TestDashboard(t *testing.T) {
	all := objects(t, render(t, engine+"monitoring: {dashboard: {enabled: true}}"))
	m := find(t, all, "ConfigMap", "harmony-envoy-harmony-dashboard")
	if at(m, "metadata.labels").(object)["grafana_dashboard"] != "1" {
		t.Error("Grafana's sidecar does not find the dashboard by its label")
	}

	want := strings.TrimSpace(string(readFile(t, dashboardFile)))
	if diff := cmp.Diff(want, strings.TrimSpace(m["data"].(object)["envoy-harmony.json"].(string))); diff != "" {
		t.Errorf("the ConfigMap's dashboard is another one:\n%s", diff)
	}
}

// queries are the expressions of alerts and panels, by their names.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := queryTexts(t)
	variables := strings.NewReplacer("$namespace", ".*", "$pod", ".*", "$__rate_interval", "10s")
	for where, expr := range all {
		all[where] = variables.Replace(expr)
	}
	return all
}

// mayBeEmpty reports whether a query has no result in a run in which nothing of what it
// measures happened.
func mayBeEmpty(where, expr string) bool {
	return strings.HasPrefix(where, "alert ") || slices.ContainsFunc([]string{
		"harmony_store_errors_total", "harmony_config_reloads_total", "harmony_tls_", "harmony_budget_counts_dropped_total", "harmony_websocket_closed_total",
	}, func(name string) bool { return strings.Contains(expr, name) })
}
