package jsontext

import (
	"slices"
	"strconv"
	"testing"
)

func TestIgnored(t *testing.T) {
	var l Ignored
	for _, path := range []string{"user", "tools[0].function.strict", "tools[12].function.strict", "a,b\r\nc: é", "user"} {
		l.Add(path)
	}
	if want := []string{"user", "tools.function.strict", "a?b??c:??"}; !slices.Equal(l, want) {
		t.Errorf("%q, want %q", l, want)
	}
	for i := range 100 {
		l.Add("f" + strconv.Itoa(i))
	}
	if len(l) != maxIgnored {
		t.Errorf("%d fields are listed, want %d", len(l), maxIgnored)
	}
}
