package hosted

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestRank shows which tools a search finds, in which order.
func TestRank(t *testing.T) {
	t.Parallel()
	tools := []*Deferred{
		described("crm", "list_orders", "Lists the open orders of a customer."),
		described("crm", "getCustomer", "Returns one customer by its id."),
		described("functions", "weather", "The weather of a city, for orders of umbrellas."),
		described("files", "read", "Reads a file."),
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
		if got, err := rank(free, tools, c.query, c.limit); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q finds %v, %v; want %v", c.query, got, err, c.want)
		}
	}
}

// described is a tool that waits for a search.
func described(namespace, name, description string) *Deferred {
	return &Deferred{Namespace: namespace, Tool: harmony.Tool{Name: name, Description: description}}
}

// TestRankBounded shows that words beyond a search's bounds do not count.
func TestRankBounded(t *testing.T) {
	t.Parallel()
	long := described("", "a", strings.Repeat("x ", maxIndexed)+"needle")
	if got, err := rank(free, []*Deferred{long}, "needle", 8); len(got) > 0 || err != nil {
		t.Errorf("a word behind %d bytes is found: %v", maxIndexed, err)
	}
	query := strings.Repeat("y ", maxQueryWords) + "needle"
	if got, err := rank(free, []*Deferred{described("", "a", "needle")}, query, 8); len(got) > 0 || err != nil {
		t.Errorf("a word behind %d others of the query is found: %v", maxQueryWords, err)
	}
}

// TestRankTakesLittle shows that a search keeps nothing of the words of tools, of which an index
// took 30 bytes for each of theirs, and that it ends where it may take no more steps.
func TestRankTakesLittle(t *testing.T) {
	// Each word is another one, and the description of the namespace is shared.
	tools := make([]*Deferred, 2000)
	words := make([]string, 300)
	for i := range words {
		words[i] = strconv.Itoa(i)
	}
	about := strings.Join(words, " ")
	for i := range tools {
		tools[i] = described("crm", "t"+strconv.Itoa(i), about[i%700:])
		tools[i].About = about
	}

	result := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			if found, err := rank(free, tools, "t7 12 zebra", 8); len(found) != 8 || err != nil {
				b.Fatal(found, err)
			}
		}
	})
	// A word of the tools allocates nothing: each has 300.
	if most := int64(1000 * len(tools)); result.AllocedBytesPerOp() > most {
		t.Errorf("a search allocates %d bytes of %d", result.AllocedBytesPerOp(), most)
	}

	// Two tools take a few hundred steps.
	left := 1000
	_, err := rank(func(steps int) error {
		if left -= steps; left < 0 {
			return errors.New("used up")
		}
		return nil
	}, tools, "t7", 8)
	if !errors.Is(err, ErrWork) {
		t.Errorf("a search of too many steps ends with %v", err)
	}
}
