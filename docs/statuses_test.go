package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStatuses compares the table of statuses and codes in compatibility.md with the errors
// for clients that the filter makes.
func TestStatuses(t *testing.T) {
	got := statusRows(section(t, "compatibility.md", "## Errors"))
	want := errorsOf(t, "../filter")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses and codes (-filter +compatibility.md):\n%s", diff)
	}
	if len(want) < 30 {
		t.Errorf("only %d errors were found in the code", len(want))
	}
}

var statusRow = regexp.MustCompile(`(?m)^\| (\d{3}) \| ([^|]*)`)

// statusRows returns the pairs of status and code of a table, sorted: its first columns.
func statusRows(text string) (pairs []string) {
	for _, row := range statusRow.FindAllStringSubmatch(text, -1) {
		for _, code := range quoted.FindAllStringSubmatch(row[2], -1) {
			pairs = append(pairs, row[1]+" "+code[1])
		}
	}
	slices.Sort(pairs)
	return pairs
}

// errorsOf returns the pairs of status and code with which the packages below a folder call
// apierror.New, sorted. What has no code, or takes it from an argument, is left out.
func errorsOf(t *testing.T, folder string) (pairs []string) {
	t.Helper()
	packages := parsePackages(t, folder)

	constants := map[string]string{} // by package and name
	for name, files := range packages {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
					for i := range spec.Names {
						if value, ok := literal(spec.Values[i]); ok {
							constants[name+"."+spec.Names[i].Name] = value
						}
					}
				}
				return true
			})
		}
	}

	for name, files := range packages {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) < 4 || !isNew(call.Fun, name) {
					return true
				}
				code, ok := literal(call.Args[1])
				if !ok {
					code = constants[qualified(call.Args[1], name)]
				}
				if status := statusOf(call.Args[0]); status != "" && code != "" {
					pairs = append(pairs, status+" "+code)
				}
				return true
			})
		}
	}

	slices.Sort(pairs)
	return slices.Compact(pairs)
}

// parsePackages returns the files below a folder that are no tests, by package name.
func parsePackages(t *testing.T, folder string) map[string][]*ast.File {
	t.Helper()
	packages := map[string][]*ast.File{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			packages[file.Name.Name] = append(packages[file.Name.Name], file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// isNew reports whether a call in a package is one of apierror.New.
func isNew(called ast.Expr, inside string) bool {
	return qualified(called, inside) == "apierror.New"
}

// qualified returns a name with that of its package: the one it is in, if it has none.
func qualified(e ast.Expr, inside string) string {
	switch e := e.(type) {
	case *ast.Ident:
		return inside + "." + e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// statusOf returns the number of a status of net/http; "" if the expression is none.
func statusOf(e ast.Expr) string {
	name := qualified(e, "")
	for status := 400; status < 600; status++ {
		text := strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(status))
		if text != "" && name == "http.Status"+text {
			return strconv.Itoa(status)
		}
	}
	return ""
}

// literal returns the text of a literal.
func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

func TestStatusRows(t *testing.T) {
	got := statusRows("| status | `code` | |\n|---|---|---|\n| 503 | `a`, `b` | of `x` |\n| 400 | | |\n| 404 | `c` | |\n")
	if want := []string{"404 c", "503 a", "503 b"}; !slices.Equal(got, want) {
		t.Errorf("the rows are %q, want %q", got, want)
	}
}
