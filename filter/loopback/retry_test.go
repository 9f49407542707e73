package loopback

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// A retry has other keys, always the same ones, and names the replicas that have
// answered, without the excluded one.
func TestRedirect(t *testing.T) {
	t.Parallel()
	redirected := func(c *Client, retry run.Retry, fields ...string) map[string]string {
		h := http.Header{}
		h.Set(header.Engine, "main")
		for i := 0; i < len(fields); i += 2 {
			h.Set(fields[i], fields[i+1])
		}
		c.redirect(h, retry)
		got := map[string]string{}
		for name := range h {
			if name != http.CanonicalHeaderKey(header.Engine) {
				got[strings.ToLower(name)] = h.Get(name)
			}
		}
		return got
	}
	c := &Client{keys: []string{"x-p", ""}, replicas: &replicas{}}
	if diff := cmp.Diff(map[string]string{"x-p": "key"}, redirected(c, run.Retry{}, "x-p", "key")); diff != "" {
		t.Errorf("the first attempt (-want +got):\n%s", diff)
	}
	one, two := redirected(c, run.Retry{Number: 1, Excluded: "a"}, "x-p", "key"), redirected(c, run.Retry{Number: 2, Excluded: "a"}, "x-p", "key")
	if len(one) != 1 || len(one["x-p"]) != 32 || one["x-p"] == two["x-p"] || one["x-p"] != redirected(c, run.Retry{Number: 1}, "x-p", "key")["x-p"] {
		t.Errorf("keys %v and %v", one, two)
	}
	if got := redirected(c, run.Retry{Number: 1, Excluded: "a"}, "x-request-id", "1"); len(got) != 1 {
		t.Errorf("without a key: %v", got)
	}
	for _, replica := range []string{"", "a", "b", "c", "b"} {
		c.replicas.answered("main", replica)
	}
	c.replicas.answered("other", "d")
	if got, named := redirected(c, run.Retry{Number: 1}, "x-p", "key")[header.Upstream]; named {
		t.Errorf("no replica is excluded, and %q are named", got)
	}
	first := map[string]bool{}
	for i := range 100 {
		id := strconv.Itoa(i)
		got := redirected(c, run.Retry{Number: 1, Excluded: "a"}, "x-request-id", id)[header.Upstream]
		if got != "b,c" && got != "c,b" || got != redirected(c, run.Retry{Number: 2, Excluded: "a"}, "x-request-id", id)[header.Upstream] {
			t.Fatalf("named: %q", got)
		}
		first[got] = true
	}
	if len(first) != 2 {
		t.Errorf("all keys have the order %v", first)
	}
	if got := redirected(c, run.Retry{Number: 1, Excluded: "b"})[header.Upstream]; got != "c" {
		t.Errorf("a replica that has failed is named before it has answered again: %q", got)
	}
	c.replicas.answered("main", "a")
	if got := redirected(c, run.Retry{Number: 1, Excluded: "c"})[header.Upstream]; got != "a" {
		t.Errorf("a replica that has answered again is not named: %q", got)
	}
	for i := range 2 * maxReplicas {
		c.replicas.answered("main", strconv.Itoa(i))
	}
	if got := c.replicas.others("main", "a", ""); len(got) != maxReplicas {
		t.Errorf("%d replicas are remembered", len(got))
	}
}
