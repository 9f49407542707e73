package messages

import (
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// limitHeaders says what is left of a token budget in the headers of Anthropic's API.
func limitHeaders(l *apierror.TokenLimit, now time.Time) []engine.Header {
	// The time has whole seconds: rounded down, a client would come back too early.
	reset := now.Add(l.Reset).UTC().Truncate(time.Second).Add(time.Second)

	return []engine.Header{
		{Name: "anthropic-ratelimit-tokens-limit", Value: strconv.FormatInt(l.Limit, 10)},
		{Name: "anthropic-ratelimit-tokens-remaining", Value: strconv.FormatInt(l.Remaining, 10)},
		{Name: "anthropic-ratelimit-tokens-reset", Value: reset.Format(time.RFC3339)},
	}
}
