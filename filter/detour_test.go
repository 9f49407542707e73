package filter

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A call that is made again has other keys, always the same ones, and names the
// replicas that have answered, but for the one that it has failed at.
func TestDetour(t *testing.T) {
	t.Parallel()
	way := func(l *loopback, d detour, fields ...string) map[string]string {
		header := http.Header{}
		header.Set(EngineHeader, "main")
		for i := 0; i < len(fields); i += 2 {
			header.Set(fields[i], fields[i+1])
		}
		l.divert(header, d)
		got := map[string]string{}
		for name := range header {
			if name != http.CanonicalHeaderKey(EngineHeader) {
				got[strings.ToLower(name)] = header.Get(name)
			}
		}
		return got
	}
	l := &loopback{keys: []string{"x-p", ""}}
	if diff := cmp.Diff(map[string]string{"x-p": "key"}, way(l, detour{}, "x-p", "key")); diff != "" {
		t.Errorf("the first call (-want +got):\n%s", diff)
	}
	one, two := way(l, detour{1, "a"}, "x-p", "key"), way(l, detour{2, "a"}, "x-p", "key")
	if len(one) != 1 || len(one["x-p"]) != 32 || one["x-p"] == two["x-p"] || one["x-p"] != way(l, detour{number: 1}, "x-p", "key")["x-p"] {
		t.Errorf("keys %v and %v", one, two)
	}
	if got := way(l, detour{1, "a"}, "x-request-id", "1"); len(got) != 1 {
		t.Errorf("without a key: %v", got)
	}
	for _, replica := range []string{"", "a", "b", "c", "b"} {
		l.replicas.answered("main", replica)
	}
	l.replicas.answered("other", "d")
	if got, known := way(l, detour{number: 1}, "x-p", "key")[UpstreamHeader]; known {
		t.Errorf("the one that has failed is not known, and %q are named", got)
	}
	first := map[string]bool{}
	for i := range 100 {
		id := strconv.Itoa(i)
		got := way(l, detour{1, "a"}, "x-request-id", id)[UpstreamHeader]
		if got != "b,c" && got != "c,b" || got != way(l, detour{2, "a"}, "x-request-id", id)[UpstreamHeader] {
			t.Fatalf("named: %q", got)
		}
		first[got] = true
	}
	if len(first) != 2 {
		t.Errorf("all keys have the order %v", first)
	}
	if got := way(l, detour{1, "b"})[UpstreamHeader]; got != "c" {
		t.Errorf("one that has failed is named until it answers again: %q", got)
	}
	l.replicas.answered("main", "a")
	if got := way(l, detour{1, "c"})[UpstreamHeader]; got != "a" {
		t.Errorf("one that answers again is not named: %q", got)
	}
	for i := range 2 * maxReplicas {
		l.replicas.answered("main", strconv.Itoa(i))
	}
	if got := l.replicas.others("main", "a", ""); len(got) != maxReplicas {
		t.Errorf("%d replicas are remembered", len(got))
	}
}
