package hosted

import (
	"slices"
	"strings"
	"testing"
)

// TestRank shows which tools a search finds, in which order.
func TestRank(t *testing.T) {
	t.Parallel()
	texts := []*searchText{
		newSearchText("crm list_orders", "Lists the open orders of a customer."),
		newSearchText("crm getCustomer", "Returns one customer by its id."),
		newSearchText("functions weather", "The weather of a city, for orders of umbrellas."),
		newSearchText("files read", "Reads a file."),
	}
	for _, c := range []struct {
		query string
		limit int
		want  []int
	}{
		{"orders", 8, []int{0, 2}},
		{"order", 8, []int{0, 2}},
		{"customer", 8, []int{1, 0}},
		{"get customer by id", 1, []int{1}},
		{"CRM", 8, []int{1, 0}},
		{"read files", 8, []int{3}},
		{"zebra", 8, nil},
		{"", 8, nil},
	} {
		if got := rank(texts, c.query, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%q finds %v, want %v", c.query, got, c.want)
		}
	}
}

// TestRankBounded shows that words beyond a search's bounds do not count.
func TestRankBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x ", maxIndexed) + "needle"
	if got := rank([]*searchText{newSearchText("a", long)}, "needle", 8); len(got) > 0 {
		t.Errorf("a word behind %d bytes is found", maxIndexed)
	}
	query := strings.Repeat("y ", maxQueryWords) + "needle"
	if got := rank([]*searchText{newSearchText("a", "needle")}, query, 8); len(got) > 0 {
		t.Errorf("a word behind %d others of the query is found", maxQueryWords)
	}
}
