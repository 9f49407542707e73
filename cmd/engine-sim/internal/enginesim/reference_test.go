package enginesim

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReferenceDirectives compares the directives and the faults of the reference with
// those that the code knows. Each example is a directive that works.
func TestReferenceDirectives(t *testing.T) {
	documented, faults := map[string]bool{}, map[string]bool{}
	_, text, _ := strings.Cut(Reference, "HOW THE ENGINE SENDS IT")
	for _, m := range regexp.MustCompile(`(?m)^  (([a-z-]+)=\S+) `).FindAllStringSubmatch(text, -1) {
		documented[m[2]] = true
		if _, err := (Behavior{}).With(m[1]); err != nil {
			t.Errorf("the example of the reference: %v", err)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^    ([a-z]+) `).FindAllStringSubmatch(text, -1) {
		faults["fault="+m[1]] = true
		if _, err := (Behavior{}).With("fault=" + m[1]); err != nil {
			t.Errorf("the fault of the reference: %v", err)
		}
	}

	if got, want := sorted(documented), literalsOf(t, "behavior.go", "set", caseOf("key")); !slices.Equal(got, want) {
		t.Errorf("the reference has the directives\n%q\nthe code\n%q", got, want)
	}
	_, unknown := (Behavior{}).With("fault=none")
	for _, kind := range strings.Split(strings.TrimPrefix(unknown.Error(), `directive "fault=none": use one of `), ", ") {
		if !faults["fault="+kind] {
			t.Errorf("the reference does not have the fault %s", kind)
		}
	}
}

// TestReferenceLines compares the words of the reference that begin a line of a message
// with those that the code knows.
func TestReferenceLines(t *testing.T) {
	text, _, _ := strings.Cut(Reference, "HOW THE ENGINE SENDS IT")
	_, text, _ = strings.Cut(text, "\n")
	documented := map[string]bool{"JSON": strings.Contains(text, "also JSON text"), "REFUSE": strings.Contains(text, "REFUSE text")}
	for _, m := range regexp.MustCompile(`(?m)^  ([A-Z_]+) `).FindAllStringSubmatch(text, -1) {
		documented[m[1]] = m[1]+" " != repeatedMark
	}
	maps.DeleteFunc(documented, func(_ string, line bool) bool { return !line })

	// Both are compared: the whole line, and its first word.
	words := literalsOf(t, "plan.go", "readLines", comparisonWith("line"))
	words = append(words, literalsOf(t, "plan.go", "readLines", comparisonWith("word"))...)
	slices.Sort(words)
	if got := sorted(documented); !slices.Equal(got, words) {
		t.Errorf("the reference has the lines\n%q\nthe code\n%q", got, words)
	}
	for name := range specialByName {
		if !strings.Contains(text, "<"+name+">") {
			t.Errorf("the reference does not have <%s>", name)
		}
	}
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// literalsOf returns the texts that pick finds in a function of this package, sorted.
func literalsOf(t *testing.T, file, function string, pick func(ast.Node) []ast.Expr) []string {
	t.Helper()
	parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}

	var found []string
	for _, declared := range parsed.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			for _, e := range pick(n) {
				if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					value, _ := strconv.Unquote(literal.Value)
					found = append(found, value)
				}
			}
			return true
		})
	}
	slices.Sort(found)
	return found
}

// caseOf picks the values of the cases of a switch on a variable.
func caseOf(variable string) func(ast.Node) []ast.Expr {
	return func(n ast.Node) (values []ast.Expr) {
		s, ok := n.(*ast.SwitchStmt)
		if !ok {
			return nil
		}
		if tag, ok := s.Tag.(*ast.Ident); !ok || tag.Name != variable {
			return nil
		}
		for _, c := range s.Body.List {
			values = append(values, c.(*ast.CaseClause).List...)
		}
		return values
	}
}

// comparisonWith picks the values with which a variable is compared.
func comparisonWith(variable string) func(ast.Node) []ast.Expr {
	return func(n ast.Node) []ast.Expr {
		b, ok := n.(*ast.BinaryExpr)
		if !ok || b.Op != token.EQL {
			return nil
		}
		if x, ok := b.X.(*ast.Ident); !ok || x.Name != variable {
			return nil
		}
		return []ast.Expr{b.Y}
	}
}
