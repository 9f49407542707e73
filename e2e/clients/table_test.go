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

// rowsOf returns the rows of a table by their first cell.
func rowsOf(table string) map[string]string {
	rows := map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
		rows[row[1]] = row[0]
	}
	return rows
}

// table renders rows; those of clients that have not run stay as they are.
func (m *matrixTable) table(clients []matrixClient, columns []string, known map[string]string, cell func(*matrixRow, string) string) string {
	var b strings.Builder
	b.WriteString("| client |")
	for _, c := range columns {
		b.WriteString(" " + headings[c] + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, c := range clients {
		for _, api := range c.APIs {
			title := (&matrixRow{client: c, api: api}).title()
			row, ran := m.rows[title]
			if !ran {
				if known[title] != "" {
					b.WriteString(known[title] + "\n")
				}
				continue
			}
			b.WriteString("| " + title + " |")
			for _, column := range columns {
				b.WriteString(" " + cell(row, column) + " |")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
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
	var b strings.Builder
	b.WriteString("| client | gap | reason |\n|---|---|---|\n")
	for _, c := range clients {
		for _, api := range c.APIs {
			for _, capability := range slices.Concat(capabilities, faults) {
				key := capability
				if slices.Contains(faults, capability) {
					key = "errors." + capability
				}
				if reason := lookup(c.Gaps, api, key); reason != "" {
					fmt.Fprintf(&b, "| %s | %s | %s |\n", (&matrixRow{client: c, api: api}).title(), headings[capability], reason)
				}
			}
		}
	}
	return b.String()
}
