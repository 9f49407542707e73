package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testLink is the name of a test with a link to its file.
var testLink = regexp.MustCompile("\\[`((?:Test|Fuzz|Benchmark)\\w+)[^`]*`\\]\\(([^)#]+)\\)")

// TestReliabilityNamesItsTests checks that every row of the tables of
// reliability.md names a test, and that the file of its link has that test.
func TestReliabilityNamesItsTests(t *testing.T) {
	text, err := os.ReadFile("reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, faults := testedRows(string(text))
	for _, f := range faults {
		t.Error("reliability.md:" + f)
	}
	if rows < 8 {
		t.Errorf("only %d rows were found", rows)
	}
}

// testedRows counts the rows of the tables whose last column is "test", and
// returns what is wrong with them, with the line.
func testedRows(text string) (rows int, faults []string) {
	last, row := "", 0 // the head of the last column; the number of the table's row
	eachLine(text, func(n int, line string) {
		if !strings.HasPrefix(line, "|") {
			row = 0
			return
		}
		row++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		cell := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case row == 1:
			last = cell
			return
		case row == 2 || last != "test":
			return
		}
		rows++
		links := testLink.FindAllStringSubmatch(cell, -1)
		if len(links) == 0 {
			faults = append(faults, fmt.Sprintf("%d: the row names no test: write [`TestName`](../path_test.go)", n))
		}
		for _, link := range links {
			if !declares(link[2], link[1]) {
				faults = append(faults, fmt.Sprintf("%d: %s has no %s", n, link[2], link[1]))
			}
		}
	})
	return rows, faults
}

// declares reports whether the file of a link has a test. Subtests, behind a slash,
// are not looked for.
func declares(file, test string) bool {
	text, err := os.ReadFile(filepath.FromSlash(file))
	return err == nil && regexp.MustCompile(`(?m)^func `+test+`\(\w+ \*testing\.[TFB]\) \{`).Match(text)
}

func TestBadRowsAreFound(t *testing.T) {
	for row, want := range map[string]string{
		"[`TestLinks`](links_test.go)":                                     "",
		"[`TestLinks/a row`](links_test.go), [`TestSlugs`](links_test.go)": "",
		"`TestLinks`":                 "3: the row names no test",
		"":                            "3: the row names no test",
		"[`TestLink`](links_test.go)": "3: links_test.go has no TestLink",
		"[`TestLinks`](link_test.go)": "3: link_test.go has no TestLinks",
		"[`TestLinks`](links_test.go), [`TestX`](links.md)": "3: links.md has no TestX",
	} {
		rows, faults := testedRows("| fault | test |\n|---|---|\n| x | " + row + " |\n\n| key | value |\n|---|---|\n| x | y |\n")
		if got := strings.Join(faults, "\n"); rows != 1 || (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %d rows, %q, want %q", row, rows, got, want)
		}
	}
}
