package apierror_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		``:                                      nil,
		`"a"`:                                   {"a", "a"},
		`"a" and "b"`:                           {"a", "b", "a"},
		`"a", "b" and "\"c\n"`:                  {"a", "b", "\"c\n"},
		`"` + strings.Repeat("é", 128) + `..."`: {strings.Repeat("é", 200)},
	} {
		if got := apierror.Names(names); got != want {
			t.Errorf("%q are %s, want %s", names, got, want)
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 30, 1000} {
		names := make([]string, 10_000)
		for i := range names {
			names[i] = strconv.Itoa(i) + strings.Repeat("\x01", length)
		}
		got := apierror.Names(names)
		named := strings.Count(got, `"`) / 2
		if !strings.HasSuffix(got, " and "+strconv.Itoa(len(names)-named)+" more") || len(got) > 12<<10 || named > 128 {
			t.Errorf("of names of %d bytes %d are named in %d bytes: %.40s … %s", length, named, len(got), got, got[max(0, len(got)-40):])
		}
	}
}
