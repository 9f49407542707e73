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
	// minSecretBytes is the least length of a value that is redacted in texts. Shorter
	// values such as "1" are part of ordinary text.
	minSecretBytes = 4
	// minSecretBytesInResults is the same for tool lists and results. It is higher so
	// that settings such as "true" stay in the server's content.
	minSecretBytesInResults = 8
	hidden                  = "[hidden]"
)

// redact replaces the server's secrets in a text: values of headers and environment
// variables, the path and query of the URL, and those in more.
func (s *Server) redact(text string, more ...string) string {
	return hide(text, s.secrets(minSecretBytes, append(s.pathAndQuery(), more...)...))
}

// secrets returns all spellings of the secrets that have at least so many bytes:
// values of headers and environment variables, and those in more. Longer ones come
// first, because a secret may contain another.
func (s *Server) secrets(least int, more ...string) (spellings []string) {
	secrets := more
	for _, values := range s.Header {
		for _, value := range values {
			secrets = append(secrets, value)
			secrets = append(secrets, strings.Fields(value)...) // the value without its scheme, such as Bearer
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

// pathAndQuery returns the path and the query of the server's URL, which can be
// secret.
func (s *Server) pathAndQuery() (parts []string) {
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

// hide replaces each of the secrets in a text.
func hide(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// hideJSON replaces secrets in the strings of a JSON value.
func hideJSON(raw json.RawMessage, secrets []string) json.RawMessage {
	if len(secrets) == 0 {
		return raw
	}
	return jsonString.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		var text string
		if json.Unmarshal(quoted, &text) != nil {
			return quoted
		}
		redacted := hide(text, secrets)
		if redacted == text {
			return quoted
		}
		quoted, _ = json.Marshal(redacted) // marshaling a string cannot fail
		return quoted
	})
}

// redactError returns an error for the log: its text, bounded and without secrets.
func (s *Server) redactError(err error, more ...string) error {
	return errors.New(clip(s.redact(err.Error(), more...)))
}

// quote returns a server's text for clients and models, bounded and without
// secrets.
func (s *session) quote(text string) string {
	if text = clip(s.server.redact(text, s.id())); text == "" {
		return "(no message)"
	}
	return text
}

// clip limits a server's text to maxQuoteBytes.
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
