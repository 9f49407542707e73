package loopback

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// A retry has to reach another replica. By the call's keys Envoy would choose the
// same one again, and so it would by load: a replica that fails has nothing to do.
// So a retry has other keys, and names the replicas that have answered before.

// redirect changes the headers of a call so that Envoy chooses another replica.
func (c *Client) redirect(h http.Header, retry run.Retry) {
	if retry.Number == 0 {
		return
	}

	// The last key that the call has decides among the other replicas: that of its prefix, so that
	// conversations that begin alike share another cache. Without keys any will do.
	key := h.Get("x-request-id")
	for _, name := range slices.Backward(c.keys) {
		if own := h.Get(name); own != "" {
			key = own
			h.Set(name, retryKey(own, retry.Number))
		}
	}

	if retry.Excluded == "" {
		return
	}
	if others := c.replicas.others(h.Get(header.Engine), retry.Excluded, key); len(others) > 0 {
		h.Set(header.Upstream, strings.Join(others, ","))
	}
}

// retryKey is the key in place of another on its n-th retry: always the same one,
// so that conversations that are retried stay together too.
func retryKey(key string, n int) string {
	sum := sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(n)))
	return hex.EncodeToString(sum[:16])
}

// rendezvous is the weight of an address for a key: the address with the greatest
// weight gets the key's calls. When an address comes or goes, few keys move.
func rendezvous(address, key string) uint64 {
	sum := sha256.Sum256([]byte(address + "\x00" + key))
	return binary.BigEndian.Uint64(sum[:])
}

// maxReplicas is how many replicas of an engine are remembered: more than it takes
// to find a healthy one.
const maxReplicas = 32

// replicas remembers which replicas have answered calls, by engine. The zero value
// is ready for use.
type replicas struct {
	mu    sync.Mutex
	known map[string][]string // the latest last
}

// answered notes that a replica of an engine has answered; "" is unknown.
func (r *replicas) answered(engine, replica string) {
	if replica == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	known := r.known[engine]
	if slices.Contains(known, replica) {
		return
	}
	if len(known) == maxReplicas {
		// The one that has been known longest may not exist any more.
		known = slices.Delete(known, 0, 1)
	}
	if r.known == nil {
		r.known = map[string][]string{}
	}
	r.known[engine] = append(known, replica)
}

// others forgets a replica that has failed, until it answers again, and returns
// the engine's other replicas, best first for a key.
func (r *replicas) others(engine, failed, key string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := slices.DeleteFunc(r.known[engine], func(k string) bool { return k == failed })
	if len(known) == 0 {
		delete(r.known, engine)
		return nil
	}

	r.known[engine] = known
	others := slices.Clone(known)
	slices.SortFunc(others, func(a, b string) int { return cmp.Compare(rendezvous(b, key), rendezvous(a, key)) })
	return others
}
