package engine

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// prefillTable is the head of the table of prefill and decode.
const prefillTable = "| kind | prefill request and decode request |"

var quotedWord = regexp.MustCompile("`([^`]+)`")

// words are the quoted words of a cell.
func words(cell string) (all []string) {
	for _, m := range quotedWord.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// read returns a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tableOf returns the cells of the rows below a table's head in docs/engines.md, without the first
// and the last |.
func tableOf(t *testing.T, head string) (rows [][]string) {
	t.Helper()
	_, text, found := strings.Cut(read(t, "docs/engines.md"), "\n"+head)
	if !found {
		t.Fatalf("docs/engines.md has no table %q", head)
	}
	table, _, _ := strings.Cut(text, "\n\n")
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// kindsOf are the kinds of the first cells.
func kindsOf(rows [][]string) (kinds []string) {
	for _, cells := range rows {
		kinds = append(kinds, words(cells[0])...)
	}
	return kinds
}

// Each table of docs/engines.md that is by kind has a row of each, in the order of Kinds; what
// a row of the first says is what the dialect does.
func TestKindsAreDocumented(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"| kind | API |", "| kind | simulator |", prefillTable} {
		rows := tableOf(t, table)
		if diff := cmp.Diff(Kinds(), kindsOf(rows)); diff != "" {
			t.Errorf("docs/engines.md, table %q: write a row of each kind, in the order of the table dialects in "+
				"filter/engine/engine.go (-code +page):\n%s", table, diff)
		}
	}

	for _, cells := range tableOf(t, "| kind | API |") {
		dialect, ok := ByKind(words(cells[0])[0])
		if !ok || len(cells) < 7 {
			t.Errorf("docs/engines.md: the row %q is none of a kind", cells)
			continue
		}
		takes := func(change func(*Request)) string {
			r := &Request{Prompt: []harmony.Token{1}, N: 1, MaxTokens: 1}
			change(r)
			if _, err := dialect.Encode(r); err != nil {
				return "no"
			}
			return "yes"
		}
		request, err := dialect.Encode(&Request{Prompt: []harmony.Token{1}, N: 1, MaxTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		grammar := "no"
		if dialect.Traits().Constrains {
			grammar = "yes"
		}
		ignored := dialect.Ignores(&Request{
			Seed: ptr(int64(1)), CacheSalt: "x", Priority: ptr(1), TopK: ptr(1), MinP: ptr(.5), RepetitionPenalty: ptr(2.),
		})

		api := words(cells[1])[0]
		got := []string{
			api[strings.LastIndex(api, " ")+1:],
			map[string]string{"any": "yes", "1": "no"}[cells[2]],
			map[bool]string{true: "yes", false: "no"}[cells[3] == "by grammar"],
			strings.Split(cells[4], ":")[0],
			strings.Join(words(cells[5]), " "),
		}
		path := request.Path
		if dialect.Traits().GRPC {
			path = strings.TrimPrefix(path, "/")
		}
		want := []string{
			path, takes(func(r *Request) { r.N = 2 }), grammar,
			takes(func(r *Request) { r.Logprobs = true }), strings.Join(ignored, " "),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("docs/engines.md, first table, %s: path, choices, grammar, log probabilities, ignored (-code +page):\n%s",
				cells[0], diff)
		}
	}
}

// The table of prefill and decode says which kinds are not supported.
func TestDisaggregationIsDocumented(t *testing.T) {
	t.Parallel()
	var supported []string
	for _, cells := range tableOf(t, prefillTable) {
		if !strings.HasPrefix(cells[2], "not supported") {
			supported = append(supported, words(cells[0])...)
		}
	}
	if diff := cmp.Diff(Disaggregating(), supported); diff != "" {
		t.Errorf("docs/engines.md, table of prefill and decode (-code +page):\n%s", diff)
	}
}

// The lists of kinds elsewhere are whole.
func TestListsOfKinds(t *testing.T) {
	t.Parallel()
	for file, line := range map[string]*regexp.Regexp{
		"docs/configuration.md":            regexp.MustCompile("(?m)^\\| `engines\\[\\]\\.kind` \\|.*\\): (.*) \\|$"),
		"charts/envoy-harmony/values.yaml": regexp.MustCompile(`(?m)^#   kind: vllm +# (.*)$`),
	} {
		list := line.FindStringSubmatch(read(t, file))
		if list == nil {
			t.Errorf("%s has no list of kinds", file)
			continue
		}
		kinds := strings.FieldsFunc(strings.ReplaceAll(list[1], " or ", " "), func(r rune) bool {
			return strings.ContainsRune("`, ", r)
		})
		if !slices.Equal(kinds, Kinds()) {
			t.Errorf("%s lists the kinds %q: write %q", file, kinds, Kinds())
		}
	}
}
