package operations

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// soakFigures is what the soak test measures of the stack.
type soakFigures struct {
	rss         float64 // resident memory of the filter, bytes
	goroutines  float64 // of the filter
	descriptors float64 // open ones of the filter
	inflight    float64 // ext_proc streams that the filter serves
	envoy       float64 // memory that Envoy has allocated, bytes
	requests    float64 // that Envoy serves or sends, its admin interface apart
	engine      float64 // requests that the engine works on
}

// soakBound is how far a figure may be above what it was after the warm-up.
type soakBound struct {
	name   string
	of     func(soakFigures) float64
	factor float64
	more   float64
	unit   float64
}

const mebibyte = 1 << 20

// soakBounds are wide: memory varies with the moment of the last collection, descriptors
// and goroutines with connections that are kept for the next request. A leak in each
// request exceeds them within minutes.
var soakBounds = []soakBound{
	{"resident memory of the filter, MiB", func(f soakFigures) float64 { return f.rss }, 1.5, 32 * mebibyte, mebibyte},
	{"goroutines of the filter", func(f soakFigures) float64 { return f.goroutines }, 1, 32, 1},
	{"open descriptors of the filter", func(f soakFigures) float64 { return f.descriptors }, 1, 32, 1},
	{"memory allocated by Envoy, MiB", func(f soakFigures) float64 { return f.envoy }, 1.5, 16 * mebibyte, mebibyte},
	{"ext_proc streams of the filter", func(f soakFigures) float64 { return f.inflight }, 0, 0, 1},
	{"active requests of Envoy", func(f soakFigures) float64 { return f.requests }, 0, 0, 1},
	{"running requests of the engine", func(f soakFigures) float64 { return f.engine }, 0, 0, 1},
}

// grown compares the figures after the warm-up with those of the end, both after idling,
// and returns what exceeds its bound.
func grown(before, after soakFigures) (faults []string) {
	for _, b := range soakBounds {
		was, is := b.of(before), b.of(after)
		if limit := was*b.factor + b.more; is > limit {
			faults = append(faults, fmt.Sprintf("%s: %.1f after the warm-up, %.1f at the end, the bound is %.1f", b.name, was/b.unit, is/b.unit, limit/b.unit))
		}
	}
	return faults
}

// soakReply is how a request ended, with the name of its API. The outcomes are those of
// harmony_requests_total.
type soakReply struct{ api, outcome string }

// Outcomes of requests in harmony_requests_total.
const (
	outcomeOK       = "ok"
	outcomeRejected = "rejected"
	outcomeFailed   = "failed"
	outcomeCanceled = "canceled"
)

// soakAccount is the clients' count of their requests.
type soakAccount struct {
	replies map[soakReply]int
	left    map[string]int // by API: requests whose client left at some time
	begun   map[string]int // by API: those of them whose reply had begun
}

// differences compares the clients' account with the filter's counters. A request whose
// client left has any outcome, and may have left before the filter saw it. All others
// are counted with the outcome that their client saw.
func (a soakAccount) differences(counted map[soakReply]int) (faults []string) {
	extra := map[string]int{}
	for _, r := range slices.SortedFunc(maps.Keys(allOf(a.replies, counted)), func(x, y soakReply) int {
		return strings.Compare(x.api+" "+x.outcome, y.api+" "+y.outcome)
	}) {
		more := counted[r] - a.replies[r]
		if more < 0 {
			faults = append(faults, fmt.Sprintf("%s, %s: the clients count %d, the filter %d", r.api, r.outcome, a.replies[r], counted[r]))
		}
		extra[r.api] += max(more, 0)
	}
	for _, api := range slices.Sorted(maps.Keys(extra)) {
		if n := extra[api]; n > a.left[api] || n < a.begun[api] {
			faults = append(faults, fmt.Sprintf("%s: the filter counts %d requests besides those that clients read to the end, of %d whose clients left, %d of them after the reply had begun", api, n, a.left[api], a.begun[api]))
		}
	}
	return faults
}

func allOf[K comparable, V any](a, b map[K]V) map[K]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func TestSoakFindsWhatHasGrown(t *testing.T) {
	before := soakFigures{rss: 40 * mebibyte, goroutines: 20, descriptors: 15, envoy: 10 * mebibyte}

	for name, tt := range map[string]struct {
		change func(*soakFigures)
		want   string
	}{
		"the same":               {func(*soakFigures) {}, ""},
		"a little more memory":   {func(f *soakFigures) { f.rss += 40 * mebibyte }, ""},
		"memory":                 {func(f *soakFigures) { f.rss += 60 * mebibyte }, "resident memory of the filter, MiB: 40.0 after the warm-up, 100.0 at the end, the bound is 92.0"},
		"goroutines":             {func(f *soakFigures) { f.goroutines = 53 }, "goroutines of the filter: 20.0 "},
		"descriptors":            {func(f *soakFigures) { f.descriptors = 48 }, "open descriptors of the filter: 15.0 "},
		"memory of Envoy":        {func(f *soakFigures) { f.envoy = 32 * mebibyte }, "memory allocated by Envoy, MiB: 10.0 "},
		"a stream that is open":  {func(f *soakFigures) { f.inflight = 1 }, "ext_proc streams of the filter: 0.0 "},
		"a request at Envoy":     {func(f *soakFigures) { f.requests = 1 }, "active requests of Envoy: 0.0 "},
		"a request at an engine": {func(f *soakFigures) { f.engine = 1 }, "running requests of the engine: 0.0 "},
	} {
		after := before
		tt.change(&after)
		got := strings.Join(grown(before, after), "\n")
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestSoakFindsWhatIsNotCounted(t *testing.T) {
	a := soakAccount{
		replies: map[soakReply]int{{"chat", outcomeOK}: 10, {"chat", outcomeFailed}: 2},
		left:    map[string]int{"chat": 3}, begun: map[string]int{"chat": 1},
	}

	for name, tt := range map[string]struct {
		counted map[soakReply]int
		want    string
	}{
		"clients that left, canceled":     {map[soakReply]int{{"chat", outcomeOK}: 10, {"chat", outcomeFailed}: 2, {"chat", outcomeCanceled}: 3}, ""},
		"clients that left too late":      {map[soakReply]int{{"chat", outcomeOK}: 11, {"chat", outcomeFailed}: 2, {"chat", outcomeCanceled}: 1}, ""},
		"one that left was not seen":      {map[soakReply]int{{"chat", outcomeOK}: 10, {"chat", outcomeFailed}: 2, {"chat", outcomeCanceled}: 1}, ""},
		"a request is missing":            {map[soakReply]int{{"chat", outcomeOK}: 9, {"chat", outcomeFailed}: 2, {"chat", outcomeCanceled}: 3}, "chat, ok: the clients count 10, the filter 9"},
		"a failure was counted as ok":     {map[soakReply]int{{"chat", outcomeOK}: 11, {"chat", outcomeFailed}: 1, {"chat", outcomeCanceled}: 3}, "chat, failed: the clients count 2, the filter 1"},
		"more than there were":            {map[soakReply]int{{"chat", outcomeOK}: 10, {"chat", outcomeFailed}: 2, {"chat", outcomeCanceled}: 4}, "chat: the filter counts 4 requests besides"},
		"a reply that began is uncounted": {map[soakReply]int{{"chat", outcomeOK}: 10, {"chat", outcomeFailed}: 2}, "chat: the filter counts 0 requests besides"},
		"another API":                     {map[soakReply]int{{"chat", outcomeOK}: 10, {"chat", outcomeFailed}: 2, {"chat", outcomeCanceled}: 3, {"messages", outcomeOK}: 1}, "messages: the filter counts 1 requests besides"},
	} {
		got := strings.Join(a.differences(tt.counted), "\n")
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
