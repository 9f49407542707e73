//go:build charts

package charts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// rule is an alert of a PrometheusRule.
type rule struct {
	Alert, Expr string
	Annotations map[string]string
}

// alerts returns the chart's alerts, and writes them as a rule file of Prometheus.
func alerts(t *testing.T) (rules []rule, file string) {
	t.Helper()
	all := objects(t, render(t, engine+"monitoring: {prometheusRule: {enabled: true}}"))
	spec := find(t, all, "PrometheusRule", "harmony-envoy-harmony")["spec"]
	text, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var groups struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return groups.Groups[0].Rules, file
}

// TestAlerts runs the unit tests of the alerts, in testdata/alerts.yaml, with sample
// series. Each alert has one.
func TestAlerts(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Prometheus")
	}

	rules, file := alerts(t)
	promtool := tool(t, "promtool")
	if out, stderr, err := run(t, promtool, "check", "rules", file); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}

	tests := readFile(t, "testdata/alerts.yaml")
	path := filepath.Join(filepath.Dir(file), "tests.yaml")
	if err := os.WriteFile(path, tests, 0o600); err != nil {
		t.Fatal(err)
	}

	if out, stderr, err := run(t, promtool, "test", "rules", path); err != nil {
		t.Errorf("%v: %s%s", err, out, stderr)
	}

	for _, r := range rules {
		if strings.Count(string(tests), "alertname: "+r.Alert+"\n") < 2 {
			t.Errorf("testdata/alerts.yaml does not test that %s fires and that it does not", r.Alert)
		}
	}
}

// TestRunbooks requires that every alert has a summary, a description and a runbook that
// exists.
func TestRunbooks(t *testing.T) {
	rules, _ := alerts(t)
	page := string(readFile(t, "../../docs/alerts.md"))
	for _, r := range rules {
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", r.Alert)
		}
		url, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(url, "/docs/alerts.md") || anchor != strings.ToLower(r.Alert) || !strings.Contains(page, "\n### "+r.Alert+"\n") {
			t.Errorf("%s: docs/alerts.md has no section for the runbook %s", r.Alert, r.Annotations["runbook_url"])
		}
	}
}

// panel is a panel of the dashboard.
type panel struct {
	Title, Type, Description string
	Targets                  []struct{ Expr, LegendFormat string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	GridPos                  struct{ X, Y, W, H int }
}

func dashboard(t *testing.T) (panels []panel) {
	t.Helper()
	var board struct{ Panels []panel }
	if err := json.Unmarshal(readFile(t, chart+"dashboards/envoy-harmony.json"), &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Panels) < 20 {
		t.Fatalf("the dashboard has %d panels", len(board.Panels))
	}
	return board.Panels
}

// The dashboard is what the ConfigMap has, its panels do not overlap, and each has a unit.
func TestDashboard(t *testing.T) {
	all := objects(t, render(t, engine+"monitoring: {dashboard: {enabled: true}}"))
	m := find(t, all, "ConfigMap", "harmony-envoy-harmony-dashboard")
	if at(m, "metadata.labels").(object)["grafana_dashboard"] != "1" {
		t.Error("Grafana's sidecar does not find the dashboard by its label")
	}

	want := strings.TrimSpace(string(readFile(t, chart+"dashboards/envoy-harmony.json")))
	if diff := cmp.Diff(want, strings.TrimSpace(m["data"].(object)["envoy-harmony.json"].(string))); diff != "" {
		t.Errorf("the ConfigMap's dashboard is another one:\n%s", diff)
	}

	panels := dashboard(t)
	for i, p := range panels {
		if p.Type != "row" && (p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0) {
			t.Errorf("%s has no unit or no query", p.Title)
		}

		for _, q := range panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s covers %s", p.Title, q.Title)
			}
		}
	}
}

// Each metric of the documentation is in a panel, except for two that say nothing over time.
// The configuration's hash is shown as the whole number that "envoy-harmony check" prints.
func TestEveryMetricHasAPanel(t *testing.T) {
	var shown strings.Builder
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			shown.WriteString(target.Expr + "\n")
			if strings.Contains(target.Expr, "by (pod) (harmony_config_hash") && p.FieldConfig.Defaults.Unit != "none" {
				t.Errorf("%s: Grafana shortens the hash with the unit %s", p.Title, p.FieldConfig.Defaults.Unit)
			}
		}
	}

	without := []string{"harmony_build_info", "harmony_config_last_reload_success_timestamp_seconds"}
	for _, row := range metricRow.FindAllStringSubmatch(string(readFile(t, "../../docs/operations.md")), -1) {
		if found := regexp.MustCompile(`\b` + row[1] + `(_bucket|_sum|_count)?\b`).MatchString(shown.String()); found == slices.Contains(without, row[1]) {
			t.Errorf("%s: in a panel: %v", row[1], found)
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:harmony|go|process)_[a-z0-9_]+`)

// TestMetricNames requires that the documentation has each metric of a query. It is
// compared with the metrics that the program registers.
func TestMetricNames(t *testing.T) {
	page := string(readFile(t, "../../docs/operations.md"))
	for where, expr := range queries(t) {
		names := metricName.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s has no metric: %s", where, expr)
		}
		for _, name := range names {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if strings.HasPrefix(name, "harmony_") && !strings.Contains(page, "| `"+base+"` |") {
				t.Errorf("%s: docs/operations.md does not have the metric %s", where, base)
			}
		}
	}
}

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `(harmony_[a-z0-9_]+)` \\|")
	quotedName = regexp.MustCompile("`(harmony_[a-z0-9_]+)`")
)

// TestEveryFaultHasAnAlert requires that each metric of the documentation is in an alert, or in the
// documentation's list of those that need none.
func TestEveryFaultHasAnAlert(t *testing.T) {
	page := string(readFile(t, "../../docs/operations.md"))
	_, text, found := strings.Cut(string(readFile(t, "../../docs/alerts.md")), "\nThese metrics need no alert")
	text, _, _ = strings.Cut(text, "\n\n")

	without := map[string]bool{}
	for _, m := range quotedName.FindAllStringSubmatch(text, -1) {
		without[m[1]] = true
	}

	var used strings.Builder
	rules, _ := alerts(t)
	for _, r := range rules {
		used.WriteString(r.Expr + "\n")
	}

	rows := metricRow.FindAllStringSubmatch(page, -1)
	if !found || len(rows) < 20 {
		t.Fatalf("docs/operations.md has %d metrics, and docs/alerts.md the list of those without an alert: %v", len(rows), found)
	}

	for _, row := range rows {
		alerted := regexp.MustCompile(`\b` + row[1] + `(_bucket|_sum|_count)?\b`).MatchString(used.String())
		if alerted == without[row[1]] {
			t.Errorf("%s: in an alert: %v; docs/alerts.md must list it as one that needs none: %v", row[1], alerted, !alerted)
		}
	}
}

// queries are the expressions of alerts and panels, by their names.
func queries(t *testing.T) map[string]string {
	t.Helper()
	rules, _ := alerts(t)
	all := map[string]string{}
	for _, r := range rules {
		all["alert "+r.Alert] = r.Expr
	}
	variables := strings.NewReplacer("$namespace", ".*", "$pod", ".*", "$__rate_interval", "10s")
	for _, p := range dashboard(t) {
		for i, target := range p.Targets {
			all[strings.Join([]string{"panel", p.Title, string(rune('A' + i))}, " ")] = variables.Replace(target.Expr)
		}
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
