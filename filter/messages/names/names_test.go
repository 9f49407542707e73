package names

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// TestSearchOf shows which types are searches, and that the name is no part of the type: replies
// keep it, and would keep the body of the request with it.
func TestSearchOf(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"tool_search_tool_bm25":           SearchByWords,
		"tool_search_tool_regex":          SearchByPattern,
		"tool_search_tool_regex_20251119": SearchByPattern,
		"tool_search_tool_regex_2025":     "",
		"tool_search_tool":                "",
		"_20251119":                       "",
		"":                                "",
	} {
		sent := strings.Clone(kind)
		got := SearchOf(sent)
		if got != want || got != "" && unsafe.StringData(got) == unsafe.StringData(sent) {
			t.Errorf("%q is the search %q, want %q that is not a part of it", kind, got, want)
		}
	}
}

// TestIgnoreKind bounds what a client writes into the list.
func TestIgnoreKind(t *testing.T) {
	t.Parallel()
	var ignored jsontext.Ignored
	IgnoreKind(&ignored, "tools.", strings.Repeat("x", 1000))
	if len(ignored) != 1 || len(ignored[0]) != len("tools.")+maxKind {
		t.Errorf("ignored: %q", ignored)
	}
}
