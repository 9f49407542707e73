package tools

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

const (
	maxHeaders     = 32
	maxHeaderBlock = 16 << 10
)

// ownHeaders are headers that belong to HTTP or to MCP. With an idempotency key
// Go would send a request again whose answer got lost.
var ownHeaders = map[string]bool{
	"accept": true, "accept-encoding": true, "connection": true, "content-encoding": true, "content-length": true,
	"content-type": true, "expect": true, "host": true, "idempotency-key": true, "keep-alive": true,
	"last-event-id": true, "proxy-authenticate": true, "proxy-authorization": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true, "x-idempotency-key": true,
}

// CheckHeader tells why headers may not be sent to a server: names or values that
// HTTP does not allow, headers that are the filter's to set, or too many of them.
// Its error names the header and never has its value.
func CheckHeader(h http.Header) error {
	count, size := 0, 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		lower := strings.ToLower(name)
		switch {
		case !isToken(name):
			return fmt.Errorf("%.80q is no name of an HTTP header", name)
		case ownHeaders[lower] || strings.HasPrefix(lower, "mcp-"):
			return fmt.Errorf("the header %.80q cannot be set: leave it out", name)
		}
		for _, value := range h[name] {
			if !isFieldValue(value) {
				return fmt.Errorf("the value of the header %.80q has a character that HTTP does not allow", name)
			}
			count++
			size += len(name) + len(value)
		}
	}
	if count > maxHeaders || size > maxHeaderBlock {
		return errors.New("the headers are too many: at most 32 with 16384 bytes together")
	}
	return nil
}

// AddHeader adds headers of a request to those that the server gets. A configured
// server gets only those that RequestHeaders has, and keeps its own. The error
// names the header, and says what to change.
func (s *Server) AddHeader(h http.Header) error {
	if len(h) == 0 {
		return nil
	}
	if s.isProcess() {
		return fmt.Errorf("the MCP server %q is a process, which gets no headers: leave them out", s.Label)
	}
	if err := CheckHeader(h); err != nil {
		return err
	}
	header := s.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if s.Trusted && !slices.Contains(s.RequestHeaders, name) {
			return fmt.Errorf("the MCP server %q does not get the header %.80q of requests: leave it out; the operator can add it to tools.servers[].request_headers", s.Label, name)
		}
		if _, own := header[name]; !own || !s.Trusted {
			header[name] = h[name]
		}
	}
	s.Header = header
	return nil
}

// isToken tells whether text is a token as RFC 9110 has it.
func isToken(text string) bool {
	for _, c := range []byte(text) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}

// isFieldValue tells whether text may be a header's value.
func isFieldValue(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// addHeader adds a server's own headers to a request.
func addHeader(to, from http.Header) {
	for name, values := range from {
		to[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
}
