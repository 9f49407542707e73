package envoy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// anyOrigin is the entry of Options.CORSOrigins that stands for all origins.
const anyOrigin = "*"

var originPattern = regexp.MustCompile(`^https?://[A-Za-z0-9.*-]+(:(\d+|\*))?$`)

// checkOrigins returns an error that names each entry that is no origin.
func checkOrigins(origins []string) error {
	var errs []error
	for _, o := range origins {
		if o != anyOrigin && !originPattern.MatchString(o) {
			errs = append(errs, fmt.Errorf("CORS: %q is no origin: write scheme, host and port only, such as "+
				"https://app.example.com or http://localhost:*", o))
		}
	}
	return errors.Join(errs...)
}

// originMatcher returns Envoy's StringMatcher of an origin. A * matches what names and
// ports consist of, so that no other host can follow.
func originMatcher(origin string) (string, error) {
	if origin == anyOrigin || !strings.Contains(origin, "*") {
		text, err := quote(origin)
		return "{exact: " + text + "}", err
	}
	text, err := quote(strings.ReplaceAll(regexp.QuoteMeta(origin), `\*`, `[A-Za-z0-9.-]+`))
	return "{safe_regex: {regex: " + text + "}}", err
}

// allowedOrigin returns a header's value in Envoy's format: then, in CEL, if a request comes
// from one of the origins; else nothing, which adds no header.
func allowedOrigin(origins []string, then string) string {
	conditions := make([]string, len(origins))
	for i, o := range origins {
		switch {
		case o == anyOrigin:
			conditions[i] = "true"
		case strings.Contains(o, "*"):
			// A class in place of a backslash, which CEL's strings would take for themselves.
			pattern := strings.ReplaceAll(strings.ReplaceAll(o, ".", "[.]"), "*", "[A-Za-z0-9.-]+")
			// Anchored, unlike Envoy's own matchers, which match the whole text: CEL looks for the pattern anywhere.
			conditions[i] = "request.headers['origin'].matches('^" + pattern + "$')"
		default:
			conditions[i] = "request.headers['origin'] == '" + o + "'"
		}
	}
	return "%CEL('origin' in request.headers && (" + strings.Join(conditions, " || ") + ") ? " + then + " : '')%"
}

// exposedHeaders are the response headers that scripts of other origins can read: those
// that explain a reply, and those by which clients name and repeat requests.
func exposedHeaders() string {
	return strings.Join(slices.Concat(header.Explanations(), []string{
		"x-request-id", "request-id", "retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
		"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
		"anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining",
		"anthropic-ratelimit-tokens-reset", "x-should-retry",
	}), ", ")
}
