package apitest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

const compatibility = "../../docs/compatibility.md"

// Objects are the described tables of the objects of a request, as the API exports them.
type Objects jsontext.Objects

// Below returns the fields of all objects in the request but those at the paths without,
// under their paths.
func (o Objects) Below(without ...string) map[string]jsontext.Described {
	all := map[string]jsontext.Described{}
	for path, fields := range o {
		if path == "" || slices.Contains(without, path) {
			continue
		}
		for name, h := range fields {
			all[path+"."+name] = h
		}
	}
	return all
}

// everyAPI is the section of docs/compatibility.md with the fields that all three APIs
// handle alike. Its tables belong to those of each.
const everyAPI = "Every API"

// Documented compares coded, what becomes of each name, with a table of
// docs/compatibility.md: the one under the heading of an endpoint or, if heading is not
// empty, under that heading of its section. With -update it writes the table: the rows
// of names that are new stand after the others of their state. What a mapped field does has to be
// written there.
func Documented(t testing.TB, endpoint, heading string, coded map[string]jsontext.Described) {
	t.Helper()
	coded = ofPage(coded)
	document := ReadFile(t, compatibility)
	start, end := findTable(t, document, endpoint, heading)
	rows := readRows(document[start:end])

	var common []documentRow
	// Fields that the APIs handle alike are in one table, which belongs to each of them.
	if strings.HasPrefix(endpoint, "POST ") && (heading == "" || heading == "Members") {
		from, to := findTable(t, document, everyAPI, heading)
		common = readRows(document[from:to])
	}

	if Updating() {
		own := maps.Clone(coded)
		for _, r := range common {
			delete(own, r.name)
		}
		document = document[:start] + writeRows(rows, own) + document[end:]
		if err := os.WriteFile(compatibility, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}

	documented := map[string]jsontext.Described{}
	for _, r := range slices.Concat(common, rows) {
		if _, twice := documented[r.name]; twice {
			t.Errorf("%s %s in docs/compatibility.md has %s twice, or it is in %q too", endpoint, heading, r.name, everyAPI)
		}
		// What such a field does is written by hand, for people: the code has no text for it. Members of
		// objects that are mapped may be what the API's own documentation says.
		if r.State == "mapped" || r.State == "skipped" {
			if r.Effect == "" && heading != "Members" {
				t.Errorf("%s %s in docs/compatibility.md says nothing of %s. Write what it does into its row.", endpoint, heading, r.name)
			}
			r.Effect = coded[r.name].Effect
		}
		documented[r.name] = r.Described
	}
	if diff := cmp.Diff(coded, documented); diff != "" {
		t.Errorf("%s %s in docs/compatibility.md, which -update writes, except %q (-code +docs):\n%s", endpoint, heading, everyAPI, diff)
	}
}

// ofPage returns what the page has of rows.
func ofPage(coded map[string]jsontext.Described) map[string]jsontext.Described {
	rows := make(map[string]jsontext.Described, len(coded))
	for name, d := range coded {
		effect := d.Effect
		if len(d.Unless) > 0 {
			effect += " Accepted: `" + strings.Join(d.Unless, "`, `") + "`"
		}
		rows[name] = jsontext.Described{State: d.State, Effect: effect}
	}
	return rows
}

// findTable returns where the rows of a table are.
func findTable(t testing.TB, document, endpoint, heading string) (start, end int) {
	t.Helper()
	// The headings of two sections may be equal: only the one below the endpoint counts.
	start = strings.Index(document, "## "+endpoint+"\n")
	if heading != "" && start >= 0 {
		if offset := strings.Index(document[start:], "### "+heading+"\n"); offset >= 0 {
			start += offset
		} else {
			start = -1
		}
	}

	head := tableHead.FindStringIndex(document[max(start, 0):])
	if start < 0 || head == nil {
		t.Fatalf("no table %s %s in docs/compatibility.md", endpoint, heading)
	}
	start += head[1]
	end = start
	// A table ends with its last row: text of people follows.
	for strings.HasPrefix(document[end:], "|") {
		end += strings.Index(document[end:], "\n") + 1
	}
	return start, end
}

// documentRow is a name of a table of docs/compatibility.md with its row. Names of the
// same state and effect share a row.
type documentRow struct {
	name string
	jsontext.Described
}

var tableHead = regexp.MustCompile(`\| (field|type) \| \| effect \|\n\|---\|---\|---\|\n`)

var tableRow = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| (\\w+) \\| ?(.*?) ?\\|$")

// itself stands in an effect for the name of the field.
const itself = "…"

func readRows(table string) (rows []documentRow) {
	for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			name = strings.Trim(name, "`")
			effect := row[3]
			if row[2] == "refused" || row[2] == "ignored" {
				effect = strings.ReplaceAll(effect, itself, name)
			}
			rows = append(rows, documentRow{name, jsontext.Described{State: row[2], Effect: effect}})
		}
	}
	return rows
}

// writeRows returns the rows of coded, in the order and with the texts that they have.
func writeRows(before []documentRow, coded map[string]jsontext.Described) string {
	var rows []documentRow
	known := map[string]bool{}
	for _, r := range before {
		if h, ok := coded[r.name]; ok && h.State == r.State && !known[r.name] {
			if h.Effect != "" {
				r.Effect = h.Effect
			}
			rows = append(rows, r)
			known[r.name] = true
		}
	}

	// Sorted, because a map has no order and the file must not change by itself.
	for _, name := range slices.Sorted(maps.Keys(coded)) {
		if !known[name] {
			rows = append(rows, documentRow{name, coded[name]})
		}
	}
	// A stable order by state keeps the rows of a state as people have arranged them.
	states := []string{"mapped", "skipped", "refused", "ignored"}
	slices.SortStableFunc(rows, func(a, b documentRow) int {
		return slices.Index(states, a.State) - slices.Index(states, b.State)
	})

	names := map[string][]string{}
	var ends []string
	for _, r := range rows {
		// Rows whose texts differ only in the field's name become one row.
		if r.State == "refused" || r.State == "ignored" {
			r.Effect = strings.ReplaceAll(r.Effect, r.name, itself)
		}
		end := " | " + r.State + " | " + strings.TrimLeft(r.Effect+" |", " ") + "\n"
		if names[end] == nil {
			ends = append(ends, end)
		}
		names[end] = append(names[end], "`"+r.name+"`")
	}

	var text strings.Builder
	for _, end := range ends {
		// A row of one name has its text as a client gets it.
		if len(names[end]) == 1 && !strings.HasPrefix(end, " | mapped") {
			text.WriteString("| " + names[end][0] + strings.ReplaceAll(end, itself, strings.Trim(names[end][0], "`")))
			continue
		}
		text.WriteString("| " + strings.Join(names[end], ", ") + end)
	}
	return text.String()
}
