package turn

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Affinity is what a load balancer needs to send requests that begin alike to
// one engine. Keys are lower-case hex: nothing of a request can be read in them.
type Affinity struct {
	// Prefix stays the same while a conversation grows. It is that of the
	// tenant, the model, the tools, the instructions before the first user's
	// text, and that text.
	Prefix string
	// Session is that of the tenant and the session that the request names;
	// the prefix where it names none.
	Session string
}

// Affinity is the turn's.
func (t *Turn) Affinity() Affinity { return t.affinity }

func (s *Scope) affinity(in *Input, o opening) Affinity {
	prefix := newKeyHash("prefix", s.Tenant, o.key(cmp.Or(s.Model.Upstream, in.Engine.Model)))
	prefix.tools(in.Tools)
	if len(in.Builtins) > 0 {
		prefix.add("builtins")
		prefix.tools(in.Builtins)
	}
	a := Affinity{Prefix: prefix.key()}
	a.Session = a.Prefix
	if session := cmp.Or(in.Session, s.Session); session != "" {
		a.Session = newKeyHash("session", s.Tenant, session).key()
	}
	return a
}

// keyBytes of a hash are enough to tell conversations apart.
const keyBytes = 16

// keyHash makes a key of texts.
type keyHash struct {
	sum    hash.Hash
	buffer []byte
}

func newKeyHash(texts ...string) *keyHash {
	h := &keyHash{sum: sha256.New()}
	h.add(texts...)
	return h
}

// add takes texts and where each one ends.
func (h *keyHash) add(texts ...string) {
	for _, text := range texts {
		h.buffer = binary.AppendUvarint(h.buffer[:0], uint64(len(text)))
		h.buffer = append(h.buffer, text...)
		h.sum.Write(h.buffer)
	}
}

// tools takes what the model is told of tools.
func (h *keyHash) tools(namespaces []harmony.Namespace) {
	for i := range namespaces {
		n := &namespaces[i]
		h.add(n.Name, n.Description)
		for j := range n.Tools {
			h.add(n.Tools[j].Name, n.Tools[j].Description)
			h.sum.Write(n.Tools[j].Parameters)
		}
	}
}

func (h *keyHash) key() string { return hex.EncodeToString(h.sum.Sum(nil)[:keyBytes]) }
