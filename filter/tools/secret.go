package tools

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxQuoteBytes = 2 << 10
	// leastSecret is how long a value must be to be hidden in texts: shorter
	// ones are words like "1" that stand everywhere.
	leastSecret = 4
	// leastGiven is the same for tools and what they give: they are the work of
	// the server, in which a setting such as "true" has to stay.
	leastGiven = 8
	hidden     = "[hidden]"
)

// redact hides the server's secrets in a text: values of headers and of the
// environment, the URL's path and query, and the more that are given.
func (s *Server) redact(text string, more ...string) string {
	return hide(text, s.secrets(leastSecret, append(s.place(), more...)...))
}

// secrets are the values of headers and of the environment that have at least so
// many bytes, and the more that are given, in every spelling. Longer ones come
// first, for a secret may hold another.
func (s *Server) secrets(least int, more ...string) (spellings []string) {
	secrets := more
	for _, values := range s.Header {
		for _, value := range values {
			secrets = append(secrets, value)
			secrets = append(secrets, strings.Fields(value)...) // without its scheme, such as Bearer
		}
	}
	for _, value := range s.Env {
		secrets = append(secrets, value)
	}
	for _, secret := range secrets {
		if len(secret) < least || strings.EqualFold(secret, "bearer") || strings.EqualFold(secret, "basic") {
			continue
		}
		spellings = append(spellings, secret, url.QueryEscape(secret), strings.Trim(strconv.Quote(secret), `"`))
	}
	slices.SortFunc(spellings, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(spellings)
}

// place is the path and the query of the server's URL, which can be secret too.
func (s *Server) place() (parts []string) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" {
		return nil
	}
	parts = []string{strings.TrimPrefix(u.RequestURI(), "/")}
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	return parts
}

func hide(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// hideJSON hides secrets in the strings of a JSON value.
func hideJSON(raw json.RawMessage, secrets []string) json.RawMessage {
	if len(secrets) == 0 {
		return raw
	}
	return jsonString.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		var text string
		if json.Unmarshal(quoted, &text) != nil {
			return quoted
		}
		safe := hide(text, secrets)
		if safe == text {
			return quoted
		}
		quoted, _ = json.Marshal(safe) // a string always has a JSON
		return quoted
	})
}

// safe is an error for the log: its text only, bounded and without secrets.
func (s *Server) safe(err error, more ...string) error {
	return errors.New(clip(s.redact(err.Error(), more...)))
}

// quote is a server's text for clients and models, bounded and without secrets.
func (s *session) quote(text string) string {
	if text = clip(s.server.redact(text, s.id())); text == "" {
		return "(no message)"
	}
	return text
}

// clip bounds a text of a server's.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxQuoteBytes {
		return text
	}
	end := maxQuoteBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
