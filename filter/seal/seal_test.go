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
	old, err := mustSealer(t, "a").Seal(Reasoning, "t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := sealer.Seal(Reasoning, "t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := sealer.Seal(Reasoning, "t", []byte(text)); again == sealed || strings.Contains(sealed, text) {
		t.Error("a text is sealed the same way twice, or not at all")
	}
	for _, s := range []string{old, sealed} {
		if got, err := sealer.Open(Reasoning, "t", s); err != nil || string(got) != text {
			t.Errorf("Open: %q, %v", got, err)
		}
		if got, err := sealer.Open(Reasoning, "other", s); !errors.Is(err, ErrTenant) || got != nil {
			t.Errorf("another tenant: %q, %v", got, err)
		}
	}
	unopened := 0
	other := mustSealer(t, "a")
	other.Unopened = func() { unopened++ }
	for _, tenant := range []string{"t", "other"} {
		if got, err := other.Open(Reasoning, tenant, sealed); !errors.Is(err, ErrUnknown) || got != nil {
			t.Errorf("another key opens it: %q, %v", got, err)
		}
	}
	if _, err := other.Open(Reasoning, "other", old); !errors.Is(err, ErrTenant) || unopened != 2 {
		t.Errorf("%v; %d texts could not be opened", err, unopened)
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if _, err := sealer.Open(Reasoning, "t", base64.RawURLEncoding.EncodeToString(bad)); !errors.Is(err, ErrUnknown) {
			t.Errorf("byte %d can be changed: %v", i, err)
		}
		if _, err := sealer.Open(Reasoning, "t", base64.RawURLEncoding.EncodeToString(raw[:i])); !errors.Is(err, ErrUnknown) {
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
	if _, err := broken.Seal(Reasoning, "", nil); err == nil {
		t.Error("sealed without random bytes")
	}
}

// What is sealed for one purpose is unknown for any other, also to its own tenant.
func TestPurposes(t *testing.T) {
	t.Parallel()
	sealer := mustSealer(t, "a")
	purposes := []Purpose{Reasoning, Compaction, Page}
	for i, sealed := range purposes {
		text, err := sealer.Seal(sealed, "t", []byte("text"))
		if err != nil {
			t.Fatal(err)
		}
		for j, opened := range purposes {
			switch got, err := sealer.Open(opened, "t", text); {
			case i == j && (err != nil || string(got) != "text"):
				t.Errorf("%s: %q, %v", opened.info, got, err)
			case i != j && (!errors.Is(err, ErrUnknown) || got != nil):
				t.Errorf("a text for %q opens for %q: %q, %v", sealed.info, opened.info, got, err)
			}
		}
	}
}

// Clients hold reasoning that was sealed before there were purposes, by the key of 32 bytes
// "a". It opens still.
func TestOldReasoningOpens(t *testing.T) {
	t.Parallel()
	const old = "AlbiG5wRrbs3ZnY--vtfrSLHGMxibr4wz2CoWhzhmkUwYBkzQVkn1gl_kqlatQGlQ9gjAn0WJtmjaCUg8dtVwC7xj3aHaUJQh0IkRZDV_xTBCQ"
	if got, err := mustSealer(t, "a").Open(Reasoning, "t", old); err != nil || string(got) != "a thought" {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzOpen shows that no content that was not sealed here can be opened.
func FuzzOpen(f *testing.F) {
	salt := strings.NewReader(strings.Repeat("s", saltBytes)) // every worker seals the same
	sealer, err := NewSealer([][]byte{make([]byte, KeyBytes)}, salt)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := sealer.Seal(Reasoning, "t", []byte("text"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := sealer.Open(Reasoning, "t", s); err == nil && (s != sealed || string(got) != "text") {
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
		sealed, err := sealer.Seal(Reasoning, tenant, text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sealer.Open(Reasoning, tenant, sealed); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%q is opened as %q, %v", text, got, err)
		}
		if _, err := sealer.Open(Reasoning, other, sealed); tenant != other && !errors.Is(err, ErrTenant) {
			t.Errorf("%q can open what was sealed for %q: %v", other, tenant, err)
		}
		if n := base64.RawURLEncoding.EncodedLen(overhead + sha256.Size + len(text)); len(sealed) != n {
			t.Errorf("%d bytes are sealed in %d, not in %d", len(text), len(sealed), n)
		}
	})
}
