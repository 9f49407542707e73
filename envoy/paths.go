package envoy

import (
	"slices"
	"strings"
)

// completionsPath is an engine's API of plain prompts and token ids. The filter
// rejects Harmony models there.
const completionsPath = "/v1/completions"

// filteredPaths are the paths that the filter serves. The list of models, which needs
// a loopback listener, has a route of its own.
var filteredPaths = slices.Concat([]string{
	"/v1/chat/completions", "/v1/chat/completions/render", "/v1/chat/completions/derender", "/v1/responses/*",
	"/v1/messages/*", "/v1/conversations/*",
}, openable)

// openable are the filter's paths that OpenPaths can give to the upstream: engines have
// them too.
var openable = []string{completionsPath, "/tokenize", "/detokenize"}

// openPaths are the paths of the upstream that are open by default, of OpenAI's API
// and of engines: they run no Harmony model and change nothing of an engine.
var openPaths = []string{
	"/v1/embeddings", "/v1/audio/*", "/v1/images/*", "/v1/moderations", "/v1/files/*", "/v1/uploads/*",
	"/v1/vector_stores/*",
	"/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/health",
}

// OpenPaths returns the paths of the upstream that are open by default, beside those of
// the filter and /v1/models. One that ends with /* stands for all below it, too.
func OpenPaths() []string { return slices.Clone(openPaths) }

// routes returns the matches of the routes on which the filter is enabled, and of
// those that lead past it to the upstream.
func (o Options) routes() (filtered, open []string) {
	for _, path := range filteredPaths {
		if !slices.Contains(openable, path) || !o.opens(path) {
			filtered = append(filtered, matchOf(path))
		}
	}
	// The filter asks engines for their models through that listener. Else the list is the upstream's.
	if o.Loopback == "" {
		open = append(open, matchOf("/v1/models/*")+", "+readsOnly)
	}
	for _, path := range slices.Concat(openPaths, o.OpenPaths) {
		if match := matchOf(path); !slices.Contains(open, match) {
			open = append(open, match)
		}
	}
	return filtered, open
}

// readsOnly is the part of a match that excludes changes.
const readsOnly = `headers: [{name: ":method", string_match: {safe_regex: {regex: "GET|HEAD|OPTIONS"}}}]`

// opens reports whether OpenPaths has a path.
func (o Options) opens(path string) bool {
	return slices.ContainsFunc(o.OpenPaths, func(entry string) bool {
		prefix, below := strings.CutSuffix(entry, "/*")
		return path == prefix || below && strings.HasPrefix(path, prefix+"/")
	})
}

// matchOf returns the match of a route in YAML, without its braces.
func matchOf(path string) string {
	quoted, err := quote(strings.TrimSuffix(path, "/*"))
	switch {
	case err != nil: // a string always has a JSON form
		return ""
	case path == "/*":
		// Envoy refuses a path_separated_prefix that ends with a slash.
		return "prefix: /"
	case strings.HasSuffix(path, "/*"):
		return "path_separated_prefix: " + quoted
	}
	return "path: " + quoted
}
