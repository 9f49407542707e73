package config

import "strings"

// What a process holds for requests, and what it keeps between them, must fit into its
// memory. The defaults of the keys below are shares of it, so that a small process works
// without any of them being set; a process with much memory has the fixed defaults. A key
// that is set wins.
//
// All shares together are some seven tenths of what the program leaves, so that the
// collector has room (docs/sizing.md; "make attack ATTACK=memory" measures it).

// programBytes is about what the program takes without requests, with a few hundred
// streams.
const programBytes = 64 << 20

// memoryShare is the part of the memory that a key gets by default: 1 of so many.
var memoryShare = struct {
	store, cache, diagnosis, toolAnswers, body int64
}{store: 8, cache: 32, diagnosis: 64, toolAnswers: 64, body: 24}

// The part that requests may hold at one time: two fifths.
const inflightNumerator, inflightDenominator = 2, 5

// BytesOfBody is how many bytes a body takes while it is decoded, for each of its own: the
// pieces in which it came, the body in one slice, texts without escapes, and items as they
// are stored. The search for costly requests holds decoders to it (e2e/cost).
const BytesOfBody = 4

// leastBody is the least default of the largest request body.
const leastBody = 1 << 20

// DefaultsIn is the configuration of an empty file in a process with a memory limit: the
// bytes to which the collector holds the heap. 0: the limit is not known.
func DefaultsIn(limit int64) *Config {
	c := Defaults()
	if limit <= 0 {
		return c
	}
	// A process that is smaller than that has at least half for its requests.
	limit = max(limit-programBytes, limit/2)
	l := &c.Limits

	// One body of the least size always fits, with what is made of it.
	l.MaxInflightBytes = max(limit/inflightDenominator*inflightNumerator, BytesOfBody*leastBody)

	// A request of the largest body that continues the largest conversation takes several
	// times both, and has to fit.
	l.MaxBodyBytes = max(min(l.MaxBodyBytes, limit/memoryShare.body), leastBody)
	l.MaxConversationBytes = int(l.MaxBodyBytes)

	shrink(&c.Responses.StoreBytes, limit/memoryShare.store)
	shrink(&c.Responses.ChainCacheBytes, limit/memoryShare.cache)
	shrink(&l.CacheBytes, int(limit/memoryShare.cache))
	shrink(&l.KeptReasoningBytes, limit/memoryShare.cache)
	shrink(&l.DiagnosisBytes, limit/memoryShare.diagnosis)
	shrink(&c.Record.MemoryBytes, limit/memoryShare.cache)

	shrink(&c.Tools.MaxInflightBytes, limit/memoryShare.toolAnswers)
	// One answer of the largest size must fit, whatever the share is.
	c.Tools.MaxInflightBytes = max(c.Tools.MaxInflightBytes, int64(c.Tools.MaxMessageBytes))
	return c
}

// FitStore completes a configuration whose keys are all set, of a process with a memory
// limit: responses that are stored elsewhere than in memory need no share of it.
func (c *Config) FitStore(limit int64) {
	if !strings.HasPrefix(c.StoreURL, "memory:") && c.Responses.StoreBytes == DefaultsIn(limit).Responses.StoreBytes {
		c.Responses.StoreBytes = Defaults().Responses.StoreBytes
	}
}

// shrink lowers a default to what there is room for.
func shrink[T int | int64](value *T, most T) { *value = min(*value, most) }
