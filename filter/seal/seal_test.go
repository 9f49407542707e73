package seal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
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
		if got, err := sealer.Open("other", s); !errors.Is(err, ErrTenant) || got != nil {
			t.Errorf("another tenant: %q, %v", got, err)
		}
	}
	unopened := 0
	other := mustSealer(t, "a")
	other.Unopened = func() { unopened++ }
	for _, tenant := range []string{"t", "other"} {
		if got, err := other.Open(tenant, sealed); !errors.Is(err, ErrUnknown) || got != nil {
			t.Errorf("another key opens it: %q, %v", got, err)
		}
	}
	if _, err := other.Open("other", old); !errors.Is(err, ErrTenant) || unopened != 2 {
		t.Errorf("%v; %d texts could not be opened", err, unopened)
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if _, err := sealer.Open("t", base64.RawURLEncoding.EncodeToString(bad)); !errors.Is(err, ErrUnknown) {
			t.Errorf("byte %d can be changed: %v", i, err)
		}
		if _, err := sealer.Open("t", base64.RawURLEncoding.EncodeToString(raw[:i])); !errors.Is(err, ErrUnknown) {
			t.Errorf("it can be cut after %d bytes: %v", i, err)
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

// FuzzSeal shows that what is sealed is opened for the same tenant only, and has a bound.
func FuzzSeal(f *testing.F) {
	f.Add("t", "u", []byte("text"))
	f.Add("", "\x00", []byte{})
	sealer, err := NewSealer([][]byte{make([]byte, KeyBytes)}, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, tenant, other string, text []byte) {
		sealed, err := sealer.Seal(tenant, text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sealer.Open(tenant, sealed); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%q is opened as %q, %v", text, got, err)
		}
		if _, err := sealer.Open(other, sealed); tenant != other && !errors.Is(err, ErrTenant) {
			t.Errorf("%q can open what was sealed for %q: %v", other, tenant, err)
		}
		if n := base64.RawURLEncoding.EncodedLen(overhead + sha256.Size + len(text)); len(sealed) != n {
			t.Errorf("%d bytes are sealed in %d, not in %d", len(text), len(sealed), n)
		}
	})
}
