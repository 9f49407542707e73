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

// Limits on the headers that a request may set.
const (
	maxHeaders     = 32
	maxHeaderBlock = 16 << 10 // bytes of names and values
)

// reservedHeaders are headers that belong to HTTP or to MCP. Idempotency keys are
// among them because with one net/http sends a request again after a lost response.
var reservedHeaders = map[string]bool{
	"accept": true, "accept-encoding": true, "connection": true, "content-encoding": true, "content-length": true,
	"content-type": true, "expect": true, "host": true, "idempotency-key": true, "keep-alive": true,
	"last-event-id": true, "proxy-authenticate": true, "proxy-authorization": true, "proxy-connection": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true, "x-idempotency-key": true,
}

// CheckHeader returns an error if headers may not be sent to a server: HTTP does
// not allow a name or a value, a header is set by the filter itself, or the headers
// exceed 32 values or 16384 bytes. The error names the header and never contains
// its value.
func CheckHeader(header http.Header) error {
	count, size := 0, 0

	for _, name := range slices.Sorted(maps.Keys(header)) {
		lower := strings.ToLower(name)
		switch {
		case !isToken(name):
			return fmt.Errorf("%.80q is not a valid HTTP header name", name)
		case reservedHeaders[lower] || strings.HasPrefix(lower, "mcp-"):
			return fmt.Errorf("the header %.80q cannot be set by requests: leave it out", name)
		}

		for _, value := range header[name] {
			if !isFieldValue(value) {
				return fmt.Errorf("the value of the header %.80q contains a character that HTTP does not allow", name)
			}
			count++
			size += len(name) + len(value)
		}
	}

	if count > maxHeaders || size > maxHeaderBlock {
		return errors.New("too many headers: at most 32 values with 16384 bytes in total are allowed")
	}
	return nil
}

// AddHeader adds headers of a request to those that the filter sends to the server.
// A configured server accepts only the names in RequestHeaders, and its own values
// win. The error names the header and states what to change.
func (s *Server) AddHeader(asked http.Header) error {
	if len(asked) == 0 {
		return nil
	}

	if s.isProcess() {
		return fmt.Errorf("the MCP server %q is a process and takes no headers: leave them out", s.Label)
	}
	if err := CheckHeader(asked); err != nil {
		return err
	}

	header := s.Header.Clone()
	if header == nil {
		header = http.Header{}
	}

	// In the order of their names, so that an error names the same header each time.
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if s.Trusted && !slices.Contains(s.RequestHeaders, name) {
			return fmt.Errorf(
				"the MCP server %q does not accept the header %.80q from requests: leave it out, or have the "+
					"operator add it to tools.servers[].request_headers", s.Label, name)
		}

		if _, own := header[name]; !own || !s.Trusted {
			header[name] = asked[name]
			s.Added = append(s.Added, name)
		}
	}
	s.Header = header
	return nil
}

// isToken reports whether text is a token (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	for _, c := range []byte(text) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}

// isFieldValue reports whether text is allowed as a header value.
func isFieldValue(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// setHeaders sets a server's own headers on a request.
func setHeaders(to, from http.Header) {
	for name, values := range from {
		to[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
}
