package inspect

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// ofCall are the request headers that a client of its own sets, or that Envoy adds.
var ofCall = []string{
	"accept-encoding", "content-length", "host", "user-agent", "x-forwarded-for", "x-forwarded-proto",
	"x-request-id", "x-envoy-expected-rq-timeout-ms",
}

// Curl returns a command for a shell that sends the request of a record again. base is the
// scheme and the host, such as http://127.0.0.1:10000. Records have the values of few headers,
// and no credentials: the command has to be completed by them.
func Curl(r *record.Record, base string) string {
	words := []string{"curl", "-sS"}
	if strings.Contains(r.Request.Body.String(), `"stream"`) {
		words = append(words, "-N")
	}
	if r.Request.Method != http.MethodPost && r.Request.Method != http.MethodGet {
		words = append(words, "-X", r.Request.Method)
	}

	// Headers in their order by name, so that the command is the same each time.
	words = append(words, quoted(strings.TrimSuffix(base, "/")+r.Request.Path))
	typed := false
	for _, name := range slices.Sorted(maps.Keys(r.Request.Header)) {
		if strings.HasPrefix(name, ":") || slices.Contains(ofCall, name) || r.Request.Header[name] == record.Hidden {
			continue
		}
		typed = typed || name == "content-type"
		words = append(words, "-H", quoted(name+": "+r.Request.Header[name]))
	}

	if len(r.Request.Body.Bytes()) > 0 {
		// Without it curl sends a form.
		if !typed {
			words = append(words, "-H", quoted("content-type: application/json"))
		}
		words = append(words, "--data-binary", quoted(r.Request.Body.String()))
	}

	return strings.Join(words, " ")
}

// quoted is a text as one word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
