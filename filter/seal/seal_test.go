package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"
)

func mustSealer(t testing.TB, keys ...string) *Sealer {
	t.Helper()
	list := make([][]byte, len(keys))
	for i, k := range keys {
		list[i] = bytes.Repeat([]byte(k), KeyBytes)
	}
	s, err := NewSealer(list, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealer(t *testing.T) {
	t.Parallel()
	const text = "a thought, naïve 🙂"
	sealer := mustSealer(t, "b", "a")
	old, err := mustSealer(t, "a").Seal("t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := sealer.Seal("t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := sealer.Seal("t", []byte(text)); again == sealed || strings.Contains(sealed, text) {
		t.Error("a text is sealed the same way twice, or not at all")
	}
	for _, s := range []string{old, sealed} {
		if got, err := sealer.Open("t", s); err != nil || string(got) != text {
			t.Errorf("Open: %q, %v", got, err)
		}
		if _, err := sealer.Open("other", s); err == nil {
			t.Error("another tenant can open it")
		}
	}
	if _, err := mustSealer(t, "a").Open("t", sealed); err == nil {
		t.Error("another key opens it")
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if _, err := sealer.Open("t", base64.RawURLEncoding.EncodeToString(bad)); err == nil {
			t.Errorf("byte %d can be changed", i)
		}
		if _, err := sealer.Open("t", base64.RawURLEncoding.EncodeToString(raw[:i])); err == nil {
			t.Errorf("it can be cut after %d bytes", i)
		}
	}
	for _, keys := range [][][]byte{nil, {make([]byte, 16)}, {make([]byte, 32), nil}} {
		if _, err := NewSealer(keys, rand.Reader); err == nil {
			t.Errorf("keys %v are accepted", keys)
		}
	}
	broken, err := NewSealer([][]byte{make([]byte, 32)}, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Seal("", nil); err == nil {
		t.Error("sealed without random bytes")
	}
}

// FuzzOpen shows that no content that was not sealed here can be opened.
func FuzzOpen(f *testing.F) {
	salt := strings.NewReader(strings.Repeat("s", saltBytes)) // every worker seals the same
	sealer, err := NewSealer([][]byte{make([]byte, KeyBytes)}, salt)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := sealer.Seal("t", []byte("text"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := sealer.Open("t", s); err == nil && (s != sealed || string(got) != "text") {
			t.Errorf("%q is opened: %q", s, got)
		}
	})
}
