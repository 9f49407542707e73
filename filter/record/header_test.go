package record

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHeaderAndPath(t *testing.T) {
	t.Parallel()
	got := Header(http.Header{"Authorization": {"s"}, "X-Pass": {"s"}, "Dpop": {"s"}, "X-Plain": {"s"}, "Accept": {"a", "b"}, "X-Request-Id": {"r"}})
	want := map[string]string{"authorization": Hidden, "x-pass": Hidden, "dpop": Hidden, "x-plain": Hidden, "accept": "a, b", "x-request-id": "r"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	const h = "%5Bhidden%5D"
	for query, want := range map[string]string{
		"": "", "stream=true&include[]=a&after=b": "?stream=true&include[]=a&after=b", "sig=s&code=s=s&api%5Fkey=s": "?sig=" + h + "&code=" + h + "&api%5Fkey=" + h, "s": "?" + h, "bad%=s&=s": "?" + h + "&=" + h,
	} {
		if got := Path("/v1/responses", query); got != "/v1/responses"+want {
			t.Errorf("%q: %s", query, got)
		}
	}
}

// The table of docs/records.md has the headers and parameters that are kept.
func TestKeptIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/records.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, kept := range map[string]map[string]bool{"request headers": keptHeader, "the query": keptParameters} {
		m := regexp.MustCompile(`(?m)^\| ` + row + ` \| ([^|]*) \|`).FindStringSubmatch(string(page))
		if m == nil {
			t.Fatalf("docs/records.md has no row %q", row)
		}
		documented := map[string]bool{}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[1], -1) {
			documented[name[1]] = true
		}
		code := maps.Clone(kept)
		delete(code, "include[]") // another spelling
		if diff := cmp.Diff(code, documented); diff != "" {
			t.Errorf("%s (-code +docs/records.md):\n%s", row, diff)
		}
	}
}
