package turn

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Affinity holds the hash keys by which a load balancer sends requests with the
// same beginning to one engine. Keys are lower-case hex and reveal nothing of a
// request.
type Affinity struct {
	// Prefix stays the same while a conversation grows. It is the hash of the
	// tenant, the model, the tools, the instructions before the first user's text,
	// and that text.
	Prefix string
	// Session is the hash of the tenant and the session that the request names. It
	// equals Prefix if the request names none.
	Session string
}

// Affinity returns the affinity of the turn's request.
func (t *Turn) Affinity() Affinity { return t.affinity }

func affinityOf(rc *request.Context, conversation *prompt.Conversation) Affinity {
	in := conversation.Input
	prefix := newKeyHash("prefix", rc.Tenant, conversation.Key(cmp.Or(rc.Model.Upstream, in.Engine.Model)))

	prefix.tools(in.Tools)
	if len(in.Builtins) > 0 {
		prefix.add("builtins")
		prefix.tools(in.Builtins)
	}

	a := Affinity{Prefix: prefix.key()}
	a.Session = a.Prefix

	if session := cmp.Or(in.Session, rc.Session); session != "" {
		a.Session = newKeyHash("session", rc.Tenant, session).key()
	}
	return a
}

// keyBytes is the length of a key before it is written as hex.
const keyBytes = 16

// keyHash hashes texts into a key.
type keyHash struct {
	sum    hash.Hash
	buffer []byte
}

func newKeyHash(texts ...string) *keyHash {
	h := &keyHash{sum: sha256.New()}
	h.add(texts...)
	return h
}

// add adds texts, each with its length.
func (h *keyHash) add(texts ...string) {
	for _, text := range texts {
		h.buffer = binary.AppendUvarint(h.buffer[:0], uint64(len(text)))
		h.buffer = append(h.buffer, text...)
		h.sum.Write(h.buffer)
	}
}

// tools adds the tools as the model sees them.
func (h *keyHash) tools(namespaces []harmony.Namespace) {
	for i := range namespaces {
		n := &namespaces[i]
		h.add(n.Name, n.Description)
		for j := range n.Tools {
			h.add(n.Tools[j].Name, n.Tools[j].Description)
			// HTTP libraries spell the same JSON in several ways.
			h.buffer = jsontext.AppendShown(h.buffer[:0], string(n.Tools[j].Parameters))
			h.sum.Write(h.buffer)
		}
	}
}

func (h *keyHash) key() string { return hex.EncodeToString(h.sum.Sum(nil)[:keyBytes]) }
