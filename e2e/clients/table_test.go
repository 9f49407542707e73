//go:build clients

package clients

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

const clientsDoc = "../docs/clients.md"

// headings are the names of capabilities and faults in the tables.
var headings = map[string]string{
	"text": "text", "stream": "streamed", "tools": "tools", "history": "history", "structured": "structured", "reasoning": "reasoning", "usage": "usage", "errors": "errors", "state": "state",
	"bad_request": "400", "not_found": "404", "rate_limit": "429", "unavailable": "503", "context_length": "context length", "broken_stream": "in mid-stream",
}

// compare prints the table of the clients that have run and compares it with
// docs/clients.md. With -update it writes their rows.
func (m *matrixTable) compare(t *testing.T, clients []matrixClient) {
	t.Helper()
	text, err := os.ReadFile(clientsDoc)
	if err != nil {
		t.Error(err)
		return
	}
	doc := string(text)

	for name, render := range map[string]func([]matrixClient, map[string]string) string{"capabilities": m.capabilities, "errors": m.errors, "gaps": m.gaps} {
		begin, end := "<!-- "+name+": make test-clients -->\n", "<!-- end of "+name+" -->"
		before, rest, ok := strings.Cut(doc, begin)
		now, after, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Errorf("%s has no section %q", clientsDoc, begin)
			return
		}

		want := "\n" + render(clients, rowsOf(now)) + "\n"
		if name == "capabilities" {
			fmt.Print(want)
		}

		switch {
		case apitest.Updating():
			doc = before + begin + want + end + after
		case now != want:
			t.Errorf("the %s in %s are\n%s\nnot\n%s\nCheck them, then run the test with -update", name, clientsDoc, now, want)
		}
	}

	if apitest.Updating() && !t.Failed() {
		if err := os.WriteFile(clientsDoc, []byte(doc), 0o600); err != nil {
			t.Error(err)
		}
	}
}

var tableRow = regexp.MustCompile(`(?m)^\| ([^|]+?) +\|.*$`)

// versionOf splits the title of a row into the client, its version with the month, and the
// API. The newest one has no version.
var versionOf = regexp.MustCompile(`^(.*?)(?: (\d[\d.]* \(\d{4}-\d\d\)))?(, [A-Z][A-Za-z ]*)$`)

// also stands in a title before the versions whose rows are the same.
const also = "; also "

// rowsOf returns the rows of a table by their titles, those of merged versions too.
func rowsOf(table string) map[string]string {
	rows := map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
		first, versions, merged := strings.Cut(row[1], also)
		cells := strings.TrimPrefix(row[0], "| "+row[1])
		rows[first] = "| " + first + cells
		if !merged {
			continue
		}
		client := versionOf.FindStringSubmatch(first)
		for version := range strings.SplitSeq(versions, ", ") {
			title := client[1] + " " + version + client[3]
			rows[title] = "| " + title + cells
		}
	}
	return rows
}

// mergeVersions joins the rows of versions of a client that say the same of an API.
func mergeVersions(lines []string) string {
	var merged []string
	at := map[string]int{}
	for _, line := range lines {
		title, cells, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		client := versionOf.FindStringSubmatch(title)
		if client == nil {
			merged = append(merged, line)
			continue
		}

		key := client[1] + client[3] + cells
		i, known := at[key]
		if !known || client[2] == "" {
			at[key] = len(merged)
			merged = append(merged, line)
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(merged[i], "| "), " |")
		join := ", "
		if !strings.Contains(first, also) {
			join = also
		}
		merged[i] = "| " + first + join + client[2] + " |" + cells
	}
	return strings.Join(merged, "\n") + "\n"
}

// TestMergedVersions reads the tables of docs/clients.md and writes them again: that is
// what the table of clients that have not run stays.
func TestMergedVersions(t *testing.T) {
	text, err := os.ReadFile(clientsDoc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"capabilities", "errors", "gaps"} {
		_, rest, _ := strings.Cut(string(text), "<!-- "+name+": make test-clients -->\n")
		table, _, _ := strings.Cut(rest, "<!-- end of "+name+" -->")
		lines := strings.Split(strings.TrimSpace(table), "\n")
		if got := mergeVersions(lines); got != strings.Join(lines, "\n")+"\n" {
			t.Errorf("the table of %s is not merged:\n%s", name, got)
		}
		if name == "gaps" {
			continue
		}
		titles := rowsOf(table)
		if len(titles) < 50 || strings.Contains(fmt.Sprint(titles), also) {
			t.Errorf("%s has %d titles", name, len(titles))
		}
	}
}

// table renders rows; those of clients that have not run stay as they are.
func (m *matrixTable) table(clients []matrixClient, columns []string, known map[string]string, cell func(*matrixRow, string) string) string {
	var head strings.Builder
	head.WriteString("| client |")
	for _, c := range columns {
		head.WriteString(" " + headings[c] + " |")
	}
	head.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")

	var lines []string
	for _, c := range clients {
		for _, api := range c.APIs {
			title := (&matrixRow{client: c, api: api}).title()
			row, ran := m.rows[title]
			if !ran {
				if known[title] != "" {
					lines = append(lines, known[title])
				}
				continue
			}
			cells := make([]string, len(columns))
			for i, column := range columns {
				cells[i] = cell(row, column)
			}
			lines = append(lines, "| "+title+" | "+strings.Join(cells, " | ")+" |")
		}
	}
	return head.String() + mergeVersions(lines)
}

func (m *matrixTable) capabilities(clients []matrixClient, known map[string]string) string {
	return m.table(clients, capabilities, known, func(row *matrixRow, c string) string { return row.cells[c] })
}

func (m *matrixTable) errors(clients []matrixClient, known map[string]string) string {
	return m.table(clients, faults, known, func(row *matrixRow, fault string) string {
		switch kind := lookup(row.client.Errors, row.api, fault); {
		case kind == "" || row.cells["errors"] == "–":
			return "–"
		case row.client.Agent:
			return kind
		default:
			return "`" + kind + "`"
		}
	})
}

// gaps lists the reasons of all manifests.
func (*matrixTable) gaps(clients []matrixClient, _ map[string]string) string {
	var lines []string
	for _, c := range clients {
		for _, api := range c.APIs {
			for _, capability := range slices.Concat(capabilities, faults) {
				key := capability
				if slices.Contains(faults, capability) {
					key = "errors." + capability
				}
				if reason := lookup(c.Gaps, api, key); reason != "" {
					lines = append(lines, fmt.Sprintf("| %s | %s | %s |", (&matrixRow{client: c, api: api}).title(), headings[capability], reason))
				}
			}
		}
	}
	return "| client | gap | reason |\n|---|---|---|\n" + mergeVersions(lines)
}
