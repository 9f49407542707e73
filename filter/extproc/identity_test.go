package extproc

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// headersFrom are the headers of lines of the form "name: value".
func headersFrom(lines ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(strings.TrimPrefix(value, " "))})
	}
	return m
}

// A client has one key, however its credentials are spelled.
func TestKeyHasOneSpelling(t *testing.T) {
	t.Parallel()
	want := keyOf(headersFrom("authorization: Bearer k1"), "")
	for _, lines := range [][]string{
		{"authorization: bearer k1"},
		{"authorization: BEARER \t k1 "},
		{"Authorization:  Bearer  k1"},
		{"authorization: k1"},
		{"x-api-key: k1"},
		{"x-api-key:  k1 "},
		{"x-api-key: Bearer k1"},
		{"authorization: Bearer k1", "x-api-key: k1"},
		{"authorization: ", "x-api-key: k1"},
		{"authorization: Bearer", "x-api-key: k1"},
	} {
		if got := keyOf(headersFrom(lines...), ""); got != want || got == "" {
			t.Errorf("%q has the key %q, want %q", lines, got, want)
		}
	}
	for _, lines := range [][]string{{"authorization: Bearer K1"}, {"authorization: Basic k1"}, {"x-api-key: k2"}} {
		if got := keyOf(headersFrom(lines...), ""); got == want || got == "" {
			t.Errorf("%q has the key %q", lines, got)
		}
	}
	if keyOf(headersFrom("authorization: Basic k1"), "") != keyOf(headersFrom("authorization: basic  k1"), "") {
		t.Error("a scheme has case")
	}
}

// A client whose key was authenticated in one header makes no other key by what it writes
// into others, or beside it: whether the header is configured or not.
func TestNoKeysOfOnesOwn(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	for _, configured := range []string{"", "authorization", "x-api-key", "x-client"} {
		for _, own := range []string{"authorization: Bearer own", "x-api-key: own", "x-client: own"} {
			name, _, _ := strings.Cut(own, ":")
			if configured != "" && configured != name || configured == "" && name == "x-client" {
				continue // the configuration does not fit the authentication
			}
			keys := map[string]bool{keyOf(headersFrom(own), configured): true}
			for range 100 {
				lines := []string{own}
				for range 1 + random.IntN(3) {
					other := []string{"authorization", "Authorization", "x-api-key", "X-Api-Key", "x-client"}[random.IntN(5)]
					scheme := []string{"", "Bearer ", "bearer  ", "Basic ", "Other "}[random.IntN(5)]
					line := fmt.Sprintf("%s: %s%d", other, scheme, random.Int())
					at := random.IntN(len(lines) + 1)
					lines = append(lines[:at:at], append([]string{line}, lines[at:]...)...)
				}
				keys[keyOf(headersFrom(lines...), configured)] = true
			}
			// Its own, and that of clients without credentials.
			if len(keys) > 2 || len(keys) == 2 && !keys[""] {
				t.Errorf("key_header %q, %q: %d keys", configured, own, len(keys))
			}
		}
	}
}
