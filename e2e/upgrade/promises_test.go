package upgrade

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// earlierVersion is an earlier version, an element of from.json.
type earlierVersion struct {
	// Commit is its full name, and Why says why the tests begin with it.
	Commit, Why string
	// Announced has what has changed since, each with the words of CHANGELOG.md.
	Announced map[string]string
	// Lacks has the checks for what the version does not have yet.
	Lacks []string
}

// earlierVersions reads from.json. Tests run in folder e2e.
func earlierVersions(t *testing.T) (all []earlierVersion) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("upgrade", "from.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// begun returns the version that the test begins with. Of one that is not in from.json nothing
// has changed.
func begun(t *testing.T) earlierVersion {
	t.Helper()
	name := os.Getenv("UPGRADE_COMMIT")
	for _, v := range earlierVersions(t) {
		if name != "" && strings.HasPrefix(v.Commit, name) {
			return v
		}
	}
	return earlierVersion{}
}

// announced reports whether something has changed since the version that the test begins with:
// "compactions", "keys", "prompts", "tables", or "config KEY".
func announced(t *testing.T, what string) bool {
	t.Helper()
	_, found := begun(t).Announced[what]
	return found
}

// lacks reports whether the version that the test begins with has nothing for a check.
func lacks(t *testing.T, check string) bool {
	t.Helper()
	return slices.Contains(begun(t).Lacks, check)
}

// What the tests take as changed is in the changelog, in these words.
func TestAnnounced(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, v := range earlierVersions(t) {
		for what, said := range v.Announced {
			if !strings.Contains(words, said) {
				t.Errorf("CHANGELOG.md does not say %q, of %s since %s", said, what, v.Commit)
			}
		}
	}
}

// The table of docs/upgrading.md names every check that stands behind it, and no other; the
// page names the commits.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "upgrading.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "| shown by |")
	if !found {
		t.Fatal("docs/upgrading.md has no table with the column shown by")
	}
	table, _, _ := strings.Cut(rest, "\n\n")

	var named []string
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(row, "| \n"), "|")
		for _, name := range regexp.MustCompile("`[a-z-]+`").FindAllString(cells[len(cells)-1], -1) {
			named = append(named, strings.Trim(name, "`"))
		}
	}

	want := make([]string, 0, len(checks)+5)
	for _, c := range checks {
		want = append(want, c.name)
	}
	want = append(want, "open-streams", "no-request-fails", "background-in-flight", "cut-short", "records")
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("the table names the checks\n%q, there are\n%q", named, want)
	}

	for _, v := range earlierVersions(t) {
		if commit := v.Commit[:7]; !strings.Contains(string(text), "`"+commit+"`") {
			t.Errorf("docs/upgrading.md does not name the commit %s", commit)
		}
	}
}
