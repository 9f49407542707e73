package clients

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

const clientsDoc = "../docs/clients.md"

// headings are the names of capabilities and faults in the tables.
var headings = map[string]string{
	"text": "text", "stream": "streamed", "tools": "tools", "history": "history", "structured": "structured",
	"reasoning": "reasoning", "usage": "usage", "errors": "errors", "state": "state",

	"bad_request": "400", "not_found": "404", "rate_limit": "429", "unavailable": "503",
	"context_length": "context length", "broken_stream": "in mid-stream",
}

// marks are the outcomes in the table.
var marks = map[outcome]string{passed: "✓", failed: "✗", absent: "–"}

// TestClientsPage holds docs/clients.md, its record, the manifests and the lock files
// together: a version that is raised needs a run of its client. With -update it writes the
// page's tables from the record.
func TestClientsPage(t *testing.T) {
	clients, record := readMatrix(t), readRecord(t)
	for _, c := range clients {
		for _, api := range c.APIs {
			want, err := newClientRow(c, api)
			if err != nil {
				t.Fatal(err)
			}

			got := record[rowKey{c.name, api}]
			switch {
			case got == nil:
				t.Errorf("%s has no row for %s with %s: run make test-clients CLIENTS='%s'", clientsRecord, c.name, api, c.name)
			case got.Version != want.Version:
				t.Errorf("%s with %s ran with version %s, and its lock file has %s: run make test-clients CLIENTS='%s'",
					c.name, api, got.Version, want.Version, c.name)
			case !got.declares(want):
				t.Errorf("the row of %s with %s is not what the manifest says: run make test-clients CLIENTS='%s'", c.name, api, c.name)
			}
		}
	}

	rows := inOrder(clients, record)
	if len(rows) != len(record) || len(rows) < 50 {
		t.Errorf("%s has %d rows, and the manifests %d of them", clientsRecord, len(record), len(rows))
	}

	stack.HoldPage(t, clientsDoc, func(page string) (string, error) { return pageWith(page, rows) })
}

// Versions and APIs whose cells are the same share a line, others do not.
func TestClientsTables(t *testing.T) {
	row := &clientRow{
		Client: "a", Title: "A", API: "chat", Version: "1.0", Ran: "2026-11-26",
		Capabilities: map[string]outcome{"text": passed, "stream": failed, "errors": absent},
	}
	old := *row
	old.Version, old.Released, old.Ran = "0.9", "2025-01", "2026-11-25"

	table := capabilitiesTable([]*clientRow{row, &old})
	for _, want := range []string{"Run from 2026-11-25 to 2026-11-26.", "| A, Chat Completions | 1.0; also 0.9 (2025-01) | ✓ | ✗ |"} {
		if !strings.Contains(table, want) {
			t.Errorf("there is no %q in\n%s", want, table)
		}
	}
	old.Capabilities = map[string]outcome{"text": failed}
	if table := capabilitiesTable([]*clientRow{row, &old}); !strings.Contains(table, "| A, Chat Completions | 0.9 (2025-01) | ✗ |") {
		t.Errorf("versions that differ are joined:\n%s", table)
	}

	other := *row
	other.API, other.Gaps = "responses", map[string]string{"text": "Why.", "errors.not_found": "Why."}
	row.Gaps = other.Gaps
	if table := gapsTable([]*clientRow{row, &other}); !strings.HasSuffix(table, "\n| A, Chat Completions, Responses | text, 404 | Why. |\n") {
		t.Errorf("what is said twice is not joined:\n%s", table)
	}

	if row.same(&old) || row.declares(&old) {
		t.Error("rows of two versions are the same")
	}

	if _, err := pageWith("no tables", nil); err == nil {
		t.Error("a page without tables has no error")
	}
}

// pageWith returns a page with the tables of rows.
func pageWith(doc string, rows []*clientRow) (string, error) {
	for name, render := range map[string]func([]*clientRow) string{
		"capabilities": capabilitiesTable, "errors": errorsTable, "gaps": gapsTable,
	} {
		var err error
		if doc, err = stack.WithSection(doc, name, render(rows)); err != nil {
			return "", err
		}
	}
	return doc, nil
}

// capabilitiesTable has the versions in a column of their own, with the days of their runs
// above it.
func capabilitiesTable(rows []*clientRow) string {
	oldest, newest := "", ""
	lines := make([]tableLine, len(rows))
	for i, row := range rows {
		if oldest == "" || row.Ran < oldest {
			oldest = row.Ran
		}
		newest = max(newest, row.Ran)

		var cells strings.Builder
		for _, capability := range capabilities {
			mark := marks[row.Capabilities[capability]]
			if capability == "state" && row.State != "" {
				mark = row.State
			}
			cells.WriteString(" " + mark + " |")
		}
		lines[i] = tableLine{row, cells.String()}
	}

	days := "Run on " + newest + ".\n\n"
	if oldest != newest {
		days = "Run from " + oldest + " to " + newest + ".\n\n"
	}
	return days + tableHead([]string{"client", "version"}, capabilities) + joined(lines, versionColumn, func(g *tableGroup) string {
		return g.rows[0].Title + g.apiText() + " | " + g.versions
	})
}

func errorsTable(rows []*clientRow) string {
	lines := make([]tableLine, len(rows))
	for i, row := range rows {
		var cells strings.Builder
		for _, fault := range faults {
			kind := row.Errors[fault]
			switch {
			case kind == "" || row.Capabilities["errors"] == absent:
				kind = "–"
			case !row.Agent:
				kind = "`" + kind + "`"
			}
			cells.WriteString(" " + kind + " |")
		}
		lines[i] = tableLine{row, cells.String()}
	}
	return tableHead([]string{"client"}, faults) + joined(lines, versionsUnlessAll(rows), (*tableGroup).title)
}

// gapsTable lists the reasons of all rows, each with all that it is a reason for.
func gapsTable(rows []*clientRow) string {
	lines := make([]tableLine, 0, len(rows))
	for _, row := range rows {
		var texts []string
		of := map[string][]string{}
		for _, key := range gapKeys() {
			reason := row.Gaps[key]
			if reason == "" {
				continue
			}
			if of[reason] == nil {
				texts = append(texts, reason)
			}
			of[reason] = append(of[reason], headings[strings.TrimPrefix(key, "errors.")])
		}

		for _, reason := range texts {
			lines = append(lines, tableLine{row, " " + strings.Join(of[reason], ", ") + " | " + reason + " |"})
		}
	}
	return tableHead([]string{"client", "gap", "reason"}, nil) + joined(lines, versionsUnlessAll(rows), (*tableGroup).title)
}

func tableHead(names, keys []string) string {
	for _, key := range keys {
		names = append(names, headings[key])
	}
	return "| " + strings.Join(names, " | ") + " |\n|" + strings.Repeat("---|", len(names)) + "\n"
}

// tableLine is the line of a row in a table: its cells without the title.
type tableLine struct {
	row   *clientRow
	cells string
}

// tableGroup is a line of a table for all rows of a client that say the same: first the
// versions of an API are joined, then the APIs with the same versions.
type tableGroup struct {
	rows  []*clientRow
	cells string

	versions string
	apis     []string
}

// joined returns the lines of a table, each with its versions in words and with its beginning.
func joined(lines []tableLine, versions func([]*clientRow) string, begin func(*tableGroup) string) string {
	var ofAPI []*tableGroup
	known := map[string]*tableGroup{}
	for _, line := range lines {
		key := line.row.Title + "\n" + line.row.API + "\n" + line.cells
		if g := known[key]; g != nil && line.row.Released != "" {
			g.rows = append(g.rows, line.row)
			continue
		}
		known[key] = &tableGroup{rows: []*clientRow{line.row}, cells: line.cells, apis: []string{apiNames[line.row.API]}}
		ofAPI = append(ofAPI, known[key])
	}

	var groups []*tableGroup
	clear(known)
	for _, g := range ofAPI {
		g.versions = versions(g.rows)
		key := g.rows[0].Title + "\n" + g.versions + "\n" + g.cells
		if same := known[key]; same != nil {
			same.apis = append(same.apis, g.apis...)
			continue
		}
		known[key] = g
		groups = append(groups, g)
	}

	var table strings.Builder
	for _, g := range groups {
		table.WriteString("| " + begin(g) + " |" + g.cells + "\n")
	}
	return table.String()
}

// versionColumn names the newest version, and the others with their months.
func versionColumn(rows []*clientRow) string {
	var text strings.Builder
	for i, row := range rows {
		switch i {
		case 0:
		case 1:
			text.WriteString("; also ")
		default:
			text.WriteString(", ")
		}
		text.WriteString(row.Version)
		if row.Released != "" {
			text.WriteString(" (" + row.Released + ")")
		}
	}
	return text.String()
}

// versionsUnlessAll names versions, unless they are all that the rows have of the API.
func versionsUnlessAll(all []*clientRow) func([]*clientRow) string {
	counts := map[[2]string]int{}
	for _, row := range all {
		counts[[2]string{row.Title, row.API}]++
	}

	return func(rows []*clientRow) string {
		if len(rows) == counts[[2]string{rows[0].Title, rows[0].API}] {
			return ""
		}
		var names []string
		for _, row := range rows {
			names = append(names, row.Version)
		}
		return " " + strings.Join(names, ", ")
	}
}

func (g *tableGroup) title() string { return g.rows[0].Title + g.versions + g.apiText() }

func (g *tableGroup) apiText() string { return ", " + strings.Join(g.apis, ", ") }
