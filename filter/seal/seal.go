// Package seal encrypts texts for clients to keep, so that only the same tenant can
// send them back: a [Sealer] makes the encrypted content of reasoning items, the
// signatures of thinking blocks, compactions, the pages of searches, and what tools have
// returned in a turn that goes on.
//
// What is sealed for one [Purpose] does not open for another. So a text that the model
// wrote, such as the reasoning behind a signature, can never come back as one that only
// the filter writes, such as a page with the session of a tool in it.
//
// It knows neither what it seals nor who asks: a tenant is a name, a text is bytes. What is
// sealed is not counted and not remembered, so that a client may send one text back many times.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
)

// Sealer seals texts and opens them again, such as chain of thought, so that clients
// which store nothing here keep the reasoning of a tool turn. It is safe for concurrent
// use if its source of randomness is.
//
// Sealed text is base64url of a version, a salt and AES-256-GCM's output. Every
// text has a key of its own, derived from one of the sealer's with HKDF-SHA-256,
// the salt and the purpose, so that a key can seal any number of texts. The SHA-256 of the
// tenant's name is encrypted and authenticated with the text: what one tenant has
// got, no other can send, and [Sealer.Open] can say so.
type Sealer struct {
	// Unopened is called for each text that no key opens; nil: nothing is. It must
	// be set before the sealer is used.
	Unopened func()

	keys [][]byte // the first seals, all open
	rand io.Reader
}

const (
	// KeyBytes is how long a key is.
	KeyBytes = 32

	version   = 2
	saltBytes = 24
	overhead  = 1 + saltBytes + 16
)

// Purpose is the kind of what is sealed.
type Purpose struct{ info string } // for HKDF

// The purposes. Clients hold sealed texts for as long as they like: a purpose whose text
// changes opens none of them any more.
var (
	// Reasoning is for chain of thought, whatever the API: a client may change it.
	Reasoning = Purpose{"envoy-harmony reasoning 2"}
	// Compaction is for the summary that stands in place of a conversation.
	Compaction = Purpose{"envoy-harmony compaction 2"}
	// Page is for the result of a search.
	Page = Purpose{"envoy-harmony page 2"}
	// Steps is for calls of tools and what they have returned, in a turn without its answer.
	Steps = Purpose{"envoy-harmony steps 2"}
)

// The errors of [Sealer.Open].
var (
	// ErrUnknown is the error for a text that no key opens: its key is gone, or it
	// was sealed by another service or for another purpose, or changed.
	ErrUnknown = errors.New("not sealed with one of the keys")
	// ErrTenant is the error for a text that was sealed for another tenant.
	ErrTenant = errors.New("sealed for another tenant")
)

// NewSealer makes a sealer of keys of [KeyBytes] random bytes. The first
// seals; the others still open what they sealed while they were the first.
// rand is a source of random bytes, such as crypto/rand.Reader.
func NewSealer(keys [][]byte, rand io.Reader) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("no key")
	}
	s := &Sealer{rand: rand}
	for i, key := range keys {
		if len(key) != KeyBytes {
			return nil, fmt.Errorf("key %d has %d bytes, not %d", i, len(key), KeyBytes)
		}
		s.keys = append(s.keys, bytes.Clone(key))
	}
	return s, nil
}

// Seal seals a text of a tenant.
func (s *Sealer) Seal(purpose Purpose, tenant string, text []byte) (string, error) {
	sealed := make([]byte, 1+saltBytes, overhead+sha256.Size+len(text))
	sealed[0] = version
	if _, err := io.ReadFull(s.rand, sealed[1:]); err != nil {
		return "", fmt.Errorf("read random bytes: %w", err)
	}

	gcm, err := gcmOf(s.keys[0], sealed[1:], purpose)
	if err != nil {
		return "", err
	}

	// A nonce of zeros: the salt makes a key that seals this text only.
	nonce := make([]byte, gcm.NonceSize())
	owner := sha256.Sum256([]byte(tenant))
	return base64.RawURLEncoding.EncodeToString(gcm.Seal(sealed, nonce, append(owner[:], text...), nil)), nil
}

// Open returns the text that was sealed for the purpose and the tenant. Other texts are
// [ErrUnknown] or [ErrTenant].
func (s *Sealer) Open(purpose Purpose, tenant, sealed string) ([]byte, error) {
	text, err := s.open(purpose, tenant, sealed)
	if errors.Is(err, ErrUnknown) && s.Unopened != nil {
		s.Unopened()
	}
	return text, err
}

func (s *Sealer) open(purpose Purpose, tenant, sealed string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(b) < overhead || b[0] != version {
		return nil, ErrUnknown
	}

	salt, b := b[1:1+saltBytes], b[1+saltBytes:]
	// Keys are few, and the first one nearly always opens.
	for _, key := range s.keys {
		gcm, err := gcmOf(key, salt, purpose)
		if err != nil {
			return nil, err
		}
		text, err := gcm.Open(nil, make([]byte, gcm.NonceSize()), b, nil)
		if err != nil {
			continue
		}
		// Only after the authentication, so that nobody can probe for tenants.
		if owner := sha256.Sum256([]byte(tenant)); !bytes.HasPrefix(text, owner[:]) {
			return nil, ErrTenant
		}
		return text[sha256.Size:], nil
	}

	return nil, ErrUnknown
}

// gcmOf is the cipher for one text.
func gcmOf(key, salt []byte, purpose Purpose) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, key, salt, purpose.info, KeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("make the cipher: %w", err)
	}
	return cipher.NewGCM(block)
}
