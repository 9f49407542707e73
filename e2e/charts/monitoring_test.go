package charts

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	texttemplate "text/template"

	"sigs.k8s.io/yaml"
)

// What a metric needs beside its row in docs/operations.md: a panel, and an alert with a
// runbook and tests, or a place in the list of those that need none. All are texts, which
// are compared here without Helm and Prometheus. docs/metrics_test.go compares the rows
// with the code.

const (
	// leastRunbook is how many words a runbook has at least: fewer say no more than the alert.
	leastRunbook  = 20
	renewRendered = "write it with go test -tags charts -run TestRenders ./e2e/charts -update"
	alertsFile    = chart + "templates/_alerts.tpl"
	alertTests    = "testdata/alerts.yaml"
	dashboardFile = chart + "dashboards/envoy-harmony.json"
)

// rule is an alert of the chart.
type rule struct{ Alert, Expr, For, Severity, Summary, Description string }

// alerts returns the chart's alerts, as an installation in the namespace models has them.
func alerts(t *testing.T) (rules []rule) {
	t.Helper()
	const m = `namespace="models"`
	definitions, err := texttemplate.New("").Funcs(texttemplate.FuncMap{
		"mul": func(a, b any) string { return strconv.Itoa(number(t, a) * number(t, b)) },
	}).Parse(string(readFile(t, alertsFile)))
	if err != nil {
		t.Fatalf("%s: %v", alertsFile, err)
	}

	var text bytes.Buffer
	if err := definitions.ExecuteTemplate(&text, "envoy-harmony.alerts", object{
		"m":        m,
		"requests": `sum(rate(harmony_requests_total{` + m + `,api!="models"}[10m]))`,
		"rule":     at(readValues(t), "monitoring.prometheusRule"),
	}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text.Bytes(), &rules); err != nil {
		t.Fatalf("%s: %v", alertsFile, err)
	}
	if len(rules) < 10 {
		t.Fatalf("only %d alerts", len(rules))
	}
	return rules
}

// number is a whole number of a template or of the values.
func number(t *testing.T, value any) int {
	t.Helper()
	switch n := value.(type) {
	case int:
		return n
	case float64:
		return int(n)
	}
	t.Fatalf("%v is no number", value)
	return 0
}

// Every alert says what it is about, has a runbook, and tests of when it fires and when not.
// There is no runbook of another alert.
func TestAlertsAreComplete(t *testing.T) {
	page, tests := string(readFile(t, "../../docs/alerts.md")), string(readFile(t, alertTests))
	rendered := string(readFile(t, "testdata/full/rendered.yaml"))
	names := map[string]bool{}
	for _, r := range alerts(t) {
		names[r.Alert] = true
		if r.Summary == "" || r.Description == "" || r.Severity == "" || r.For == "" {
			t.Errorf("%s: write its summary, its description, its severity and its for into charts/envoy-harmony/templates/_alerts.tpl", r.Alert)
		}
		_, runbook, _ := strings.Cut(page, "\n### "+r.Alert+"\n")
		if runbook, _, _ = strings.Cut(runbook, "\n#"); len(strings.Fields(runbook)) < leastRunbook {
			t.Errorf("%s has no runbook: write a section ### %[1]s into docs/alerts.md, of %d words at least", r.Alert, leastRunbook)
		}
		if !strings.Contains(rendered, "alert: "+r.Alert+"\n") {
			t.Errorf("%s is not in e2e/charts/testdata: %s", r.Alert, renewRendered)
		}
		fires, silent := 0, 0
		for _, test := range regexp.MustCompile(`alertname: `+r.Alert+`\n *exp_alerts:( \[\])?\n`).FindAllStringSubmatch(tests, -1) {
			if test[1] == "" {
				fires++
			} else {
				silent++
			}
		}
		if fires == 0 || silent == 0 {
			t.Errorf("%s: e2e/charts/testdata/alerts.yaml has %d tests in which it fires and %d in which it does not: write one of each there",
				r.Alert, fires, silent)
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(page, -1) {
		if !names[section[1]] {
			t.Errorf("docs/alerts.md has a runbook of %s, which is no alert of charts/envoy-harmony/templates/_alerts.tpl", section[1])
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
	if err := json.Unmarshal(readFile(t, dashboardFile), &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Panels) < 20 {
		t.Fatalf("the dashboard has %d panels", len(board.Panels))
	}
	return board.Panels
}

// The panels do not overlap, and each has a unit.
func TestPanels(t *testing.T) {
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

// documentedMetrics are the metrics of docs/operations.md.
func documentedMetrics(t *testing.T) (names []string) {
	t.Helper()
	for _, row := range metricRow.FindAllStringSubmatch(string(readFile(t, "../../docs/operations.md")), -1) {
		names = append(names, row[1])
	}
	if len(names) < 20 {
		t.Fatalf("docs/operations.md has only %d metrics", len(names))
	}
	return names
}

// listed are the metrics of a paragraph of docs/alerts.md, which begins so.
func listed(t *testing.T, beginning string) map[string]bool {
	t.Helper()
	_, text, found := strings.Cut(string(readFile(t, "../../docs/alerts.md")), "\n"+beginning)
	if !found {
		t.Fatalf("docs/alerts.md has no paragraph %q", beginning)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	names := map[string]bool{}
	for _, m := range quotedName.FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

var (
	metricName = regexp.MustCompile(`\b(?:harmony|go|process)_[a-z0-9_]+`)
	metricRow  = regexp.MustCompile("(?m)^\\| `(harmony_[a-z0-9_]+)` \\|")
	quotedName = regexp.MustCompile("`(harmony_[a-z0-9_]+)`")
	// sample is what Prometheus adds to the name of a histogram.
	sample = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// metricsOf are the metrics of a query.
func metricsOf(expr string) (names []string) {
	for _, name := range metricName.FindAllString(expr, -1) {
		names = append(names, sample.ReplaceAllString(name, ""))
	}
	return names
}

// TestMetricsAreWatched requires that each metric of the documentation is in a panel and in an
// alert, or in the documentation's lists of those that need none.
func TestMetricsAreWatched(t *testing.T) {
	inPanels, inAlerts := map[string]bool{}, map[string]bool{}
	for where, expr := range queryTexts(t) {
		in := inPanels
		if strings.HasPrefix(where, "alert ") {
			in = inAlerts
		}
		for _, name := range metricsOf(expr) {
			in[name] = true
		}
	}

	unshown, unalerted := listed(t, "No panel shows"), listed(t, "These metrics need no alert")
	for _, name := range documentedMetrics(t) {
		switch {
		case inPanels[name] && unshown[name]:
			t.Errorf("%s is in a panel: take it out of the list \"No panel shows\" in docs/alerts.md", name)
		case !inPanels[name] && !unshown[name]:
			t.Errorf("%s is in no panel: add one to charts/envoy-harmony/dashboards/envoy-harmony.json, or the metric "+
				"to the list \"No panel shows\" in docs/alerts.md", name)
		}
		switch {
		case inAlerts[name] && unalerted[name]:
			t.Errorf("%s is in an alert: take it out of the list \"These metrics need no alert\" in docs/alerts.md", name)
		case !inAlerts[name] && !unalerted[name]:
			t.Errorf("%s is in no alert: add one to charts/envoy-harmony/templates/_alerts.tpl, or the metric to the list "+
				"\"These metrics need no alert\" in docs/alerts.md", name)
		}
	}
}

// The configuration's hash is shown as the whole number that "envoy-harmony check" prints.
func TestHashIsShownWhole(t *testing.T) {
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "by (pod) (harmony_config_hash") && p.FieldConfig.Defaults.Unit != "none" {
				t.Errorf("%s: Grafana shortens the hash with the unit %s", p.Title, p.FieldConfig.Defaults.Unit)
			}
		}
	}
}

// TestMetricNames requires that the documentation has each metric of a query.
func TestMetricNames(t *testing.T) {
	documented := documentedMetrics(t)
	for where, expr := range queryTexts(t) {
		names := metricsOf(expr)
		if len(names) == 0 {
			t.Errorf("%s has no metric: %s", where, expr)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "harmony_") && !slices.Contains(documented, name) {
				t.Errorf("%s: docs/operations.md does not have the metric %s", where, name)
			}
		}
	}
}

// queryTexts are the expressions of alerts and panels as they are written, by their names.
func queryTexts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range alerts(t) {
		all["alert "+r.Alert] = r.Expr
	}
	for _, p := range dashboard(t) {
		for i, target := range p.Targets {
			all[strings.Join([]string{"panel", p.Title, string(rune('A' + i))}, " ")] = target.Expr
		}
	}
	return all
}
