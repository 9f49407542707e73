package write

import (
	"strings"
	"testing"
)

// TestCitedIsBounded shows that a page with a long address, which a text cites again and again,
// does not make the reply much longer than the text.
func TestCitedIsBounded(t *testing.T) {
	address := "https://a.example/" + strings.Repeat("a", 4000)
	o := &output{}
	o.pages.Add("[1] Title ("+address+")\n", nil)
	it := &outputItem{}

	for range 1000 {
		o.cite(it, []byte("【1†L1】"))
	}
	if n := len(it.found); n == 0 || n*len(address) > maxCited {
		t.Errorf("%d citations of %d bytes", n, len(address))
	}

	// Another item of the same reply gets none of its own.
	other := &outputItem{}
	o.cite(other, []byte("【1†L1】"))
	if len(other.found) > 0 {
		t.Errorf("another item has %d citations", len(other.found))
	}
}
