package docs

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestLinks checks that every relative link of the documents leads to a file of
// the tree, and its anchor to a heading of that file.
func TestLinks(t *testing.T) {
	files := documents(t)
	links := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range linksOf(string(text)) {
			if link.external() {
				continue
			}
			links++
			if err := link.check(path); err != nil {
				t.Errorf("%s:%d: %v", path, link.line, err)
			}
		}
	}
	if len(files) < 30 || links < 200 {
		t.Errorf("only %d links in %d files were found", links, len(files))
	}
}

// documents returns the paths of the documents for users and contributors.
func documents(t *testing.T) []string {
	t.Helper()
	paths := []string{"../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "../SECURITY.md"}
	for _, dir := range []string{".", "../charts"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// docLink is a link as a document has it.
type docLink struct {
	target string
	line   int
}

func (l docLink) external() bool {
	return strings.Contains(l.target, "://") || strings.HasPrefix(l.target, "mailto:")
}

// check returns an error unless the link leads somewhere. from is the path of
// the document that has it.
func (l docLink) check(from string) error {
	name, anchor, _ := strings.Cut(l.target, "#")
	name, err := url.PathUnescape(name)
	if err != nil {
		return fmt.Errorf("link %q: %w", l.target, err)
	}
	path := from
	if name != "" {
		path = filepath.Join(filepath.Dir(from), name)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("link %q: there is no such file", l.target)
	}
	if anchor == "" {
		return nil
	}
	if filepath.Ext(path) != ".md" {
		return fmt.Errorf("link %q: an anchor in a file that is no document", l.target)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !slices.Contains(anchors(string(text)), anchor) {
		return fmt.Errorf("link %q: %s has no such heading", l.target, path)
	}
	return nil
}

var (
	// inline is the end of a link: its text may begin on the line before.
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	inline    = regexp.MustCompile(`\]\(([^()\s]+)(?:\s+"[^"]*")?\)`)
	reference = regexp.MustCompile(`^\[[^\]]+\]:\s+(\S+)`)
	headLine  = regexp.MustCompile(`^#{1,6}\s+(.*?)(?:\s+#+)?$`)
)

// linksOf returns the links of a document, but not what looks like one in code.
func linksOf(text string) []docLink {
	var links []docLink
	eachLine(text, func(n int, line string) {
		line = codeSpan.ReplaceAllString(line, "")
		for _, m := range append(inline.FindAllStringSubmatch(line, -1), reference.FindAllStringSubmatch(line, -1)...) {
			links = append(links, docLink{target: strings.Trim(m[1], "<>"), line: n})
		}
	})
	return links
}

// anchors returns the ids that GitHub makes of a document's headings.
func anchors(text string) []string {
	var ids []string
	seen := map[string]int{}
	eachLine(text, func(_ int, line string) {
		m := headLine.FindStringSubmatch(line)
		if m == nil {
			return
		}
		id := slug(m[1])
		if n := seen[id]; n > 0 {
			ids = append(ids, fmt.Sprintf("%s-%d", id, n))
		} else {
			ids = append(ids, id)
		}
		seen[id]++
	})
	return ids
}

var linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// slug returns the id of a heading: its text in lower case, without
// punctuation, with a hyphen for each space.
func slug(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsMark(r), unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// eachLine calls f with every line that is not in a fenced code block, and its
// number.
func eachLine(text string, f func(n int, line string)) {
	fence := ""
	for n, line := range strings.Split(text, "\n") {
		start := strings.TrimLeft(line, " ")
		switch {
		case fence != "":
			if strings.HasPrefix(start, fence) && strings.Trim(start, fence[:1]+" ") == "" {
				fence = ""
			}
		case strings.HasPrefix(start, "```"), strings.HasPrefix(start, "~~~"):
			fence = start[:3]
		default:
			f(n+1, line)
		}
	}
}

func TestSlugs(t *testing.T) {
	text := "# One, two\n## `code` & \"more\"\n```\n# comment\n```\n## One, two\n### See [this](x.md#y)\n## GPT-oss_1: 20 %\n"
	want := []string{"one-two", "code--more", "one-two-1", "see-this", "gpt-oss_1-20-"}
	if got := anchors(text); !slices.Equal(got, want) {
		t.Errorf("the anchors are %q, want %q", got, want)
	}
}

func TestBadLinksAreFound(t *testing.T) {
	for target, want := range map[string]string{
		"architecture.md":          "",
		"architecture.md#glossary": "",
		"#glossary":                "",
		"gateways/README.md":       "",
		"../README.md":             "",
		"missing.md":               "no such file",
		"architecture.md#glosary":  "no such heading",
		"#Glossary":                "no such heading",
		"links_test.go#L1":         "no document",
	} {
		links := linksOf("text `[not](this.md)`\n```\n[nor](that.md)\n```\nand [a link](" + target + ")")
		if len(links) != 1 || links[0].target != target || links[0].line != 5 {
			t.Errorf("%q: the links are %v", target, links)
			continue
		}
		err := links[0].check("architecture.md")
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: the error is %v, want %q", target, err, want)
		}
	}
}
