package apitest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

const compatibility = "../../docs/compatibility.md"

// Handled is what becomes of a field, as docs/compatibility.md says it.
type Handled struct {
	State string // mapped, refused, ignored or skipped

	// Effect is what the code says of it: why the field is refused or ignored. Of a mapped
	// field it is empty, and only the document says what it does.
	Effect string

	unless []string // values of a refused field that are accepted; nil: those that ask for nothing
}

// Fields returns what becomes of each field of a table.
func Fields[T any](table jsontext.Table[T]) map[string]Handled {
	coded := map[string]Handled{}
	for name, row := range table {
		h := Handled{State: "mapped"}
		switch {
		case row.Ignored != "":
			h = Handled{State: "ignored", Effect: row.Ignored}
		case row.Refused != "":
			h = Handled{State: "refused", Effect: row.Refused, unless: row.Unless}
			if len(row.Unless) > 0 {
				h.Effect += " Accepted: `" + strings.Join(row.Unless, "`, `") + "`"
			}
		}
		coded[name] = h
	}
	return coded
}

// Objects are the tables of the objects of a request, by their paths: "" is the request
// itself, messages the elements of that list, and input[message] those of that type.
type Objects map[string]map[string]Handled

// Below returns the fields of all objects in the request but those at the paths without,
// under their paths.
func (o Objects) Below(without ...string) map[string]Handled {
	all := map[string]Handled{}
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

// Documented compares coded, what becomes of each name, with a table of
// docs/compatibility.md: the one under the heading of an endpoint or, if heading is not
// empty, under that heading of its section. With -update it writes the table: the rows
// of names that are new stand behind the others of their state.
func Documented(t testing.TB, endpoint, heading string, coded map[string]Handled) {
	t.Helper()
	document := ReadFile(t, compatibility)
	start, end := findTable(t, document, endpoint, heading)
	rows := readRows(document[start:end])

	if Updating() {
		document = document[:start] + writeRows(rows, coded) + document[end:]
		if err := os.WriteFile(compatibility, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}

	documented := map[string]Handled{}
	for _, r := range rows {
		// What a field is mapped to is said in the document only.
		if r.State == "mapped" || r.State == "skipped" {
			r.Effect = coded[r.name].Effect
		}
		documented[r.name] = r.Handled
	}
	if diff := cmp.Diff(coded, documented, cmpopts.IgnoreUnexported(Handled{})); diff != "" {
		t.Errorf("%s %s in docs/compatibility.md, which -update writes (-code +docs):\n%s", endpoint, heading, diff)
	}
}

// findTable returns where the rows of a table are.
func findTable(t testing.TB, document, endpoint, heading string) (start, end int) {
	t.Helper()
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
	for strings.HasPrefix(document[end:], "|") {
		end += strings.Index(document[end:], "\n") + 1
	}
	return start, end
}

// documentRow is a row of a table of docs/compatibility.md.
type documentRow struct {
	name string
	Handled
}

var tableHead = regexp.MustCompile(`\| (field|type) \| \| effect \|\n\|---\|---\|---\|\n`)

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+) \\| ?(.*?) ?\\|$")

func readRows(table string) (rows []documentRow) {
	for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
		rows = append(rows, documentRow{row[1], Handled{State: row[2], Effect: row[3]}})
	}
	return rows
}

// writeRows returns the rows of coded, in the order and with the texts that they have.
func writeRows(before []documentRow, coded map[string]Handled) string {
	var rows []documentRow
	known := map[string]bool{}
	for _, r := range before {
		if h, ok := coded[r.name]; ok && h.State == r.State {
			if h.Effect != "" {
				r.Effect = h.Effect
			}
			rows = append(rows, r)
			known[r.name] = true
		}
	}

	for _, name := range slices.Sorted(maps.Keys(coded)) {
		if !known[name] {
			rows = append(rows, documentRow{name, coded[name]})
		}
	}
	states := []string{"mapped", "skipped", "refused", "ignored"}
	slices.SortStableFunc(rows, func(a, b documentRow) int {
		return slices.Index(states, a.State) - slices.Index(states, b.State)
	})

	var text strings.Builder
	for _, r := range rows {
		text.WriteString("| `" + r.name + "` | " + r.State + " | " + strings.TrimLeft(r.Effect+" |", " ") + "\n")
	}
	return text.String()
}
