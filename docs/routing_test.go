package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// TestResponseHeaders compares the table of response headers in routing.md with those that
// the filter sends.
func TestResponseHeaders(t *testing.T) {
	documented := namesOfTables(section(t, "routing.md", "## Response headers"))
	code := header.Explanations()
	slices.Sort(code)
	if diff := cmp.Diff(code, documented); diff != "" {
		t.Errorf("response headers (-filter/header +routing.md):\n%s", diff)
	}
}

// TestMetadataFields compares the tables of dynamic metadata in routing.md with the fields
// that the filter writes, and the namespaces with filter/header.
func TestMetadataFields(t *testing.T) {
	text := section(t, "routing.md", "## Dynamic metadata")
	code := metadataFields(t, "../filter/extproc/metadata.go")
	if diff := cmp.Diff(code, namesOfTables(text)); diff != "" {
		t.Errorf("fields of dynamic metadata (-filter/extproc +routing.md):\n%s", diff)
	}
	if len(code) < 20 {
		t.Errorf("only %d fields were found in the code", len(code))
	}
	for _, namespace := range []string{header.MetadataNamespace, header.TokenUsageNamespace} {
		if !strings.Contains(text, "`"+namespace+"`") {
			t.Errorf("routing.md does not have the namespace %s", namespace)
		}
	}
}

// TestAPINames compares the values of the field "api" in routing.md, and in the log in
// operations.md, with the names of the endpoints.
func TestAPINames(t *testing.T) {
	names := endpointNames(t, "../filter")
	row := regexp.MustCompile("(?m)^\\| `api` \\| (.*) \\|$")
	for path, heading := range map[string]string{"routing.md": "## Dynamic metadata", "operations.md": "## Logs"} {
		want := slices.Clone(names)
		if path == "operations.md" {
			// It is no endpoint of an API: it has no model, and so no metadata.
			want = append(want, "models")
			slices.Sort(want)
		}
		var got []string
		if cell := row.FindStringSubmatch(section(t, path, heading)); cell != nil {
			got = namesOfTables("| " + strings.Join(quoted.FindAllString(cell[1], -1), " ") + " |\n")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("names of APIs (-filter +%s):\n%s", path, diff)
		}
	}
}

// endpointNames returns the names of the APIs of all endpoints, sorted.
func endpointNames(t *testing.T, folder string) (names []string) {
	t.Helper()
	for _, files := range parsePackages(t, folder) {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if pair, ok := n.(*ast.KeyValueExpr); ok && qualified(pair.Key, "") == ".API" {
					if name, ok := literal(pair.Value); ok {
						names = append(names, name)
					}
				}
				return true
			})
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// section returns the text below a heading, up to the next one of its level.
func section(t *testing.T, path, heading string) string {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", path, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

var firstCell = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")

// namesOfTables returns what stands between backquotes in the first columns, sorted.
func namesOfTables(text string) (names []string) {
	for _, row := range firstCell.FindAllStringSubmatch(text, -1) {
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			names = append(names, name[1])
		}
	}
	slices.Sort(names)
	return names
}

// metadataFields returns the names that a file gives to the fields it writes: the first
// arguments of the methods of metadataFields, sorted.
func metadataFields(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"text", "number", "flag", "fraction"}, method.Sel.Name) {
			return true
		}
		if name, ok := call.Args[0].(*ast.BasicLit); ok {
			unquoted, err := strconv.Unquote(name.Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, unquoted)
		}
		return true
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func TestNamesOfTables(t *testing.T) {
	got := namesOfTables("| field | |\n|---|---|\n| `b`, `c` | of `x` |\n| `a` | |\n")
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
}
