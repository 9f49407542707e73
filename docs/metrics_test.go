package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	metricRow     = regexp.MustCompile("(?m)^\\| `(harmony_[a-z_]+)` \\|")
	metricLiteral = regexp.MustCompile(`^harmony_[a-z_]+$`)
)

// renderMetric is of a program of its own, which docs/render.md is about.
const renderMetric = "harmony_render_seconds"

// metricsOfCode are the metrics that the module makes, by the file: the names in files that use
// Prometheus' library.
func metricsOfCode(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(path, d.Name())
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "client_golang/prometheus\"") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if name, err := strconv.Unquote(l.Value); err == nil && metricLiteral.MatchString(name) {
					names[name] = strings.TrimPrefix(path, "../")
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// namesOfMetrics are the first cells of the rows of metrics.
func namesOfMetrics(page string) []string {
	found := metricRow.FindAllStringSubmatch(page, -1)
	names := make([]string, len(found))
	for i, row := range found {
		names[i] = row[1]
	}
	return names
}

// TestMetricRows compares the table of metrics in operations.md with the metrics of all programs.
// e2e/charts asks for the panel and the alert of each row.
func TestMetricRows(t *testing.T) {
	page, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := namesOfMetrics(string(page))

	code := metricsOfCode(t)
	for name, file := range code {
		if name != renderMetric && !slices.Contains(rows, name) {
			t.Errorf("docs/operations.md, table Metrics, has no row of %s (%s): add it, then go test ./e2e/charts", name, file)
		}
	}
	for _, name := range rows {
		if code[name] == "" {
			t.Errorf("docs/operations.md, table Metrics, has the row %s, and no code makes that metric", name)
		}
	}
	if code[renderMetric] == "" || len(rows) < 30 {
		t.Errorf("found %d rows, and %d metrics in the code", len(rows), len(code))
	}
}
