package stack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// ReadResults returns the rows of a file in docs that tests have written, such as docs/clients.json.
func ReadResults[Row any](t *testing.T, file string) []Row {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var rows []Row
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	if err := from.Decode(&rows); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return rows
}

// WriteResults writes rows, each in a line, so that a difference shows which row has changed.
func WriteResults[Row any](file string, rows []Row) error {
	var text bytes.Buffer
	separator := "[\n"
	for _, row := range rows {
		line, err := json.Marshal(row)
		if err != nil {
			return fmt.Errorf("write a row of %s: %w", file, err)
		}
		text.WriteString(separator)
		text.Write(line)
		separator = ",\n"
	}
	text.WriteString("\n]\n")
	return os.WriteFile(file, text.Bytes(), 0o600)
}

// WithSection returns a page with another text in a section, which stands between the lines
// "<!-- NAME: COMMAND -->" and "<!-- end of NAME -->". The command is the one that writes it.
func WithSection(page, name, text string) (string, error) {
	before, rest, found := strings.Cut(page, "<!-- "+name+": ")
	command, rest, begun := strings.Cut(rest, " -->\n")
	_, after, ended := strings.Cut(rest, "<!-- end of "+name+" -->")
	if !found || !begun || !ended {
		return "", fmt.Errorf("the page has no section %s", name)
	}
	return before + "<!-- " + name + ": " + command + " -->\n\n" + text + "\n<!-- end of " + name + " -->" + after, nil
}

// HoldPage requires that a page is what its results give. With -update it writes the page.
func HoldPage(t *testing.T, file string, give func(page string) (string, error)) {
	t.Helper()
	has, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	page, err := give(string(has))
	switch {
	case err != nil:
		t.Errorf("%s: %v", file, err)
	case apitest.Updating():
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Error(err)
		}
	case page != string(has):
		t.Errorf("%s is not what its results give: run this test with -update, and see what changes", file)
	}
}
