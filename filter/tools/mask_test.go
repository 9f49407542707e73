package tools

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	for _, c := range []struct {
		name    string
		secrets []string
		text    string
		want    string
	}{
		{"none", nil, "abc", "abc"},
		{"nothing to hide", []string{"secret"}, "secre t", "secre t"},
		{"one", []string{"secret"}, "a secret.", "a [hidden]."},
		{"twice", []string{"secret"}, "secretsecret", "[hidden][hidden]"},
		{"one in another", []string{"cret", "secrets"}, "my secrets, cret", "my [hidden], [hidden]"},
		{"the end of a longer one", []string{"abcdX", "bcd"}, "abcdY", "a[hidden]Y"},
		{"overlapping", []string{"abcd", "cdef"}, "abcdef", "[hidden]"},
		{"a chain", []string{"abcd", "bcde", "defg"}, "xabcdefgx", "x[hidden]x"},
		{"itself", []string{"aaaa"}, "aaaaaa!", "[hidden]!"},
		{"not UTF-8", []string{"\xff\xfe"}, "a\xff\xfe\xff", "a[hidden]\xff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newMask(c.secrets).hide(c.text); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// No secret is left, and nothing else is gone: whatever the secrets and the text are,
// the mask hides the bytes that a search for each secret finds.
func TestMaskFindsEverySecret(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a fixed seed
	word := func(most int) string {
		b := make([]byte, 1+random.IntN(most))
		for i := range b {
			b[i] = "abc"[random.IntN(3)]
		}
		return string(b)
	}

	for range 3000 {
		secrets := make([]string, 1+random.IntN(6))
		for i := range secrets {
			secrets[i] = word(6)
		}

		text := word(40)
		want := make([]bool, len(text))

		for _, secret := range secrets {
			for i := range text {
				if strings.HasPrefix(text[i:], secret) {
					for j := range secret {
						want[i+j] = true
					}
				}
			}
		}

		got := make([]bool, len(text))
		found, _ := find(newMask(secrets), text)

		for _, s := range found {
			for i := s.from; i < s.to; i++ {
				got[i] = true
			}
		}

		if !slices.Equal(got, want) {
			t.Fatalf("%q in %q: %v, want %v", secrets, text, got, want)
		}
	}
}

// The beginning of a text has no part of a secret, wherever it is cut.
func TestMaskOfABeginning(t *testing.T) {
	m := newMask([]string{"secretsecret", "ö-token"})
	text := "abc secretsecret ö-token äöü secretsecret"
	for limit := range len(text) + 2 {
		got, more := m.hideBeginning(text, limit)
		if more != (limit < len(text)) || strings.Contains(got, "se") || strings.Contains(got, "tok") || !strings.HasPrefix(m.hide(text), got) {
			t.Errorf("%d bytes: %q, %v", limit, got, more)
		}
	}
}

func TestMaskOfJSON(t *testing.T) {
	m := newMask([]string{"secret", `a"b`})
	for in, want := range map[string]string{
		`{"secret":"a secret","x":["\"secret\""]}`: `{"[hidden]":"a [hidden]","x":["\"[hidden]\""]}`,
		`{"\u0073ecret": "a\"b", "y": "\\"}`:       `{"[hidden]": "[hidden]", "y": "\\"}`,
		`{"n":1,"s":"sec","t":"ret"}`:              `{"n":1,"s":"sec","t":"ret"}`,
		`"secret`:                                  `"secret`,
		`"secret\`:                                 `"secret\`,
		`[]`:                                       `[]`,
	} {
		if got := string(m.hideJSON(json.RawMessage(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// hostileServer has as many secrets as a request may bring.
func hostileServer() *Server {
	var value strings.Builder
	for i := 0; value.Len() < 15_000; i++ {
		fmt.Fprintf(&value, "%08d ", i)
	}
	return &Server{Label: "x", URL: "https://example.com/mcp", Header: http.Header{"Authorization": {value.String()}}}
}

// Looking for secrets costs at most two moves for each byte of a text, however many
// words the headers have and whatever the text is.
func TestMaskWork(t *testing.T) {
	many := hostileServer()
	repeated := &Server{Header: http.Header{"A": {strings.Repeat("a", 15_000)}, "B": {strings.Repeat("a", 9_000) + "b"}}}
	for name, server := range map[string]*Server{"many words": many, "long runs": repeated} {
		m := server.mask(minSecretBytesInResults)
		for _, text := range []string{strings.Repeat("00000001", 10_000), strings.Repeat("a", 80_000), strings.Repeat("aaaaaaaaaaaaaaab", 5_000), strings.Repeat("word ", 16_000)} {
			if _, moves := find(m, text); moves > 2*len(text) {
				t.Errorf("%s: %d moves for %d bytes", name, moves, len(text))
			}
		}
		if nodes, _ := m.secrets.Size(); nodes > 200_000 {
			t.Errorf("%s: %d nodes", name, nodes)
		}
	}
	_, spellings := many.mask(minSecretBytesInResults).secrets.Size()
	if spellings > 3*(maxSecretWords+1) {
		t.Errorf("%d secrets", spellings)
	}
}

// BenchmarkHideListing hides the words of a long header in a listing of many strings.
func BenchmarkHideListing(b *testing.B) {
	listing := json.RawMessage(`["` + strings.Repeat(`a description","`, 400_000) + `"]`)
	for name, server := range map[string]*Server{"one token": {Header: http.Header{"Authorization": {"Bearer 0123456789abcdef"}}}, "1500 words": hostileServer()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(listing)))
			for b.Loop() {
				server.mask(minSecretBytesInResults).hideJSON(listing)
			}
		})
	}
}

// However many words the headers of a request have, those of the configuration are
// hidden.
func TestMaskOfConfiguredWords(t *testing.T) {
	t.Parallel()
	words := make([]string, 64)
	for i := range words {
		words[i] = fmt.Sprintf("%064d", i)
	}
	s := &Server{URL: "https://example.com/mcp", Trusted: true, RequestHeaders: []string{"Authorization"}, Header: http.Header{"X-Key": {"Token the-operators-key"}}}
	if err := s.AddHeader(http.Header{"Authorization": {strings.Join(words, " ")}}); err != nil {
		t.Fatal(err)
	}
	const text = "the key the-operators-key is over its quota"
	for _, got := range []string{s.mask(minSecretBytesInResults).hide(text), s.redact(text)} {
		if got != "the key [hidden] is over its quota" {
			t.Error(got)
		}
	}
}
