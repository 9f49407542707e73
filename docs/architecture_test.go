// Package docs holds the documentation, and the tests that compare it, and the
// rules that it states, with the code.
package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	root   = ".."
	module = "github.com/envoy-harmony/envoy-harmony/"
)

// The bounds of a type in filter/...: above them its comment says why it is one
// type, after the word bigType.
const (
	maxFields  = 20
	maxMethods = 40
	bigType    = "It is large because"
)

// goPackage is a package of the module, without its tests.
type goPackage struct {
	doc     string
	imports []string // of the module
	fields  map[string]int
	methods map[string]int
	docs    map[string]string // of types
}

// packages parses the module's packages, by path below the module's root.
func packages(t *testing.T) map[string]*goPackage {
	t.Helper()
	all := map[string]*goPackage{}
	files := token.NewFileSet()
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
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		if all[dir] == nil {
			all[dir] = &goPackage{fields: map[string]int{}, methods: map[string]int{}, docs: map[string]string{}}
		}
		all[dir].add(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d packages were found", len(all))
	}
	return all
}

// enter skips folders without packages of this module.
func enter(path, name string) error {
	if path == root {
		return nil
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	if strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || err == nil {
		return filepath.SkipDir
	}
	return nil
}

func (p *goPackage) add(file *ast.File) {
	p.doc += file.Doc.Text()
	for _, i := range file.Imports {
		if path, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); ok && !slices.Contains(p.imports, path) {
			p.imports = append(p.imports, path)
		}
	}
	slices.Sort(p.imports)
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				p.methods[receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			p.addTypes(d)
		}
	}
}

func (p *goPackage) addTypes(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		p.docs[t.Name.Name] = d.Doc.Text() + t.Doc.Text()
		if s, ok := t.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				p.fields[t.Name.Name] += max(1, len(f.Names))
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// outsideTable are the packages that are no part of the program: tests, what tests
// share, generators and benchmarks.
var outsideTable = regexp.MustCompile(`^e2e|^docs(/|$)|/bench/|/internal/gen$|test$`)

var (
	tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|[^|]*\\| ([^|]*) \\|$")
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// packageTable reads the package table of architecture.md: the packages in order,
// and what each imports.
func packageTable(t *testing.T) (order []string, imports map[string][]string) {
	t.Helper()
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	imports = map[string][]string{}
	for _, row := range tableRow.FindAllStringSubmatch(string(page), -1) {
		order, imports[row[1]] = append(order, row[1]), []string{}
		for _, name := range quoted.FindAllStringSubmatch(row[2], -1) {
			imports[row[1]] = append(imports[row[1]], name[1])
		}
		slices.Sort(imports[row[1]])
	}
	return order, imports
}

// TestPackageTable compares the package table of architecture.md with the packages
// and what they import.
func TestPackageTable(t *testing.T) {
	_, documented := packageTable(t)
	code := map[string][]string{}
	for path, p := range packages(t) {
		if !outsideTable.MatchString(path) {
			code[path] = append([]string{}, p.imports...)
		}
	}
	if diff := cmp.Diff(code, documented); diff != "" {
		t.Errorf("write what the code imports into the package table of docs/architecture.md, and a new package into its "+
			"figure (-code +table):\n%s", diff)
	}
}

// TestImportsGoDown requires that a package imports only packages further down in
// the package table.
func TestImportsGoDown(t *testing.T) {
	order, imports := packageTable(t)
	for i, path := range order {
		for _, imported := range imports[path] {
			if slices.Index(order, imported) <= i {
				t.Errorf("%s imports %s, which is not below it in the package table", path, imported)
			}
		}
	}
}

// TestImportTableIsEnforced compares the linter's rules with the package table.
func TestImportTableIsEnforced(t *testing.T) {
	text, err := os.ReadFile("../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var lint struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct{ Files, Allow []string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &lint); err != nil {
		t.Fatal(err)
	}
	enforced := map[string][]string{}
	for _, rule := range lint.Linters.Settings.Depguard.Rules {
		path := strings.TrimSuffix(strings.TrimPrefix(rule.Files[0], "**/"), "/*.go")
		enforced[path] = []string{}
		for _, allowed := range rule.Allow {
			enforced[path] = append(enforced[path], strings.TrimSuffix(strings.TrimPrefix(allowed, module), "$"))
		}
		slices.Sort(enforced[path])
	}
	order, documented := packageTable(t)
	for _, path := range order {
		if !slices.Equal(documented[path], enforced[path]) {
			t.Errorf(".golangci.yml, depguard: the table of docs/architecture.md says\n%s", depguardRule(path, documented[path]))
		}
		delete(enforced, path)
	}
	for path := range enforced {
		t.Errorf(".golangci.yml, depguard: %s has a rule, and no row in the table of docs/architecture.md", path)
	}
}

// depguardRule is the linter's rule of a package that imports others.
func depguardRule(path string, imports []string) string {
	allowed := make([]string, len(imports))
	for i, imported := range imports {
		allowed[i] = strconv.Quote(module + imported + "$")
	}
	allow := ""
	if len(allowed) > 0 {
		allow = "          allow: [" + strings.Join(allowed, ", ") + "]\n"
	}
	return fmt.Sprintf("        %s:\n          files: [\"**/%s/*.go\", \"!$test\"]\n          list-mode: lax\n%s"+
		"          deny: [{pkg: %q, desc: \"see the import table in docs/architecture.md\"}]\n",
		strings.ReplaceAll(path, "/", "-"), path, allow, strings.TrimSuffix(module, "/"))
}

// TestChangesHavePlaces requires that each file, each folder and each package of "Where a change goes"
// exists, and that each kind of change has a command.
func TestChangesHavePlaces(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(section(t, "architecture.md", "## Where a change goes")), "\n")
	folder, checked := "", 0
	exists := func(path string) {
		checked++
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("architecture.md, Where a change goes: %v", err)
		}
	}
	for _, row := range rows {
		if !strings.HasPrefix(row, "| a") {
			continue
		}
		cells := strings.Split(strings.Trim(row, "|"), "|")
		for _, word := range quoted.FindAllStringSubmatch(cells[1], -1) {
			switch name := word[1]; {
			case strings.ContainsAny(name, " []"), strings.HasPrefix(name, "-"):
			case strings.Contains(name, "/"):
				exists(name)
				folder = filepath.Dir(name)
			case strings.HasSuffix(name, ".go"):
				exists(filepath.Join(folder, name))
			}
		}
		command := quoted.FindStringSubmatch(cells[len(cells)-1])
		if command == nil {
			t.Errorf("architecture.md, Where a change goes, has no command for: %s", cells[0])
			continue
		}
		for _, pkg := range strings.Fields(command[1]) {
			exists(strings.TrimSuffix(pkg, "/..."))
		}
	}
	if checked < 60 {
		t.Errorf("only %d places were found", checked)
	}
}

// TestPackageDocs requires a package comment of every package.
func TestPackageDocs(t *testing.T) {
	for path, p := range packages(t) {
		if !strings.HasPrefix(p.doc, "Package ") && !strings.HasPrefix(p.doc, "Command ") {
			t.Errorf("%s: the package comment is missing, or does not begin with Package or Command", path)
		}
	}
}

// TestTypesAreSmall bounds the fields and methods of the types in filter/...
func TestTypesAreSmall(t *testing.T) {
	for path, p := range packages(t) {
		if !strings.HasPrefix(path, "filter") {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(p.docs)) {
			fields, methods := p.fields[name], p.methods[name]
			if (fields > maxFields || methods > maxMethods) && !strings.Contains(p.docs[name], bigType) {
				t.Errorf("%s.%s has %d fields and %d methods: split it, or say in its comment: %s ...", path, name, fields, methods, bigType)
			}
		}
	}
}

// strange are phrases that are not plain technical English, with what to write.
var strange = map[string]string{
	"tells whether": "reports whether",
	"tell whether":  "report whether",
	"gives back":    "returns",
	"be it that":    "a sentence of its own",
	"whoever":       "the role's name",
	"lets go":       "releases",
	"astray":        "excluded",
	"detour":        "retry",
}

// TestPlainEnglish keeps strange phrases out of comments and documentation.
func TestPlainEnglish(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(path, d.Name())
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".md" || path == filepath.Join(root, "docs", "architecture_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(text), "\n") {
			if _, comment, found := strings.Cut(line, "//"); filepath.Ext(path) == ".go" {
				if line = comment; !found {
					continue
				}
			}
			for phrase, instead := range strange {
				if strings.Contains(strings.ToLower(line), phrase) {
					t.Errorf("%s:%d: %q: write %s", path, n+1, phrase, instead)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// maxWidth bounds the lines of prose in the documentation, in characters.
const maxWidth = 120

// TestTextWidth bounds the lines of prose. Tables, code and lines with a link may
// be longer.
func TestTextWidth(t *testing.T) {
	pages := documents(t)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range wideLines(string(text)) {
			t.Error(fmt.Sprintf("%s:%d", page, n), "is longer than", maxWidth, "characters")
		}
	}
	if len(pages) < 50 {
		t.Errorf("only %d pages", len(pages))
	}
}

// wideLines returns the numbers of the lines of prose that are too long.
func wideLines(text string) (wide []int) {
	eachLine(text, func(n int, line string) {
		if len([]rune(line)) > maxWidth && !strings.HasPrefix(line, "|") && !strings.Contains(line, "](") {
			wide = append(wide, n)
		}
	})
	return wide
}

func TestWideLinesAreFound(t *testing.T) {
	long := strings.Repeat("word ", 25)
	text := long + "\n" + long[:119] + "\n| " + long + " |\n```\n" + long + "\n```\n[a](b.md) " + long + "\n- " + long
	if got := wideLines(text); !slices.Equal(got, []int{1, 8}) {
		t.Errorf("the lines %d are too long", got)
	}
}

// maxDecision bounds the words of a decision.
const maxDecision = 400

// decisionParts are what a decision answers, in this order.
var decisionParts = []string{"**Question.**", "**Answer.**", "**When to look again.**"}

// TestDecisions requires of each decision that it is short, answers its question, says when
// to look again, and is in the list.
func TestDecisions(t *testing.T) {
	paths, err := filepath.Glob("decisions/[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		for _, fault := range decisionFaults(string(text)) {
			t.Errorf("%s: %s", path, fault)
		}
		if !strings.HasPrefix(name, fmt.Sprintf("%03d-", i+1)) || !strings.Contains(string(list), "]("+name+")") {
			t.Errorf("%s is not number %d, or not in the list of decisions/README.md", path, i+1)
		}
	}
	if len(paths) < 16 {
		t.Errorf("only %d decisions", len(paths))
	}
}

func decisionFaults(text string) (faults []string) {
	if n := len(strings.Fields(text)); n > maxDecision {
		faults = append(faults, fmt.Sprintf("%d words, of at most %d", n, maxDecision))
	}
	at := 0
	for _, part := range decisionParts {
		i := strings.Index(text[at:], part)
		if i < 0 {
			return append(faults, "there is no "+part+" in its place")
		}
		at += i
	}
	return faults
}

func TestDecisionFaultsAreFound(t *testing.T) {
	whole := strings.Join(decisionParts, " Yes.\n\n")
	for text, want := range map[string]int{whole: 0, whole + strings.Repeat(" more", maxDecision): 1, strings.Replace(whole, "Answer", "Reply", 1): 1, "": 1} {
		if faults := decisionFaults(text); len(faults) != want {
			t.Errorf("%.60q: %q", text, faults)
		}
	}
}
