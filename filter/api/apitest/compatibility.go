package apitest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

var tableRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\|")

// Documented compares coded, what becomes of each name, with a table of
// docs/compatibility.md: the one under the heading of an endpoint or, if heading is not
// empty, under that heading of its section.
func Documented(t testing.TB, endpoint, heading string, coded map[string]string) {
	t.Helper()
	_, section, found := strings.Cut(ReadFile(t, "../../docs/compatibility.md"), "## "+endpoint+"\n")
	if heading != "" && found {
		_, section, found = strings.Cut(section, "### "+heading+"\n")
	}
	if !found {
		t.Fatalf("no section %s %s", endpoint, heading)
	}
	section, _, _ = strings.Cut(section, "### ")
	documented := map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(section, -1) {
		documented[row[1]] = row[2]
	}
	if diff := cmp.Diff(coded, documented); diff != "" {
		t.Errorf("%s %s in docs/compatibility.md (-code +docs):\n%s", endpoint, heading, diff)
	}
}

// Fields returns what becomes of each field of a table.
func Fields[T any](fields jsontext.Table[T]) map[string]string {
	coded := map[string]string{}
	for name, f := range fields {
		switch {
		case f.Ignored:
			coded[name] = "ignored"
		case f.Refused != "" || f.On != "":
			coded[name] = "refused"
		default:
			coded[name] = "mapped"
		}
	}
	return coded
}
