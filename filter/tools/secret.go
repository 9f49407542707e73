package tools

import (
	"cmp"
	"errors"
	"net/url"
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
	// maxSecretWords bounds the words that are secrets by themselves: of the headers of
	// requests, and of the URL's query.
	maxSecretWords = 64
	hidden         = "[hidden]"
)

// redact limits a text to maxQuoteBytes, and replaces the server's secrets in it:
// values of headers and environment variables, the path and query of the URL, and
// those in more.
func (s *Server) redact(text string, more ...string) string {
	text, longer := s.mask(minSecretBytes, append(s.pathAndQuery(), more...)...).hideBeginning(text, maxQuoteBytes)
	if longer {
		text += "…"
	}
	return clip(text)
}

// mask returns a mask of all spellings of the secrets that have at least so many
// bytes: values of headers and environment variables, and those in more. The words of
// the headers, such as a token after Bearer, are secrets by themselves: all of those
// of the configuration, and the maxSecretWords longest ones of those of the request.
func (s *Server) mask(least int, more ...string) *mask {
	secrets, words := more, []string(nil)
	for name, values := range s.Header {
		for _, value := range values {
			secrets = append(secrets, value)
			if s.Trusted && !slices.Contains(s.Added, name) {
				secrets = append(secrets, strings.Fields(value)...)
			} else {
				words = append(words, strings.Fields(value)...)
			}
		}
	}

	for _, value := range s.Env {
		secrets = append(secrets, value)
	}

	// Errors quote a value as it is, in a URL, or as a Go string.
	var spellings []string
	for _, secret := range append(secrets, longest(words, maxSecretWords)...) {
		if len(secret) < least || strings.EqualFold(secret, "bearer") || strings.EqualFold(secret, "basic") {
			continue
		}
		spellings = append(spellings, secret, url.QueryEscape(secret), strings.Trim(strconv.Quote(secret), `"`))
	}
	return newMask(spellings)
}

// longest returns the n longest words.
func longest(words []string, n int) []string {
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	words = slices.Compact(words)
	return words[:min(len(words), n)]
}

// pathAndQuery returns the path and the query of the server's URL, which can be
// secret.
func (s *Server) pathAndQuery() (parts []string) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" {
		return nil
	}
	return append(s.queryValues(), strings.TrimPrefix(u.RequestURI(), "/"))
}

// queryValues returns the values of the query of the server's URL, such as keys. A
// tool list and a result may have the path, which is part of ordinary links.
func (s *Server) queryValues() []string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil
	}
	var words []string
	for _, values := range u.Query() {
		words = append(words, values...)
	}
	return longest(words, maxSecretWords)
}

// redactError returns an error for the log: its text, bounded and without secrets.
func (s *Server) redactError(err error, more ...string) error {
	return errors.New(s.redact(err.Error(), more...))
}

// quote returns a server's text for clients and models, bounded and without
// secrets.
func (s *session) quote(text string) string {
	if text = s.server.redact(text, s.id()); text == "" {
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
