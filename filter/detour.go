package filter

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
)

// How a call that has failed at a replica gets to another one. By its keys Envoy
// would choose the same again, and so it would by load: a replica that fails has
// nothing to do. So the call has other keys, and names the replicas that have
// answered others.

// detour is the way of a call that has failed. The zero value is the way of all
// others.
type detour struct {
	number int    // of the detour, from 1
	avoid  string // the replica that has failed, "" where Envoy did not tell
}

// divert changes the headers of a call to the engine that they name so that it
// takes a detour.
func (l *loopback) divert(header http.Header, d detour) {
	if d.number == 0 {
		return
	}
	key := header.Get("x-request-id")
	for _, name := range slices.Backward(l.keys) {
		if own := header.Get(name); own != "" {
			key = own
			header.Set(name, derivedKey(own, d.number))
		}
	}
	if d.avoid == "" {
		return
	}
	if others := l.replicas.others(header.Get(EngineHeader), d.avoid, key); len(others) > 0 {
		header.Set(UpstreamHeader, strings.Join(others, ","))
	}
}

// derivedKey is the key in place of another one on its n-th detour: always the
// same, so that what is said meanwhile stays together too.
func derivedKey(key string, n int) string {
	sum := sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(n)))
	return hex.EncodeToString(sum[:16])
}

// rendezvous is what an address weighs for a key: the one that weighs most gets
// the key's calls. When one comes or goes few keys move.
func rendezvous(address, key string) uint64 {
	sum := sha256.Sum256([]byte(address + "\x00" + key))
	return binary.BigEndian.Uint64(sum[:])
}

// maxReplicas is how many replicas of an engine are remembered: more than it takes
// to find one that is well.
const maxReplicas = 32

// replicas are those that have answered calls, by engine. The zero value is ready
// for use.
type replicas struct {
	mu    sync.Mutex
	known map[string][]string // the latest last
}

// answered notes that a replica of an engine has answered; "" is none.
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
		known = slices.Delete(known, 0, 1)
	}
	if r.known == nil {
		r.known = map[string][]string{}
	}
	r.known[engine] = append(known, replica)
}

// others forgets a replica of an engine, which has failed, until it answers again,
// and gives the others, best first for a key.
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
