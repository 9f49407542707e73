package kept

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// How long a request waits for the store before it goes on without the texts kept there, and how long the
// write at the end of its reply may take.
const (
	ReadTimeout  = time.Second
	writeTimeout = 2 * time.Second
)

// MaxBytes bounds the reasoning that is kept for one turn, in bytes, and what is kept of the
// tokens of one.
const MaxBytes = 1 << 20

// Keep is a job for the store: it writes what later requests need of a choice that
// ended in tool calls, the reasoning that led to them, for clients that do not send
// it back, and what the model wrote, so that prompts can begin with it.
type Keep struct {
	memory request.Memory
	tenant string
	// By name.
	texts map[string]string
	// Of earlier choices of the conversation.
	due Renewal
	now time.Time
}

// Renewal is what earlier choices of a conversation have kept, and is due to be kept on.
type Renewal struct {
	Choices []Choice
	// When that was done last, in seconds, for a prefix that has some of them; nil: none has.
	Renewed *atomic.Int64
}

// Renew has the job keep on what is due.
func (k *Keep) Renew(due Renewal) { k.due = due }

// New returns the job for one choice; nil if there is nothing to keep. The texts are kept
// once, under the id of the first call; the names of the other calls refer to that id.
func New(rc *request.Context, calls []*item.CalledTool, reasoning string, choice *Written) *Keep {
	exact := rc.Model.History == request.HistoryExact && (choice != nil || reasoning != "")
	if reasoning == "" && !exact {
		return nil
	}

	first := calls[0].ID
	keep := &Keep{memory: rc.Memory, tenant: rc.Tenant, texts: map[string]string{}}
	if reasoning != "" {
		keep.texts[reasoningKey(first)] = reasoning
	}
	for _, call := range calls[1:] {
		keep.texts[firstCallKey(call.ID)] = first
	}

	// What was not written well is noted too: its reasoning has an age like that of others.
	if exact {
		keep.now = rc.Now()
		if choice == nil {
			choice = &Written{calls: callIDs(calls)}
		}
		keep.texts[choice.key()] = choice.text(keep.now)
	}
	return keep
}

// KeepResults returns the job for what tools that ran here have returned, by the ids of their calls,
// as [Results] is going to return it; nil if there is nothing to keep.
func KeepResults(rc *request.Context, results map[string]string) *Keep {
	keep := &Keep{memory: rc.Memory, tenant: rc.Tenant, texts: map[string]string{}}
	for id, result := range results {
		if len(result) <= MaxBytes {
			keep.texts[resultKey(id)] = result
		}
	}
	if rc.Memory == nil || len(keep.texts) == 0 {
		return nil
	}
	return keep
}

// resultsTogether is how many results are read together. Each has at most [MaxBytes], of no account of
// the request's memory until it is taken.
const resultsTogether = 16

// Results calls take with what is kept of these calls, by their ids, some after the others. It takes
// at most a second, and goes on without what the store does not return by then. The error is that of
// take.
func Results(
	ctx context.Context, rc *request.Context, calls []string, take func(call, result string) *apierror.Error,
) *apierror.Error {
	if rc.Memory == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	for together := range slices.Chunk(calls, resultsTogether) {
		names := make([]string, len(together))
		for i, id := range together {
			names[i] = resultKey(id)
		}
		texts, err := rc.Memory.Texts(ctx, rc.Tenant, names)
		if err != nil {
			return nil
		}

		for i, id := range together {
			text, ok := texts[names[i]]
			if !ok {
				continue
			}
			if err := take(id, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func callIDs(calls []*item.CalledTool) []string {
	ids := make([]string, len(calls))
	for i, call := range calls {
		ids[i] = call.ID
	}
	return ids
}

// Do writes the texts to the store. It takes at most two seconds, and goes on
// when ctx ends. It has no result.
func (k *Keep) Do(ctx context.Context) (result any, err error) {
	// The client may have gone, and comes back with the results of the calls.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err = k.memory.PutTexts(ctx, k.tenant, k.texts); err != nil {
		return nil, fmt.Errorf("keep the reasoning of tool calls: %w", err)
	}

	if err = k.writeAgain(ctx); err != nil {
		err = fmt.Errorf("renew the reasoning of tool calls: %w", err)
	}
	return nil, err
}

// read is a [textReader] of what the job writes, before or after it is done. The
// Keep may be nil.
func (k *Keep) read([]string) (map[string]string, error) {
	if k == nil {
		return map[string]string{}, nil
	}
	return k.texts, nil
}

// Insert returns the items with what the job keeps of them, before or after it is done. The Keep may be
// nil.
func (k *Keep) Insert(rc *request.Context, items []item.Item) Items {
	// Its reader returns no error.
	kept, _ := insertKept(rc, nil, items, k.read)
	return kept
}

// renewedTogether is how many choices are read and written together to renew them. Each has at most
// twice [MaxBytes], of no account of the request's memory.
const renewedTogether = 8

// writeAgain writes what earlier choices have kept once more, with the time at which it does. In a
// turn of hours they would expire one after the other, and each would change the beginning of
// the prompt.
func (k *Keep) writeAgain(ctx context.Context) error {
	for together := range slices.Chunk(k.due.Choices, renewedTogether) {
		var names []string
		for _, choice := range together {
			names = append(names, choice.names()...)
		}
		texts, err := k.memory.Texts(ctx, k.tenant, names)
		if err != nil {
			return err //nolint:wrapcheck // Do says what was done
		}

		again := make(map[string]string, len(texts))
		for _, name := range names {
			if text, ok := texts[name]; ok {
				again[name] = text
			}
		}
		for _, choice := range together {
			if text, ok := again[choice.name]; ok {
				again[choice.name] = writtenAt(text, k.now)
			}
		}
		if err := k.memory.PutTexts(ctx, k.tenant, again); err != nil {
			return err //nolint:wrapcheck // Do says what was done
		}
	}

	// Where there is no prefix, the next request reads the new time.
	if len(k.due.Choices) > 0 && k.due.Renewed != nil {
		k.due.Renewed.Store(k.now.Unix())
	}
	return nil
}

// Choice is an earlier choice for which something is kept.
type Choice struct {
	// The ids of its calls.
	calls []string
	// When it was kept, in seconds.
	at int64
	// Under which it is kept.
	name string
}

// lasts reports whether prompts have the choice as the model wrote it also after an answer.
func (c *Choice) lasts() bool { return strings.HasPrefix(c.name, lastingPrefix) }

// names returns the names of the texts that are kept for the choice.
func (c *Choice) names() []string {
	names := make([]string, 0, 1+2*len(c.calls))
	names = append(names, reasoningKey(c.calls[0]), c.name)
	for _, id := range c.calls[1:] {
		names = append(names, firstCallKey(id))
	}
	for _, id := range c.calls {
		names = append(names, resultKey(id))
	}
	return names
}

// Has reports whether the choice has a call with this id.
func (c *Choice) Has(id string) bool { return slices.Contains(c.calls, id) }

// Bytes returns the approximate size of the choice in memory.
func (c *Choice) Bytes() int {
	n := item.Overhead + len(c.name)
	for _, id := range c.calls {
		n += item.Overhead + len(id)
	}
	return n
}

// FollowedBy returns the choices of which prompts have something: earlier ones, which were kept on last at
// a time in seconds, and later ones; answered says that an answer follows the earlier ones.
func FollowedBy(earlier []Choice, renewed int64, later []Choice, answered bool) []Choice {
	if earlier == nil {
		return later
	}

	all := slices.Concat(earlier, later)
	for i := range earlier {
		all[i].at = max(all[i].at, renewed)
	}
	if answered {
		lasting := slices.DeleteFunc(all[:len(earlier)], func(c Choice) bool { return !c.lasts() })
		all = slices.Concat(lasting, later)
	}
	// As many as are read without a prefix.
	return all[max(0, len(all)-maxSteps):]
}

// Due returns the choices that are to be kept on, the oldest first: none before one of them has
// half of its time behind it, and then all that have a quarter, so that those of a long turn are
// renewed together, and not one with each reply.
func Due(rc *request.Context, choices []Choice) []Choice {
	if rc.KeptTTL <= 0 || len(choices) == 0 {
		return nil
	}

	older := func(a, b Choice) int { return cmp.Compare(a.at, b.at) }
	byAge := slices.SortedStableFunc(slices.Values(choices), older)
	now := rc.Now()
	if byAge[0].at >= now.Add(-rc.KeptTTL/2).Unix() {
		return nil
	}
	recent := now.Add(-rc.KeptTTL / 4).Unix()
	return slices.DeleteFunc(byAge, func(c Choice) bool { return c.at >= recent })
}

// The names of the texts. Replicas of an earlier version read the first two.

func reasoningKey(callID string) string { return "reasoning:" + callID }

func firstCallKey(callID string) string { return "first_call:" + callID }

func writtenKey(callID string) string { return writtenPrefix + callID }

func lastingKey(callID string) string { return lastingPrefix + callID }

func resultKey(callID string) string { return "result:" + callID }

// What the model wrote has two names: of most choices, which begin with reasoning, nothing is read after
// the answer.
const (
	writtenPrefix = "written:"
	lastingPrefix = "lasting:"
)

func isWrittenKey(name string) bool {
	return strings.HasPrefix(name, writtenPrefix) || strings.HasPrefix(name, lastingPrefix)
}
