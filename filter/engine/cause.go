package engine

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// maxCause is how much of a message is read for the log, in bytes.
const maxCause = 600

// knownPhrases are what a cause may contain of a message: fixed texts of Envoy, of TLS
// and of the engines' servers. A space stands for an underscore too.
var knownPhrases = []string{
	// Envoy's local replies, and its reasons why there is no connection.
	"no healthy upstream", "upstream connect error or disconnect/reset before headers",
	"retried and the latest reset reason", "reset reason", "remote connection failure", "local connection failure",
	"connection failure", "connection termination", "connection timeout", "transport failure reason",
	"delayed connect error", "immediate connect error", "remote reset", "local reset",
	"remote refused stream reset", "protocol error", "overflow", "upstream request timeout", "stream timeout",
	"upstream max stream duration reached", "local rate limited", "RBAC: access denied", "no cluster match",
	"cluster not found", "upstream response too large", "buffer limit exceeded",
	// Sockets and names.
	"connection refused", "connection reset by peer", "connection timed out", "no route to host",
	"network is unreachable", "host is unreachable", "broken pipe", "no such file or directory",
	"name or service not known",
	// TLS.
	"TLS error", "SSL routines", "OPENSSL internal", "CERTIFICATE VERIFY FAILED", "WRONG VERSION NUMBER",
	"TLSV1 ALERT UNKNOWN CA", "TLSV1 ALERT PROTOCOL VERSION", "TLSV1 CERTIFICATE REQUIRED",
	"SSLV3 ALERT CERTIFICATE UNKNOWN", "SSLV3 ALERT HANDSHAKE FAILURE", "SSLV3 ALERT BAD CERTIFICATE",
	"HTTP REQUEST", "unable to get local issuer certificate", "certificate has expired", "self-signed certificate",
	"verify cert failed", "verify SAN list", "X509 verify cert",
	// Engines.
	"EngineCore encountered an issue", "See stack trace (above) for the root cause", "EngineDeadError",
	"The server had an error while processing your request",
	"out of memory", "CUDA error", "CUDA", "illegal memory access", "device-side assert triggered", "NCCL",
	"maximum context length", "context length", "out of vocabulary", "out-of-vocab token ids", "does not exist",
	"validation error", "validation errors", "Input should be a valid", "Field required",
	"Extra inputs are not permitted", "failed to parse grammar", "Failed to initialize samplers",
	"failed to compile", "grammar", "structured outputs", "guided decoding", "loading model", "model is overloaded",
	"server is overloaded", "the request queue is full", "queue is full", "timed out", "shutting down",
	"is not supported", "is not allowed", "must be", "greater than", "less than", "got", "<html>", "nginx",
}

// known matches what may be kept of a message: a phrase, the text of an HTTP status, or
// the name of a sampling parameter.
var known = func() *regexp.Regexp {
	phrases := append([]string(nil), knownPhrases...)
	// Servers that say nothing else send the status as text.
	for status := http.StatusBadRequest; status <= http.StatusNetworkAuthenticationRequired; status++ {
		if text := http.StatusText(status); text != "" {
			phrases = append(phrases, text)
		}
	}
	for name := range openAIName {
		phrases = append(phrases, name)
	}
	for i, phrase := range phrases {
		phrases[i] = strings.ReplaceAll(regexp.QuoteMeta(phrase), " ", "[ _]")
	}
	pattern := regexp.MustCompile(`(?i)(?:` + strings.Join(phrases, "|") + `)`)
	// The longest phrase counts, and not the first of the list: many begin with a shorter one.
	pattern.Longest()
	return pattern
}()

var (
	// between is what may stand between two phrases beside other text.
	between = regexp.MustCompile(`^[ _,.:;()]{0,4}$`)
	// knownType is an error object's type as servers spell it.
	knownType = regexp.MustCompile(`^(?:[A-Za-z]{1,40}(?:Error|Exception)|[a-z_]{1,40}_error|` +
		`tokens|requests|grpc-status \d{1,3})$`)
)

// Cause is why an engine, or Envoy in its place, has refused a call. As an error it is for
// every log: the status, the type, and what is known of the text. All other text may be of
// a prompt, token ids, or an address: "…" stands for it.
type Cause struct {
	known string
	// Grammar says that the engine does not compile the grammar of the output.
	Grammar bool
	// Text is the first line of what the engine has said. It may be of a prompt.
	Text string
}

func (c *Cause) Error() string { return c.known }

// cause returns the error for the log.
func (f failure) cause() error {
	// What follows the first line is a traceback.
	line, _, _ := strings.Cut(cmp.Or(f.message, f.text), "\n")
	line = line[:min(len(line), maxCause)]

	known := fmt.Sprintf("engine status %d", f.status)
	if knownType.MatchString(f.kind) || f.kind != "" && f.kind == http.StatusText(f.status) {
		known += " " + f.kind
	}
	if line != "" {
		known += ": " + masked(line)
	}
	return &Cause{known: known, Grammar: f.grammarFault() != "", Text: strings.ToValidUTF8(line, "")}
}

// masked returns the known phrases of a text, with "…" for all else.
func masked(text string) string {
	const gap = "…"
	var b strings.Builder
	end := 0
	rest := func(part string, inside bool) {
		// Between two phrases punctuation stays, so that the line reads as it was written.
		if inside && between.MatchString(part) || part == "" {
			b.WriteString(part)
		} else if !strings.HasSuffix(b.String(), gap) {
			b.WriteString(gap)
		}
	}

	for _, m := range known.FindAllStringIndex(text, -1) {
		if !word(text, m[0], m[1]) {
			continue
		}
		rest(text[end:m[0]], end > 0)
		b.WriteString(text[m[0]:m[1]])
		end = m[1]
	}
	rest(text[end:], end > 0)
	return b.String()
}

// word reports whether the part of a text from start to end does not begin or end
// within a word.
func word(text string, start, end int) bool {
	letter := func(i int) bool {
		if i < 0 || i >= len(text) {
			return false
		}
		c := text[i] | 0x20
		return 'a' <= c && c <= 'z' || text[i] >= 0x80
	}
	within := letter(start) && letter(start-1) || letter(end-1) && letter(end)
	return !within
}
