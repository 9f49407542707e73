package replies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

const (
	// conformanceFile has what the tests of Open Responses saw, for the page and for programs.
	conformanceFile = "../docs/conformance.json"
	// conformancePage has a table of it.
	conformancePage = "../docs/compatibility.md"
)

// transport is how a test of the suite talks with the server.
type transport string

const (
	overHTTP      transport = "HTTP"
	overWebSocket transport = "WebSocket"
)

// suiteTest is a test of the suite, a line of the results.
type suiteTest struct {
	Test      string    `json:"test"`
	Transport transport `json:"transport"`
	// Revision is the commit of openresponses/openresponses that brought the test, or its month.
	Revision string `json:"revision"`

	// Gap is why the filter does not do what the test demands. Ours then requires what the filter does instead.
	Gap string `json:"gap,omitempty"`

	// Result is [passed], [failed] or [gap], and Ran the day.
	Result string `json:"result"`
	Ran    string `json:"ran"`
}

// What came of a test of the suite.
const (
	passed = "passed"
	failed = "failed"
	// gap: ours has passed, and the suite's would not.
	gap = "gap"
)

// gaps are the reasons, by test.
var gaps = map[string]string{"file-input": "the model reads no files: a 400"}

// openResponses are the tests of the suite, in the order of the results, without the two of 18e5656 that are optional:
// they need a vector store and a search of the web.
var openResponses = func() (tests []suiteTest) {
	for _, of := range []struct {
		revision string
		over     transport
		names    string
	}{
		{"b7b9aba", overHTTP, "basic-response streaming-response system-prompt tool-calling image-input multi-turn"},
		{
			"b7b9aba", overWebSocket, "websocket-response websocket-sequential-responses websocket-continuation " +
				"websocket-reconnect-store-false-recovery websocket-previous-response-not-found " +
				"websocket-failed-continuation-evicts-cache websocket-compact-new-chain",
		},
		{
			"2026-07", overHTTP,
			"assistant-phase response-output-phase-schema compact-response compact-missing-model",
		},
		{"18e5656", overHTTP, "function-call-roundtrip file-input previous-response-id"},
		{"0cb939c", overHTTP, "tool-calling-streaming"},
	} {
		for name := range strings.FieldsSeq(of.names) {
			tests = append(tests, suiteTest{Test: name, Transport: of.over, Revision: of.revision, Gap: gaps[name]})
		}
	}
	return tests
}()

// suite runs tests of the suite and notes what came of them.
type suite struct{ ran map[string]bool }

// newSuite returns a suite that compares its results with conformanceFile once the test has ended. With -update it
// writes them there, failures too, and the table of the page; what did not run stays as it was.
func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{ran: map[string]bool{}}
	t.Cleanup(func() { s.record(t) })
	return s
}

// run runs a test, if the flag -run selects it.
func (s *suite) run(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	// Run also returns true for a test that is not selected.
	selected := false
	ok := t.Run(name, func(t *testing.T) {
		selected = true
		test(t)
	})
	if selected {
		s.ran[name] = ok
	}
}

func (s *suite) record(t *testing.T) {
	t.Helper()
	known := map[string]suiteTest{}
	for _, row := range stack.ReadResults[suiteTest](t, conformanceFile) {
		known[row.Test] = row
	}

	for name, ok := range s.ran {
		i := slices.IndexFunc(openResponses, func(of suiteTest) bool { return of.Test == name })
		if i < 0 {
			t.Errorf("%s is not in the list of the suite's tests", name)
			continue
		}

		row := openResponses[i]
		row.Result, row.Ran = passed, time.Now().UTC().Format(time.DateOnly)
		switch {
		case !ok:
			row.Result = failed
		case row.Gap != "":
			row.Result = gap
		}
		if before := known[name]; !apitest.Updating() && row.Result != before.Result {
			t.Errorf("%s has %s, and %s says %q: run make conformance", name, row.Result, conformanceFile, before.Result)
		}
		known[name] = row
	}
	if !apitest.Updating() || len(s.ran) == 0 {
		return
	}

	var rows []suiteTest
	for _, of := range openResponses {
		if row, ok := known[of.Test]; ok {
			rows = append(rows, row)
		}
	}
	if err := stack.WriteResults(conformanceFile, rows); err != nil {
		t.Fatal(err)
	}
	holdConformance(t, rows)
}

// TestConformancePage holds the list of the suite's tests, the results and the page together: a test that is new needs
// a run. With -update it writes the page's table from the results.
func TestConformancePage(t *testing.T) {
	rows := stack.ReadResults[suiteTest](t, conformanceFile)
	declared := slices.Clone(rows)
	for i := range declared {
		declared[i].Result, declared[i].Ran = "", ""
	}
	if !slices.Equal(declared, openResponses) {
		t.Fatalf("%s has other tests than the suite: run make conformance", conformanceFile)
	}
	holdConformance(t, rows)
}

func holdConformance(t *testing.T, rows []suiteTest) {
	t.Helper()
	stack.HoldPage(t, conformancePage, func(page string) (string, error) {
		return stack.WithSection(page, "open-responses", conformanceTable(rows))
	})
}

// The counts are of the results, and what has not passed has its name.
func TestConformanceTable(t *testing.T) {
	got := conformanceTable([]suiteTest{
		{"a", overHTTP, "r", "", passed, "2026-11-26"},
		{"b", overWebSocket, "r", "", failed, "2026-11-25"},
		{"c", overHTTP, "s", "", passed, "2026-11-26"},
		{"d", overHTTP, "t", "why", gap, "2026-11-26"},
		{"e", overHTTP, "t", "why", failed, "2026-11-26"},
	})
	for _, want := range []string{
		"**2 of 5** pass, run from 2026-11-25 to 2026-11-26:\n",
		"| r | 1 of 1 | 0 of 1 | `b` (failed) |\n", "| s | 1 of 1 | – | – |\n", "| t | 0 of 2 | – | `d` (why), `e` (failed) |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

// conformanceTable has a row for each revision.
func conformanceTable(rows []suiteTest) string {
	// counts is how many tests there are, and how many of them have passed.
	type counts struct{ all, passed int }
	of := func(revision string, over transport) (c counts, others []string) {
		for _, row := range rows {
			if cmp.Or(revision, row.Revision) != row.Revision || cmp.Or(over, row.Transport) != row.Transport {
				continue
			}
			c.all++
			switch row.Result {
			case passed:
				c.passed++
			case gap:
				others = append(others, fmt.Sprintf("`%s` (%s)", row.Test, row.Gap))
			default:
				others = append(others, fmt.Sprintf("`%s` (%s)", row.Test, row.Result))
			}
		}
		return c, others
	}

	var revisions []string
	oldest, newest := rows[0].Ran, rows[0].Ran
	for _, row := range rows {
		if !slices.Contains(revisions, row.Revision) {
			revisions = append(revisions, row.Revision)
		}
		oldest, newest = min(oldest, row.Ran), max(newest, row.Ran)
	}

	total, _ := of("", "")
	run := "run on " + newest
	if oldest != newest {
		run = "run from " + oldest + " to " + newest
	}

	var table strings.Builder
	fmt.Fprintf(&table, "**%d of %d** pass, %s:\n\n", total.passed, total.all, run)
	fmt.Fprintf(&table, "| revision | %s | %s | not passed |\n|---|---|---|---|\n", overHTTP, overWebSocket)
	for _, revision := range revisions {
		table.WriteString("| " + revision)
		for _, over := range []transport{overHTTP, overWebSocket} {
			cell := "–"
			if c, _ := of(revision, over); c.all > 0 {
				cell = fmt.Sprintf("%d of %d", c.passed, c.all)
			}
			table.WriteString(" | " + cell)
		}

		_, others := of(revision, "")
		fmt.Fprintf(&table, " | %s |\n", cmp.Or(strings.Join(others, ", "), "–"))
	}
	return table.String()
}
